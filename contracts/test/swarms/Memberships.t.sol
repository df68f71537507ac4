// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISwarms} from "../../src/interfaces/ISwarms.sol";
import {Swarming} from "../helpers/Swarming.sol";

/// @notice Opening a swarm, joining, leaving, and the way of the stake.
contract SwarmMembershipTest is Swarming {
    event SwarmOpened(uint256 indexed swarm, bytes32 indexed document, address opener, uint256 stake, uint256 delay);
    event MemberJoined(uint256 indexed swarm, address indexed member, address owner, uint256 stake);
    event MemberLeft(uint256 indexed swarm, address indexed member, uint256 releaseAt);
    event StakeWithdrawn(uint256 indexed swarm, address indexed member, address owner, uint256 amount);

    function test_open() public {
        vm.expectEmit(true, true, true, true, address(swarms));
        emit SwarmOpened(2, DOCUMENT, stranger, 1, 365 days);
        vm.prank(stranger);
        assertEq(swarms.open(DOCUMENT, 1, 365 days), 2); // the same document on other terms is another swarm
        assertEq(swarms.opened(), 2);
        ISwarms.Swarm memory first = swarms.swarmOf(1);
        assertEq(first.document, DOCUMENT);
        assertEq(first.stake, SWARM_STAKE);
        assertEq(first.delay, DELAY);
        assertEq(swarms.swarmOf(3).document, bytes32(0));
    }

    function test_openRefusesBadTerms() public {
        _refusesToOpen(0, 1, DELAY);
        _refusesToOpen(DOCUMENT, 0, DELAY);
        _refusesToOpen(DOCUMENT, uint256(type(uint56).max) + 1, DELAY);
        _refusesToOpen(DOCUMENT, 1, 0); // the shortest window here is a second
        _refusesToOpen(DOCUMENT, 1, 365 days + 1);
        swarms.open(DOCUMENT, type(uint56).max, 1);
    }

    function _refusesToOpen(bytes32 document, uint256 stake, uint256 delay) private {
        vm.expectRevert(ISwarms.BadSwarmTerms.selector);
        swarms.open(document, stake, delay);
    }

    function test_join() public {
        address carol = account("carol");
        _give(carol, address(swarms), SWARM_STAKE);
        vm.expectEmit(true, true, true, true, address(swarms));
        emit MemberJoined(swarm, carol, carol, SWARM_STAKE);
        vm.prank(carol);
        swarms.join(swarm, carol, 0, "");
        ISwarms.Member memory one = _of(carol);
        assertEq(one.member, carol);
        assertEq(one.owner, carol);
        assertEq(one.stake, SWARM_STAKE);
        assertEq(one.joinedBlock, height);
        assertEq(one.releaseAt, 0);
        assertEq(one.nextRound, 0);
        assertFalse(one.ejected);
        assertTrue(swarms.isMember(swarm, carol));
        assertFalse(swarms.isMember(swarm, stranger));
        assertFalse(swarms.isMember(swarm + 1, carol));
        assertEq(token.balanceOf(carol), 0);
        assertEq(token.balanceOf(address(swarms)), 3 * SWARM_STAKE);
    }

    function test_joinRefuses() public {
        vm.prank(alice);
        vm.expectRevert(ISwarms.AlreadyJoined.selector);
        swarms.join(swarm, alice, 0, "");
        vm.prank(stranger);
        vm.expectRevert(ISwarms.NoSuchSwarm.selector);
        swarms.join(0, stranger, 0, "");
        vm.prank(stranger);
        vm.expectRevert(ISwarms.NoSuchSwarm.selector);
        swarms.join(swarm + 1, stranger, 0, "");
        vm.prank(stranger);
        vm.expectRevert(); // without the stake
        swarms.join(swarm, stranger, 0, "");
        assertFalse(swarms.isMember(swarm, stranger));
    }

    /// Governance's pause shuts out newcomers and holds nobody in.
    function test_pause() public {
        params.setPaused(true);
        vm.expectRevert(ISwarms.Paused.selector);
        swarms.open(DOCUMENT, 1, DELAY);
        _give(stranger, address(swarms), SWARM_STAKE);
        vm.prank(stranger);
        vm.expectRevert(ISwarms.Paused.selector);
        swarms.join(swarm, stranger, 0, "");
        vm.prank(alice);
        swarms.record(swarm, 0, 0, 1, ROOT_A);
        _accuse(stranger, "bob", 0);
        _leave(alice);
        _wait(DELAY);
        _withdraw(alice);
        assertEq(token.balanceOf(alice), SWARM_STAKE);
    }

    /// Who pays need not be the key that signs: the key says so first, once, to this owner, here.
    function test_consent() public {
        address hot = account("hot");
        _give(operator, address(swarms), 2 * SWARM_STAKE);
        bytes memory consent = _sign(key("hot"), swarms.consentDigest(swarm, hot, operator, clock + 60));
        _give(stranger, address(swarms), SWARM_STAKE);
        _refusesConsent(stranger, swarm, clock + 60, consent); // another's money
        _refusesConsent(operator, swarm, clock + 61, consent); // another time
        uint256 other = swarms.open(DOCUMENT, SWARM_STAKE, DELAY);
        _refusesConsent(operator, other, clock + 60, consent); // another swarm
        vm.chainId(999);
        _refusesConsent(operator, swarm, clock + 60, consent); // another chain
        vm.chainId(31337);
        _refusesConsent(operator, swarm, clock + 60, ""); // none
        _wait(61);
        vm.prank(operator);
        vm.expectRevert(ISwarms.ExpiredConsent.selector);
        swarms.join(swarm, hot, clock - 1, consent);
        _wait(0);
        consent = _sign(key("hot"), swarms.consentDigest(swarm, hot, operator, clock));
        vm.prank(operator);
        swarms.join(swarm, hot, clock, consent); // its last second
        assertEq(_of(hot).owner, operator);
        vm.prank(operator);
        vm.expectRevert(ISwarms.AlreadyJoined.selector);
        swarms.join(swarm, hot, clock, consent);
    }

    function _refusesConsent(address payer, uint256 where, uint256 expiry, bytes memory consent) private {
        address hot = account("hot");
        vm.prank(payer);
        vm.expectRevert(ISwarms.WrongConsent.selector);
        swarms.join(where, hot, expiry, consent);
    }

    /// The hot key can neither end the membership nor touch the money; nor can a stranger.
    function test_onlyTheOwnerLeavesAndWithdraws() public {
        address hot = account("hot");
        _give(operator, address(swarms), SWARM_STAKE);
        bytes memory consent = _sign(key("hot"), swarms.consentDigest(swarm, hot, operator, clock));
        vm.prank(operator);
        swarms.join(swarm, hot, clock, consent);
        vm.prank(hot);
        vm.expectRevert(ISwarms.NotStakeOwner.selector);
        swarms.leave(swarm, hot);
        vm.prank(stranger);
        vm.expectRevert(ISwarms.NoSuchMember.selector);
        swarms.leave(swarm, stranger);
        vm.prank(operator);
        swarms.leave(swarm, hot);
        _wait(DELAY);
        vm.prank(hot);
        vm.expectRevert(ISwarms.NotStakeOwner.selector);
        swarms.withdraw(swarm, hot);
        vm.prank(stranger);
        vm.expectRevert(ISwarms.NoSuchMember.selector);
        swarms.withdraw(swarm, stranger);
        vm.prank(operator);
        swarms.withdraw(swarm, hot);
        assertEq(token.balanceOf(operator), SWARM_STAKE);
        assertEq(token.balanceOf(hot), 0);
    }

    function test_leaveAndWithdraw() public {
        vm.prank(alice);
        vm.expectRevert(abi.encodeWithSelector(ISwarms.StakeHeld.selector, 0));
        swarms.withdraw(swarm, alice);
        uint256 release = clock + DELAY;
        vm.expectEmit(true, true, true, true, address(swarms));
        emit MemberLeft(swarm, alice, release);
        _leave(alice);
        assertFalse(swarms.isMember(swarm, alice));
        assertTrue(swarms.isMember(swarm, bob));
        vm.prank(alice);
        vm.expectRevert(ISwarms.AlreadyLeft.selector);
        swarms.leave(swarm, alice);
        _wait(DELAY - 1);
        vm.prank(alice);
        vm.expectRevert(abi.encodeWithSelector(ISwarms.StakeHeld.selector, release));
        swarms.withdraw(swarm, alice);
        _wait(1);
        vm.expectEmit(true, true, true, true, address(swarms));
        emit StakeWithdrawn(swarm, alice, alice, SWARM_STAKE);
        _withdraw(alice);
        assertEq(token.balanceOf(alice), SWARM_STAKE);
        assertEq(token.balanceOf(address(swarms)), SWARM_STAKE);
        vm.prank(alice);
        vm.expectRevert(ISwarms.NothingAtStake.selector);
        swarms.withdraw(swarm, alice);
        vm.prank(alice);
        vm.expectRevert(ISwarms.AlreadyJoined.selector); // its problems would begin anew
        swarms.join(swarm, alice, 0, "");
    }

    function test_severalMembersAtOnce() public {
        _leave(bob);
        address[] memory asked = new address[](3);
        (asked[0], asked[1], asked[2]) = (bob, stranger, alice);
        ISwarms.Member[] memory views = swarms.membersOf(swarm, asked);
        assertEq(views.length, 3);
        assertEq(views[0].member, bob);
        assertEq(views[0].releaseAt, clock + DELAY);
        assertEq(views[1].member, stranger);
        assertEq(views[1].owner, address(0));
        assertEq(views[1].joinedBlock, 0);
        assertEq(views[2].member, alice);
        assertEq(views[2].stake, SWARM_STAKE);
        assertEq(swarms.membersOf(swarm, new address[](0)).length, 0);
        assertEq(swarms.membersOf(swarm + 1, asked)[2].owner, address(0));
    }
}
