// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileData} from "./Types.sol";
import {Hashes} from "@openzeppelin/contracts/utils/cryptography/Hashes.sol";

/// @title FileSlot
/// @notice A submission in one word, in storage or among those that its lane's hash binds: digest 160 | amount 48 |
/// time 32 | code 8 | phase 4 | flags 4, lowest first. When CUMULATIVE is set, the amount is what the node has earned
/// including this file, in units; otherwise it is the file's units. The time is when the file becomes final or vests, 0
/// while it is pending.
library FileSlot {
    /// The amount is cumulative: the file was to be paid once, and can stand as a claim's hint.
    uint256 internal constant CUMULATIVE = 1 << 252;
    /// The file counts as a frozen one in its node's account.
    uint256 internal constant FROZEN = 1 << 253;

    uint256 internal constant PENDING = 1;
    uint256 internal constant SETTLED = 2;
    uint256 internal constant DISPUTED = 3;
    uint256 internal constant FINAL = 4;

    error NoSuchFile(uint256 pool, uint256 sequence);

    function pack(uint256 digest_, uint256 amount_, uint256 time_, uint256 code_, uint256 phase_)
        internal
        pure
        returns (uint256)
    {
        return digest_ | (amount_ << 160) | (time_ << 208) | (code_ << 240) | (phase_ << 248);
    }

    function digest(uint256 word) internal pure returns (uint160) {
        return uint160(word);
    }

    function amount(uint256 word) internal pure returns (uint256) {
        return (word >> 160) & 0xffffffffffff;
    }

    /// @notice Settled: when its outcome becomes final, and its pay vests.
    function finalAt(uint256 word) internal pure returns (uint256) {
        return (word >> 208) & 0xffffffff;
    }

    function code(uint256 word) internal pure returns (uint256) {
        return (word >> 240) & 0xff;
    }

    function phase(uint256 word) internal pure returns (uint256) {
        return (word >> 248) & 0xf;
    }

    /// @notice keccak256 of a lane's words, one after the other.
    function hash(uint256[] memory words) internal pure returns (bytes32 hash_) {
        assembly ("memory-safe") {
            hash_ := keccak256(add(words, 0x20), shl(5, mload(words)))
        }
    }

    function withPhase(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~(uint256(0xf) << 248)) | (value << 248);
    }

    /// @notice The same file when it is final, without flags.
    function ended(uint256 word, uint256 amount_, uint256 time_, uint256 code_) internal pure returns (uint256) {
        return pack(digest(word), amount_, time_, code_, FINAL);
    }

    /// @notice A file's pool and place in one number: pool 24 | zero 4 | sequence 28.
    /// @dev A caller may name any number, and one that is too large would stand for another pool's file.
    function idOf(uint256 pool, uint256 sequence) internal pure returns (uint256) {
        if ((pool >> 24) | (sequence >> 28) != 0) revert NoSuchFile(pool, sequence);
        return knownId(pool, sequence);
    }

    /// @dev Of a pool and a place that are known to exist.
    function knownId(uint256 pool, uint256 sequence) internal pure returns (uint256) {
        return (pool << 32) | sequence;
    }

    /// @notice pool 24 | sequence 32 | step 32 | counter 24 | units 32 | rows 16, lowest bits last.
    function placed(uint256 pool, uint256 sequence, FileData calldata file) internal pure returns (uint256) {
        return (pool << 136) | (sequence << 104) | (uint256(file.step) << 72) | (uint256(file.counter) << 48)
            | (uint256(file.units) << 16) | file.rows;
    }

    function inner(uint256 pool, uint256 sequence, FileData calldata file) internal pure returns (bytes32) {
        return inner(file.root, file.fileHash, placed(pool, sequence, file));
    }

    function inner(bytes32 root, bytes32 fileHash, uint256 placed_) internal pure returns (bytes32) {
        return keccak256(abi.encode(root, fileHash, placed_));
    }

    /// @notice First 20 bytes of keccak256(abi.encode(inner_, node)).
    function digest(bytes32 inner_, address node) internal pure returns (uint160) {
        return uint160(uint256(Hashes.efficientKeccak256(inner_, bytes32(uint256(uint160(node))))) >> 96);
    }
}
