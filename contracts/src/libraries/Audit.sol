// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Audit
/// @notice The audit sample of a file (docs/protocol.md, section 3): rows ordered by
/// H("muster/audit/1", lane seed, sequence, row); the first ⌈rate · rows / 65536⌉ of them, at least one.
library Audit {
    bytes32 internal constant TAG = keccak256("muster/audit/1");

    function sampled(bytes32 seed, uint256 sequence, uint256 rows, uint256 rate, uint256 row)
        internal
        pure
        returns (bool)
    {
        if (row >= rows) return false;
        uint256 count = (rate * rows + 65535) >> 16;
        if (count == 0) count = 1;
        if (count >= rows) return true;
        bytes32 own = _rank(seed, sequence, row);
        uint256 smaller;
        for (uint256 i = 0; i < rows; ++i) {
            if (_rank(seed, sequence, i) < own && ++smaller == count) return false;
        }
        return true;
    }

    function _rank(bytes32 seed, uint256 sequence, uint256 row) private pure returns (bytes32) {
        return keccak256(abi.encode(TAG, seed, sequence, row));
    }
}
