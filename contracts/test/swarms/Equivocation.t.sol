// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISwarms} from "../../src/interfaces/ISwarms.sol";
import {Swarming} from "../helpers/Swarming.sol";

/// @notice Two envelopes of one round, and everything that is not that.
contract EquivocationTest is Swarming {
    event MemberEjected(
        uint256 indexed swarm,
        address indexed member,
        address prover,
        uint256 round,
        uint256 reward,
        uint256 burnt,
        uint256 releaseAt
    );

    uint256 internal constant TAKEN = SWARM_STAKE / 2;
    uint256 internal constant REWARD = TAKEN / 10;
    /// The order of secp256k1.
    uint256 internal constant ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;

    function _refuses(bytes4 why, uint256 round, bytes32 a, bytes memory signedA, bytes32 b, bytes memory signedB)
        private
    {
        vm.prank(stranger);
        vm.expectRevert(why);
        swarms.accuse(swarm, alice, round, a, signedA, b, signedB);
        assertEq(_of(alice).stake, SWARM_STAKE);
    }

    function test_accuse() public {
        uint256 release = clock + DELAY;
        vm.expectEmit(true, true, true, true, address(swarms));
        emit MemberEjected(swarm, alice, stranger, 7, REWARD, TAKEN - REWARD, release);
        _accuse(stranger, "alice", 7);
        ISwarms.Member memory one = _of(alice);
        assertTrue(one.ejected);
        assertEq(one.stake, SWARM_STAKE - TAKEN);
        assertEq(one.releaseAt, release);
        assertFalse(swarms.isMember(swarm, alice));
        assertEq(token.balanceOf(stranger), REWARD);
        assertEq(token.balanceOf(SINK), TAKEN - REWARD);
        assertEq(_of(bob).stake, SWARM_STAKE);
        assertTrue(swarms.isMember(swarm, bob));
        // the rest comes back, as late as if it had left
        vm.prank(alice);
        vm.expectRevert(ISwarms.AlreadyLeft.selector);
        swarms.leave(swarm, alice);
        _wait(DELAY - 1);
        vm.prank(alice);
        vm.expectRevert(abi.encodeWithSelector(ISwarms.StakeHeld.selector, release));
        swarms.withdraw(swarm, alice);
        _wait(1);
        _withdraw(alice);
        assertEq(token.balanceOf(alice), SWARM_STAKE - TAKEN);
        assertEq(token.balanceOf(address(swarms)), SWARM_STAKE);
    }

    function test_theSameEnvelopeTwiceIsNoBreach() public {
        bytes memory a = _sealed("alice", 7, ROOT_A);
        _refuses(ISwarms.SameEnvelope.selector, 7, ROOT_A, a, ROOT_A, a);
        // nor is it with another signature of the same, which the same key can make
        bytes memory again = _sign(key("alice"), swarms.envelopeDigest(swarm, alice, 7, ROOT_A));
        _refuses(ISwarms.SameEnvelope.selector, 7, ROOT_A, a, ROOT_A, again);
    }

    /// Either signature, not only the first.
    function test_bothMustBeSigned() public {
        bytes memory a = _sealed("alice", 7, ROOT_A);
        bytes memory forged = _sign(key("stranger"), swarms.envelopeDigest(swarm, alice, 7, ROOT_B));
        _refuses(ISwarms.BadSignature.selector, 7, ROOT_A, a, ROOT_B, forged);
        _refuses(ISwarms.BadSignature.selector, 7, ROOT_B, forged, ROOT_A, a);
        _refuses(ISwarms.BadSignature.selector, 7, ROOT_A, a, ROOT_B, a); // one signature for both
        _refuses(ISwarms.BadSignature.selector, 7, ROOT_A, a, ROOT_B, "");
        _refuses(ISwarms.BadSignature.selector, 7, ROOT_A, "", ROOT_B, a);
    }

    function test_twoRoundsAreNoBreach() public {
        bytes memory a = _sealed("alice", 7, ROOT_A);
        bytes memory b = _sealed("alice", 8, ROOT_B);
        _refuses(ISwarms.BadSignature.selector, 7, ROOT_A, a, ROOT_B, b);
        _refuses(ISwarms.BadSignature.selector, 8, ROOT_A, a, ROOT_B, b);
    }

    function test_whatWasSignedElsewhereIsNoBreach() public {
        bytes memory a = _sealed("alice", 7, ROOT_A);
        uint256 other = swarms.open(DOCUMENT, SWARM_STAKE, DELAY);
        bytes memory b = _sign(key("alice"), swarms.envelopeDigest(other, alice, 7, ROOT_B));
        _refuses(ISwarms.BadSignature.selector, 7, ROOT_A, a, ROOT_B, b); // another swarm
        vm.chainId(999);
        b = _sealed("alice", 7, ROOT_B);
        vm.chainId(31337);
        _refuses(ISwarms.BadSignature.selector, 7, ROOT_A, a, ROOT_B, b); // another chain
        ISwarms twin = ISwarms(_new("Swarms", abi.encode(token, params)));
        twin.open(DOCUMENT, SWARM_STAKE, DELAY);
        b = _sign(key("alice"), twin.envelopeDigest(swarm, alice, 7, ROOT_B));
        _refuses(ISwarms.BadSignature.selector, 7, ROOT_A, a, ROOT_B, b); // another contract
        twin.open(keccak256("other document"), SWARM_STAKE, DELAY);
        bytes memory c = _sign(key("alice"), twin.envelopeDigest(2, alice, 7, ROOT_B));
        vm.expectRevert(ISwarms.NoSuchMember.selector); // it never joined there
        twin.accuse(2, alice, 7, ROOT_A, a, ROOT_B, c);
    }

    /// Of two signatures that say the same one is refused: neither proves anything, nor does a 64-byte one.
    function test_malleableSignatures() public {
        bytes memory a = _sealed("alice", 7, ROOT_A);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key("alice"), swarms.envelopeDigest(swarm, alice, 7, ROOT_B));
        bytes memory mirrored = abi.encodePacked(r, ORDER - uint256(s), v == 27 ? uint8(28) : uint8(27));
        _refuses(ISwarms.BadSignature.selector, 7, ROOT_A, a, ROOT_B, mirrored);
        _refuses(ISwarms.BadSignature.selector, 7, ROOT_A, a, ROOT_B, abi.encodePacked(r, s, uint8(v - 27)));
        _refuses(
            ISwarms.BadSignature.selector,
            7,
            ROOT_A,
            a,
            ROOT_B,
            abi.encodePacked(r, uint256(s) | uint256(v - 27) << 255)
        );
        _refuses(ISwarms.BadSignature.selector, 7, ROOT_A, a, ROOT_B, abi.encodePacked(r, s, v, v));
        swarms.accuse(swarm, alice, 7, ROOT_A, a, ROOT_B, abi.encodePacked(r, s, v));
    }

    /// An invalid signature recovers to nobody, and nobody is a member.
    function test_nobodyIsNoMember() public {
        bytes memory zero = new bytes(65);
        vm.expectRevert(ISwarms.NoSuchMember.selector);
        swarms.accuse(swarm, address(0), 7, ROOT_A, zero, ROOT_B, zero);
        vm.prank(operator);
        vm.expectRevert(ISwarms.WrongConsent.selector);
        swarms.join(swarm, address(0), clock, zero);
        _refuses(ISwarms.BadSignature.selector, 7, ROOT_A, zero, ROOT_B, zero);
    }

    function test_once() public {
        _accuse(stranger, "alice", 7);
        bytes memory a = _sealed("alice", 8, ROOT_A);
        bytes memory b = _sealed("alice", 8, ROOT_B);
        vm.expectRevert(ISwarms.AlreadyEjected.selector);
        swarms.accuse(swarm, alice, 8, ROOT_A, a, ROOT_B, b);
        a = _sealed("alice", 7, ROOT_A);
        b = _sealed("alice", 7, ROOT_B);
        vm.expectRevert(ISwarms.AlreadyEjected.selector); // the other way round
        swarms.accuse(swarm, alice, 7, ROOT_B, b, ROOT_A, a);
        assertEq(_of(alice).stake, SWARM_STAKE - TAKEN);
    }

    /// Leaving is no escape while stake is there, and afterwards there is nothing to take.
    function test_whoLeft() public {
        _leave(alice);
        _leave(bob);
        uint256 release = clock + DELAY;
        _wait(DELAY + 1 days); // free to go, and still here
        _accuse(stranger, "alice", 7);
        assertEq(_of(alice).stake, SWARM_STAKE - TAKEN);
        assertEq(_of(alice).releaseAt, release); // nothing became later
        _withdraw(alice);
        assertEq(token.balanceOf(alice), SWARM_STAKE - TAKEN);
        _withdraw(bob);
        bytes memory a = _sealed("bob", 7, ROOT_A);
        bytes memory b = _sealed("bob", 7, ROOT_B);
        vm.expectRevert(ISwarms.NothingAtStake.selector);
        swarms.accuse(swarm, bob, 7, ROOT_A, a, ROOT_B, b);
        assertFalse(_of(bob).ejected);
    }

    /// The member itself may confess: it gets the reward and loses the rest of the half, and nothing is free earlier.
    function test_confession() public {
        _accuse(alice, "alice", 7);
        assertEq(token.balanceOf(alice), REWARD);
        vm.prank(alice);
        vm.expectRevert(abi.encodeWithSelector(ISwarms.StakeHeld.selector, clock + DELAY));
        swarms.withdraw(swarm, alice);
    }

    function test_confessionBeforeTheReleaseKeepsTheRelease() public {
        _leave(alice);
        uint256 release = clock + DELAY;
        _wait(DELAY / 2);
        _accuse(alice, "alice", 7);
        assertEq(_of(alice).releaseAt, release);
        vm.prank(alice);
        vm.expectRevert(abi.encodeWithSelector(ISwarms.StakeHeld.selector, release));
        swarms.withdraw(swarm, alice);
    }

    /// A stake so small that nothing of it can be split still ends the membership, and nothing is sent of nothing.
    function test_theSmallestStakes() public {
        uint256 burnt = token.balanceOf(SINK);
        _slashes(1, 0, 0);
        _slashes(2, 0, 1);
        _slashes(20, 1, 9);
        assertEq(token.balanceOf(stranger), 1);
        assertEq(token.balanceOf(SINK) - burnt, 10);
    }

    /// @dev Of a member with that stake so much goes to the prover, and so much is burnt, each by a transfer.
    function _slashes(uint256 stake, uint256 reward, uint256 burnt) private {
        swarm = swarms.open(DOCUMENT, stake, DELAY);
        token.mint(alice, stake);
        vm.prank(alice);
        swarms.join(swarm, alice, 0, "");
        uint256 had = token.balanceOf(stranger);
        vm.recordLogs();
        _accuse(stranger, "alice", 7);
        assertEq(vm.getRecordedLogs().length, 1 + (reward == 0 ? 0 : 1) + (burnt == 0 ? 0 : 1));
        assertTrue(_of(alice).ejected);
        assertEq(_of(alice).stake, stake - reward - burnt);
        assertEq(token.balanceOf(stranger) - had, reward);
    }

    /// What the contract hashes is what the interface says, byte for byte.
    function test_digest() public {
        bytes32 domain = keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("muster-swarm"),
                keccak256("1"),
                block.chainid,
                address(swarms)
            )
        );
        bytes32 envelope = keccak256(
            abi.encode(
                keccak256("Envelope(uint256 swarm,address member,bytes32 document,uint256 round,bytes32 root)"),
                swarm,
                alice,
                DOCUMENT,
                uint256(7),
                ROOT_A
            )
        );
        assertEq(
            swarms.envelopeDigest(swarm, alice, 7, ROOT_A), keccak256(abi.encodePacked("\x19\x01", domain, envelope))
        );
        bytes32 consent = keccak256(
            abi.encode(
                keccak256("Consent(uint256 swarm,address member,address owner,uint256 expiry)"),
                swarm,
                alice,
                bob,
                uint256(9)
            )
        );
        assertEq(swarms.consentDigest(swarm, alice, bob, 9), keccak256(abi.encodePacked("\x19\x01", domain, consent)));
    }
}
