// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "./IParams.sol";

/// @title ITimelock
/// @notice Owner of `Params`: OpenZeppelin's TimelockController without an administrator but itself. The governor
/// proposes, cancels and executes; whatever it changes, its own roles and delay included, waits for the delay. The one
/// thing that happens at once is a guardian's pause, which `Params` ends by itself and does not let follow another.
interface ITimelock {
    /// @notice Without a proposer nothing could ever be changed.
    error NoGovernor();

    /// @notice Refuses new entries at once. Only time, or the timelock, allows them again.
    function pause() external;

    function params() external view returns (IParams);
}
