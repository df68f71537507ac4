// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, PoolTerms, Receipt} from "../../src/libraries/Types.sol";
import {Choosing} from "../helpers/Choosing.sol";
import {IPools} from "../interfaces/IPools.sol";

/// @notice A pool that too few chose takes no work.
contract UnderstaffedTest is Choosing {
    function _closed(IPools.Status status) internal {
        bytes memory relay = _relaying(_next(node, 1, 0));
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongStatus.selector, status));
        this.relayOut(relay);
    }

    function relayOut(bytes calldata relay) external {
        vm.prank(account("service"));
        (bool ok, bytes memory answer) = address(pools).call(relay);
        if (ok) return;
        assembly ("memory-safe") {
            revert(add(answer, 0x20), mload(answer))
        }
    }

    function test_classTooSmallTakesNoWorkAndTakesItAgain() public {
        _out(1, FAMILY);
        _review(IPools.Status.Open); // this epoch still has eleven
        _nextEpoch();
        vm.expectEmit(address(pools));
        emit IPools.StatusSet(pool, IPools.Status.Understaffed);
        _review(IPools.Status.Understaffed);
        _closed(IPools.Status.Understaffed);

        // everything but work goes on
        address other = _register(stranger, "other", STAKE);
        vm.prank(stranger);
        pools.join(pool, other, type(uint256).max, "", "");
        _give(stranger, address(pools), 7e9);
        vm.prank(stranger);
        pools.fund(pool, 7e9);
        _step();
        _is(IPools.Status.Understaffed);

        _in(1, FAMILY);
        _review(IPools.Status.Understaffed); // not in this epoch
        _nextEpoch();
        _closed(IPools.Status.Understaffed);
        _review(IPools.Status.Open);
        uint256 s = _submit();
        _voteAll(s / 16, Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(s), PAY);
        assertEq(_pool(pool).free, BUDGET + 7e9 - PAY - FEES);
    }

    function test_everyStepReviewsTheSeats() public {
        _out(1, FAMILY);
        _nextEpoch();
        uint256 s = _submit(); // nobody looked yet
        _step();
        _is(IPools.Status.Understaffed);
        _voteAll(s / 16, Codes.ACCEPT); // what was taken before is judged and paid
        _passWindow();
        assertEq(_claim(s), PAY);
        _in(1, FAMILY);
        _nextEpoch();
        _step();
        _is(IPools.Status.Open);
        _submit();
    }

    function _receipt(bytes32 fileHash, uint40 time) internal view returns (Receipt memory r) {
        r.size = 1_234;
        r.time = time;
        r.signature = _sign(key("service"), _receiptDigest(pool, node, fileHash, r.size, time));
    }

    /// Work whose receipt is older than the shortage is still taken, and paid.
    function test_receiptCountsInAnUnderstaffedPool() public {
        bytes32 fileHash = keccak256("uploaded before");
        FileData memory f = _work(1, 0, Draft(keccak256("root"), fileHash, 1_000, 8));
        Receipt memory early = _receipt(fileHash, uint40(clock));
        _out(1, FAMILY);
        _nextEpoch();
        _review(IPools.Status.Understaffed);
        _wait(10);
        Receipt memory late = _receipt(fileHash, uint40(clock));
        bytes[] memory signatures = _signatures(_one(f));
        Receipt[] memory receipts = new Receipt[](1);
        receipts[0] = late;
        vm.expectRevert(abi.encodeWithSelector(IPools.ReceiptOutOfTime.selector, clock - 600, clock - 10));
        pools.submitLane(pool, _one(f), signatures, receipts, _anchor(), _anchorHash());
        uint256 free = _pool(pool).free;
        receipts[0] = early;
        pools.submitLane(pool, _one(f), signatures, receipts, _anchor(), _anchorHash());
        assertEq(free - _pool(pool).free, PAY + 2 * FEES);
    }

    /// A pool of its own group has no seats until some choose it: a stranger's pool costs nobody anything.
    function test_poolThatNobodyChoseTakesNoWork() public {
        PoolTerms memory t = defaultTerms();
        t.group = 0;
        _moveTo(t);
        assertEq(court.termsOf(pool).group, pool);
        _closed(IPools.Status.Understaffed);
        for (uint256 seat = 1; seat < SEATS; ++seat) {
            _in(seat, pool);
        }
        _nextEpoch();
        _step();
        _closed(IPools.Status.Understaffed); // ten
        _in(12, pool);
        _nextEpoch();
        _step();
        uint256 s = _submit();
        _voteAll(s / 16, Codes.ACCEPT);
        uint256[] memory drawn = _round(pool, s / 16, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertTrue(drawn[i] != 11 && drawn[i] < 13);
        }
        _passWindow();
        assertEq(_claim(s), PAY);
        for (uint256 seat = 1; seat <= seats.opened(); ++seat) {
            assertEq(seats.seatOf(seat).bond, BOND);
        }
    }

    /// A family's seats owe nothing to a pool whose model nobody can have: they say so, and are paid for the attempt.
    function test_familyPoolWithAModelNobodyCanHaveCostsNoSeatAnything() public {
        _submitLane(16);
        _voteAll(0, Codes.UNAVAILABLE);
        _passWindow();
        _closeAll(0, 0);
        uint256[] memory drawn = _round(pool, 0, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(seats.seatOf(drawn[i]).bond, BOND);
            assertEq(token.balanceOf(_seatOwner(drawn[i])), 16 * (FEE / 4));
        }
    }

    function test_understaffedPoolCanBePausedAndClosed() public {
        _out(1, FAMILY);
        _nextEpoch();
        _review(IPools.Status.Understaffed);
        vm.prank(owner);
        pools.pausePool(pool);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongStatus.selector, IPools.Status.Paused));
        pools.reviewSeats(pool); // a pause is the owner's
        _step();
        _is(IPools.Status.Paused);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongStatus.selector, IPools.Status.Paused));
        vm.prank(owner);
        pools.pausePool(pool);
        vm.prank(owner);
        pools.resumePool(pool);
        _is(IPools.Status.Understaffed);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongStatus.selector, IPools.Status.Understaffed));
        vm.prank(owner);
        pools.resumePool(pool);
        vm.prank(owner);
        pools.pausePool(pool);
        _in(1, FAMILY);
        _nextEpoch();
        vm.prank(owner);
        pools.resumePool(pool);
        _is(IPools.Status.Open);

        _out(1, FAMILY);
        _nextEpoch();
        _review(IPools.Status.Understaffed);
        vm.prank(owner);
        pools.closePool(pool);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongStatus.selector, IPools.Status.Closing));
        pools.reviewSeats(pool);
        _wait(_pool(pool).unbonding);
        vm.prank(owner);
        pools.settlePool(pool);
        assertEq(token.balanceOf(owner), BUDGET);
    }

    /// Two committees, a jury and a second jury, each of other seats.
    function test_poolNeedsSeatsForAllItsBodies() public {
        PoolTerms memory t = defaultTerms();
        (t.committee, t.jury, t.appealJury, t.group) = (5, 7, 9, uint32(OTHER));
        _openSeatsIn(13, OTHER); // 25 of the 26 that it needs
        _nextEpoch();
        pool = _createPool(t);
        _is(IPools.Status.Understaffed);
        _in(24, OTHER, stranger);
        _nextEpoch();
        _review(IPools.Status.Open);
        pool = _createPool(t);
        _is(IPools.Status.Open);
    }
}
