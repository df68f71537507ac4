// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";

/// @title IMusterToken
/// @notice The test token: an ERC-20 with permit and 9 decimals, so that one base unit is one base unit.
/// @dev The suite itself works with any plain ERC-20 of 9 decimals that takes no fee on transfer.
interface IMusterToken is IERC20, IERC20Permit {
    /// @notice Mints without limit. Owner only: this is a test token, and its owner is trusted with its supply.
    function mint(address to, uint256 amount) external;
}
