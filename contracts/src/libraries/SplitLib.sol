// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title SplitLib
/// @notice How a slash is split.
library SplitLib {
    /// Share of a penalty that goes to whoever collects it, in 1/10000.
    uint256 internal constant COLLECTOR_BPS = 500;

    /// @notice What is taken of a stake, and how it is split: fees first, then a reward of at most `rewardBps` of it;
    /// what is left is burnt.
    /// @param kept What other files of the node may still cost.
    function slash(uint256 stake, uint256 amount, uint256 kept, uint256 fees, uint256 reward, uint256 rewardBps)
        internal
        pure
        returns (uint256 taken, uint256 feesPaid, uint256 rewardPaid)
    {
        taken = take(stake, amount, kept);
        (feesPaid, rewardPaid) = split(taken, fees, reward, taken * rewardBps / 10_000);
    }

    /// @notice At most `amount`, and never of the last `kept` base units.
    function take(uint256 stake, uint256 amount, uint256 kept) internal pure returns (uint256 taken) {
        uint256 most = stake < kept ? 0 : stake - kept;
        taken = amount < most ? amount : most;
    }

    /// @notice Fees first, then a reward of at most `most`.
    function split(uint256 taken, uint256 fees, uint256 reward, uint256 most)
        internal
        pure
        returns (uint256 feesPaid, uint256 rewardPaid)
    {
        feesPaid = fees < taken ? fees : taken;
        if (most > taken - feesPaid) most = taken - feesPaid;
        rewardPaid = reward < most ? reward : most;
    }

    /// @notice What the collector of a penalty of `amount` gets.
    function collected(uint256 amount) internal pure returns (uint256) {
        return amount * COLLECTOR_BPS / 10_000;
    }
}
