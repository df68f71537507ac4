// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Audit
/// @notice The audit sample of a file (docs/protocol.md, section 3): rows ordered by
/// H("muster/audit/1", lane seed, sequence, row); the first ⌈rate · rows / 65536⌉ of them, at least one.
library Audit {
    bytes32 internal constant TAG = keccak256("muster/audit/1");
    /// Rows of the largest file: its sample costs less than a tenth of a block of 30 million gas.
    uint256 internal constant MAX_ROWS = 1 << 14;

    function sampled(bytes32 seed, uint256 sequence, uint256 rows, uint256 rate, uint256 row)
        internal
        pure
        returns (bool)
    {
        if (row >= rows) return false;
        uint256 count = (rate * rows + 65535) >> 16;
        if (count == 0) count = 1;
        if (count >= rows) return true;
        return _ranksBelow(seed, sequence, rows, row) < count;
    }

    /// @dev How many rows come before `row`. One buffer for all hashes: keccak256(abi.encode(TAG, seed, sequence, row)).
    function _ranksBelow(bytes32 seed, uint256 sequence, uint256 rows, uint256 row)
        private
        pure
        returns (uint256 below)
    {
        bytes32 tag = TAG;
        assembly ("memory-safe") {
            let buffer := mload(0x40)
            mstore(buffer, tag)
            mstore(add(buffer, 0x20), seed)
            mstore(add(buffer, 0x40), sequence)
            let last := add(buffer, 0x60)
            mstore(last, row)
            let own := keccak256(buffer, 0x80)
            for { let i := 0 } lt(i, rows) { i := add(i, 1) } {
                mstore(last, i)
                below := add(below, lt(keccak256(buffer, 0x80), own))
            }
        }
    }
}
