// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Audit
/// @notice The audit sample of a file (docs/reference/protocol.md, section 3): row r is in it when the last sixteen
/// bits of H("muster/audit/1", lane seed, sequence, r) are below the rate, and row H("muster/audit-one/1", lane seed,
/// sequence) mod rows always. A constant cost, whatever the file's size.
library Audit {
    bytes32 internal constant TAG = keccak256("muster/audit/1");
    bytes32 internal constant ONE_TAG = keccak256("muster/audit-one/1");
    uint256 internal constant EVERYTHING = 1 << 16;

    function sampled(bytes32 seed, uint256 sequence, uint256 rows, uint256 rate, uint256 row)
        internal
        pure
        returns (bool)
    {
        if (row >= rows) return false;
        if (rate >= EVERYTHING) return true;
        if (row == uint256(keccak256(abi.encode(ONE_TAG, seed, sequence))) % rows) return true;
        return uint16(uint256(keccak256(abi.encode(TAG, seed, sequence, row)))) < rate;
    }
}
