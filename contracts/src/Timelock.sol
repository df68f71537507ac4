// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "./interfaces/IParams.sol";
import {SuiteLib} from "./libraries/SuiteLib.sol";
import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {TimelockController} from "@openzeppelin/contracts/governance/TimelockController.sol";

/// @title Timelock
/// @notice Owner of `Params`: OpenZeppelin's TimelockController without an administrator but itself. The governor
/// proposes, cancels and executes; whatever it changes, its own roles and delay included, waits for the delay. The one
/// thing that happens at once is a guardian's pause, which `Params` ends by itself and does not let follow another.
contract Timelock is TimelockController {
    bytes32 public constant GUARDIAN_ROLE = keccak256("GUARDIAN_ROLE");

    IParams public immutable params;

    /// @notice Without a proposer nothing could ever be changed.
    error NoGovernor();

    constructor(IParams params_, uint256 delay, address governor, address guardian)
        TimelockController(delay, _only(governor), _only(governor), address(0))
    {
        if (governor == address(0)) revert NoGovernor();
        address owner = Ownable(address(params_)).owner();
        if (owner != address(this)) revert SuiteLib.WrongAddress(owner, address(this));
        params = params_;
        _grantRole(GUARDIAN_ROLE, guardian);
    }

    /// @notice Refuses new entries at once. Only time, or the timelock, allows them again.
    function pause() external onlyRole(GUARDIAN_ROLE) {
        params.setPaused(true);
    }

    function _only(address account) private pure returns (address[] memory list) {
        list = new address[](1);
        list[0] = account;
    }
}
