// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Voting} from "../../src/libraries/Voting.sol";
import {Losses} from "../helpers/Losses.sol";

/// @notice A first jury that finds nothing, a second one that finds nothing, and who pays for both.
contract SecondJuryTest is Losses {
    uint256 private constant FEE_OF_JUROR = 5e8;

    function setUp() public override {
        super.setUp();
        _moveToTwoJuries();
    }

    /// @dev A file of which the committee says `outcome`, disputed by a stranger.
    function _disputed(uint256 outcome) private returns (uint256 s, uint256 trial) {
        s = _submit();
        _voteAll(0, outcome);
        trial = _dispute(stranger, s);
    }

    function _closes(uint256 trial, uint256 juror, uint256 paid, uint256 penalty) private {
        uint256 seat = juries.seatsOf(trial)[juror];
        (uint256 had, uint256 lost) = (token.balanceOf(_seatOwner(seat)), _loss(seat));
        juries.closeJuror(trial, juror);
        assertEq(token.balanceOf(_seatOwner(seat)) - had, paid);
        assertEq(_loss(seat) - lost, penalty);
    }

    /// Splitting a first jury's votes does not save a captured outcome, and is not free: the second jury judges by
    /// itself, and its verdict the jurors of the first.
    function test_aHungJuryGoesToTheSecondByItselfAndIsJudgedByIt() public {
        (uint256 s, uint256 trial) = _disputed(Codes.ACCEPT);
        uint256[] memory votes = new uint256[](5);
        (votes[0], votes[1]) = (Codes.REJECT_WEIGHTS, Codes.REJECT_WEIGHTS);
        (votes[2], votes[3], votes[4]) = (Codes.ACCEPT, Codes.ACCEPT, Codes.UNAVAILABLE);
        _juryVotes(trial, votes);
        _conclude(s);
        assertEq(juries.caseOf(_second(s)).size, 7);
        _juryVotes(_second(s), Codes.REJECT_WEIGHTS);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(stakes.nodeOf(node).stake, 0);
        assertEq(token.balanceOf(stranger), 10_000e9 + 2 * DEPOSIT - DEPOSIT); // back, and the reward
        _closes(trial, 0, FEE_OF_JUROR, 0);
        _closes(trial, 2, 0, 1e9);
        _closes(trial, 4, 0, FEE_OF_JUROR); // looking away costs what looking would have earned
        _closes(_second(s), 0, FEE_OF_JUROR, 0);
    }

    /// A jury that never looks fines nobody and does not decide; what it costs is an attempt a head.
    function test_aJuryThatNeverLooksFinesNobody() public {
        (uint256 s, uint256 trial) = _disputed(Codes.ACCEPT);
        _juryVotes(trial, Codes.UNAVAILABLE);
        _conclude(s);
        _juryVotes(_second(s), Codes.ACCEPT);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(_committee()[i]), 0);
        }
        _closes(trial, 0, 0, FEE_OF_JUROR);
        _closes(_second(s), 6, FEE_OF_JUROR, 0);
        assertEq(token.balanceOf(stranger), 10_000e9 - DEPOSIT);
    }

    /// A second jury that cannot be drawn does not let the first one's conviction stand, which the committee did not share.
    function test_aSecondJuryThatCannotBeDrawnConvictsNobody() public {
        (uint256 s, uint256 trial) = _disputed(Codes.ACCEPT);
        _juryVotes(trial, Codes.REJECT_WEIGHTS);
        _conclude(s);
        _optOut(4);
        uint256 before = token.balanceOf(operator) + 10_000e9;
        _appeal(operator, s);
        _blocks(3 + EPOCH);
        uint256 second = _second(s);
        vm.expectRevert(abi.encodeWithSelector(Voting.TooFewSeats.selector, 6));
        juries.draw(second);
        _blocks(5 * EPOCH);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(token.balanceOf(operator), before); // nobody came: all of its deposit
        assertEq(token.balanceOf(stranger), 10_000e9 - 5 * FEE_OF_JUROR); // and of the disputer's what the first jury earns
        _closes(trial, 0, FEE_OF_JUROR, 0);
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    /// @dev Seats that have no duty in the case leave the group until `left` besides the first jury and committee do not
    /// fill a second jury.
    function _optOut(uint256 count) private {
        uint256 busy;
        uint256[] memory jurors = juries.seatsOf(1);
        for (uint256 i = 0; i < 5; ++i) {
            busy |= 1 << jurors[i];
        }
        for (uint256 i = 0; i < 3; ++i) {
            busy |= 1 << _committee()[i];
        }
        for (uint256 seat = 1; count != 0; ++seat) {
            if (busy & (1 << seat) != 0) continue;
            vm.prank(_seatOwner(seat));
            seats.leaveSeat(seat);
            --count;
        }
        _nextEpoch();
    }

    /// Jurors who came to an overloaded jury are paid by the disputer that overloaded it.
    function test_aDisputerPaysJurorsWhoCame() public {
        (uint256 s, uint256 trial) = _disputed(Codes.ACCEPT);
        for (uint256 i = 0; i < 2; ++i) {
            _juryVotes(trial + i, Codes.ACCEPT, 2, 0);
            _wait(60);
            _conclude(s);
        }
        assertTrue(appeals.disputeOf(pool, s).resolved);
        assertEq(token.balanceOf(stranger), 10_000e9 - 4 * FEE_OF_JUROR);
        _closes(trial, 0, FEE_OF_JUROR, 0);
        _closes(trial + 1, 1, FEE_OF_JUROR, 0);
        _closes(trial + 1, 2, 0, 2e9);
    }

    /// Whoever has an overturned verdict overturned gets its deposit back whole, and the overturned pay for both juries.
    function test_anAppellantThatIsRightLosesNothing() public {
        (uint256 s, uint256 trial) = _disputed(Codes.REJECT_WEIGHTS);
        _juryVotes(trial, Codes.REJECT_WEIGHTS, 3, Codes.ACCEPT);
        _conclude(s);
        uint256 before = token.balanceOf(operator) + 10_000e9;
        _juryVotes(_appeal(operator, s), Codes.ACCEPT);
        uint256 free = _pool(pool).free;
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(token.balanceOf(operator), before);
        assertEq(token.balanceOf(stranger), 10_000e9 + DEPOSIT); // who disputed has it back, and the reward
        assertEq(_pool(pool).free, free);
        _closes(trial, 0, 0, 1e9); // besides the overturn penalty, which is taken already
        assertEq(_loss(juries.seatsOf(trial)[0]), 51e9);
        _closes(trial, 4, FEE_OF_JUROR, 0);
    }

    /// Where the overturned have nothing left, the pool pays the jury, and not whoever was right.
    function test_thePoolPaysWhereTheOverturnedCannot() public {
        (uint256 s, uint256 trial) = _disputed(Codes.REJECT_WEIGHTS);
        for (uint256 i = 0; i < 3; ++i) {
            uint256 seat = _committee()[i];
            vm.prank(address(court));
            seats.penalise(seat, BOND, SINK);
        }
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(s);
        _wait(600);
        uint256 free = _pool(pool).free;
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(token.balanceOf(stranger), 10_000e9);
        assertEq(free - _pool(pool).free, 5 * FEE_OF_JUROR);
        _closes(trial, 0, FEE_OF_JUROR, 0);
    }
}
