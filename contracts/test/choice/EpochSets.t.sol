// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Choosing} from "../helpers/Choosing.sol";
import {ISeats} from "../interfaces/ISeats.sol";

/// @notice The sets of seats of every epoch, against plain ones.
contract EpochSetsTest is Choosing {
    uint256 internal constant MANY = 6;
    /// By group: seats of the next epoch, bit by bit.
    uint256[MANY + 1] internal latest;
    mapping(uint256 epoch => uint256[MANY + 1]) internal known;

    function _choose(uint256 r) internal {
        uint256 seat = 12 + r % 8;
        uint256 group = 1 + (r >> 8) % MANY;
        uint256 count;
        for (uint256 i = 1; i <= MANY; ++i) {
            if (latest[i] >> seat & 1 == 1) ++count;
        }
        bool inside = latest[group] >> seat & 1 == 1;
        bool enter = (r >> 16) % 3 != 0;
        if (enter && inside) vm.expectRevert(ISeats.AlreadyOptedIn.selector);
        else if (enter && count == 4) vm.expectRevert(ISeats.TooManyGroups.selector); // and the family
        else if (!enter && !inside) vm.expectRevert(ISeats.NotOptedIn.selector);
        else latest[group] ^= 1 << seat;
        if (enter) _in(seat, group);
        else _out(seat, group);
    }

    function _compare(uint256 first) internal view {
        uint256 now_ = seats.currentEpoch();
        uint256 from = now_ > first + 3 ? now_ - 3 : first;
        for (uint256 epoch = from; epoch <= now_ + 1; ++epoch) {
            for (uint256 group = 1; group <= MANY; ++group) {
                uint256 set = epoch > now_ ? latest[group] : known[epoch][group];
                require(_setOf(group, epoch) == set, "set");
            }
        }
    }

    function testFuzz_setsOfEveryEpoch(uint256 seed) public {
        uint256 first = seats.currentEpoch();
        for (uint256 i = 0; i < 8; ++i) {
            for (uint256 j = 0; j < 8; ++j) {
                _choose(uint256(keccak256(abi.encode(seed, i, j))));
            }
            _compare(first);
            _nextEpoch();
            known[seats.currentEpoch()] = latest;
        }
        _compare(first);
    }
}
