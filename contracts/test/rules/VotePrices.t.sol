// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {PoolTerms} from "../../src/libraries/Types.sol";
import {Voting} from "../../src/libraries/Voting.sol";
import {Losses} from "../helpers/Losses.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IPools} from "../interfaces/IPools.sol";
import {ISeats} from "../interfaces/ISeats.sol";

/// @notice Not deciding, not looking and flooding cost something: every vote is judged by an outcome.
contract VotePricesTest is Losses {
    function _seat(uint256 round, uint256 member) private view returns (uint256) {
        return _round(pool, 0, round).seats[member];
    }

    function _earned(uint256 round, uint256 member) private view returns (uint256) {
        return token.balanceOf(_seatOwner(_seat(round, member)));
    }

    /// @dev Both committees split their votes three ways.
    function _split() private {
        uint256[] memory votes = _three(_all(Codes.MALFORMED), _all(Codes.ACCEPT), _all(Codes.UNAVAILABLE));
        _vote(0, 0, votes);
        _vote(0, 1, votes);
    }

    // Not deciding

    /// Whoever keeps the first committee from deciding pays by the second one's outcome, and whoever was right is paid.
    function test_firstCommitteesVotesAreJudgedByTheSecondsOutcome() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(Codes.MALFORMED), _all(Codes.ACCEPT), _all(Codes.UNAVAILABLE)));
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(seats.seatOf(_seat(0, i)).frozen, 1);
        }
        vm.expectRevert(ICourt.NotSettled.selector);
        court.closeCommittee(pool, 0, 0);
        _voteAgain(_all(Codes.ACCEPT));
        assertEq(_code(s), Codes.ACCEPT);
        vm.expectRevert(abi.encodeWithSelector(ICourt.NotYet.selector, clock + 3600));
        court.closeCommittee(pool, 0, 0);
        _passWindow();
        _closeAll(0, 0);
        _closeAll(0, 1);
        assertEq(_loss(_seat(0, 0)), 1e9);
        assertEq(_loss(_seat(0, 1)), 0);
        assertEq(_loss(_seat(0, 2)), FEE);
        assertEq(_earned(0, 0) + _earned(0, 2), 0);
        assertEq(_earned(0, 1), FEE);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(seats.seatOf(_seat(0, i)).frozen, 0);
            assertEq(_earned(1, i), FEE);
        }
        assertEq(_claim(s), PAY);
        assertEq(_pool(pool).free, BUDGET - PAY - 2 * FEES);
        assertEq(token.balanceOf(address(pools)), _pool(pool).free);
    }

    function _voteAgain(uint256 codes) private {
        _vote(0, 1, _three(codes, codes, codes));
    }

    /// What one committee decides in a lane is not touched by what the next one decides of it.
    function test_eachPlaceIsJudgedByTheCommitteeThatDecidedIt() public {
        _submitLane(2);
        uint256 rejects = Codes.ACCEPT | (Codes.REJECT_WEIGHTS << 4);
        uint256 accepts = Codes.ACCEPT | (Codes.ACCEPT << 4);
        _vote(0, 0, _three(rejects, accepts, Codes.ACCEPT | (Codes.UNAVAILABLE << 4)));
        assertEq(_code(0), Codes.ACCEPT);
        _voteAgain(accepts);
        _passWindow();
        _closeAll(0, 0);
        _closeAll(0, 1);
        assertEq(_loss(_seat(0, 0)), 1e9);
        assertEq(_earned(0, 0), FEE);
        assertEq(_earned(0, 1), 2 * FEE);
        assertEq(_earned(1, 0), FEE);
        // three fees of the second committee were never needed for the file that the first one decided
        assertEq(_pool(pool).free, BUDGET - 2 * PAY - 3 * FEES);
    }

    /// A committee that was never drawn costs nobody anything.
    function test_feesOfACommitteeThatWasNotDrawnGoBack() public {
        uint256 s = _submit();
        _blocks(70);
        court.settle(pool, 0, 0, _refs(0));
        _unpack(0);
        _voteAgain(_all(Codes.ACCEPT));
        _passWindow();
        _closeAll(0, 1);
        _claim(s);
        assertEq(_pool(pool).free, BUDGET - PAY - FEES);
        assertEq(token.balanceOf(address(pools)), _pool(pool).free);
    }

    /// An owner whose seats void an honest worker's files saves nothing: the work is paid and both committees' fees are
    /// gone.
    function test_voidingSavesItsOwnerNothing() public {
        uint256 s = _submit();
        _split();
        assertEq(_code(s), Codes.VOID);
        _passWindow();
        assertEq(_claim(s), PAY);
        _closeAll(0, 0);
        _closeAll(0, 1);
        assertEq(_pool(pool).free, BUDGET - PAY - 2 * FEES);
        assertEq(token.balanceOf(address(pools)), _pool(pool).free);
    }

    /// A void file can be disputed; the jury's verdict judges the votes of both committees.
    function test_voidFileCanBeDisputed() public {
        uint256 s = _submit();
        _split();
        uint256 trial = _dispute(stranger, s);
        uint256[] memory jurors = juries.seatsOf(trial);
        for (uint256 i = 0; i < jurors.length; ++i) {
            for (uint256 j = 0; j < 6; ++j) {
                assertTrue(jurors[i] != _seat(j / 3, j % 3)); // nobody judges what judges its own vote
            }
        }
        _juryVotes(trial, Codes.REJECT_WEIGHTS);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(stakes.nodeOf(node).stake, 0);
        _passWindow();
        _closeAll(0, 0);
        _closeAll(0, 1);
        for (uint256 round = 0; round < 2; ++round) {
            assertEq(_loss(_seat(round, 0)), 0);
            assertEq(_loss(_seat(round, 1)), 1e9); // accepted what is forged
            assertEq(_loss(_seat(round, 2)), FEE); // did not look
        }
    }

    /// Laziness does not hide behind a split either: whoever accepted a canary in any round is accused.
    function test_canaryAccusesTheAcceptorsOfBothCommittees() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 s = _submit();
        uint256 lane = s >> 4;
        _vote(lane, 0, _three(_all(Codes.ACCEPT), _all(Codes.MALFORMED), 0));
        _vote(lane, 1, _three(_all(Codes.MALFORMED), _all(Codes.MALFORMED), _all(Codes.ACCEPT)));
        _openCanary(s);
        uint256[] memory accused = canaries.canaryOf(pool, s).accused;
        assertEq(accused.length, 2);
        assertEq(accused[0], _round(pool, lane, 0).seats[0]);
        assertEq(accused[1], _round(pool, lane, 1).seats[2]);
    }

    // Not looking

    /// Sixteen forged files that others reject: who says that it could not get them loses a fee for each.
    function test_unavailableWhereOthersJudgeCostsAFeeAFile() public {
        _submitLane(16);
        uint256 rejects = _all(Codes.REJECT_WEIGHTS);
        _vote(0, 0, _three(rejects, rejects, _all(Codes.UNAVAILABLE)));
        assertEq(seats.seatOf(_seat(0, 2)).frozen, 1); // and cannot leave before
        _passWindow();
        _closeAll(0, 0);
        assertEq(_loss(_seat(0, 2)), 16 * FEE);
        assertEq(_earned(0, 2), 0);
        assertEq(_earned(0, 1), 16 * FEE);
    }

    // Flooding

    /// Nobody but a member starts a committee's clock before half of the time to draw is over.
    function test_strangersDrawAfterHalfOfTheTimeForIt() public {
        _submit();
        uint256 seedBlock = _round(pool, 0, 0).time;
        _blocks(seedBlock + 32 - height);
        vm.expectRevert(abi.encodeWithSelector(Voting.DrawNotOpen.selector, seedBlock + 33));
        court.draw(pool, 0, 0);
        uint256 snapshot = vm.snapshot();
        _commit(0, 0, 2, _all(1));
        assertEq(_round(pool, 0, 0).time, clock);
        vm.revertTo(snapshot);
        vm.roll(height + 1);
        court.draw(pool, 0, 0);
        assertEq(_round(pool, 0, 0).time, clock);
    }

    /// However late a lane is drawn it gives one committee, and after that none.
    function test_waitingGivesNoOtherCommittee() public {
        _nextEpoch();
        _submit();
        uint256 seedBlock = _round(pool, 0, 0).time;
        _blocks(seedBlock + 1 - height);
        (uint256[] memory members,, bytes32 seed,) = court.committeeOf(pool, 0, 0);
        for (uint256 i = 0; i < 63; ++i) {
            _blocks(1);
            (uint256[] memory same,, bytes32 sameSeed,) = court.committeeOf(pool, 0, 0);
            assertEq(members, same);
            assertEq(seed, sameSeed);
        }
        _blocks(1);
        vm.expectRevert(abi.encodeWithSelector(ICourt.DrawOver.selector, seedBlock + 64));
        court.committeeOf(pool, 0, 0);
    }

    /// A draw never waits for so long that its epoch's seats are forgotten.
    function test_drawsHappenWithinThreeEpochs() public {
        PoolTerms memory t = defaultTerms();
        t.drawBlocks = uint16(3 * EPOCH);
        _createPool(t);
        t.drawBlocks += 1;
        vm.expectRevert(abi.encodeWithSelector(IParams.BadTerms.selector, "drawBlocks"));
        pools.createPool(t, 0);
    }

    /// An absent seat pays a twentieth of a bond in an epoch at most, however often a flood draws it; and again in the
    /// next one.
    function test_absenceIsCappedInAnEpoch() public {
        vm.startPrank(address(court));
        assertEq(seats.fine(1, 30e9, stranger), 30e9);
        assertEq(seats.fine(1, 30e9, stranger), 20e9);
        assertEq(seats.fine(1, 30e9, stranger), 0);
        assertEq(seats.fine(2, 30e9, stranger), 30e9);
        assertEq(seats.collect(1, 1e9, stranger), 1e9); // what it says wrongly has no cap
        assertEq(_loss(1), 51e9);
        _nextEpoch();
        assertEq(seats.fine(1, 60e9, stranger), BOND / 20);
        vm.stopPrank();
        vm.expectRevert(ISeats.NotPermitted.selector);
        seats.fine(1, 1, stranger);
    }

    /// A stranger's pool that floods a shared group: its absent seats lose the cap, and the stranger both committees' fees
    /// of every file.
    function test_floodingCostsItsOwnerAndNotItsSeatsMoreThanTheCap() public {
        for (uint256 lane = 0; lane < 4; ++lane) {
            _submitLaneFrom(node, 1, 16);
        }
        for (uint256 lane = 0; lane < 4; ++lane) {
            for (uint256 round = 0; round < 2; ++round) {
                _draw(lane, round);
                _wait(60);
                court.settle(pool, lane, round, _refs(lane));
                _unpack(lane);
            }
        }
        uint256 lost;
        for (uint256 seat = 1; seat <= SEATS; ++seat) {
            lost += _loss(seat);
            assertLt(_loss(seat), BOND / 20 + 1);
        }
        assertGt(lost, 0);
        _passWindow();
        for (uint256 lane = 0; lane < 4; ++lane) {
            _closeAll(lane, 0);
            _closeAll(lane, 1);
        }
        _claim(63);
        assertEq(_pool(pool).free, BUDGET - 64 * (1e6 + 2 * FEES));
        assertEq(token.balanceOf(address(pools)), _pool(pool).free);
    }

    /// In a shared group committees have sixteen of the shortest windows.
    function test_sharedGroupsHaveLongWindows() public {
        PoolTerms memory t = defaultTerms();
        (t.commitWindow, t.revealWindow) = (16, 16);
        params.checkTerms(t);
        t.commitWindow = 15;
        _refused(t, "commitWindow");
        (t.commitWindow, t.revealWindow) = (16, 15);
        _refused(t, "revealWindow");
        (t.group, t.commitWindow, t.revealWindow) = (0, 1, 1);
        params.checkTerms(t);
    }

    function _refused(PoolTerms memory t, string memory field) private {
        vm.expectRevert(abi.encodeWithSelector(IParams.BadTerms.selector, field));
        params.checkTerms(t);
    }
}
