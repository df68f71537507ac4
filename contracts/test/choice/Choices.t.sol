// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {PoolTerms} from "../../src/libraries/Types.sol";
import {Choosing} from "../helpers/Choosing.sol";
import {IParams} from "../interfaces/IParams.sol";
import {ISeats} from "../interfaces/ISeats.sol";

/// @notice What a seat may choose, what a pool may ask of it, and how a seat leaves its groups.
contract ChoicesTest is Choosing {
    function _badTerms(PoolTerms memory t, string memory field) internal {
        vm.expectRevert(abi.encodeWithSelector(IParams.BadTerms.selector, field));
        params.checkTerms(t);
        vm.expectRevert(abi.encodeWithSelector(IParams.BadTerms.selector, field));
        vm.prank(stranger);
        pools.createPool(t, 0);
    }

    /// A hundred lanes judged pay for one missed, whoever sets the terms.
    function test_feeFloor() public {
        PoolTerms memory t = defaultTerms();
        t.fee = 1;
        _badTerms(t, "fee");
        t.fee = 2e7 - 1;
        _badTerms(t, "fee");
        t.fee = 2e7;
        params.checkTerms(t);

        IParams.Values memory v = defaultValues();
        v.withheldPenalty = 3e9 + 1;
        penalties = v;
        _start(address(0));
        t.fee = 3e7;
        _badTerms(t, "fee");
        t.fee = 3e7 + 1;
        params.checkTerms(t);
    }

    function test_noPoolNamesTheClassOfAnother() public {
        PoolTerms memory t = defaultTerms();
        t.group = 1;
        _badTerms(t, "group");
        t.group = (1 << 24) - 1;
        _badTerms(t, "group");
        t.group = 1 << 24;
        params.checkTerms(t);
        t.group = type(uint32).max;
        params.checkTerms(t);
    }

    function test_atMostFiveClasses() public {
        for (uint256 group = 1; group <= 4; ++group) {
            _in(1, group);
        }
        vm.expectRevert(ISeats.TooManyGroups.selector);
        vm.prank(_seatOwner(1));
        seats.optIn(1, 5);
        _out(1, 2);
        _in(1, 5);
        uint256[] memory groups = _groupsOf(1);
        assertEq(groups.length, 5);
        assertEq(groups[0], FAMILY);
        assertEq(groups[1], 1);
        assertEq(groups[2], 5);
        assertEq(groups[3], 3);
        assertEq(groups[4], 4);
        vm.expectRevert(ISeats.TooManyGroups.selector);
        vm.prank(_seatOwner(1));
        seats.optIn(1, 2);

        groups = new uint256[](6);
        for (uint256 i = 0; i < 6; ++i) {
            groups[i] = i + 1;
        }
        _give(stranger, address(seats), BOND);
        vm.expectRevert(ISeats.TooManyGroups.selector);
        vm.prank(stranger);
        seats.openSeat(0, stranger, groups);
    }

    function _choiceRefused(address who, bytes memory call, bytes memory refusal) internal {
        vm.expectRevert(refusal);
        vm.prank(who);
        (bool ok,) = address(seats).call(call);
        assertTrue(ok); // of expectRevert
    }

    function test_choicesAreRefused() public {
        address who = _seatOwner(1);
        bytes memory no = abi.encodeWithSelector(ISeats.NotSeatOwner.selector);
        _choiceRefused(stranger, abi.encodeCall(seats.optIn, (1, 7)), no);
        _choiceRefused(stranger, abi.encodeCall(seats.optOut, (1, FAMILY)), no);
        no = abi.encodeWithSelector(ISeats.AlreadyOptedIn.selector);
        _choiceRefused(who, abi.encodeCall(seats.optIn, (1, FAMILY)), no);
        uint256[] memory twice = new uint256[](2);
        (twice[0], twice[1]) = (7, 7);
        _choiceRefused(stranger, abi.encodeCall(seats.openSeat, (0, stranger, twice)), no);
        no = abi.encodeWithSelector(ISeats.NotOptedIn.selector);
        _choiceRefused(who, abi.encodeCall(seats.optOut, (1, 7)), no);
        _choiceRefused(who, abi.encodeCall(seats.optOut, (1, 0)), no);
        _choiceRefused(who, abi.encodeCall(seats.optOut, (1, FAMILY | (1 << 32))), no); // longer than a group
        no = abi.encodeWithSelector(ISeats.BadGroup.selector, 0);
        _choiceRefused(who, abi.encodeCall(seats.optIn, (1, 0)), no);
        _choiceRefused(stranger, abi.encodeCall(seats.openSeat, (0, stranger, new uint256[](1))), no);
        // the next pool's number, which may become anybody's
        no = abi.encodeWithSelector(ISeats.BadGroup.selector, 10);
        _choiceRefused(who, abi.encodeCall(seats.optIn, (1, 10)), no);
        _createPool(defaultTerms());
        _in(1, 10);
        no = abi.encodeWithSelector(ISeats.BadGroup.selector, uint256(1) << 32);
        _choiceRefused(who, abi.encodeCall(seats.optIn, (1, 1 << 32)), no);
        vm.prank(who);
        seats.leaveSeat(1);
        no = abi.encodeWithSelector(ISeats.SeatInactive.selector);
        _choiceRefused(who, abi.encodeCall(seats.optIn, (1, 7)), no);
        _choiceRefused(who, abi.encodeCall(seats.optOut, (1, FAMILY)), no);
    }

    function _five(uint256 seat) internal {
        for (uint256 group = 1; group <= 4; ++group) {
            _in(seat, group);
            _in(seat + 1, group);
        }
    }

    function _goneFromAll(uint256 seat) internal {
        assertEq(_groupsOf(seat).length, 0);
        _nextEpoch();
        uint256 epoch = seats.currentEpoch();
        for (uint256 group = 1; group <= 4; ++group) {
            assertEq(seats.countAt(group, epoch), 1);
            assertEq(_setOf(group, epoch), 1 << (seat + 1));
        }
        assertEq(seats.countAt(FAMILY, epoch), SEATS - 1);
        uint256[] memory hits = _hits(FAMILY, 200);
        assertEq(hits[seat], 0);
        assertGt(hits[seat + 1], 35);
    }

    function _expectOut(uint256 seat) internal {
        uint256 epoch = seats.currentEpoch();
        vm.expectEmit(address(seats));
        emit ISeats.SeatOptedOut(seat, FAMILY, epoch);
        for (uint256 group = 1; group <= 4; ++group) {
            vm.expectEmit(address(seats));
            emit ISeats.SeatOptedOut(seat, group, epoch);
        }
    }

    function test_evictionLeavesAllClasses() public {
        _five(2);
        _nextEpoch();
        _expectOut(2);
        vm.prank(address(court));
        seats.penalise(2, BOND / 2 + 1, SINK);
        _goneFromAll(2);
    }

    function test_leavingLeavesAllClassesAndReopeningChoosesAgain() public {
        _five(2);
        _nextEpoch();
        address who = _seatOwner(2);
        _expectOut(2);
        vm.prank(who);
        seats.leaveSeat(2);
        _goneFromAll(2);
        _blocks(450);
        vm.prank(who);
        seats.unbondSeat(2);
        _wait(30 days);
        vm.prank(who);
        seats.withdrawSeat(2);
        _give(who, address(seats), BOND);
        uint256[] memory groups = new uint256[](2);
        (groups[0], groups[1]) = (9, FAMILY);
        vm.expectEmit(address(seats));
        emit ISeats.SeatOpened(2, who, _voter(2), BOND, seats.currentEpoch() + 1);
        vm.expectEmit(address(seats));
        emit ISeats.SeatOptedIn(2, 9, seats.currentEpoch() + 1);
        vm.prank(who);
        seats.openSeat(2, _voter(2), groups);
        assertEq(_groupsOf(2), groups);
        _nextEpoch();
        assertEq(seats.countAt(9, seats.currentEpoch()), 1);
        assertGt(_hits(FAMILY, 200)[2], 35);
    }
}
