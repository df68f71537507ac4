// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title SplitLib
/// @notice How a slash is split.
library SplitLib {
    /// @notice Of at most `amount`: fees first, then a reward of at most `rewardBps` of it; what is left is burnt.
    function slash(uint256 stake, uint256 amount, uint256 fees, uint256 reward, uint256 rewardBps)
        internal
        pure
        returns (uint256 taken, uint256 feesPaid, uint256 rewardPaid)
    {
        taken = amount < stake ? amount : stake;
        feesPaid = fees < taken ? fees : taken;
        uint256 most = taken * rewardBps / 10_000;
        if (most > taken - feesPaid) most = taken - feesPaid;
        rewardPaid = reward < most ? reward : most;
    }
}
