// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Checkpoint
/// @notice The last three values of a small number in one word, each with the epoch since which it holds: enough to read
/// it in the previous, the current and the next epoch when it changes at most once per epoch boundary.
/// current 16 | since 32 | previous 16 | its since 32 | the one before 16.
library Checkpoint {
    /// @notice The newest value, which may hold only from the next epoch on.
    function latest(uint256 word) internal pure returns (uint256) {
        return word & 0xffff;
    }

    /// @notice The value in `epoch`.
    function read(uint256 word, uint256 epoch) internal pure returns (uint256) {
        if (epoch >= (word >> 16) & 0xffffffff) return word & 0xffff;
        if (epoch >= (word >> 64) & 0xffffffff) return (word >> 48) & 0xffff;
        return (word >> 96) & 0xffff;
    }

    /// @notice The word after setting `value` from `epoch` on; `epoch` never decreases.
    function write(uint256 word, uint256 value, uint256 epoch) internal pure returns (uint256) {
        if ((word >> 16) & 0xffffffff == epoch) return (word & ~uint256(0xffff)) | value;
        // current and its epoch become the previous ones, the previous value becomes the one before
        uint256 before = (word >> 48) & 0xffff;
        return (before << 96) | ((word & 0xffffffffffff) << 48) | (epoch << 16) | value;
    }
}
