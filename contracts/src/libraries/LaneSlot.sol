// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title LaneSlot
/// @notice One committee round of a lane in one word: seed 64 | five members of 16 | time 32 | codes 64 | committed 5 |
/// revealed 5 | free 4 | closed 1 | settled 1, lowest first. The time is the block of the seed until the draw, the
/// time of the draw until settlement, and the time of settlement afterwards. The codes always
/// say what is known of each place: UNDECIDED for what this round is to judge, NONE for what it is not.
library LaneSlot {
    uint256 internal constant MOST = 5;
    uint256 internal constant CLOSED = 1 << 254;
    uint256 internal constant SETTLED = 1 << 255;

    function seed(uint256 word) internal pure returns (uint256) {
        return word & type(uint64).max;
    }

    function member(uint256 word, uint256 index) internal pure returns (uint256) {
        return (word >> (64 + (index << 4))) & 0xffff;
    }

    /// @notice Seed and members.
    function drawn(uint256 word) internal pure returns (uint256) {
        return word & ((1 << 144) - 1);
    }

    function time(uint256 word) internal pure returns (uint256) {
        return (word >> 144) & 0xffffffff;
    }

    function codes(uint256 word) internal pure returns (uint256) {
        return (word >> 176) & type(uint64).max;
    }

    function committed(uint256 word) internal pure returns (uint256) {
        return (word >> 240) & 0x1f;
    }

    function revealed(uint256 word) internal pure returns (uint256) {
        return (word >> 245) & 0x1f;
    }

    function settled(uint256 word) internal pure returns (bool) {
        return word >> 255 == 1;
    }

    function withMember(uint256 word, uint256 index, uint256 seat) internal pure returns (uint256) {
        return word | (seat << (64 + (index << 4)));
    }

    function withCommitted(uint256 word, uint256 index) internal pure returns (uint256) {
        return word | (uint256(1) << (240 + index));
    }

    function withRevealed(uint256 word, uint256 index) internal pure returns (uint256) {
        return word | (uint256(1) << (245 + index));
    }

    function withTime(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~(uint256(0xffffffff) << 144)) | (value << 144);
    }

    function withCodes(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~(uint256(type(uint64).max) << 176)) | (value << 176);
    }
}
