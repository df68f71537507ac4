// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileData} from "./Types.sol";

/// @title PackedWork
/// @notice What a node says of its file besides the hashes, and the place that the contract assigned, in one word:
/// pool 24 | sequence 32 | step 32 | counter 24 | units 24 | rows 16, lowest bits last. Digest and event bind it.
library PackedWork {
    function placed(uint256 pool, uint256 sequence, FileData calldata file) internal pure returns (uint256) {
        return (pool << 128) | (sequence << 96) | (uint256(file.step) << 64) | (uint256(file.counter) << 40)
            | (uint256(file.units) << 16) | file.rows;
    }
}
