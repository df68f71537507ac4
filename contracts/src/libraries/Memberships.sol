// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Memberships
/// @notice The groups of one seat and its place in each, in one word: group 32 | place 16, five times; the highest bit
/// says that the seat was opened, so that opting in never pays for a fresh word. An entry of group 0 is free.
library Memberships {
    /// Most groups of one seat.
    uint256 internal constant MOST = 5;
    /// The word of a seat in no group.
    uint256 internal constant NONE = 1 << 255;

    uint256 private constant ENTRY = 48;

    function groupAt(uint256 word, uint256 index) internal pure returns (uint256) {
        return (word >> (index * ENTRY)) & type(uint32).max;
    }

    function placeAt(uint256 word, uint256 index) internal pure returns (uint256) {
        return (word >> (index * ENTRY + 32)) & type(uint16).max;
    }

    /// @notice The index of a group, or of a free entry for group 0; `MOST` when there is none.
    function find(uint256 word, uint256 group) internal pure returns (uint256 index) {
        if (word == NONE && group != 0) return MOST;
        unchecked {
            for (; index < MOST && word & type(uint32).max != group; ++index) {
                word >>= ENTRY;
            }
        }
    }

    function withEntry(uint256 word, uint256 index, uint256 group, uint256 place) internal pure returns (uint256) {
        uint256 shift = index * ENTRY;
        return (word & ~(uint256((1 << ENTRY) - 1) << shift)) | ((place << 32 | group) << shift);
    }
}
