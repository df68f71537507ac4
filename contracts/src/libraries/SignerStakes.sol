// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "../interfaces/IParams.sol";

/// @title SignerStakes
/// @notice What stakes behind the keys of swarms and of runs of sites have in common: their bounds, and what two signatures
/// that cannot both be cost.
library SignerStakes {
    uint256 internal constant MAX_STAKE = type(uint56).max;
    uint256 internal constant MAX_DELAY = 365 days;
    /// Share of the stake that two contradicting signatures cost, in 1/10000.
    uint256 internal constant SLASH_BPS = 5_000;
    /// Share of a slash for whoever brings it about; the rest is burnt, or a cheat would be its own prover for nothing.
    uint256 internal constant REWARD_BPS = 1_000;

    function isStake(uint256 stake) internal pure returns (bool) {
        return stake != 0 && stake <= MAX_STAKE;
    }

    /// @param delay Seconds for which stake stays after the end of what it stands for.
    function isDelay(uint256 delay, IParams params) internal view returns (bool) {
        return delay >= params.minWindow() && delay <= MAX_DELAY;
    }

    /// @notice Of a stake whose key contradicts itself: what leaves it, and how much of that the prover gets.
    function slashed(uint256 stake) internal pure returns (uint256 taken, uint256 reward) {
        taken = stake * SLASH_BPS / 10_000;
        reward = taken * REWARD_BPS / 10_000;
    }
}
