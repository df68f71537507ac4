// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {FileSlot} from "../src/libraries/FileSlot.sol";
import {FileData, FileRef, PoolTerms} from "../src/libraries/Types.sol";
import {Network} from "./helpers/Network.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {IPools} from "./interfaces/IPools.sol";

/// @notice Pools, lanes and files are found by packed numbers: one that no pool or file can have never stands for
/// another's.
contract NumbersTest is Network {
    uint256 private constant VICTIM = 1;
    uint256 private constant ALIAS = 2 << 32;

    /// @dev A file of pool 3, which pool 1 would call 2 << 32 | sequence.
    function _elsewhere(uint256 code) private returns (uint256 s) {
        _createPool(defaultTerms());
        PoolTerms memory t = defaultTerms();
        t.rate = 1e3;
        pool = _createPool(t);
        assertEq(pool, 3);
        address other = _register(stranger, "other", STAKE);
        vm.prank(stranger);
        pools.join(pool, other, type(uint256).max, "", "");
        _step();
        s = _submitFrom(other, 1_000);
        _voteAll(0, code);
        _passWindow();
    }

    function test_fileOfAnotherPoolIsNotClaimedHere() public {
        uint256 s = _elsewhere(Codes.ACCEPT);
        address other = files[pool][s].node;
        bytes32 inner = _inner(s);
        vm.expectRevert(abi.encodeWithSelector(FileSlot.NoSuchFile.selector, VICTIM, ALIAS | s));
        pools.claim(VICTIM, other, ALIAS | s, inner, new uint256[](0));
        assertEq(_claim(s), 1_000 * 1e3); // at its own pool's rate
        assertEq(token.balanceOf(stranger), 1_000 * 1e3);
    }

    function test_fileOfAnotherPoolIsNotFinalHere() public {
        uint256 s = _elsewhere(Codes.MALFORMED);
        FileRef memory ref = _ref(s);
        uint256 free = _pool(VICTIM).free;
        vm.expectRevert(abi.encodeWithSelector(FileSlot.NoSuchFile.selector, VICTIM, ALIAS | s));
        pools.finalize(VICTIM, ALIAS | s, ref, _none());
        assertEq(_pool(VICTIM).free, free);
        pools.finalize(pool, s, ref, _none());
        assertEq(_pool(pool).free, BUDGET - FEES + FEES); // its fees are owed, and its stake paid them
    }

    /// Terms of a pool that does not exist are all zero: no window to wait for, no committee to hear.
    function test_committeeIsNotDismissedUnderAnotherNumber() public {
        _submit();
        _draw(0, 0);
        _commit(0, 0, 0, _all(Codes.ACCEPT));
        FileRef[] memory refs = _refs(0);
        uint256[3] memory numbers = [pool | (1 << 24), pool | (1 << 96), pool | (1 << 224)];
        for (uint256 i = 0; i < 3; ++i) {
            vm.expectRevert(ICourt.NoSuchLane.selector);
            court.settle(numbers[i], 0, 0, refs);
        }
        vm.expectRevert(ICourt.NoSuchLane.selector);
        court.settle(pool, 1 << 24, 0, refs);
        _commit(0, 0, 1, _all(Codes.ACCEPT));
        _commit(0, 0, 2, _all(Codes.ACCEPT));
        for (uint256 i = 0; i < 3; ++i) {
            _reveal(0, 0, i, _all(Codes.ACCEPT));
        }
        court.settle(pool, 0, 0, refs);
        _unpack(0);
        assertEq(_code(0), Codes.ACCEPT);
    }

    /// A pool that does not exist has no unbonding period.
    function test_nodeLeavesUnderItsPoolsNumberOnly() public {
        uint256[3] memory numbers = [pool | (1 << 24), pool | (1 << 96), pool | (1 << 224)];
        for (uint256 i = 0; i < 3; ++i) {
            vm.expectRevert(IPools.NoSuchPool.selector);
            vm.prank(operator);
            pools.leavePool(numbers[i], node, type(uint256).max, "");
        }
        uint256 unbonding = _pool(pool).unbonding;
        vm.prank(operator);
        pools.leavePool(pool, node, type(uint256).max, "");
        assertEq(stakes.nodeOf(node).releaseAt, clock + unbonding);
    }

    /// Nor does anybody's claim count as a node's under a number whose rate is nothing.
    function test_payIsNotSpentUnderAnotherNumber() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        bytes32 inner = _inner(s);
        uint256[3] memory numbers = [pool | (1 << 24), pool | (1 << 96), pool | (1 << 224)];
        for (uint256 i = 0; i < 3; ++i) {
            vm.expectRevert(IPools.NoSuchPool.selector);
            pools.claim(numbers[i], node, s, inner, new uint256[](0));
        }
        assertEq(_claim(s), 1_000 * 1e6);
    }

    /// A dispute's verdict comes with its own pool's time to appeal.
    function test_disputeIsConcludedUnderItsFilesNumberOnly() public {
        _openSeats(7); // as many as a pool with two juries needs: 18
        _nextEpoch();
        PoolTerms memory t = defaultTerms();
        t.appealJury = 7;
        uint256 other = _createPool(t); // whose first verdicts are not final
        assertEq(other, 2);
        _moveTo(defaultTerms());
        assertEq(pool, 3);
        uint256 s = _submit();
        _voteAll(0, Codes.MALFORMED);
        _juryVotes(_dispute(operator, s), Codes.ACCEPT);
        FileData memory file = files[pool][s];
        vm.expectRevert(abi.encodeWithSelector(FileSlot.NoSuchFile.selector, other, (1 << 32) | s));
        appeals.conclude(other, (1 << 32) | s, file);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertTrue(appeals.disputeOf(pool, s).resolved);
    }
}
