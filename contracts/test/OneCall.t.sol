// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {FileRef} from "../src/libraries/Types.sol";
import {Voting} from "../src/libraries/Voting.sol";
import {Network} from "./helpers/Network.sol";
import {ICourt} from "./interfaces/ICourt.sol";

/// @notice Who is the last to commit may reveal in the same call, in committees and juries, and nobody else may.
contract OneCallTest is Network {
    bytes32 internal constant VERDICT = keccak256("verdict");
    bytes32 internal constant SALT = keccak256("salt");

    function _voters() internal returns (address[] memory voters) {
        _submit();
        _draw(0, 0);
        (, voters,,) = court.committeeOf(pool, 0, 0);
    }

    function _voteAlone(address voter, uint256 member, uint256 codes) internal {
        vm.prank(voter);
        court.vote(pool, 0, 0, member, codes, VERDICT);
    }

    function test_lastMemberVotesInOneCall() public {
        address[] memory voters = _voters();
        _commit(0, 0, 0, _all(1));
        _commit(0, 0, 1, _all(1));
        _voteAlone(voters[2], 2, _all(2));
        assertTrue(_hasRevealed(0, 0, 2));
        assertEq(uint256(_ballot(0, 0, 2)), _all(2));
        _reveal(0, 0, 0, _all(1));
        FileRef[] memory refs = _refs(0);
        vm.prank(voters[1]);
        court.revealAndSettle(pool, 0, 0, ICourt.Opening(1, _all(1), VERDICT, SALT), refs);
        _unpack(0);
        assertEq(_code(0), Codes.ACCEPT);
        _passWindow();
        _closeAll(0, 0);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(token.balanceOf(_seatOwner(_round(pool, 0, 0).seats[i])), FEE);
        }
        assertEq(_claim(0), 1_000 * 1e6);
    }

    /// Until all others are bound by a commitment nothing can be shown that they could copy.
    function test_onlyTheLastMemberVotesInOneCall() public {
        address[] memory voters = _voters();
        uint256 opens = _round(pool, 0, 0).time + 60;
        bytes memory early = abi.encodeWithSelector(Voting.RevealNotOpen.selector, opens);
        vm.expectRevert(early);
        _voteAlone(voters[0], 0, _all(1));
        _commit(0, 0, 0, _all(1));
        vm.expectRevert(early);
        _voteAlone(voters[1], 1, _all(1));
        assertEq(_ballot(0, 0, 1), bytes32(0)); // refused whole
        _commit(0, 0, 1, _all(1));
        vm.expectRevert(Voting.AlreadyCommitted.selector);
        _voteAlone(voters[1], 1, _all(3));
        vm.expectRevert(Voting.NotVoter.selector);
        _voteAlone(stranger, 2, _all(1));
        vm.expectRevert(Voting.NotVoter.selector);
        _voteAlone(voters[0], 2, _all(1));
        vm.expectRevert(Voting.WrongReveal.selector);
        _voteAlone(voters[2], 2, 1 << 64);
        _wait(60);
        vm.expectRevert(abi.encodeWithSelector(Voting.CommitOver.selector, opens));
        _voteAlone(voters[2], 2, _all(1));
    }

    function _juror(uint256 trial, uint256 juror, uint256 code) internal {
        (, address[] memory voters,,) = juries.juryOf(trial);
        bytes32 hash = juries.ballotHash(trial, voters[juror], code, VERDICT, SALT);
        vm.prank(voters[juror]);
        juries.commit(trial, juror, hash);
    }

    function test_lastJurorVotesInOneCall() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256 trial = _dispute(operator, s);
        _blocks(3);
        _drawTrial(trial);
        (uint256[] memory jurors, address[] memory voters,,) = juries.juryOf(trial);
        for (uint256 i = 0; i < 4; ++i) {
            vm.expectRevert(abi.encodeWithSelector(Voting.RevealNotOpen.selector, clock + 60));
            vm.prank(voters[4]);
            juries.vote(trial, 4, Codes.ACCEPT, VERDICT, SALT);
            _juror(trial, i, Codes.ACCEPT);
        }
        vm.prank(voters[4]);
        juries.vote(trial, 4, Codes.ACCEPT, VERDICT, SALT);
        assertEq(_jurorVote(trial, 4), Codes.ACCEPT);
        for (uint256 i = 0; i < 4; ++i) {
            vm.prank(voters[i]);
            juries.reveal(trial, i, Codes.ACCEPT, VERDICT, SALT);
        }
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        juries.closeJuror(trial, 4);
        assertEq(token.balanceOf(_seatOwner(jurors[4])), 5e8);
    }
}
