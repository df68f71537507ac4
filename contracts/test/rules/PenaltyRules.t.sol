// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileRef} from "../../src/libraries/Types.sol";
import {Network} from "../helpers/Network.sol";
import {ISeats} from "../interfaces/ISeats.sol";
import {IStakes} from "../interfaces/IStakes.sol";

/// @notice Penalties are collected before whoever owes them can leave, and ids are not given away.
contract PenaltyRulesTest is Network {
    function test_minorityCannotLeaveBeforeItPaid() public {
        _submit();
        _vote(0, 0, _three(_all(Codes.REJECT_WEIGHTS), _all(1), _all(1)));
        uint256[] memory drawn = _round(pool, 0, 0).seats;
        for (uint256 i = 0; i < 2; ++i) {
            vm.prank(_seatOwner(drawn[i]));
            seats.leaveSeat(drawn[i]);
        }
        _blocks(450);
        for (uint256 i = 0; i < 2; ++i) {
            vm.prank(_seatOwner(drawn[i]));
            seats.unbondSeat(drawn[i]);
        }
        _wait(30 days);
        // who agreed with the outcome may go, though nobody has closed it yet
        vm.prank(_seatOwner(drawn[1]));
        seats.withdrawSeat(drawn[1]);
        uint256 releaseAt = seats.seatOf(drawn[0]).releaseAt;
        vm.expectRevert(abi.encodeWithSelector(ISeats.SeatLocked.selector, releaseAt, 1));
        vm.prank(_seatOwner(drawn[0]));
        seats.withdrawSeat(drawn[0]);
        vm.prank(stranger);
        court.closeCommittee(pool, 0, 0);
        assertEq(token.balanceOf(stranger), 1e9 / 20); // who collects is paid a share
        vm.prank(_seatOwner(drawn[0]));
        seats.withdrawSeat(drawn[0]);
        assertEq(token.balanceOf(_seatOwner(drawn[0])), BOND - 1e9 - BOND / 100);
    }

    function test_absenceIsPaidAtSettlement() public {
        _submitLane(2);
        _draw(0, 0);
        _commit(0, 0, 0, _all(1));
        _commit(0, 0, 1, _all(1));
        _wait(60);
        _reveal(0, 0, 0, _all(1));
        _reveal(0, 0, 1, _all(1));
        FileRef[] memory refs = _refs(0);
        vm.prank(stranger);
        court.settle(pool, 0, 0, refs);
        _unpack(0);
        uint256[] memory drawn = _round(pool, 0, 0).seats;
        assertEq(seats.seatOf(drawn[2]).bond, BOND - 2 * 2e9);
        assertEq(seats.seatOf(drawn[1]).bond, BOND);
        assertEq(token.balanceOf(stranger), 4e9 / 20);
        _passWindow();
        _closeAll(0, 0);
        assertEq(seats.seatOf(drawn[2]).bond, BOND - 2 * 2e9); // once
    }

    function test_jurorsStayUntilTheirCaseIsClosed() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256 trial = _dispute(operator, s);
        _juryVotes(trial, Codes.ACCEPT, 4, 0);
        _wait(60);
        uint256[] memory jurors = juries.seatsOf(trial);
        assertEq(seats.seatOf(jurors[4]).frozen, 1);
        _conclude(s);
        assertEq(seats.seatOf(jurors[4]).frozen, 1);
        vm.prank(stranger);
        juries.closeJuror(trial, 4);
        assertEq(seats.seatOf(jurors[4]).frozen, 0);
        assertEq(seats.seatOf(jurors[4]).bond, BOND - 2e9);
        assertEq(token.balanceOf(stranger), 2e9 / 20);
    }

    function test_nodeCannotLeaveBeforeItPaid() public {
        uint256 s = _submit();
        _voteAll(0, Codes.MALFORMED);
        vm.prank(operator);
        pools.leavePool(pool, node, type(uint256).max, "");
        _wait(30 days);
        uint256 releaseAt = stakes.nodeOf(node).releaseAt;
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeLocked.selector, releaseAt, 1));
        vm.prank(operator);
        stakes.withdraw(node, STAKE);
        FileRef memory ref = _ref(s);
        vm.prank(stranger);
        pools.finalize(pool, s, ref, _none());
        assertEq(token.balanceOf(stranger), 1e9 / 20); // of the penalty: the committee's fees are paid in full
        vm.prank(operator);
        stakes.withdraw(node, STAKE - 1e9 - FEES);
        assertEq(_pool(pool).free, BUDGET);
    }

    function test_oneBondCannotUseUpTheIds() public {
        address who = _seatOwner(1);
        for (uint256 i = 0; i < 3; ++i) {
            vm.prank(who);
            seats.leaveSeat(1);
            _blocks(450);
            vm.prank(who);
            seats.unbondSeat(1);
            _wait(30 days);
            vm.prank(who);
            seats.withdrawSeat(1);
            // its owner opens the same seat again; a new id would cost a hundredth of a bond each time
            _give(who, address(seats), BOND / 100);
            vm.prank(who);
            seats.openSeat(1, _voter(1), _classes(FAMILY));
        }
        assertEq(seats.opened(), SEATS);
        assertEq(_burnt(), 3 * BOND / 100);
        assertEq(seats.seatOf(1).bond, BOND);
        assertEq(seats.countAt(FAMILY, seats.currentEpoch() + 1), SEATS);
        vm.expectRevert(ISeats.NotSeatOwner.selector);
        seats.openSeat(1, stranger, _classes(FAMILY));
        vm.expectRevert(ISeats.SeatNotClosed.selector);
        vm.prank(who);
        seats.openSeat(1, who, _classes(FAMILY));
    }
}
