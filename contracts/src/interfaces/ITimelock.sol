// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "./IParams.sol";

/// @title ITimelock
/// @notice Owner of `Params`: OpenZeppelin's TimelockController without an administrator but itself. The governor
/// proposes, cancels and executes; whatever it changes, its own roles and delay included, waits for the delay. The
/// delay never falls below the one that the network was deployed with. Only a guardian's pause takes effect at once:
/// `Params` ends it after a while and does not allow another one right after it.
interface ITimelock {
    /// @notice Without a proposer nothing could ever be changed.
    error NoGovernor();
    error DelayTooShort(uint256 shortest);

    /// @notice Refuses new entries at once. Only time, or the timelock, allows them again.
    function pause() external;

    function params() external view returns (IParams);
    /// @notice The delay of the deployment, in seconds. No proposal can set a shorter one.
    function shortestDelay() external view returns (uint256);
}
