// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title PoolSlot
/// @notice What a submission needs to know of its pool, in one word:
/// free 64 | rate 32 | fee 32 | sequence 28 | lane start 32 | max units 24 | steps 20 | lane blocks 8 | max lag 4 |
/// committee 4 | status 8, lowest first.
library PoolSlot {
    uint256 internal constant MAX_FREE = type(uint64).max;
    uint256 internal constant MAX_SEQUENCE = (1 << 28) - 1;
    uint256 internal constant MAX_STEPS = (1 << 20) - 1;

    function pack(
        uint256 rate_,
        uint256 fee_,
        uint256 maxUnits_,
        uint256 laneBlocks_,
        uint256 maxLag_,
        uint256 committee_,
        uint256 status_
    ) internal pure returns (uint256) {
        return (rate_ << 64) | (fee_ << 96) | (maxUnits_ << 188) | (laneBlocks_ << 232) | (maxLag_ << 240)
            | (committee_ << 244) | (status_ << 248);
    }

    function free(uint256 word) internal pure returns (uint256) {
        return word & MAX_FREE;
    }

    function rate(uint256 word) internal pure returns (uint256) {
        return (word >> 64) & 0xffffffff;
    }

    function fee(uint256 word) internal pure returns (uint256) {
        return (word >> 96) & 0xffffffff;
    }

    function sequence(uint256 word) internal pure returns (uint256) {
        return (word >> 128) & MAX_SEQUENCE;
    }

    function laneStart(uint256 word) internal pure returns (uint256) {
        return (word >> 156) & 0xffffffff;
    }

    function maxUnits(uint256 word) internal pure returns (uint256) {
        return (word >> 188) & 0xffffff;
    }

    function steps(uint256 word) internal pure returns (uint256) {
        return (word >> 212) & MAX_STEPS;
    }

    function laneBlocks(uint256 word) internal pure returns (uint256) {
        return (word >> 232) & 0xff;
    }

    function maxLag(uint256 word) internal pure returns (uint256) {
        return (word >> 240) & 0xf;
    }

    function committee(uint256 word) internal pure returns (uint256) {
        return (word >> 244) & 0xf;
    }

    function status(uint256 word) internal pure returns (uint256) {
        return word >> 248;
    }

    /// @notice All committee fees of one file.
    function fees(uint256 word) internal pure returns (uint256) {
        unchecked {
            return committee(word) * fee(word);
        }
    }

    function withFree(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~MAX_FREE) | value;
    }

    function withLane(uint256 word, uint256 sequence_, uint256 start) internal pure returns (uint256) {
        return (word & ~(((uint256(1) << 60) - 1) << 128)) | (sequence_ << 128) | (start << 156);
    }

    function withSteps(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~(MAX_STEPS << 212)) | (value << 212);
    }

    function withStatus(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ((uint256(1) << 248) - 1)) | (value << 248);
    }
}
