// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISwarms} from "../../src/interfaces/ISwarms.sol";
import {CallingToken} from "../attacks/Reentrancy.t.sol";
import {Swarming} from "../helpers/Swarming.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @notice A token that calls back finds every guard closed.
contract SwarmReentrancyTest is Swarming {
    CallingToken internal evil;
    address internal carol = account("carol");

    function setUp() public override {
        _start(address(0));
        evil = new CallingToken();
        swarms = ISwarms(_new("Swarms", abi.encode(evil, params)));
        swarm = swarms.open(DOCUMENT, SWARM_STAKE, DELAY);
        address[3] memory members = [alice, bob, carol];
        for (uint256 i = 0; i < 3; ++i) {
            evil.mint(members[i], SWARM_STAKE);
            vm.prank(members[i]);
            evil.approve(address(swarms), type(uint256).max);
        }
        _joins(alice);
        _joins(bob);
    }

    function _joins(address member) private {
        vm.prank(member);
        swarms.join(swarm, member, 0, "");
    }

    function test_everyCallThatMovesTokensIsGuarded() public {
        bytes memory a = _sealed("alice", 1, ROOT_A);
        bytes memory b = _sealed("alice", 1, ROOT_B);
        bytes[3] memory inside = [
            abi.encodeCall(swarms.join, (swarm, carol, clock, "")),
            abi.encodeCall(swarms.withdraw, (swarm, bob)),
            abi.encodeCall(swarms.accuse, (swarm, alice, 1, ROOT_A, a, ROOT_B, b))
        ];
        uint256 before = vm.snapshot();
        for (uint256 i = 0; i < 3; ++i) {
            evil.arm(address(swarms), inside[i]);
            _joins(carol);
            _refusedInside();
            vm.revertTo(before);
            _leave(bob);
            _wait(DELAY);
            evil.arm(address(swarms), inside[i]);
            _withdraw(bob);
            _refusedInside();
            vm.revertTo(before);
            evil.arm(address(swarms), inside[i]);
            _accuse(stranger, "alice", 1);
            _refusedInside();
            vm.revertTo(before);
        }
    }

    function _refusedInside() private {
        assertTrue(evil.called());
        assertFalse(evil.succeeded());
        assertEq(bytes32(evil.answer()), bytes32(ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector));
    }
}
