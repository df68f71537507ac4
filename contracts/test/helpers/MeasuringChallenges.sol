// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Measuring} from "./Measuring.sol";

/// @notice What node challenges cost.
contract MeasuringChallenges is Measuring {
    uint256 private constant MOST_FILES = 256;

    /// @dev Node challenges: by one file and by sixteen, refuted; and by as many as a challenge may name, upheld.
    function _challengeCosts(string memory s) internal {
        address op = account(string.concat("accused op", s));
        address n = _register(op, string.concat("accused", s), STAKE);
        _give(account("accuser"), address(nodeChallenges), 1_000e9);
        _give(op, address(stakes), 1); // the compensation finds an account in use
        vm.prank(n);
        pools.join(pool, n, type(uint256).max, "", "");
        _step();
        uint256[] memory sequences = new uint256[](MOST_FILES);
        for (uint256 i = 0; i < MOST_FILES; ++i) {
            sequences[i] = i % 16 == 0 ? _submitLaneFrom(n, 10, 16) : sequences[i - 1] + 1;
            if (i % 16 == 0) _voteAll(sequences[i] / 16, Codes.ACCEPT);
        }
        _passWindow();
        (uint256 opening,, uint256 ending) = _challengeGas(n, _last(sequences, 1), Codes.ACCEPT);
        _note(string.concat("challenge_open_one", s), opening);
        _note(string.concat("challenge_refuted", s), ending);
        (opening,,) = _challengeGas(n, _last(sequences, 16), Codes.ACCEPT);
        _note(string.concat("challenge_open_16", s), opening);
        uint256 judging;
        (opening, judging, ending) = _challengeGas(n, sequences, Codes.REJECT_WEIGHTS);
        _note(string.concat("challenge_open_256", s), opening);
        _note(string.concat("challenge_jury", s), judging);
        _note(string.concat("challenge_upheld", s), ending);
        _blocks(4);
    }

    function _last(uint256[] memory all, uint256 count) private pure returns (uint256[] memory some) {
        some = new uint256[](count);
        for (uint256 i = 0; i < count; ++i) {
            some[i] = all[all.length - count + i];
        }
    }

    /// @dev The gas of a challenge's opening, of its jury's draw and votes, and of its verdict
    /// and its end.
    function _challengeGas(address n, uint256[] memory sequences, uint256 code)
        internal
        returns (uint256 opening, uint256 judging, uint256 ending)
    {
        bytes32[] memory inners = new bytes32[](sequences.length);
        for (uint256 i = 0; i < inners.length; ++i) {
            inners[i] = _inner(sequences[i]);
        }
        vm.prank(account("accuser"));
        uint256 opened = nodeChallenges.open(pool, n, sequences, inners, keccak256("evidence"));
        opening = _used();
        uint256 trial = nodeChallenges.challengeOf(opened).trial;
        _blocks(juries.caseOf(trial).seedBlock + 1 - height);
        vm.roll(height + EPOCH);
        juries.draw(trial);
        judging = _used();
        vm.roll(height);
        (uint256[] memory jurors, address[] memory voters,,) = juries.juryOf(trial);
        for (uint256 i = 0; i < jurors.length; ++i) {
            bytes32 hash = juries.ballotHash(trial, voters[i], code, keccak256("verdict"), keccak256("salt"));
            vm.prank(voters[i]);
            juries.commit(trial, i, hash);
            judging += _used();
        }
        for (uint256 i = 0; i < jurors.length; ++i) {
            vm.prank(voters[i]);
            juries.reveal(trial, i, code, keccak256("verdict"), keccak256("salt"));
            judging += _used();
        }
        nodeChallenges.conclude(opened);
        ending = _used();
        _wait(defaultTerms().appealWindow);
        nodeChallenges.conclude(opened);
        ending += _used();
        _wait(defaultTerms().challengeWindow); // an acquittal protects for as long
    }
}
