// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Planting} from "./Planting.sol";

/// @notice Calls that are refused with the right error, and calls that are not.
contract Refusing is Planting {
    /// @dev `who` calls and is refused with `selector`.
    function _no(address who, address target, bytes memory data, bytes4 selector) internal {
        vm.prank(who);
        (bool ok, bytes memory answer) = target.call(data);
        assertFalse(ok);
        assertEq(bytes32(bytes4(answer)), bytes32(selector));
    }

    /// @dev The same with the error's arguments.
    function _no(address who, address target, bytes memory data, bytes memory reason) internal {
        vm.prank(who);
        (bool ok, bytes memory answer) = target.call(data);
        assertFalse(ok);
        assertEq(keccak256(answer), keccak256(reason));
    }

    function _yes(address who, address target, bytes memory data) internal {
        vm.prank(who);
        (bool ok,) = target.call(data);
        assertTrue(ok);
    }
}
