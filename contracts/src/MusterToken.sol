// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IMusterToken} from "./interfaces/IMusterToken.sol";
import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {Nonces} from "@openzeppelin/contracts/utils/Nonces.sol";

/// @title MusterToken
contract MusterToken is IMusterToken, ERC20Permit, Ownable2Step {
    constructor(address owner) ERC20("Muster Test", "MUST") ERC20Permit("Muster Test") Ownable(owner) {}

    /// @inheritdoc IMusterToken
    function mint(address to, uint256 amount) external onlyOwner {
        _mint(to, amount);
    }

    /// @notice A base unit is 1e-9 token.
    function decimals() public pure override returns (uint8) {
        return 9;
    }

    function nonces(address owner) public view override(ERC20Permit, IERC20Permit) returns (uint256) {
        return super.nonces(owner);
    }
}
