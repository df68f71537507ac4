// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Refusing} from "../helpers/Refusing.sol";
import {ISeats} from "../interfaces/ISeats.sol";
import {IStakes} from "../interfaces/IStakes.sol";

/// @notice Stakes and Seats say no, with the right error.
contract AccountRefusalsTest is Refusing {
    function test_stakes() public {
        address s = address(stakes);
        IStakes.Slash memory none;
        address unknown = account("unknown");
        _no(owner, s, abi.encodeCall(stakes.deposit, (unknown, 1)), IStakes.UnknownNode.selector);
        _no(owner, s, abi.encodeCall(stakes.deposit, (node, 1 << 56)), IStakes.AmountTooLarge.selector);
        _give(stranger, s, 5e9);
        _yes(stranger, s, abi.encodeCall(stakes.deposit, (node, 5e9)));
        assertEq(stakes.nodeOf(node).stake, STAKE + 5e9);
        _no(stranger, s, abi.encodeCall(stakes.withdraw, (node, 1)), IStakes.NotOperator.selector);
        bytes memory inPool = abi.encodeWithSelector(IStakes.InPool.selector, pool);
        _no(operator, s, abi.encodeCall(stakes.withdraw, (node, 1)), inPool);
        assertEq(_withdrawable(node), 0);
        _no(stranger, s, abi.encodeCall(stakes.bind, (node, 1, 1)), IStakes.NotPermitted.selector);
        _no(stranger, s, abi.encodeCall(stakes.unbind, (node, 1)), IStakes.NotPermitted.selector);
        _no(stranger, s, abi.encodeCall(stakes.freeze, (node)), IStakes.NotPermitted.selector);
        _no(stranger, s, abi.encodeCall(stakes.release, (node)), IStakes.NotPermitted.selector);
        _no(stranger, s, abi.encodeCall(stakes.slash, (node, none)), IStakes.NotPermitted.selector);
        _yes(operator, address(pools), abi.encodeCall(pools.leavePool, (pool, node, type(uint256).max, "")));
        _no(operator, s, abi.encodeCall(stakes.withdraw, (node, 1)), IStakes.StakeLocked.selector);
        // it may come back to the same pool, but not take its stake to another one
        uint256 other = _createPool(defaultTerms());
        _no(
            operator,
            address(pools),
            abi.encodeCall(pools.join, (other, node, type(uint256).max, "", "")),
            IStakes.StakeLocked.selector
        );
        _wait(30_000);
        _no(operator, s, abi.encodeCall(stakes.withdraw, (node, STAKE * 2)), IStakes.StakeTooLow.selector);
        assertEq(_withdrawable(node), STAKE + 5e9);
        _yes(operator, s, abi.encodeCall(stakes.withdraw, (node, STAKE)));
        assertEq(token.balanceOf(operator), STAKE);
        _no(
            operator,
            address(pools),
            abi.encodeCall(pools.join, (pool, node, type(uint256).max, "", "")),
            IStakes.StakeTooLow.selector
        );
        _no(
            unknown,
            address(pools),
            abi.encodeCall(pools.join, (pool, unknown, type(uint256).max, "", "")),
            IStakes.UnknownNode.selector
        );
        IStakes.Node memory n = stakes.nodeOf(node);
        assertEq(n.operator, operator);
        assertEq(n.lastPool, pool);

        bytes memory consent = _sign(key("unknown"), _consentDigest(unknown, stranger, stranger, clock));
        bytes memory call = abi.encodeCall(stakes.registerNode, (unknown, stranger, 0, 1 << 56, clock, consent));
        _no(stranger, s, call, IStakes.AmountTooLarge.selector);
        call = abi.encodeCall(stakes.registerNode, (unknown, stranger, 0, 1, clock - 1, consent));
        _no(stranger, s, call, IStakes.SignatureExpired.selector);
        params.setPaused(true);
        call = abi.encodeCall(stakes.registerNode, (unknown, stranger, 0, 1, clock, consent));
        _no(stranger, s, call, IStakes.Paused.selector);
        params.setPaused(false);
    }

    function test_seats() public {
        address s = address(seats);
        _no(stranger, s, abi.encodeCall(seats.openSeat, (0, address(0), _classes(FAMILY))), ISeats.ZeroVoter.selector);
        params.setPaused(true);
        _no(stranger, s, abi.encodeCall(seats.openSeat, (0, stranger, _classes(FAMILY))), ISeats.Paused.selector);
        params.setPaused(false);
        _no(stranger, s, abi.encodeCall(seats.setVoter, (1, stranger)), ISeats.NotSeatOwner.selector);
        _no(_seatOwner(1), s, abi.encodeCall(seats.setVoter, (1, address(0))), ISeats.ZeroVoter.selector);
        _yes(_seatOwner(1), s, abi.encodeCall(seats.setVoter, (1, stranger)));
        assertEq(seats.voterOf(1), stranger);
        _no(stranger, s, abi.encodeCall(seats.penalise, (1, 1, stranger)), ISeats.NotPermitted.selector);
        _no(stranger, s, abi.encodeCall(seats.freeze, (1)), ISeats.NotPermitted.selector);
        _no(stranger, s, abi.encodeCall(seats.release, (1)), ISeats.NotPermitted.selector);
        _no(_seatOwner(1), s, abi.encodeCall(seats.unbondSeat, (1)), ISeats.SeatActive.selector);
        _no(_seatOwner(1), s, abi.encodeCall(seats.withdrawSeat, (1)), ISeats.SeatActive.selector);
        _no(stranger, s, abi.encodeCall(seats.leaveSeat, (1)), ISeats.NotSeatOwner.selector);
        uint256 epoch = seats.currentEpoch();
        _no(stranger, s, abi.encodeCall(seats.countAt, (FAMILY, epoch + 2)), ISeats.UnknownEpoch.selector);
        _no(stranger, s, abi.encodeCall(seats.countAt, (FAMILY, epoch - 4)), ISeats.UnknownEpoch.selector);

        // a bond that falls below the least is evicted; before that it can be topped up
        vm.prank(address(court));
        seats.penalise(1, 100e9, SINK);
        _give(stranger, s, BOND);
        _yes(stranger, s, abi.encodeCall(seats.topUp, (1)));
        assertEq(seats.seatOf(1).bond, BOND);
        vm.prank(address(court));
        assertEq(seats.penalise(1, BOND * 2, SINK), BOND);
        assertEq(seats.seatOf(1).leftEpoch, epoch);
        _no(stranger, s, abi.encodeCall(seats.topUp, (1)), ISeats.SeatInactive.selector);
        _no(_seatOwner(1), s, abi.encodeCall(seats.leaveSeat, (1)), ISeats.SeatInactive.selector);

        // leaving: drawable until the epoch's end, then two epochs, then the unbonding period
        _yes(_seatOwner(8), s, abi.encodeCall(seats.leaveSeat, (8)));
        _yes(_seatOwner(3), s, abi.encodeCall(seats.leaveSeat, (3)));
        assertEq(seats.countAt(FAMILY, epoch), SEATS);
        assertEq(seats.countAt(FAMILY, epoch + 1), SEATS - 3);
        assertEq((_setOf(FAMILY, epoch) >> 8) & 1, 1);
        _no(_seatOwner(3), s, abi.encodeCall(seats.unbondSeat, (3)), ISeats.TooEarly.selector);
        _nextEpoch();
        assertEq(seats.countAt(FAMILY, epoch), SEATS);
        assertEq(seats.countAt(FAMILY, epoch + 1), SEATS - 3);
        _openSeats(1);
        assertEq(seats.countAt(FAMILY, epoch + 2), SEATS - 2);
        _nextEpoch();
        _nextEpoch();
        _no(_seatOwner(3), s, abi.encodeCall(seats.unbondSeat, (3)), ISeats.TooEarly.selector);
        _nextEpoch();
        _yes(_seatOwner(3), s, abi.encodeCall(seats.unbondSeat, (3)));
        _no(_seatOwner(3), s, abi.encodeCall(seats.unbondSeat, (3)), ISeats.SeatLocked.selector);
        _no(_seatOwner(3), s, abi.encodeCall(seats.withdrawSeat, (3)), ISeats.SeatLocked.selector);
        vm.prank(address(canaries));
        seats.freeze(3);
        _wait(30 days);
        _no(_seatOwner(3), s, abi.encodeCall(seats.withdrawSeat, (3)), ISeats.SeatLocked.selector);
        vm.prank(address(canaries));
        seats.release(3);
        _yes(_seatOwner(3), s, abi.encodeCall(seats.withdrawSeat, (3)));
        _no(_seatOwner(3), s, abi.encodeCall(seats.withdrawSeat, (3)), ISeats.SeatActive.selector);
        // seat ids end
        vm.store(s, bytes32(uint256(0)), bytes32(uint256(65535)));
        assertEq(seats.opened(), 65535);
        _no(stranger, s, abi.encodeCall(seats.openSeat, (0, stranger, _classes(FAMILY))), ISeats.TooManySeats.selector);
    }
}
