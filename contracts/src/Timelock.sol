// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Params} from "./Params.sol";
import {WrongAddress} from "./libraries/Types.sol";
import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {TimelockController} from "@openzeppelin/contracts/governance/TimelockController.sol";

/// @title Timelock
/// @notice Owner of `Params`: OpenZeppelin's TimelockController without an administrator but itself. The governor
/// proposes, cancels and executes; whatever it changes, its own roles and delay included, waits for the delay. The
/// delay never falls below the one that the network was deployed with. Only a guardian's pause takes effect at once:
/// `Params` ends it after a while and does not allow another one right after it.
contract Timelock is TimelockController {
    /// @notice Without a proposer nothing could ever be changed.
    error NoGovernor();
    error DelayTooShort(uint256 shortest);

    bytes32 public constant GUARDIAN_ROLE = keccak256("GUARDIAN_ROLE");

    Params public immutable params;
    /// @notice The delay of the deployment, in seconds. No proposal can set a shorter one.
    uint256 public immutable shortestDelay;

    constructor(Params params_, uint256 delay, address governor, address guardian)
        TimelockController(delay, _only(governor), _only(governor), address(0))
    {
        if (governor == address(0)) revert NoGovernor();
        address owner = Ownable(address(params_)).owner();
        if (owner != address(this)) revert WrongAddress(owner, address(this));
        (params, shortestDelay) = (params_, delay);
        _grantRole(GUARDIAN_ROLE, guardian);
    }

    /// @notice Refuses new entries at once. Only time, or the timelock, allows them again.
    function pause() external onlyRole(GUARDIAN_ROLE) {
        params.setPaused(true);
    }

    /// @inheritdoc TimelockController
    function updateDelay(uint256 newDelay) public override {
        super.updateDelay(newDelay);
        if (newDelay < shortestDelay) revert DelayTooShort(shortestDelay);
    }

    function _only(address account) private pure returns (address[] memory list) {
        list = new address[](1);
        list[0] = account;
    }
}
