// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Checkpoint
/// @notice The last five values of a small number in one word, each with the epoch since which it holds: enough to read
/// it in the next epoch, the current one and the three before it when it changes at most once per epoch boundary.
/// value 16 | since 32, five times, newest lowest.
library Checkpoint {
    uint256 private constant ENTRY = 48;
    uint256 private constant KEPT = (1 << 192) - 1;

    /// @notice The newest value, which may hold only from the next epoch on.
    function latest(uint256 word) internal pure returns (uint256) {
        return word & 0xffff;
    }

    /// @notice The value in `epoch`.
    function read(uint256 word, uint256 epoch) internal pure returns (uint256) {
        while (epoch < (word >> 16) & 0xffffffff) word >>= ENTRY;
        return word & 0xffff;
    }

    /// @notice The word after setting `value` from `epoch` on; `epoch` never decreases.
    function write(uint256 word, uint256 value, uint256 epoch) internal pure returns (uint256) {
        if ((word >> 16) & 0xffffffff == epoch) return (word & ~uint256(0xffff)) | value;
        return ((word & KEPT) << ENTRY) | (epoch << 16) | value;
    }
}
