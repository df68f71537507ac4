// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title SuiteLib
/// @notice What all contracts of a suite share.
library SuiteLib {
    /// Where burnt tokens go: works with any ERC-20 and stays visible.
    address internal constant SINK = 0x000000000000000000000000000000000000dEaD;

    /// @notice A contract was deployed elsewhere than its suite says.
    error WrongAddress(address expected, address actual);

    /// @notice Reverts unless `expected` is the address of the contract under construction.
    function checkPlace(address expected) internal view {
        if (expected != address(this)) revert WrongAddress(expected, address(this));
    }
}
