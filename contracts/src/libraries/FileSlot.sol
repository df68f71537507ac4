// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title FileSlot
/// @notice A submission in one word, which stands in storage or among those that its lane's hash binds: digest 160 | amount 48 | time 32 | code 8 | phase 4 | flags 4, lowest first. The
/// amount are the node's earned units including this file when CUMULATIVE is set, the file's units otherwise. The time
/// is when it becomes final or vests, 0 while it is pending.
library FileSlot {
    /// The amount is cumulative: the file was to be paid once, and can stand as a claim's hint.
    uint256 internal constant CUMULATIVE = 1 << 252;
    /// The file counts as a frozen one in its node's account.
    uint256 internal constant FROZEN = 1 << 253;

    uint256 internal constant PENDING = 1;
    uint256 internal constant SETTLED = 2;
    uint256 internal constant DISPUTED = 3;
    uint256 internal constant FINAL = 4;

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
}
