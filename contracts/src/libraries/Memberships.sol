// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Memberships
/// @notice The classes of one seat and its place in each, in one word: class 32 | place 16, five times; the highest bit
/// says that the seat was opened, so that opting in never pays for a fresh word. An entry of class 0 is free. An entry is
/// named by its `unit`: a word with only the entry's lowest bit.
library Memberships {
    /// Most classes of one seat.
    uint256 internal constant MOST = 5;
    /// The word of a seat in no class.
    uint256 internal constant NONE = 1 << 255;

    uint256 private constant UNITS = 1 | (1 << 48) | (1 << 96) | (1 << 144) | (1 << 192);
    uint256 private constant CLASSES = UNITS * type(uint32).max;

    function unitOf(uint256 index) internal pure returns (uint256) {
        return 1 << (48 * index);
    }

    /// @notice The first entry of a class, or the first free one for class 0; 0 when there is none.
    function find(uint256 w, uint256 class) internal pure returns (uint256 unit) {
        unchecked {
            // Zero where an entry is of that class; then adding all ones does not carry out of its 32 bits.
            uint256 difference = (w ^ (class * UNITS)) & CLASSES;
            uint256 found = ~(difference + CLASSES) & (UNITS << 32);
            return (found & (0 - found)) >> 32;
        }
    }

    function classAt(uint256 w, uint256 unit) internal pure returns (uint256) {
        return (w / unit) & type(uint32).max;
    }

    function placeAt(uint256 w, uint256 unit) internal pure returns (uint256) {
        return (w / (unit << 32)) & type(uint16).max;
    }

    function withEntry(uint256 w, uint256 unit, uint256 class, uint256 place) internal pure returns (uint256) {
        unchecked {
            return (w & ~(((1 << 48) - 1) * unit)) | (((place << 32) | class) * unit);
        }
    }
}
