// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Memberships
/// @notice The classes of one seat and its place in each, in one word: class 32 | place 16, five times; the highest bit
/// says that the seat was opened, so that opting in never pays for a fresh word. An entry of class 0 is free.
library Memberships {
    /// Most classes of one seat.
    uint256 internal constant MOST = 5;
    /// The word of a seat in no class.
    uint256 internal constant NONE = 1 << 255;

    uint256 private constant ENTRY = 48;

    function classAt(uint256 word, uint256 index) internal pure returns (uint256) {
        return (word >> (index * ENTRY)) & type(uint32).max;
    }

    function placeAt(uint256 word, uint256 index) internal pure returns (uint256) {
        return (word >> (index * ENTRY + 32)) & type(uint16).max;
    }

    /// @notice The index of a class, or of a free entry for class 0; `MOST` when there is none.
    function find(uint256 word, uint256 class) internal pure returns (uint256 index) {
        if (word == NONE && class != 0) return MOST;
        unchecked {
            for (; index < MOST && word & type(uint32).max != class; ++index) {
                word >>= ENTRY;
            }
        }
    }

    function withEntry(uint256 word, uint256 index, uint256 class, uint256 place) internal pure returns (uint256) {
        uint256 shift = index * ENTRY;
        return (word & ~(uint256((1 << ENTRY) - 1) << shift)) | ((place << 32 | class) << shift);
    }
}
