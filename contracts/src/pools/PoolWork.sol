// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../interfaces/IPools.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {AccountSlot} from "../libraries/AccountSlot.sol";
import {FileSlot} from "../libraries/FileSlot.sol";
import {PoolSlot} from "../libraries/PoolSlot.sol";
import {TermsLib} from "../libraries/TermsLib.sol";
import {Receipt, Work} from "../libraries/Types.sol";
import {PoolBase} from "./PoolBase.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// @title PoolWork
/// @notice Submissions and pay: the hot path.
abstract contract PoolWork is PoolBase {
    using SafeERC20 for IERC20;
    using AccountSlot for uint256;
    using FileSlot for uint256;
    using PoolSlot for uint256;

    /// @inheritdoc IPools
    function submit(uint256 pool, uint32 step, uint256 counter, Work calldata work)
        external
        returns (uint256 sequence)
    {
        Word storage poolWord = _pools[pool];
        Word storage accountWord = _accounts[pool][msg.sender];
        uint256 p = poolWord.w;
        uint256 a = accountWord.w;
        if (p.status() != uint256(Status.Open)) revert WrongStatus(Status(p.status()));
        _enter(p, a, step, counter, p.maxLag());
        (p, a, sequence) = _place(p, a, a.limit(), pool, step, counter, work);
        poolWord.w = p;
        accountWord.w = a;
    }

    /// @inheritdoc IPools
    function submitWithReceipt(uint256 pool, uint32 step, uint256 counter, Work calldata work, Receipt calldata receipt)
        external
        returns (uint256 sequence)
    {
        uint256 p = _pools[pool].w;
        uint256 a = _accounts[pool][msg.sender].w;
        _enter(p, a, step, counter, PoolSlot.MAX_STEPS);
        court.checkReceipt(pool, msg.sender, work.fileHash, receipt);
        (uint256 limit, uint256 last) = _inTime(p, a, pool, step);
        uint256 first = block.timestamp - _desks[pool].receiptWindow;
        if (receipt.time < first || receipt.time > last) revert ReceiptOutOfTime(first, last);
        (p, a, sequence) = _place(p, a, limit, pool, step, counter, work);
        _pools[pool].w = p;
        _accounts[pool][msg.sender].w = a;
    }

    /// @inheritdoc IPools
    function submitMany(uint256 pool, uint32 step, uint256 counter, Work[] calldata works)
        external
        returns (uint256 firstSequence, uint256 lastSequence)
    {
        if (works.length == 0 || works.length > 16) revert BadCount();
        uint256 p = _pools[pool].w;
        uint256 a = _accounts[pool][msg.sender].w;
        if (p.status() != uint256(Status.Open)) revert WrongStatus(Status(p.status()));
        _enter(p, a, step, counter, p.maxLag());
        for (uint256 i = 0; i < works.length; ++i) {
            (p, a, lastSequence) = _place(p, a, a.limit(), pool, step, counter + i, works[i]);
            if (i == 0) firstSequence = lastSequence;
        }
        _pools[pool].w = p;
        _accounts[pool][msg.sender].w = a;
    }

    /// @inheritdoc IPools
    function announceMirror(uint256 pool, uint256 sequence, string calldata uri) external {
        emit MirrorAnnounced(pool, sequence, msg.sender, uri);
    }

    /// @inheritdoc IPools
    function claim(uint256 pool, address node, uint256 sequence, bytes32 inner)
        external
        nonReentrant
        returns (uint256 amount)
    {
        uint256 a = _accounts[pool][node].w;
        uint256 upTo = _vested(a, _checked(pool, sequence, inner, node));
        uint256 spent = a.spent();
        if (upTo <= spent) revert NothingToClaim();
        uint256 units = upTo - spent;
        _accounts[pool][node].w = a.withSpent(upTo);
        amount = units * _pools[pool].w.rate();
        address operator = stakes.operatorOf(node);
        emit Claimed(pool, node, operator, units, amount);
        token.safeTransfer(operator, amount);
    }

    /// @inheritdoc IPools
    function claimable(uint256 pool, address node, uint256 sequence)
        external
        view
        returns (uint256 units, uint256 amount)
    {
        uint256 a = _accounts[pool][node].w;
        uint256 f = _files[_id(pool, sequence)];
        uint256 barrier = a.barrier();
        bool vested =
            f & FileSlot.CUMULATIVE != 0 && block.timestamp >= f.finalAt() && (barrier == 0 || f.finalAt() <= barrier);
        if (vested && f.amount() > a.spent()) units = f.amount() - a.spent();
        amount = units * _pools[pool].w.rate();
    }

    /// @dev Cumulative units of the hint, if it is one.
    function _vested(uint256 a, uint256 f) private view returns (uint256) {
        if (f & FileSlot.CUMULATIVE == 0) revert NothingToClaim();
        uint256 time = f.finalAt();
        if (block.timestamp < time) revert NotYet(time);
        uint256 barrier = a.barrier();
        if (barrier != 0 && time > barrier) revert IsFrozen(barrier);
        return f.amount();
    }

    /// @dev What holds for all files of one call.
    function _enter(uint256 p, uint256 a, uint256 step, uint256 counter, uint256 maxLag) private pure {
        unchecked {
            if (a.counter() != counter) revert CounterMismatch(counter, a.counter());
            if (a.frozen() != 0) revert NodeIsFrozen();
            uint256 steps = p.steps();
            if (step >= steps || step < a.joinedStep() || step + maxLag + 1 < steps) {
                revert StepOutOfRange(step, a.joinedStep(), steps);
            }
        }
    }

    /// @dev For work that may come late: its node's limit, and the last time of which its receipt may be.
    function _inTime(uint256 p, uint256 a, uint256 pool, uint256 step)
        private
        view
        returns (uint256 limit, uint256 last)
    {
        uint256 status = p.status();
        Desk memory desk = _desks[pool];
        last = block.timestamp;
        if (status == uint256(Status.None) || status == uint256(Status.Settled)) revert WrongStatus(Status(status));
        if (status != uint256(Status.Open)) last = desk.since;
        uint256 newer = step + p.maxLag() + 1;
        if (newer < p.steps() && _steps[pool][newer].publishedAt < last) last = _steps[pool][newer].publishedAt;
        limit = a.limit();
        if (limit != 0) return (limit, last);
        IStakes.Node memory node = stakes.nodeOf(msg.sender);
        bool locked = !a.slashed() && node.pool == 0 && node.lastPool == pool && node.stake >= _desks[pool].minStake;
        if (!locked) revert NotMember();
        limit = _limit(pool, p, node.stake);
        uint256 left = node.releaseAt - desk.unbonding;
        if (left < last) last = left;
    }

    /// @dev One file: next place, limits, reservation, storage, event.
    function _place(
        uint256 p,
        uint256 a,
        uint256 limit,
        uint256 pool,
        uint256 step,
        uint256 counter,
        Work calldata work
    ) private returns (uint256, uint256, uint256 sequence) {
        uint256 units = work.units;
        uint256 rows = work.rows;
        unchecked {
            if (units - 1 >= p.maxUnits()) revert BadUnits(units, p.maxUnits()); // 0 wraps
            if (rows == 0) revert BadRows();
            if (a.unsettled() >= TermsLib.MAX_UNSETTLED) revert TooManyUnsettled(TermsLib.MAX_UNSETTLED);
            if (a.open() + units > limit) {
                if (limit == 0) revert NotMember();
                revert OverLimit(a.open() + units, limit);
            }
            if (counter == AccountSlot.MAX_COUNTER) revert AmountTooLarge();
            uint256 cost = units * p.rate() + p.fees();
            if (cost > p.free()) revert EscrowExhausted(cost, p.free());
            p -= cost;

            sequence = p.sequence();
            uint256 start = p.laneStart();
            if (sequence & 15 != 0 && block.number > start + p.laneBlocks()) sequence = (sequence | 15) + 1;
            if (sequence & 15 == 0) start = block.number;
            if (sequence >= PoolSlot.MAX_SEQUENCE) revert AmountTooLarge();
            p = p.withLane(sequence + 1, start);
        }
        bytes32 root = work.root;
        bytes32 fileHash = work.fileHash;
        uint256 id = _id(pool, sequence);
        uint256 packed = _packed(step, counter, units, rows);
        uint160 digest = _digest(_inner(root, fileHash, packed, id), msg.sender);
        _files[id] = FileSlot.pack(digest, units, block.number, 0, FileSlot.PENDING);
        emit WorkSubmitted(pool, msg.sender, sequence, packed, root, fileHash);
        return (p, a.submitted(units), sequence);
    }
}
