// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "./interfaces/IParams.sol";
import {ITimelock} from "./interfaces/ITimelock.sol";
import {WrongAddress} from "./libraries/Types.sol";
import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {TimelockController} from "@openzeppelin/contracts/governance/TimelockController.sol";

/// @title Timelock
contract Timelock is ITimelock, TimelockController {
    bytes32 public constant GUARDIAN_ROLE = keccak256("GUARDIAN_ROLE");

    /// @inheritdoc ITimelock
    IParams public immutable params;
    /// @inheritdoc ITimelock
    uint256 public immutable shortestDelay;

    constructor(IParams params_, uint256 delay, address governor, address guardian)
        TimelockController(delay, _only(governor), _only(governor), address(0))
    {
        if (governor == address(0)) revert NoGovernor();
        address owner = Ownable(address(params_)).owner();
        if (owner != address(this)) revert WrongAddress(owner, address(this));
        (params, shortestDelay) = (params_, delay);
        _grantRole(GUARDIAN_ROLE, guardian);
    }

    /// @inheritdoc ITimelock
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
