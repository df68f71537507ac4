// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title FileId
/// @notice A file's pool and place in one number: pool 24 | zero 4 | sequence 28.
library FileId {
    error NoSuchFile(uint256 pool, uint256 sequence);

    /// @dev Whoever calls may name any number: one that is too large would stand for another pool's file.
    function checked(uint256 pool, uint256 sequence) internal pure returns (uint256) {
        if ((pool >> 24) | (sequence >> 28) != 0) revert NoSuchFile(pool, sequence);
        return pack(pool, sequence);
    }

    /// @dev Of a pool and a place that are known to exist.
    function pack(uint256 pool, uint256 sequence) internal pure returns (uint256) {
        return (pool << 32) | sequence;
    }
}
