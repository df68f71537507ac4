// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title PackedWork
/// @notice What a node says of its file besides the hashes, in one word: pool 24 | sequence 32 | step 32 | counter 24 |
/// units 24 | rows 16, lowest bits last. A submission carries it with a sequence of zero; with the one that the
/// contract assigns, its digest and its event bind it to the file's place.
library PackedWork {
    function pack(uint256 pool_, uint256 step_, uint256 counter_, uint256 units_, uint256 rows_)
        internal
        pure
        returns (uint256)
    {
        return (pool_ << 128) | (step_ << 64) | (counter_ << 40) | (units_ << 16) | rows_;
    }

    function placed(uint256 word, uint256 sequence) internal pure returns (uint256) {
        return word | (sequence << 96);
    }

    /// @notice Pool and sequence (FileId).
    function id(uint256 word) internal pure returns (uint256) {
        return word >> 96;
    }

    function pool(uint256 word) internal pure returns (uint256) {
        return word >> 128;
    }

    function step(uint256 word) internal pure returns (uint256) {
        return (word >> 64) & 0xffffffff;
    }

    function counter(uint256 word) internal pure returns (uint256) {
        return (word >> 40) & 0xffffff;
    }

    function units(uint256 word) internal pure returns (uint256) {
        return (word >> 16) & 0xffffff;
    }

    function rows(uint256 word) internal pure returns (uint256) {
        return word & 0xffff;
    }
}
