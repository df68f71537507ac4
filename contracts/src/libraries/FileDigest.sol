// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileData} from "./Types.sol";
import {Hashes} from "@openzeppelin/contracts/utils/cryptography/Hashes.sol";

/// @title FileDigest
/// @notice What a submission's slot keeps of its file: a digest that binds its node, its place and all that its node
/// signed.
library FileDigest {
    /// @notice pool 24 | sequence 32 | step 32 | counter 24 | units 32 | rows 16, lowest bits last.
    function placed(uint256 pool, uint256 sequence, FileData calldata file) internal pure returns (uint256) {
        return (pool << 136) | (sequence << 104) | (uint256(file.step) << 72) | (uint256(file.counter) << 48)
            | (uint256(file.units) << 16) | file.rows;
    }

    function inner(uint256 pool, uint256 sequence, FileData calldata file) internal pure returns (bytes32) {
        return inner(file.root, file.fileHash, placed(pool, sequence, file));
    }

    /// @notice keccak256(abi.encode(root, fileHash, placed_)).
    /// @dev Every submission pays for it, so the words lie beyond the free memory pointer, which stays where it is.
    function inner(bytes32 root, bytes32 fileHash, uint256 placed_) internal pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            let words := mload(0x40)
            mstore(words, root)
            mstore(add(words, 0x20), fileHash)
            mstore(add(words, 0x40), placed_)
            hash := keccak256(words, 0x60)
        }
    }

    /// @notice First 20 bytes of keccak256(abi.encode(inner_, node)).
    function digest(bytes32 inner_, address node) internal pure returns (uint160) {
        return uint160(uint256(Hashes.efficientKeccak256(inner_, bytes32(uint256(uint160(node))))) >> 96);
    }
}
