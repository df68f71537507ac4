// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";

/// @title MusterToken
/// @notice The test token: an ERC-20 with permit and 9 decimals, so that one base unit is one base unit.
/// @dev The suite itself works with any plain ERC-20 of 9 decimals that takes no fee on transfer.
contract MusterToken is ERC20Permit, Ownable2Step {
    constructor(address owner) ERC20("Muster Test", "MUST") ERC20Permit("Muster Test") Ownable(owner) {}

    /// @notice Mints without limit. Owner only: this is a test token, and its owner is trusted with its supply.
    function mint(address to, uint256 amount) external onlyOwner {
        _mint(to, amount);
    }

    /// @notice A base unit is 1e-9 token.
    function decimals() public pure override returns (uint8) {
        return 9;
    }
}
