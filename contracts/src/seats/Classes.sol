// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISeats} from "../interfaces/ISeats.sol";
import {Checkpoint} from "../libraries/Checkpoint.sol";
import {Epochs} from "../libraries/Epochs.sol";
import {Memberships} from "../libraries/Memberships.sol";

/// @title Classes
/// @notice Which seats judge which class, in which epoch. A class's set is a list without gaps: who opts in takes the
/// next place, and the last seat takes the place of one that opts out.
abstract contract Classes is ISeats {
    using Checkpoint for uint256;
    using Memberships for uint256;

    /// @inheritdoc ISeats
    uint256 public immutable epochBlocks;

    /// @dev Drawable seats (a Checkpoint).
    mapping(uint256 class => uint256 checkpoint) internal _counts;
    /// @dev By class << 16 | place: the seat (a Checkpoint).
    mapping(uint256 key => uint256 checkpoint) internal _places;
    mapping(uint256 seat => uint256 word) internal _memberships;

    constructor(uint256 epochBlocks_) {
        epochBlocks = epochBlocks_;
    }

    /// @inheritdoc ISeats
    function classesOf(uint256 seat) external view returns (uint256[] memory classes) {
        uint256 word = _memberships[seat];
        classes = new uint256[](Memberships.MOST);
        uint256 found;
        for (uint256 i = 0; i < Memberships.MOST; ++i) {
            uint256 class = word.classAt(i);
            if (class != 0) classes[found++] = class;
        }
        assembly ("memory-safe") {
            mstore(classes, found)
        }
    }

    /// @inheritdoc ISeats
    function currentEpoch() public view returns (uint256) {
        return block.number / epochBlocks;
    }

    /// @inheritdoc ISeats
    function countAt(uint256 class, uint256 epoch) public view returns (uint256) {
        _known(epoch);
        return _counts[class].read(epoch);
    }

    /// @inheritdoc ISeats
    function seatAt(uint256 class, uint256 place, uint256 epoch) external view returns (uint256) {
        _known(epoch);
        return _places[_key(class, place)].read(epoch);
    }

    /// @dev The seat's word with one class more, whose last place it gets from the next epoch on.
    function _enter(uint256 word, uint256 seat, uint256 class) internal returns (uint256) {
        if (class == 0 || class > type(uint32).max) revert BadClass(class);
        if (word.find(class) != Memberships.MOST) revert AlreadyOptedIn();
        uint256 index = word.find(0);
        if (index == Memberships.MOST) revert TooManyClasses();
        uint256 next = currentEpoch() + 1;
        uint256 count = _counts[class];
        uint256 place = count.latest();
        uint256 key = _key(class, place);
        _places[key] = _places[key].write(seat, next);
        _counts[class] = count.write(place + 1, next);
        emit SeatOptedIn(seat, class, next);
        return word.withEntry(index, class, place);
    }

    /// @dev The seat's word without its class at `index`, whose place goes to the last seat from the next epoch on.
    function _exit(uint256 word, uint256 seat, uint256 index) internal returns (uint256) {
        uint256 class = word.classAt(index);
        uint256 place = word.placeAt(index);
        uint256 epoch = currentEpoch();
        uint256 count = _counts[class];
        uint256 last = count.latest() - 1;
        if (place != last) {
            uint256 moved = _places[_key(class, last)].latest();
            uint256 key = _key(class, place);
            _places[key] = _places[key].write(moved, epoch + 1);
            uint256 other = _memberships[moved];
            _memberships[moved] = other.withEntry(other.find(class), class, place);
        }
        _counts[class] = count.write(last, epoch + 1);
        emit SeatOptedOut(seat, class, epoch);
        return word.withEntry(index, 0, 0);
    }

    /// @dev Takes a seat out of every class.
    function _exitAll(uint256 seat) internal {
        uint256 word = _memberships[seat];
        for (uint256 i = 0; i < Memberships.MOST; ++i) {
            if (word.classAt(i) != 0) word = _exit(word, seat, i);
        }
        _memberships[seat] = word;
    }

    function _key(uint256 class, uint256 place) internal pure returns (uint256) {
        return (class << 16) | place;
    }

    function _known(uint256 epoch) private view {
        uint256 current = currentEpoch();
        if (epoch > current + 1 || epoch + Epochs.REACH < current) revert UnknownEpoch();
    }
}
