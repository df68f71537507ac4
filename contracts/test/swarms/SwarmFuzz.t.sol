// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISwarms} from "../../src/interfaces/ISwarms.sol";
import {Swarming} from "../helpers/Swarming.sol";

/// @notice Swarms for random stakes, times, rounds and signatures.
contract SwarmFuzzTest is Swarming {
    /// However much is staked: a slash takes half rounded down, pays a tenth of it, burns the rest, and loses no grain.
    function testFuzz_slash(uint56 stake, uint32 delay, uint256 round) public {
        delay = uint32(1 + delay % 365 days);
        if (stake == 0) stake = 1;
        swarm = swarms.open(DOCUMENT, stake, delay);
        token.mint(alice, stake);
        vm.prank(alice);
        swarms.join(swarm, alice, 0, "");
        uint256 before = token.balanceOf(address(swarms));
        _accuse(stranger, "alice", round);
        uint256 taken = uint256(stake) / 2;
        assertEq(_of(alice).stake, stake - taken);
        assertEq(token.balanceOf(stranger), taken / 10);
        assertEq(token.balanceOf(SINK), taken - taken / 10);
        assertEq(before - token.balanceOf(address(swarms)), taken);
        _wait(delay);
        _withdraw(alice);
        assertEq(token.balanceOf(alice), stake - taken);
    }

    /// Without a signature of hers, no bytes whatever slash anybody.
    function testFuzz_noBytesSlash(uint256 round, bytes32 a, bytes32 b, bytes calldata x, bytes calldata y) public {
        vm.expectRevert();
        swarms.accuse(swarm, alice, round, a, x, b, y);
        assertEq(_of(alice).stake, SWARM_STAKE);
    }

    /// Nor with one true signature, whatever stands beside it.
    function testFuzz_oneSignatureIsNotEnough(uint256 round, bytes32 a, bytes32 b, bytes32 r, bytes32 s, bool odd)
        public
    {
        bytes memory true_ = _sealed("alice", round, a);
        vm.expectRevert();
        swarms.accuse(swarm, alice, round, a, true_, b, abi.encodePacked(r, s, odd ? uint8(27) : uint8(28)));
        vm.expectRevert();
        swarms.accuse(swarm, alice, round, a, true_, b, true_);
        assertEq(_of(alice).stake, SWARM_STAKE);
    }

    /// Stake is free exactly `delay` seconds after leaving.
    function testFuzz_release(uint32 delay, uint32 waited) public {
        delay = uint32(1 + delay % 365 days);
        swarm = swarms.open(DOCUMENT, SWARM_STAKE, delay);
        _enter("carol");
        address carol = account("carol");
        _leave(carol);
        _wait(waited);
        vm.prank(carol);
        (bool ok,) = address(swarms).call(abi.encodeCall(swarms.withdraw, (swarm, carol)));
        assertEq(ok, waited >= delay);
        assertEq(token.balanceOf(carol), ok ? SWARM_STAKE : 0);
    }

    /// Recorded rounds never overlap.
    function testFuzz_rounds(uint256[6] calldata bounds) public {
        uint256 next;
        for (uint256 i = 0; i < 6; i += 2) {
            (uint256 first, uint256 last) = (bounds[i] % (1 << 33), bounds[i + 1] % (1 << 33));
            vm.prank(alice);
            (bool ok,) = address(swarms).call(abi.encodeCall(swarms.record, (swarm, first, last, 1, ROOT_A)));
            assertEq(ok, first >= next && last >= first && last < 1 << 32);
            if (ok) next = last + 1;
            assertEq(_of(alice).nextRound, next);
        }
    }
}
