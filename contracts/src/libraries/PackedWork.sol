// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title PackedWork
/// @notice What a node says of its file besides the hashes, in one word: step 32 | counter 24 | units 24 | rows 16,
/// highest first. A submission carries it; its digest and its event bind it to the file's place.
library PackedWork {
    function pack(uint256 step_, uint256 counter_, uint256 units_, uint256 rows_) internal pure returns (uint256) {
        return (step_ << 64) | (counter_ << 40) | (units_ << 16) | rows_;
    }

    /// @notice With the file's place above it: its pool and sequence (`id` = pool << 32 | sequence).
    function placed(uint256 w, uint256 id) internal pure returns (uint256) {
        return (id << 96) | w;
    }

    function step(uint256 w) internal pure returns (uint256) {
        return w >> 64;
    }

    function counter(uint256 w) internal pure returns (uint256) {
        return (w >> 40) & 0xffffff;
    }

    function units(uint256 w) internal pure returns (uint256) {
        return (w >> 16) & 0xffffff;
    }

    function rows(uint256 w) internal pure returns (uint256) {
        return w & 0xffff;
    }
}
