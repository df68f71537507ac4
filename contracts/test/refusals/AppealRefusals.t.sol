// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData} from "../../src/libraries/Types.sol";
import {Voting} from "../../src/libraries/Voting.sol";
import {Refusing} from "../helpers/Refusing.sol";
import {IAppeals} from "../interfaces/IAppeals.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {IPools} from "../interfaces/IPools.sol";

/// @notice Juries and Appeals say no, with the right error, to who may not make a call or at the wrong time.
contract AppealRefusalsTest is Refusing {
    function test_appeals() public {
        address a = address(appeals);
        uint256 s = _submit();
        FileData memory f = files[pool][s];
        _no(stranger, a, abi.encodeCall(appeals.conclude, (pool, s, f)), IAppeals.NoDispute.selector);
        _no(stranger, a, abi.encodeCall(appeals.dispute, (pool, s, f)), IPools.WrongFile.selector);
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        FileData memory g = files[pool][s];
        _no(stranger, a, abi.encodeCall(appeals.dispute, (pool, s, g)), IPools.WrongPhase.selector);
        _no(stranger, address(juries), abi.encodeCall(juries.appeal, (trial)), IJuries.NoAppeal.selector);
        _no(stranger, a, abi.encodeCall(appeals.conclude, (pool, s, f)), IJuries.Undecided.selector);
        _passWindow();
        _no(stranger, address(court), abi.encodeCall(court.closeCommittee, (pool, 0, 0)), ICourt.NotYet.selector);
        uint256 before = token.balanceOf(operator);
        _juryVotes(trial, Codes.UNSURE);
        _conclude(s);
        assertEq(token.balanceOf(operator) - before, 5e9); // compensation for the delay
        _no(stranger, a, abi.encodeCall(appeals.conclude, (pool, s, f)), IAppeals.AlreadyConcluded.selector);
        _claim(s);
    }

    function test_juries() public {
        address j = address(juries);
        uint256[] memory none;
        _no(stranger, j, abi.encodeCall(juries.summon, (1, 1, 1, none, stranger)), IJuries.NotPermitted.selector);
        _no(stranger, j, abi.encodeCall(juries.draw, (9)), IJuries.NoSuchTrial.selector);
        uint256 s = _submit();
        _voteAll(0, 3);
        uint256 trial = _dispute(operator, s);
        _no(stranger, j, abi.encodeCall(juries.draw, (trial)), Voting.DrawNotOpen.selector);
        _no(stranger, j, abi.encodeCall(juries.commit, (trial, 0, 0)), Voting.SeedNotMined.selector);
        _no(stranger, j, abi.encodeCall(juries.judge, (trial, 1)), IJuries.NotPermitted.selector);
        _no(stranger, j, abi.encodeCall(juries.pay, (trial, 1)), IJuries.NotPermitted.selector);
        _no(stranger, j, abi.encodeCall(juries.closeJuror, (trial, 0)), IJuries.NotConcluded.selector);
        _no(stranger, j, abi.encodeCall(juries.reveal, (trial, 0, 1, 0, 0)), Voting.NotDrawn.selector);
        (bool done,) = juries.verdictOf(trial);
        assertFalse(done);
        assertEq(juries.caseOf(trial).seedBlock, height + 2);
        _blocks(3);
        (, address[] memory voters,, bool drawn) = juries.juryOf(trial);
        assertFalse(drawn);
        bytes32 hash = juries.ballotHash(trial, voters[0], 1, keccak256("verdict"), keccak256("salt"));
        _no(stranger, j, abi.encodeCall(juries.commit, (trial, 0, hash)), Voting.NotVoter.selector);
        _no(stranger, j, abi.encodeCall(juries.commit, (trial, 5, hash)), Voting.NotVoter.selector);
        _no(voters[0], j, abi.encodeCall(juries.commit, (trial, 0, 0)), Voting.EmptyCommitment.selector);
        _yes(voters[0], j, abi.encodeCall(juries.commit, (trial, 0, hash)));
        _no(voters[0], j, abi.encodeCall(juries.commit, (trial, 0, hash)), Voting.AlreadyCommitted.selector);
        _no(stranger, j, abi.encodeCall(juries.draw, (trial)), Voting.AlreadyDrawn.selector);
        bytes memory reveal = abi.encodeCall(juries.reveal, (trial, 0, 1, keccak256("verdict"), keccak256("salt")));
        _no(voters[0], j, reveal, Voting.RevealNotOpen.selector);
        _no(voters[1], j, abi.encodeCall(juries.reveal, (trial, 1, 1, 0, 0)), Voting.NotCommitted.selector);
        assertEq(juries.ballotOf(trial << 4), hash);
        bytes32 odd = juries.ballotHash(trial, voters[1], 12, 0, 0);
        _yes(voters[1], j, abi.encodeCall(juries.commit, (trial, 1, odd)));
        _wait(60);
        _no(voters[2], j, abi.encodeCall(juries.commit, (trial, 2, hash)), Voting.CommitOver.selector);
        _no(voters[1], j, abi.encodeCall(juries.reveal, (trial, 1, 12, 0, 0)), IJuries.BadCode.selector);
        _no(voters[1], j, abi.encodeCall(juries.reveal, (trial, 1, 1, 0, 0)), Voting.WrongReveal.selector);
        _yes(voters[0], j, reveal);
        _no(voters[0], j, reveal, Voting.AlreadyRevealed.selector);
        assertEq(juries.caseOf(trial).revealed, 1);
        assertEq(uint256(juries.ballotOf(trial << 4)), 1);
        _wait(60);
        _no(voters[1], j, abi.encodeCall(juries.reveal, (trial, 1, 1, 0, 0)), Voting.RevealOver.selector);
        _conclude(s); // one vote of five: no majority, another jury is drawn
        assertEq(_code(s), 3);
        assertEq(_second(s), trial + 1);
        _juryVotes(trial + 1, 3);
        _conclude(s);
        _no(voters[1], j, abi.encodeCall(juries.reveal, (trial, 1, 1, 0, 0)), IJuries.AlreadyConcluded.selector);
        _no(voters[2], j, abi.encodeCall(juries.commit, (trial, 2, hash)), IJuries.AlreadyConcluded.selector);
        _no(a(), j, abi.encodeCall(juries.judge, (trial, 1)), IJuries.AlreadyConcluded.selector);
        _no(a(), j, abi.encodeCall(juries.discharge, (trial)), IJuries.AlreadyConcluded.selector);
        juries.closeJuror(trial, 0);
        juries.closeJuror(trial, 2);
        _no(stranger, j, abi.encodeCall(juries.closeJuror, (trial, 0)), Voting.AlreadyClosed.selector);
        _no(stranger, j, abi.encodeCall(juries.closeJuror, (trial, 5)), Voting.AlreadyClosed.selector);
        assertEq(seats.seatOf(juries.seatsOf(trial)[0]).bond, BOND - 1e9); // the second jury contradicts it
        assertEq(seats.seatOf(juries.seatsOf(trial)[2]).bond, BOND - 2e9);
        assertEq(juries.caseOf(trial).code, 3);
    }

    function a() internal view returns (address) {
        return address(appeals);
    }

    function _twoRounds() internal returns (uint256 s, uint256 trial) {
        _moveToTwoJuries();
        s = _submit();
        _voteAll(0, Codes.ACCEPT);
        trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.REJECT_SAMPLING);
    }

    function test_appealRestoresAcceptance() public {
        (uint256 s, uint256 trial) = _twoRounds();
        FileData memory f = files[pool][s];
        _conclude(s);
        assertEq(_account(pool, node).frozen, 1); // a first jury's reject freezes
        vm.prank(address(appeals));
        pools.freezeHeld(pool, s, f); // once
        assertEq(_account(pool, node).frozen, 1);
        _no(stranger, a(), abi.encodeCall(appeals.conclude, (pool, s, f)), IJuries.NotYet.selector);
        _give(operator, address(juries), 10_000e9);
        uint256 before = token.balanceOf(operator);
        _yes(operator, address(juries), abi.encodeCall(juries.appeal, (trial)));
        _no(operator, address(juries), abi.encodeCall(juries.appeal, (trial)), IJuries.AlreadyAppealed.selector);
        _no(operator, a(), abi.encodeCall(appeals.conclude, (pool, s, f)), IJuries.Undecided.selector);
        _juryVotes(_second(s), Codes.ACCEPT);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(_account(pool, node).frozen, 0);
        // its deposit is back; the committee was right, so the delay is compensated besides
        assertEq(token.balanceOf(operator) - before, 5e9);
        assertEq(token.balanceOf(a()), 0);
        _passWindow();
        _claim(s);
    }

    function test_verdictStandsWithoutAppeal() public {
        (uint256 s, uint256 trial) = _twoRounds();
        _conclude(s);
        _wait(600);
        _no(stranger, address(juries), abi.encodeCall(juries.appeal, (trial)), IJuries.AppealOver.selector);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_SAMPLING);
        assertEq(stakes.nodeOf(node).stake, 0);
        _no(stranger, address(juries), abi.encodeCall(juries.appeal, (trial)), IJuries.NoAppeal.selector);
    }

    function test_wrongAppealPays() public {
        (uint256 s,) = _twoRounds();
        _conclude(s);
        uint256 before = token.balanceOf(operator) + 10_000e9; // _appeal gives it that much
        _juryVotes(_appeal(operator, s), Codes.REJECT_WEIGHTS);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(before - token.balanceOf(operator), 2 * juries.depositOf(pool, 1));
        assertEq(token.balanceOf(a()), 0);
    }
}
