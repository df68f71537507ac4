// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title PoolSlot
/// @notice What a submission needs to know of its pool, in one word:
/// free 64 | rate 32 | fee 32 | lanes 24 | max units 24 | steps 20 | max lag 4 | committee 4 | status 8, lowest first.
library PoolSlot {
    uint256 internal constant MAX_FREE = type(uint64).max;
    uint256 internal constant MAX_LANES = (1 << 24) - 1;
    uint256 internal constant MAX_STEPS = (1 << 20) - 1;

    function pack(uint256 rate_, uint256 fee_, uint256 maxUnits_, uint256 maxLag_, uint256 committee_, uint256 status_)
        internal
        pure
        returns (uint256)
    {
        return
            (rate_ << 64) | (fee_ << 96) | (maxUnits_ << 152) | (maxLag_ << 196) | (committee_ << 200)
                | (status_ << 204);
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

    /// @notice Lanes so far: the next one's number.
    function lanes(uint256 word) internal pure returns (uint256) {
        return (word >> 128) & MAX_LANES;
    }

    function maxUnits(uint256 word) internal pure returns (uint256) {
        return (word >> 152) & 0xffffff;
    }

    function steps(uint256 word) internal pure returns (uint256) {
        return (word >> 176) & MAX_STEPS;
    }

    function maxLag(uint256 word) internal pure returns (uint256) {
        return (word >> 196) & 0xf;
    }

    function committee(uint256 word) internal pure returns (uint256) {
        return (word >> 200) & 0xf;
    }

    function status(uint256 word) internal pure returns (uint256) {
        return (word >> 204) & 0xff;
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

    function withLanes(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~(MAX_LANES << 128)) | (value << 128);
    }

    function withSteps(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~(MAX_STEPS << 176)) | (value << 176);
    }

    function withStatus(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~(uint256(0xff) << 204)) | (value << 204);
    }
}
