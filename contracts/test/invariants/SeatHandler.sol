// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISeats} from "../interfaces/ISeats.sol";
import {World} from "./World.sol";

/// @notice What owners of seats do: enough of them stay that bodies can be drawn.
abstract contract SeatHandler is World {
    /// A group that no pool names.
    uint256 internal constant OTHER = FAMILY - 1;

    function seatOpens(uint256 i) external acts {
        if (seats.opened() >= 60 || params.paused()) return;
        uint256 seat = seats.opened() + 1;
        _openSeats(1);
        if (i % 2 == 0) {
            vm.prank(_seatOwner(seat));
            seats.optIn(seat, OTHER);
        }
        _reach("seat opens");
    }

    function seatOpts(uint256 i) external acts {
        uint256 seat = _someSeat(i);
        if (!ghostSeats[seat].active) return;
        address who = seats.ownerOf(seat);
        uint256 group = i % 3 == 0 ? FAMILY : OTHER;
        bool inside = _isIn(seat, group);
        if (inside && group == FAMILY && _tooFew()) return;
        vm.prank(who);
        if (inside) seats.optOut(seat, group);
        else seats.optIn(seat, group);
        _reach(inside ? "opt out" : "opt in");
    }

    function seatLeaves(uint256 i) external acts {
        uint256 seat = _someSeat(i);
        if (!ghostSeats[seat].active || (_isIn(seat, FAMILY) && _tooFew())) return;
        vm.prank(seats.ownerOf(seat));
        seats.leaveSeat(seat);
        _reach("seat leaves");
    }

    /// @dev Seats that left go one step further, if nothing they may owe keeps them.
    function seatWithdraws(uint256 i) external acts {
        for (uint256 k = 0; k < seats.opened(); ++k) {
            uint256 seat = _someSeat(i % 1_000 + k);
            ISeats.Seat memory s = seats.seatOf(seat);
            if (ghostSeats[seat].active || ghostSeats[seat].bond == 0) continue;
            if (s.releaseAt == 0 && seats.currentEpoch() >= s.leftEpoch + 4) {
                vm.prank(s.owner);
                seats.unbondSeat(seat);
                _reach("unbond");
            } else if (s.releaseAt != 0 && clock >= s.releaseAt && s.frozen == 0) {
                _withdrawSeat(seat, s);
            }
        }
    }

    function _withdrawSeat(uint256 seat, ISeats.Seat memory s) private {
        vm.prank(s.owner);
        seats.withdrawSeat(seat);
        _reach("seat withdraws");
        if (params.paused()) return;
        _give(s.owner, address(seats), BOND);
        vm.prank(s.owner);
        seats.openSeat(seat, s.voter, _classes(FAMILY));
        _reach("seat reopens");
    }

    function topUp(uint256 i) external acts {
        for (uint256 k = 0; k < seats.opened(); ++k) {
            uint256 seat = _someSeat(i % 1_000 + k);
            if (!ghostSeats[seat].active || ghostSeats[seat].bond == BOND) continue;
            _give(watcher, address(seats), BOND);
            vm.prank(watcher);
            seats.topUp(seat);
            return _reach("top up");
        }
    }

    function rotate(uint256 i) external acts {
        uint256 seat = _someSeat(i);
        address voter = account(string.concat("rotated ", _text(i % 1_000)));
        vm.prank(seats.ownerOf(seat));
        seats.setVoter(seat, voter);
        _reach("rotate");
    }

    function _someSeat(uint256 i) private view returns (uint256) {
        return 1 + i % seats.opened();
    }

    function _tooFew() private view returns (bool) {
        return seats.countAt(FAMILY, seats.currentEpoch() + 1) <= 19;
    }

    function _isIn(uint256 seat, uint256 group) private view returns (bool) {
        uint256[] memory groups = _groupsOf(seat);
        for (uint256 i = 0; i < groups.length; ++i) {
            if (groups[i] == group) return true;
        }
        return false;
    }
}
