// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Voting} from "../../src/libraries/Voting.sol";
import {Network} from "../helpers/Network.sol";

/// @notice A ballot counts once, for the vote and the voter it was made for.
contract BallotAttacksTest is Network {
    function test_voteCopying() public {
        _submit();
        _draw(0, 0);
        (, address[] memory voters,,) = court.committeeOf(pool, 0, 0);
        bytes32 hash = _ballotHash(pool, 0, 0, voters[0], _all(1), keccak256("verdict"), keccak256("salt"));
        vm.prank(voters[0]);
        court.commit(pool, 0, 0, 0, hash);
        vm.prank(voters[1]);
        court.commit(pool, 0, 0, 1, hash); // a copied commitment
        _commit(0, 0, 2, _all(1));
        _reveal(0, 0, 0, _all(1));
        vm.expectRevert(Voting.WrongReveal.selector);
        vm.prank(voters[1]);
        court.reveal(pool, 0, 0, 1, _all(1), keccak256("verdict"), keccak256("salt"));
        // nor can a vote be revealed by somebody else
        vm.expectRevert(Voting.WrongReveal.selector);
        court.reveal(pool, 0, 0, 2, _all(1), keccak256("verdict"), keccak256("salt"));
    }

    /// A ballot made for another chain, court, lane, round or member's key opens nothing here.
    function test_ballotsAreBoundToOneVote() public {
        _submit();
        _draw(0, 0);
        (, address[] memory voters,,) = court.committeeOf(pool, 0, 0);
        bytes32 v = keccak256("verdict");
        bytes32 salt = keccak256("salt");
        bytes32[6] memory foreign = [
            keccak256(abi.encode(uint256(999), address(court), pool, 0, 0, voters[0], _all(1), v, salt)),
            keccak256(abi.encode(block.chainid, address(juries), pool, 0, 0, voters[0], _all(1), v, salt)),
            keccak256(abi.encode(block.chainid, address(court), pool + 1, 0, 0, voters[0], _all(1), v, salt)),
            keccak256(abi.encode(block.chainid, address(court), pool, 1, 0, voters[0], _all(1), v, salt)),
            keccak256(abi.encode(block.chainid, address(court), pool, 0, 1, voters[0], _all(1), v, salt)),
            keccak256(abi.encode(block.chainid, address(court), pool, 0, 0, voters[1], _all(1), v, salt))
        ];
        for (uint256 i = 0; i < 6; ++i) {
            uint256 before = vm.snapshot();
            vm.prank(voters[0]);
            court.commit(pool, 0, 0, 0, foreign[i]);
            vm.warp(clock + 60);
            vm.expectRevert(Voting.WrongReveal.selector);
            vm.prank(voters[0]);
            court.reveal(pool, 0, 0, 0, _all(1), v, salt);
            vm.revertTo(before);
        }
        vm.prank(voters[0]);
        court.commit(
            pool, 0, 0, 0, keccak256(abi.encode(block.chainid, address(court), pool, 0, 0, voters[0], _all(1), v, salt))
        );
        _wait(60);
        vm.prank(voters[0]);
        court.reveal(pool, 0, 0, 0, _all(1), v, salt);
        assertTrue(_hasRevealed(0, 0, 0));
        assertEq(uint256(_ballot(0, 0, 0)), _all(1));
    }

    function test_jurorsBallotsAreBoundToOneVote() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _blocks(3);
        _drawTrial(trial);
        (, address[] memory voters,,) = juries.juryOf(trial);
        bytes32 v = keccak256("verdict");
        bytes32 salt = keccak256("salt");
        bytes32[4] memory foreign = [
            keccak256(abi.encode(uint256(999), address(juries), trial, voters[0], 1, v, salt)),
            keccak256(abi.encode(block.chainid, address(court), trial, voters[0], 1, v, salt)),
            keccak256(abi.encode(block.chainid, address(juries), trial + 1, voters[0], 1, v, salt)),
            keccak256(abi.encode(block.chainid, address(juries), trial, voters[1], 1, v, salt))
        ];
        for (uint256 i = 0; i < 4; ++i) {
            uint256 before = vm.snapshot();
            vm.prank(voters[0]);
            juries.commit(trial, 0, foreign[i]);
            vm.warp(clock + 60);
            vm.expectRevert(Voting.WrongReveal.selector);
            vm.prank(voters[0]);
            juries.reveal(trial, 0, 1, v, salt);
            vm.revertTo(before);
        }
        vm.prank(voters[0]);
        juries.commit(trial, 0, keccak256(abi.encode(block.chainid, address(juries), trial, voters[0], 1, v, salt)));
        _wait(60);
        vm.prank(voters[0]);
        juries.reveal(trial, 0, 1, v, salt);
        assertEq(_jurorVote(trial, 0), 1);
    }
}
