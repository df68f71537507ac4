// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SwarmCrowd} from "./SwarmCrowd.sol";
import {PRBTest} from "@prb/test/PRBTest.sol";

/// @notice Random campaigns of swarms' members and provers: no grain is made or lost, and nobody is slashed without two
/// different signatures of theirs for one round.
contract SwarmInvariants is PRBTest {
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    SwarmCrowd internal crowd;

    function setUp() public {
        crowd = new SwarmCrowd();
        crowd.start();
    }

    function targetContracts() public view returns (address[] memory list) {
        list = new address[](1);
        list[0] = address(crowd);
    }

    function targetSelectors() public view returns (FuzzSelector[] memory list) {
        list = new FuzzSelector[](1);
        list[0] = FuzzSelector(address(crowd), _actions());
    }

    function _actions() private view returns (bytes4[] memory list) {
        list = new bytes4[](9);
        (list[0], list[1], list[2]) = (crowd.enter.selector, crowd.exit.selector, crowd.takeOut.selector);
        (list[3], list[4], list[5]) = (crowd.sign.selector, crowd.note.selector, crowd.show.selector);
        (list[6], list[7], list[8]) = (crowd.later.selector, crowd.sign.selector, crowd.show.selector);
    }

    function invariant_stakesAreWhoseTheyAre() public view {
        crowd.everyMember(true);
    }

    function invariant_tokensAreConserved() public view {
        crowd.tokensAreConserved();
    }

    /// The campaigns do reach slashes and refusals.
    function test_reach() public {
        bytes4[] memory list = _actions();
        for (uint256 i = 0; i < 400; ++i) {
            uint256 r = uint256(keccak256(abi.encode("swarm reach", i)));
            bytes memory arguments = abi.encode((r >> 8) % 1_000, (r >> 64) % 1_000, (r >> 128) % 1_000);
            (bool ok, bytes memory why) = address(crowd).call(abi.encodePacked(list[r % 9], arguments));
            if (!ok) {
                assembly ("memory-safe") {
                    revert(add(why, 32), mload(why))
                }
            }
            crowd.everyMember(true);
            crowd.tokensAreConserved();
        }
        require(crowd.accusations() > 2 && crowd.refusals() > 20, "not reached");
    }
}
