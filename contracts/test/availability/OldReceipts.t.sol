// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, PoolTerms, Receipt} from "../../src/libraries/Types.sol";
import {Receipting} from "../helpers/Receipting.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IPools} from "../interfaces/IPools.sol";

/// @notice Receipts outlast what the owner does afterwards: what was uploaded in time is judged and paid.
contract OldReceiptsTest is Receipting {
    function test_receiptOlderThanAPauseCounts() public {
        uint256 uploaded = clock;
        _wait(100);
        vm.prank(owner);
        pools.pausePool(pool);
        _wait(100);
        _lateReverts(0, clock - 99, _outOfTime(clock - WINDOW, clock - 100)); // made in the pause
        uint256 s = _late(0, uploaded);
        assertEq(_pool(pool).free, BUDGET - PAY - 2 * FEES);
        _late(0, clock - 100); // in the very second
        _isPaid(s);
    }

    function test_receiptCountsAsLongAsPromised() public {
        vm.prank(owner);
        pools.pausePool(pool);
        uint256 paused = clock;
        _wait(WINDOW);
        uint256 snapshot = vm.snapshot();
        _late(0, paused);
        vm.revertTo(snapshot);
        _lateReverts(0, paused - 1, _outOfTime(clock - WINDOW, paused));
        clock += 1;
        vm.warp(clock);
        _lateReverts(0, paused, _outOfTime(clock - WINDOW, paused));
    }

    function test_receiptOlderThanAClosingCountsUntilTheLeftoversAreTaken() public {
        uint256 uploaded = clock;
        vm.prank(owner);
        pools.closePool(pool);
        uint256 settleAt = clock + _pool(pool).unbonding;
        assertEq(_pool(pool).settleAt, settleAt);
        vm.expectRevert(abi.encodeWithSelector(IPools.NotYet.selector, settleAt));
        vm.prank(owner);
        pools.settlePool(pool);
        _wait(WINDOW); // the last moment
        uint256 s = _late(0, uploaded);
        _lateReverts(0, uploaded + 1, _outOfTime(clock - WINDOW, uploaded));
        // and everything that may happen to it happens before the owner can take what is left
        PoolTerms memory t = defaultTerms();
        uint256 life = (1 + 4 * uint256(t.drawBlocks)) + 2 * uint256(120) + 3600 + 2 * 720;
        assertGt(settleAt, clock + life);
        _isPaid(s);
        _blocks(settleAt - clock);
        vm.prank(owner);
        assertEq(pools.settlePool(pool), BUDGET - PAY - FEES);
        _lateReverts(0, clock, abi.encodeWithSelector(IPools.WrongStatus.selector, IPools.Status.Settled));
    }

    function test_receiptOlderThanARemovalCounts() public {
        uint256 uploaded = clock;
        _wait(50);
        vm.prank(owner);
        pools.removeNode(pool, node);
        _wait(50);
        _refused(_for(0), abi.encodePacked(IPools.NotMember.selector));
        _lateReverts(0, clock, _outOfTime(clock - WINDOW, clock - 50));
        uint256 s = _late(0, uploaded);
        assertEq(_account(pool, node).limit, 0); // it is no member again
        _isPaid(s);
    }

    /// The stake of a node that left answers for what it then submits.
    function test_workOfANodeThatLeftIsJudgedLikeAnyOther() public {
        uint256 uploaded = clock;
        vm.prank(operator);
        pools.leavePool(pool, node, type(uint256).max, "");
        _wait(WINDOW);
        uint256 s = _late(0, uploaded);
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _passWindow();
        assertEq(_withdrawable(node), 0);
        pools.finalize(pool, s, _ref(s), _none());
        assertEq(stakes.nodeOf(node).stake, 0);
        assertEq(_pool(pool).free, BUDGET);
    }

    function test_whoLeftHasTheLimitOfItsLockedStake() public {
        vm.prank(operator);
        pools.leavePool(pool, node, type(uint256).max, "");
        for (uint256 i = 0; i < 41; ++i) {
            FileData memory f = _next(node, i < 40 ? 100_000 : 1, 0);
            Receipt memory r = _signed("service", pool, node, f.fileHash, clock);
            bytes memory reason = abi.encodeWithSelector(IPools.OverLimit.selector, 4_000_001, 4_000_000);
            if (i < 40) _present(f, r);
            else _presentReverts(f, r, _refusal(0, reason));
        }
    }

    function test_strangersFrozenAndSlashedNodesStayRefused() public {
        FileData memory f = _next(stranger, 1_000, 0);
        bytes memory none = abi.encodeWithSelector(IPools.NotMember.selector);
        _presentReverts(f, _signed("service", pool, stranger, f.fileHash, clock), none);
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _lateReverts(0, clock, _refusal(IPools.NodeIsFrozen.selector));
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        _lateReverts(0, clock, abi.encodeWithSelector(IPools.NotMember.selector));
        _give(stranger, address(stakes), STAKE);
        vm.prank(stranger);
        stakes.deposit(node, STAKE);
        _lateReverts(0, clock, abi.encodeWithSelector(IPools.NotMember.selector));
    }

    function test_whoHasLessThanTheLeastStakeIsRefused() public {
        PoolTerms memory t = defaultTerms();
        t.minStake = uint56(STAKE);
        _moveTo(t);
        uint256 uploaded = clock;
        uint256 s = _submit();
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        uploaded = clock;
        pools.finalize(pool, s, _ref(s), _none()); // a penalty, and it is out
        _lateReverts(0, uploaded, abi.encodeWithSelector(IPools.NotMember.selector));
    }

    function test_whoJoinedAnotherPoolIsRefused() public {
        vm.prank(operator);
        pools.leavePool(pool, node, type(uint256).max, "");
        _wait(30 days);
        uint256 other = _createPool(defaultTerms());
        vm.prank(operator);
        pools.join(other, node, type(uint256).max, "", "");
        _lateReverts(0, clock, abi.encodeWithSelector(IPools.NotMember.selector));
    }

    function test_receiptOlderThanANewerStepCounts() public {
        uint256 uploaded = clock;
        for (uint256 i = 0; i < 2; ++i) {
            _step();
        }
        _wait(10);
        uint256 newer = clock; // the third step after this one puts it out of the lag of two
        _step();
        _refused(_for(0), abi.encodeWithSelector(IPools.StepOutOfRange.selector, 0, 0, 4));
        _lateReverts(0, newer + 1, _outOfTime(clock - WINDOW, newer));
        uint256 s = _late(0, uploaded);
        _late(0, newer);
        _late(1, clock); // still within the lag
        _isPaid(s);
    }

    function test_receiptChangesNothingElse() public {
        FileData memory f = _for(0);
        Receipt memory r = _signed("service", pool, node, f.fileHash, clock);
        f.counter = 1;
        _presentReverts(f, r, _refusal(0, abi.encodeWithSelector(IPools.CounterMismatch.selector, 1, 0)));
        (f.counter, f.step) = (0, 1);
        _presentReverts(f, r, _refusal(0, abi.encodeWithSelector(IPools.StepOutOfRange.selector, 1, 0, 1)));
        (f.step, f.units) = (0, 100_001);
        _presentReverts(f, r, _refusal(0, abi.encodeWithSelector(IPools.BadUnits.selector, 100_001, 100_000)));
        (f.units, f.rows) = (1_000, 0);
        _presentReverts(f, r, _refusal(IPools.BadRows.selector));
        (f.rows, f.fileHash) = (8, keccak256("another"));
        _presentReverts(f, r, abi.encodeWithSelector(ICourt.BadReceipt.selector));
        _lateReverts(0, clock + 1, _outOfTime(clock - WINDOW, clock)); // from the future
        _isPaid(_late(0, clock));
    }

    function test_lateJoinerCannotPickAnEarlierStep() public {
        address late = _register(stranger, "late", STAKE);
        vm.prank(stranger);
        pools.join(pool, late, type(uint256).max, "", "");
        FileData memory f = _next(late, 1_000, 0);
        Receipt memory r = _signed("service", pool, late, f.fileHash, clock);
        _presentReverts(f, r, _refusal(0, abi.encodeWithSelector(IPools.StepOutOfRange.selector, 0, 1, 1)));
    }
}
