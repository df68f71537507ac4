// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../interfaces/IPools.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {AccountSlot} from "../libraries/AccountSlot.sol";
import {Codes} from "../libraries/Codes.sol";
import {FileSlot} from "../libraries/FileSlot.sol";
import {PoolSlot} from "../libraries/PoolSlot.sol";
import {SuiteLib} from "../libraries/SuiteLib.sol";
import {FileData, FileRef} from "../libraries/Types.sol";
import {PoolBase} from "./PoolBase.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// @title PoolVerdicts
/// @notice What outcomes do to files, accounts, budget and stake.
abstract contract PoolVerdicts is PoolBase {
    using SafeERC20 for IERC20;
    using AccountSlot for uint256;
    using FileSlot for uint256;
    using PoolSlot for uint256;

    /// @inheritdoc IPools
    function settleLane(uint256 pool, uint256 lane, uint256 round, uint256 codes, FileRef[] calldata files)
        external
        onlyCourt
    {
        uint256 p = _pools[pool].w;
        uint256 before = p;
        uint256 window = _desks[pool].challengeWindow;
        uint256 sequence = lane << 4;
        if (files.length == 0 || files.length > 16) revert BadCount();
        if (files.length < 16 && _files[_id(pool, sequence + files.length)] != 0) revert BadCount();
        for (uint256 i = 0; i < files.length; ++i) {
            uint256 code = Codes.get(codes, i);
            if (code == Codes.NONE && round == 0) code = Codes.LATE;
            if (code == Codes.NONE || code == Codes.UNDECIDED) continue;
            // nothing can be said against lateness: it is final at once
            uint256 time = code == Codes.LATE ? block.timestamp : block.timestamp + window;
            p = _settleFile(p, pool, sequence + i, files[i], code, time);
        }
        if (p != before) _pools[pool].w = p;
    }

    /// @inheritdoc IPools
    function payFees(uint256 pool, address to, uint256 paid, uint256 burnt) external onlyCourt nonReentrant {
        emit FeePaid(pool, to, paid, burnt);
        if (paid != 0) token.safeTransfer(to, paid);
        if (burnt != 0) token.safeTransfer(SuiteLib.SINK, burnt);
    }

    /// @inheritdoc IPools
    function finalize(uint256 pool, uint256 sequence, FileRef calldata file) external {
        uint256 f = _checked(pool, sequence, file.inner, file.node);
        uint256 code = f.code();
        if (f.phase() != FileSlot.SETTLED || Codes.kind(code) == Codes.KIND_ACCEPT) {
            revert WrongPhase(sequence, Phase(f.phase()));
        }
        if (block.timestamp < f.finalAt()) revert NotYet(f.finalAt());
        _files[_id(pool, sequence)] = f.withPhase(FileSlot.FINAL) & ~FileSlot.FROZEN;
        if (code == Codes.UNAVAILABLE) {
            _pools[pool].w = _credit(_pools[pool].w, _unearned(_pools[pool].w));
            emit FileFinalized(pool, file.node, sequence, code, 0);
            return;
        }
        uint256 settledAt = code == Codes.LATE ? f.finalAt() : f.finalAt() - _desks[pool].challengeWindow;
        _charge(pool, sequence, file.node, f, Charge(code, f.amount(), settledAt, settledAt, 0, msg.sender));
    }

    /// @inheritdoc IPools
    function hold(uint256 pool, uint256 sequence, FileData calldata file) external onlyBench returns (uint256 code) {
        uint256 f = _checked(pool, sequence, innerHash(pool, sequence, file), file.node);
        if (f.phase() != FileSlot.SETTLED) revert WrongPhase(sequence, Phase(f.phase()));
        if (block.timestamp >= f.finalAt()) revert WindowOver(f.finalAt());
        code = f.code();
        _files[_id(pool, sequence)] = f.withPhase(FileSlot.DISPUTED);
        emit FileDisputed(pool, file.node, sequence);
        if (Codes.isPaid(code)) {
            uint256 a = _accounts[pool][file.node].w;
            _accounts[pool][file.node].w = a.withSpent(a.spent() + file.units).unsettledMore();
            // The stake of a file that is not to be paid is frozen already; this one's must stay while a jury may reject it.
            stakes.freeze(file.node);
        }
    }

    /// @inheritdoc IPools
    function freezeHeld(uint256 pool, uint256 sequence, FileData calldata file) external onlyBench {
        uint256 f = _checked(pool, sequence, innerHash(pool, sequence, file), file.node);
        if (f.phase() != FileSlot.DISPUTED) revert WrongPhase(sequence, Phase(f.phase()));
        if (f & FileSlot.FROZEN != 0) return;
        _files[_id(pool, sequence)] = f | FileSlot.FROZEN;
        _accounts[pool][file.node].w = _accounts[pool][file.node].w.frozenMore(block.timestamp);
        emit NodeFrozen(pool, file.node, block.timestamp);
    }

    /// @inheritdoc IPools
    function resolve(uint256 pool, uint256 sequence, FileData calldata file, uint256 code, uint256 reward)
        external
        onlyBench
        returns (uint256 slashed, uint256 rewardPaid)
    {
        uint256 f = _checked(pool, sequence, innerHash(pool, sequence, file), file.node);
        if (f.phase() != FileSlot.DISPUTED) revert WrongPhase(sequence, Phase(f.phase()));
        bool was = Codes.isPaid(f.code());
        bool paid = Codes.isPaid(code);
        uint256 a = _accounts[pool][file.node].w;
        if (paid) a = a.unsettledLess();
        uint256 time = f.finalAt();
        uint256 amount = f.amount();
        uint256 flags = f.flags() & ~FileSlot.FROZEN;
        if (paid && was) {
            // its pay is free again; it vests when it would have
            a = a.withSpent(a.spent() - file.units);
        } else if (paid) {
            // to be paid only now: it vests as work settled now would, so that vesting times never decrease
            amount = a.earned() + file.units;
            a = a.withEarned(amount);
            time = block.timestamp + _desks[pool].challengeWindow;
            flags |= FileSlot.CUMULATIVE;
        }
        // A node that was frozen when the committee rejected it was so since then; an overturned acceptance slashes now.
        uint256 settledAt = f.finalAt() - _desks[pool].challengeWindow;
        _accounts[pool][file.node].w = a;
        _files[_id(pool, sequence)] = FileSlot.pack(f.digest(), amount, time, code, FileSlot.FINAL) | flags;
        emit FileResolved(pool, file.node, sequence, code, time);
        if (paid) {
            if (code == Codes.UNAVAILABLE) _pools[pool].w = _credit(_pools[pool].w, _unearned(_pools[pool].w));
            if (f & FileSlot.FROZEN != 0) _thaw(pool, file.node);
            stakes.release(file.node);
        } else {
            uint256 frozenAt = was ? block.timestamp : settledAt;
            Charge memory c = Charge(code, file.units, settledAt, frozenAt, reward, address(0));
            (slashed, rewardPaid) = _charge(pool, sequence, file.node, f, c);
        }
    }

    /// @inheritdoc IPools
    function forfeit(uint256 pool, uint256 sequence, FileData calldata file) external {
        uint256 f = _checked(pool, sequence, innerHash(pool, sequence, file), file.node);
        uint256 a = _accounts[pool][file.node].w;
        bool lost = a.slashed() && f.finalAt() > a.barrier();
        if (!lost || f & FileSlot.CUMULATIVE == 0 || f.phase() == FileSlot.DISPUTED) {
            revert WrongPhase(sequence, Phase(f.phase()));
        }
        _files[_id(pool, sequence)] = FileSlot.pack(f.digest(), file.units, f.finalAt(), f.code(), FileSlot.FINAL);
        a = a.withEarned(a.earned() - file.units);
        uint256 amount;
        if (Codes.isPaid(f.code())) {
            uint256 p = _pools[pool].w;
            amount = file.units * p.rate();
            bool open = f.code() == Codes.UNAVAILABLE && f.phase() == FileSlot.SETTLED;
            _pools[pool].w = _credit(p, open ? amount + _unearned(p) : amount);
        } else {
            // its pay went back to the pool when it was overturned
            a = a.withSpent(a.spent() - file.units);
        }
        _accounts[pool][file.node].w = a;
        emit FileForfeited(pool, file.node, sequence, amount);
    }

    /// @dev A pending file gets its committee's outcome.
    function _settleFile(uint256 p, uint256 pool, uint256 sequence, FileRef calldata file, uint256 code, uint256 time)
        private
        returns (uint256)
    {
        address node = file.node;
        uint256 f = _checked(pool, sequence, file.inner, node);
        if (f.phase() != FileSlot.PENDING) revert WrongPhase(sequence, Phase(f.phase()));
        uint256 units = f.amount();
        uint256 a = _accounts[pool][node].w;
        a = a.withPending(a.pending() - units);
        uint256 amount = units;
        uint256 flags;
        uint256 phase = FileSlot.SETTLED;
        if (Codes.isPaid(code)) {
            amount = a.earned() + units;
            a = a.withEarned(amount).unsettledLess();
            flags = FileSlot.CUMULATIVE;
        } else if (code == Codes.VOID) {
            p = _credit(p, units * p.rate() + p.fees());
            a = a.unsettledLess();
            phase = FileSlot.FINAL;
        } else if (code == Codes.LATE) {
            p = _credit(p, units * p.rate() + p.fees());
        } else if (Codes.isReject(code)) {
            a = a.frozenMore(block.timestamp);
            flags = FileSlot.FROZEN;
        }
        _accounts[pool][node].w = a;
        _files[_id(pool, sequence)] = FileSlot.pack(f.digest(), amount, time, code, phase) | flags;
        emit FileSettled(pool, node, sequence, code, units, time);
        if (flags == FileSlot.FROZEN) emit NodeFrozen(pool, node, block.timestamp);
        // what it will cost cannot leave before it is collected
        if (!Codes.isPaid(code) && code != Codes.VOID) stakes.freeze(node);
        return p;
    }

    struct Charge {
        uint256 code;
        uint256 units;
        /// When the committee's outcome was settled: the penalties of that time hold.
        uint256 settledAt;
        /// Since when the node's unvested pay is barred.
        uint256 frozenAt;
        /// Most that Appeals may get.
        uint256 reward;
        /// Who gets the collector's share, or zero.
        address collector;
    }

    /// @dev A file that is finally not accepted: the budget gets its pay back; who erred pays the fees, out of its stake.
    /// @param f The file's slot before it became final.
    function _charge(uint256 pool, uint256 sequence, address node, uint256 f, Charge memory c)
        private
        returns (uint256 taken, uint256 rewardPaid)
    {
        uint256 p = _pools[pool].w;
        uint256 a = _accounts[pool][node].w.unsettledLess();
        uint256 back = c.code == Codes.LATE ? 0 : c.units * p.rate(); // what was late was refunded at once
        IStakes.Slash memory s;
        s.fees = p.fees();
        s.kept = a.unsettled() * s.fees;
        s.collector = c.collector;
        s.lockedUntil = block.timestamp + _desks[pool].unbonding;
        bool thawed;
        if (Codes.isReject(c.code)) {
            (s.bps, s.rewardBps,) = params.slashing(c.settledAt);
            s.reward = c.reward;
            s.minStake = type(uint256).max; // it leaves its pool with whatever is left
            a = a.slashedAt(c.frozenAt);
            if (f & FileSlot.FROZEN != 0) a = a.frozenLess();
            emit NodeEjected(pool, node, sequence, c.code);
        } else {
            if (f & FileSlot.FROZEN != 0) a = a.frozenLess();
            thawed = f & FileSlot.FROZEN != 0 && a.frozen() == 0;
            if (c.code == Codes.LATE) s.fees = 0;
            if (c.code == Codes.MALFORMED || c.code == Codes.LATE) {
                (,, s.amount) = params.slashing(c.settledAt);
                s.amount += s.fees;
            } // a canary's fees stay its owner's cost
            s.minStake = _desks[pool].minStake;
        }
        _accounts[pool][node].w = a;
        if (thawed) emit NodeReleased(pool, node);
        if (s.bps != 0 || s.amount != 0) {
            uint256 left;
            uint256 feesPaid;
            (taken, feesPaid, rewardPaid, left) = stakes.slash(node, s);
            back += feesPaid;
            if (a.limit() != 0) _relimit(pool, node, left);
        } else {
            stakes.release(node);
        }
        // The budget's word is read again: the token may have called back.
        _pools[pool].w = _credit(_pools[pool].w, back);
        emit FileFinalized(pool, node, sequence, c.code, taken);
    }

    /// @dev What a committee that could not get a file does not earn: an attempt is worth a quarter of the fee.
    function _unearned(uint256 p) private pure returns (uint256) {
        return p.committee() * (p.fee() - (p.fee() >> 2));
    }

    /// @dev A member whose stake shrank: its limit follows; below the pool's least stake it is no member any more.
    function _relimit(uint256 pool, address node, uint256 stake) private {
        bool stays = stake >= _desks[pool].minStake;
        uint256 limit = stays ? _limit(pool, _pools[pool].w, stake) : 0;
        _accounts[pool][node].w = _accounts[pool][node].w.withLimit(limit);
        if (stays) emit LimitSet(pool, node, limit);
        else emit NodeLeft(pool, node, false);
    }

    /// @dev One frozen file less.
    function _thaw(uint256 pool, address node) private {
        uint256 a = _accounts[pool][node].w.frozenLess();
        _accounts[pool][node].w = a;
        if (a.frozen() == 0) emit NodeReleased(pool, node);
    }

    /// @dev Refunds never exceed what was once deposited; a budget at its cap burns nothing, it only stays in escrow.
    function _credit(uint256 p, uint256 amount) private pure returns (uint256) {
        uint256 free = p.free() + amount;
        return p.withFree(free < PoolSlot.MAX_FREE ? free : PoolSlot.MAX_FREE);
    }
}
