// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {PRBTest} from "@prb/test/PRBTest.sol";

/// @notice Random campaigns of a crowd's actions; after each of them every rule still holds.
abstract contract Campaign is PRBTest {
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    function targetContracts() public view returns (address[] memory list) {
        list = new address[](1);
        list[0] = _crowd();
    }

    function targetSelectors() public view returns (FuzzSelector[] memory list) {
        list = new FuzzSelector[](1);
        list[0] = FuzzSelector(_crowd(), _actions());
    }

    function _crowd() internal view virtual returns (address);

    /// @dev What a campaign calls; the commonest actions more than once.
    function _actions() internal view virtual returns (bytes4[] memory);

    /// @dev The action that `r` decides, with arguments below 1,000, `most` and 1,000. None is refused: what a crowd tries
    /// is what the rules allow, or it expects the refusal itself.
    function _act(uint256 r, uint256 most) internal {
        bytes4[] memory list = _actions();
        bytes memory arguments = abi.encode((r >> 8) % 1_000, (r >> 64) % most, (r >> 128) % 1_000);
        (bool ok, bytes memory why) = _crowd().call(abi.encodePacked(list[r % list.length], arguments));
        if (ok) return;
        assembly ("memory-safe") {
            revert(add(why, 32), mload(why))
        }
    }
}
