// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @title SplitLib
/// @notice How a slash is split.
library SplitLib {
    /// @notice What is taken of a stake, and how it is split: fees first, then a reward of at most `rewardBps` of it;
    /// what is left is burnt.
    /// @param kept What other files of the node may still cost.
    function slash(uint256 stake, uint256 amount, uint256 kept, uint256 fees, uint256 reward, uint256 rewardBps)
        internal
        pure
        returns (uint256 taken, uint256 feesPaid, uint256 rewardPaid)
    {
        taken = Math.min(amount, stake < kept ? 0 : stake - kept);
        feesPaid = Math.min(fees, taken);
        rewardPaid = Math.min(Math.min(reward, taken * rewardBps / 10_000), taken - feesPaid);
    }
}
