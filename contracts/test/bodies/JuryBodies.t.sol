// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData} from "../../src/libraries/Types.sol";
import {Voting} from "../../src/libraries/Voting.sol";
import {Losses} from "../helpers/Losses.sol";
import {IJuries} from "../interfaces/IJuries.sol";

/// @notice Juries have the size they were promised with, and silence is replaced.
contract JuryBodiesTest is Losses {
    /// Fewer votes than half of the promised jury overturn nothing: a second jury is drawn, and if that finds nothing
    /// either, the outcome stands. The deposit pays those who came, and the rest goes back.
    function test_juryWithoutQuorumIsReplacedOnceThenDismissed() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.REJECT_WEIGHTS, 2, 0); // two of five, and three absent
        _wait(60);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertFalse(appeals.disputeOf(pool, s).resolved);
        uint256 next = _second(s);
        assertEq(next, trial + 1);
        assertEq(juries.caseOf(next).size, 5);
        _juryVotes(next, Codes.REJECT_WEIGHTS, 2, 0);
        _wait(60);
        _conclude(s);
        assertTrue(appeals.disputeOf(pool, s).resolved);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(token.balanceOf(stranger), 10_000e9 - 4 * 5e8);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(_committee()[i]), 0);
        }
        uint256[] memory jurors = juries.seatsOf(next);
        for (uint256 i = 0; i < 5; ++i) {
            _closes(trial, i, i < 2 ? 0 : 2e9); // silence costs, in each jury
            _closes(next, i, i < 2 ? 0 : 2e9);
        }
        assertEq(jurors.length, 5);
        assertEq(token.balanceOf(address(juries)), 0);
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    function _closes(uint256 trial, uint256 juror, uint256 penalty) private {
        uint256 seat = juries.seatsOf(trial)[juror];
        uint256 before = _loss(seat);
        juries.closeJuror(trial, juror);
        assertEq(_loss(seat) - before, penalty);
    }

    function test_replacedJuryCanDecide() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _drawJury(trial);
        _wait(60); // nobody commits
        _conclude(s);
        _juryVotes(trial + 1, Codes.REJECT_WEIGHTS);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(stakes.nodeOf(node).stake, 0);
        uint256[] memory silent = juries.seatsOf(trial);
        for (uint256 i = 0; i < 5; ++i) {
            uint256 before = seats.seatOf(silent[i]).bond;
            juries.closeJuror(trial, i);
            assertEq(before - seats.seatOf(silent[i]).bond, 2e9);
        }
    }

    function test_juryIsNeverSmallerThanPromised() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        // only four of the seats beside the committee have not left before the dispute
        uint256[] memory c = _committee();
        uint256 others = SEATS - 3;
        for (uint256 seat = 1; others > 4; ++seat) {
            if (seat == c[0] || seat == c[1] || seat == c[2]) continue;
            vm.prank(_seatOwner(seat));
            seats.leaveSeat(seat);
            --others;
        }
        _nextEpoch();
        uint256 trial = _dispute(stranger, s);
        _blocks(3 + EPOCH);
        vm.expectRevert(abi.encodeWithSelector(Voting.TooFewSeats.selector, 4));
        juries.draw(trial);
        FileData memory f = files[pool][s];
        vm.expectRevert(IJuries.Undecided.selector);
        appeals.conclude(pool, s, f);
        for (uint256 i = 0; i < 2; ++i) {
            _blocks(4 * EPOCH);
            _conclude(s); // it lapsed, and so does the second: the outcome stands, the deposit goes back
        }
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(token.balanceOf(stranger), 10_000e9);
    }

    /// Whoever opens many cases cannot start their clocks all at once: for an epoch jurors take them up as they can.
    function test_onlyJurorsStartTheClockForAnEpoch() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        uint256 last = juries.caseOf(trial).seedBlock + EPOCH;
        _blocks(last - height);
        vm.expectRevert(abi.encodeWithSelector(Voting.DrawNotOpen.selector, last + 1));
        vm.prank(stranger);
        juries.draw(trial);
        (, address[] memory voters,,) = juries.juryOf(trial);
        vm.expectRevert(Voting.NotVoter.selector);
        vm.prank(stranger);
        juries.commit(trial, 0, keccak256("ballot"));
        uint256 snapshot = vm.snapshot();
        vm.prank(voters[0]);
        juries.commit(trial, 0, keccak256("ballot"));
        assertEq(juries.caseOf(trial).time, clock);
        vm.revertTo(snapshot);
        _blocks(1);
        vm.prank(stranger);
        juries.draw(trial);
        assertEq(juries.seatsOf(trial).length, 5);
    }

    /// Waiting gives no other jury of a seed: there is one, and after three epochs none. A second jury judges then.
    function test_undrawnJuryLapses() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _blocks(3);
        (uint256[] memory first,, bytes32 seed,) = juries.juryOf(trial);
        _nextEpoch();
        _nextEpoch();
        (uint256[] memory later,, bytes32 same,) = juries.juryOf(trial);
        assertEq(first, later);
        assertEq(seed, same);
        _nextEpoch();
        _nextEpoch();
        vm.expectRevert(IJuries.Lapsed.selector);
        juries.draw(trial);
        _conclude(s);
        assertEq(_second(s), trial + 1);
        _blocks(5 * EPOCH);
        _conclude(s);
        assertTrue(appeals.disputeOf(pool, s).resolved);
        assertEq(token.balanceOf(stranger), 10_000e9);
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    function test_rotatedKeyLosesNoBallot() public {
        uint256 s = _submit();
        _draw(0, 0);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 0, i, _all(1));
        }
        (uint256[] memory members, address[] memory voters,,) = court.committeeOf(pool, 0, 0);
        vm.prank(_seatOwner(members[0]));
        seats.setVoter(members[0], stranger);
        vm.prank(voters[0]);
        court.reveal(pool, 0, 0, 0, _all(1), keccak256("verdict"), keccak256("salt"));
        _reveal(0, 0, 1, _all(1));
        _reveal(0, 0, 2, _all(1));
        court.settle(pool, 0, 0, _refs(0));
        _unpack(0);
        uint256 trial = _dispute(stranger, s);
        _drawJury(trial);
        (members, voters,,) = juries.juryOf(trial);
        bytes32 hash = juries.ballotHash(trial, voters[0], 1, keccak256("verdict"), keccak256("salt"));
        vm.prank(voters[0]);
        juries.commit(trial, 0, hash);
        vm.prank(_seatOwner(members[0]));
        seats.setVoter(members[0], account("new key"));
        _wait(60);
        vm.expectRevert(Voting.WrongReveal.selector);
        vm.prank(account("new key"));
        juries.reveal(trial, 0, 1, keccak256("verdict"), keccak256("salt"));
        vm.prank(voters[0]);
        juries.reveal(trial, 0, 1, keccak256("verdict"), keccak256("salt"));
        assertEq(_jurorVote(trial, 0), 1);
    }
}
