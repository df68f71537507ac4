// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Choosing} from "../helpers/Choosing.sol";
import {ISeats} from "../interfaces/ISeats.sol";

/// @notice Seats judge what they chose, and only that.
contract ChosenDrawsTest is Choosing {
    function _chosen(uint256[] memory drawn, uint256 size) internal {
        assertEq(drawn.length, size);
        for (uint256 i = 0; i < size; ++i) {
            assertEq(_groupsOf(drawn[i]), _classes(FAMILY));
        }
    }

    /// Committee, fresh committee, jury and second jury, over many seeds: none but seats of the pool's group.
    function test_whoDidNotOptInIsNeverDrawn() public {
        _moveToTwoJuries();
        for (uint256 i = 0; i < 3; ++i) {
            uint256 s = _submit();
            _vote(s / 16, 0, _three(_all(1), _all(3), 0));
            _vote(s / 16, 1, _three(_all(1), _all(1), _all(1)));
            _chosen(_round(pool, s / 16, 0).seats, 3);
            _chosen(_round(pool, s / 16, 1).seats, 3);
            uint256 trial = _dispute(stranger, s);
            _juryVotes(trial, Codes.REJECT_WEIGHTS);
            _chosen(juries.seatsOf(trial), 5);
            _conclude(s);
            uint256 second = _appeal(operator, s);
            _juryVotes(second, Codes.ACCEPT);
            _chosen(juries.seatsOf(second), 7);
            _conclude(s);
            _blocks(4);
        }
        for (uint256 seat = 12; seat <= 24; ++seat) {
            assertEq(seats.seatOf(seat).bond, BOND); // what is not chosen costs nothing
        }
    }

    function test_whoDidNotOptInJudgesNoCanary() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        for (uint256 i = 0; i < 4; ++i) {
            uint256 s = _submit();
            _voteAll(s / 16, Codes.ACCEPT);
            _openCanary(s);
            uint256 trial = canaries.canaryOf(pool, s).trial;
            _juryVotes(trial, Codes.ACCEPT);
            _chosen(juries.seatsOf(trial), 5);
            canaries.conclude(pool, s, files[pool][s]);
            _blocks(4);
        }
    }

    function test_whoOptsInIsDrawnFromTheNextEpochOn() public {
        vm.expectEmit(address(seats));
        emit ISeats.SeatOptedIn(12, FAMILY, seats.currentEpoch() + 1);
        _in(12, FAMILY);
        assertEq(seats.countAt(FAMILY, seats.currentEpoch()), SEATS);
        assertEq(_hits(FAMILY, 200)[12], 0);
        _nextEpoch();
        assertEq(seats.countAt(FAMILY, seats.currentEpoch()), SEATS + 1);
        assertGt(_hits(FAMILY, 200)[12], 30); // 50 expected, sigma 6
        assertGt(_hits(OTHER, 200)[12], 30); // and it still judges the other family
    }

    function test_whoOptsOutLeavesTheDrawAtTheNextEpoch() public {
        vm.expectEmit(address(seats));
        emit ISeats.SeatOptedOut(3, FAMILY, seats.currentEpoch());
        _out(3, FAMILY);
        assertGt(_hits(FAMILY, 200)[3], 35); // 55 expected, sigma 6
        _nextEpoch();
        assertEq(seats.countAt(FAMILY, seats.currentEpoch()), SEATS - 1);
        uint256[] memory hits = _hits(FAMILY, 200);
        assertEq(hits[3], 0);
        assertGt(hits[11], 35); // the last seat, which took its place
        _in(3, FAMILY);
        _nextEpoch();
        assertGt(_hits(FAMILY, 200)[3], 35);
    }

    /// A draw under way holds who opted out: silence costs it, a vote earns, and both are free of later lanes.
    function test_optingOutEscapesNoDuty() public {
        _openSeats(2); // enough without the two
        _nextEpoch();
        _blocks(80);
        uint256 s = _submit();
        uint256 lane = s / 16;
        _blocks(2);
        (uint256[] memory members,,,) = court.committeeOf(pool, lane, 0);
        _out(members[0], FAMILY);
        _out(members[1], FAMILY);
        _nextEpoch();
        _vote(lane, 0, _three(0, _all(1), _all(1)));
        assertEq(_round(pool, lane, 0).seats, members);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(seats.seatOf(members[0]).bond, BOND - 2e9);
        _passWindow();
        _closeAll(lane, 0);
        assertEq(token.balanceOf(_seatOwner(members[0])), 0);
        assertEq(token.balanceOf(_seatOwner(members[1])), FEE);
        assertEq(token.balanceOf(_seatOwner(members[2])), FEE);
        uint256[] memory hits = _hits(FAMILY, 200);
        assertEq(hits[members[0]] + hits[members[1]], 0);
    }

    /// @dev Chi-square of `rounds` draws of three among the seats for which `hits` may be positive; all others have none.
    function _chiSquare(uint256[] memory hits, uint256 rounds, uint256 from, uint256 to)
        internal
        returns (uint256 chi)
    {
        uint256 n = to - from + 1;
        for (uint256 seat = 1; seat < hits.length; ++seat) {
            if (seat < from || seat > to) {
                assertEq(hits[seat], 0);
                continue;
            }
            int256 off = int256(hits[seat] * n) - int256(3 * rounds);
            chi += uint256(off * off);
        }
        chi /= n * 3 * rounds;
    }

    function test_drawIsUniformOverTheClass() public {
        assertLt(_chiSquare(_hits(FAMILY, 2_000), 2_000, 1, 11), 30); // ten degrees of freedom: one in a thousand
        assertLt(_chiSquare(_hits(OTHER, 2_000), 2_000, 12, 23), 32); // eleven
        for (uint256 seat = 1; seat <= 11; ++seat) {
            if (seat > 4) _in(seat, OTHER);
            if (seat < 5) _out(seat, FAMILY);
        }
        _nextEpoch();
        assertLt(_chiSquare(_hits(FAMILY, 2_000), 2_000, 5, 11), 23); // six
        assertLt(_chiSquare(_hits(OTHER, 2_000), 2_000, 5, 23), 43); // eighteen
    }
}
