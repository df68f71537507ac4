// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Campaign} from "../helpers/Campaign.sol";
import {SwarmCrowd} from "./SwarmCrowd.sol";

/// @notice Random campaigns of swarms' members and provers: no grain is made or lost, and nobody is slashed without two
/// different signatures of theirs for one round.
contract SwarmInvariants is Campaign {
    SwarmCrowd internal crowd;

    function setUp() public {
        crowd = new SwarmCrowd();
        crowd.start();
    }

    function _crowd() internal view override returns (address) {
        return address(crowd);
    }

    function _actions() internal view override returns (bytes4[] memory list) {
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
        for (uint256 i = 0; i < 400; ++i) {
            _act(uint256(keccak256(abi.encode("swarm reach", i))), 1_000);
            crowd.everyMember(true);
            crowd.tokensAreConserved();
        }
        require(crowd.accusations() > 2 && crowd.refusals() > 20, "not reached");
    }
}
