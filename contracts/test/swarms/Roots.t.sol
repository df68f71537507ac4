// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISwarms} from "../../src/interfaces/ISwarms.sol";
import {Swarming} from "../helpers/Swarming.sol";

/// @notice What members record of what they shared.
contract SwarmRootsTest is Swarming {
    event RootRecorded(
        uint256 indexed swarm, address indexed member, uint256 first, uint256 last, uint256 groups, bytes32 root
    );

    function _record(address member, uint256 first, uint256 last) private {
        vm.prank(member);
        swarms.record(swarm, first, last, 1, ROOT_A);
    }

    function _refuses(address member, uint256 first, uint256 last, bytes memory why) private {
        vm.prank(member);
        vm.expectRevert(why);
        swarms.record(swarm, first, last, 1, ROOT_A);
    }

    function test_record() public {
        vm.expectEmit(true, true, true, true, address(swarms));
        emit RootRecorded(swarm, alice, 0, 9, 80, ROOT_A);
        vm.prank(alice);
        swarms.record(swarm, 0, 9, 80, ROOT_A);
        assertEq(_of(alice).nextRound, 10);
        assertEq(_of(bob).nextRound, 0);
    }

    /// A round is in one root: whoever could record twice could show two versions of what it shared.
    function test_roundsAscendAndAreRecordedOnce() public {
        _record(alice, 3, 5);
        bytes memory why = abi.encodeWithSelector(ISwarms.BadRounds.selector, 6);
        _refuses(alice, 3, 5, why);
        _refuses(alice, 5, 7, why);
        _refuses(alice, 0, 2, why); // what was left out is left out
        _refuses(alice, 7, 6, why);
        _refuses(alice, 6, uint256(type(uint32).max) + 1, why);
        _refuses(alice, 6, type(uint256).max, why);
        _record(alice, 6, 6);
        _record(alice, 8, type(uint32).max);
        _refuses(alice, 1 << 32, 1 << 32, abi.encodeWithSelector(ISwarms.BadRounds.selector, 1 << 32));
        _record(bob, 3, 5); // others' rounds are others'
    }

    function test_emptyRoots() public {
        vm.startPrank(alice);
        vm.expectRevert(ISwarms.EmptyRoot.selector);
        swarms.record(swarm, 0, 0, 0, ROOT_A);
        vm.expectRevert(ISwarms.EmptyRoot.selector);
        swarms.record(swarm, 0, 0, 1, 0);
        vm.stopPrank();
        assertEq(_of(alice).nextRound, 0);
    }

    function test_onlyStakedMembersRecord() public {
        _refuses(stranger, 0, 0, abi.encodeWithSelector(ISwarms.NoSuchMember.selector));
        _leave(alice);
        _record(alice, 0, 0); // what it shared before
        _wait(DELAY);
        _withdraw(alice);
        _refuses(alice, 1, 1, abi.encodeWithSelector(ISwarms.NothingAtStake.selector));
        _accuse(stranger, "bob", 0);
        _refuses(bob, 0, 0, abi.encodeWithSelector(ISwarms.AlreadyEjected.selector));
    }

    /// Nobody records for another: neither the owner of the stake, nor whoever opened the swarm.
    function test_theKeyItselfRecords() public {
        address hot = account("hot");
        _give(operator, address(swarms), SWARM_STAKE);
        bytes memory consent = _sign(key("hot"), swarms.consentDigest(swarm, hot, operator, clock));
        vm.prank(operator);
        swarms.join(swarm, hot, clock, consent);
        _refuses(operator, 0, 0, abi.encodeWithSelector(ISwarms.NoSuchMember.selector));
        _refuses(address(this), 0, 0, abi.encodeWithSelector(ISwarms.NoSuchMember.selector));
        _record(hot, 0, 0);
    }
}
