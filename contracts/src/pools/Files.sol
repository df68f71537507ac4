// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../interfaces/IPools.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {AccountSlot} from "../libraries/AccountSlot.sol";
import {Charging} from "../libraries/Charging.sol";
import {Codes} from "../libraries/Codes.sol";
import {FileId} from "../libraries/FileId.sol";
import {FileSlot} from "../libraries/FileSlot.sol";
import {PackedWork} from "../libraries/PackedWork.sol";
import {PoolSlot} from "../libraries/PoolSlot.sol";
import {FileData, FileRef, Receipt, Work} from "../libraries/Types.sol";
import {Lanes} from "./Lanes.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// @title Files
/// @notice A file's life: submitted, settled by its lane's committee, disputed, final; claimed or charged to its node.
abstract contract Files is Lanes {
    using SafeERC20 for IERC20;
    using AccountSlot for uint256;
    using FileSlot for uint256;
    using PoolSlot for uint256;

    uint256 private constant FRESH = FileSlot.PENDING << 248;

    // ---- Submitted

    /// @inheritdoc IPools
    function submit(Work calldata work) external returns (uint256 sequence) {
        uint256 pool = PackedWork.pool(work.packed);
        Word storage poolWord = _pools[pool];
        Word storage accountWord = _accounts[_member(pool, msg.sender)];
        uint256 p = poolWord.w;
        uint256 a = accountWord.w;
        _onlyOpen(p);
        (p, a, sequence) = _place(p, a, a.limit(), p.maxLag(), pool, work, FRESH);
        poolWord.w = p;
        accountWord.w = a;
    }

    /// @inheritdoc IPools
    function submitMany(Work[] calldata works) external returns (uint256 firstSequence, uint256 lastSequence) {
        if (works.length == 0 || works.length > 16) revert BadCount();
        uint256 pool = PackedWork.pool(works[0].packed);
        uint256 p = _pools[pool].w;
        uint256 a = _accounts[_member(pool, msg.sender)].w;
        _onlyOpen(p);
        for (uint256 i = 0; i < works.length; ++i) {
            (p, a, lastSequence) = _place(p, a, a.limit(), p.maxLag(), pool, works[i], FRESH);
            if (i == 0) firstSequence = lastSequence;
        }
        _pools[pool].w = p;
        _accounts[_member(pool, msg.sender)].w = a;
    }

    /// @inheritdoc IPools
    function submitWithReceipt(Work calldata work, Receipt calldata receipt) external returns (uint256 sequence) {
        uint256 pool = PackedWork.pool(work.packed);
        uint256 p = _pools[pool].w;
        uint256 a = _accounts[_member(pool, msg.sender)].w;
        court.checkReceipt(pool, msg.sender, work.fileHash, receipt);
        (uint256 limit, uint256 last) = _lockedLimit(pool, p, a);
        uint256 first = block.timestamp - _desks[pool].receiptWindow;
        last = _lastInTime(pool, p, PackedWork.step(work.packed), last);
        if (receipt.time < first || receipt.time > last) revert ReceiptOutOfTime(first, last);
        (p, a, sequence) = _place(p, a, limit, PoolSlot.MAX_STEPS, pool, work, FRESH | FileSlot.ATTESTED);
        _pools[pool].w = p;
        _accounts[_member(pool, msg.sender)].w = a;
        emit ReceiptPresented(FileId.pack(pool, sequence));
    }

    // ---- Settled

    /// @inheritdoc IPools
    function settleLane(
        uint256 pool,
        uint256 lane,
        uint256 round,
        uint256 codes,
        uint256 window,
        FileRef[] calldata files
    ) external onlyCourt {
        uint256 p = _pools[pool].w;
        uint256 before = p;
        uint256 sequence = lane << 4;
        if (files.length == 0 || files.length > 16) revert BadCount();
        uint256 next = sequence + files.length;
        if (files.length < 16 && p.sequence() != next && _files[FileId.checked(pool, next)] != 0) revert BadCount();
        for (uint256 i = 0; i < files.length; ++i) {
            uint256 code = Codes.get(codes, i);
            if (code == Codes.NONE && round == 0) code = Codes.LATE;
            if (code == Codes.NONE || code == Codes.UNDECIDED) continue;
            p = _settle(p, pool, sequence + i, files[i], code, window);
        }
        if (p != before) _pools[pool].w = p;
    }

    // ---- Disputed

    /// @inheritdoc IPools
    function hold(uint256 pool, uint256 sequence, FileData calldata file) external onlyBench returns (uint256 code) {
        uint256 f = _inPhase(pool, sequence, file, FileSlot.SETTLED);
        if (block.timestamp >= f.finalAt()) revert WindowOver(f.finalAt());
        code = f.code();
        _files[FileId.checked(pool, sequence)] = f.withPhase(FileSlot.DISPUTED);
        emit FileDisputed(pool, file.node, sequence);
        if (!Codes.isPaid(code)) return code; // its stake is frozen already
        uint256 a = _accounts[_member(pool, file.node)].w;
        _accounts[_member(pool, file.node)].w = a.withSpent(a.spent() + file.units).unsettledMore();
        stakes.freeze(file.node);
    }

    /// @inheritdoc IPools
    function freezeHeld(uint256 pool, uint256 sequence, FileData calldata file) external onlyBench {
        uint256 f = _inPhase(pool, sequence, file, FileSlot.DISPUTED);
        if (f & FileSlot.FROZEN != 0) return;
        _files[FileId.checked(pool, sequence)] = f | FileSlot.FROZEN;
        _accounts[_member(pool, file.node)].w = _accounts[_member(pool, file.node)].w.frozenMore(block.timestamp);
        emit NodeFrozen(pool, file.node, block.timestamp);
    }

    /// @inheritdoc IPools
    function resolve(uint256 pool, uint256 sequence, FileData calldata file, uint256 code, uint256 reward)
        external
        onlyBench
        returns (uint256 slashed, uint256 rewardPaid)
    {
        uint256 f = _inPhase(pool, sequence, file, FileSlot.DISPUTED);
        bool frozen = f & FileSlot.FROZEN != 0;
        if (Codes.isPaid(code)) {
            _restore(pool, sequence, file, f, code);
            if (frozen) _thaw(pool, file.node);
            stakes.release(file.node);
            return (0, 0);
        }
        _finish(pool, sequence, f, f.amount(), f.finalAt(), code, f & FileSlot.CUMULATIVE);
        emit FileResolved(pool, file.node, sequence, code, f.finalAt());
        uint256 settledAt = f.finalAt() - _desks[pool].challengeWindow;
        // a node that was frozen when the committee rejected it was so since then; an overturned payment slashes now
        uint256 barredAt = Codes.isPaid(f.code()) ? block.timestamp : settledAt;
        return _charge(
            pool,
            sequence,
            file.node,
            Charging.Unpaid(code, file.units, settledAt, barredAt, frozen, reward, address(0))
        );
    }

    // ---- Final

    /// @inheritdoc IPools
    function finalize(uint256 pool, uint256 sequence, FileRef calldata file) external {
        uint256 f = _checked(pool, sequence, file.inner, file.node);
        uint256 code = f.code();
        if (f.phase() != FileSlot.SETTLED || Codes.kind(code) == Codes.KIND_ACCEPT) {
            revert WrongPhase(sequence, Phase(f.phase()));
        }
        uint256 time = f.finalAt();
        if (block.timestamp < time) revert NotYet(time);
        _files[FileId.checked(pool, sequence)] = f.withPhase(FileSlot.FINAL) & ~FileSlot.FROZEN;
        if (Codes.isPaid(code)) {
            _refundFees(pool, code);
            emit FileFinalized(FileId.pack(pool, sequence), code, 0);
        } else {
            if (code != Codes.LATE) time -= _desks[pool].challengeWindow;
            bool frozen = f & FileSlot.FROZEN != 0;
            _charge(pool, sequence, file.node, Charging.Unpaid(code, f.amount(), time, time, frozen, 0, msg.sender));
        }
    }

    /// @inheritdoc IPools
    function claim(uint256 pool, address node, uint256 sequence, bytes32 inner)
        external
        nonReentrant
        returns (uint256 amount)
    {
        uint256 a = _accounts[_member(pool, node)].w;
        uint256 f = _checked(pool, sequence, inner, node);
        if (f & FileSlot.CUMULATIVE == 0) revert NothingToClaim();
        if (block.timestamp < f.finalAt()) revert NotYet(f.finalAt());
        uint256 barrier = a.barrier();
        if (barrier != 0 && f.finalAt() > barrier) revert IsFrozen(barrier);
        if (f.amount() <= a.spent()) revert NothingToClaim();
        uint256 units = f.amount() - a.spent();
        _accounts[_member(pool, node)].w = a.withSpent(f.amount());
        amount = units * _pools[pool].w.rate();
        address operator = stakes.operatorOf(node);
        emit Claimed(pool, node, units, amount);
        token.safeTransfer(operator, amount);
    }

    /// @inheritdoc IPools
    function forfeit(uint256 pool, uint256 sequence, FileData calldata file) external nonReentrant {
        uint256 f = _checked(pool, sequence, innerHash(pool, sequence, file), file.node);
        uint256 a = _accounts[_member(pool, file.node)].w;
        bool lost = a.slashed() && f.finalAt() > a.barrier();
        if (!lost || f & FileSlot.CUMULATIVE == 0 || f.phase() == FileSlot.DISPUTED) {
            revert WrongPhase(sequence, Phase(f.phase()));
        }
        // until then the seats that accepted it are liable: it can be disputed, or opened as a canary
        if (f.phase() == FileSlot.SETTLED && block.timestamp < f.finalAt()) revert NotYet(f.finalAt());
        _finish(pool, sequence, f, file.units, f.finalAt(), f.code(), 0);
        uint256 amount;
        if (Codes.isPaid(f.code())) {
            amount = file.units * _pools[pool].w.rate();
            if (f.phase() == FileSlot.SETTLED) _refundFees(pool, f.code());
        } else {
            // its pay went back to the pool when it was overturned
            a = a.withSpent(a.spent() - file.units);
        }
        _accounts[_member(pool, file.node)].w = a.withEarned(a.earned() - file.units);
        emit FileForfeited(pool, file.node, sequence, amount);
        _burn(amount); // whose owner could have it back would gain by every node that is slashed
    }

    // ---- Outcomes

    /// @dev A pending file gets its committee's outcome.
    function _settle(uint256 p, uint256 pool, uint256 sequence, FileRef calldata file, uint256 code, uint256 window)
        private
        returns (uint256)
    {
        address node = file.node;
        uint256 f = _checked(pool, sequence, file.inner, node);
        if (f.phase() != FileSlot.PENDING) revert WrongPhase(sequence, Phase(f.phase()));
        uint256 units = f.amount();
        uint256 a = _accounts[_member(pool, node)].w;
        a = a.withPending(a.pending() - units);
        uint256 time = block.timestamp + window;
        uint256 amount = units;
        uint256 flags;
        uint256 phase = FileSlot.SETTLED;
        if (Codes.isPaid(code)) {
            amount = a.earned() + units;
            a = a.withEarned(amount).unsettledLess();
            flags = FileSlot.CUMULATIVE;
        } else if (code == Codes.VOID) {
            a = a.unsettledLess();
            phase = FileSlot.FINAL;
        } else if (code == Codes.LATE) {
            time = block.timestamp; // nothing can be said against it
        } else if (Codes.isReject(code)) {
            a = a.frozenMore(block.timestamp);
            flags = FileSlot.FROZEN;
        }
        if (code == Codes.VOID || code == Codes.LATE) p = _credit(p, Charging.refund(code, units, p));
        _accounts[_member(pool, node)].w = a;
        _files[FileId.checked(pool, sequence)] = FileSlot.pack(f.digest(), amount, time, code, phase) | flags;
        emit FileSettled(FileId.pack(pool, sequence), code, time);
        // what it will cost cannot leave before it is collected
        if (!Codes.isPaid(code) && code != Codes.VOID) stakes.freeze(node);
        return p;
    }

    /// @dev A held file is paid after all: at its own time, or at that of work settled now; vesting never goes back.
    function _restore(uint256 pool, uint256 sequence, FileData calldata file, uint256 f, uint256 code) private {
        uint256 a = _accounts[_member(pool, file.node)].w.unsettledLess();
        uint256 amount = f.amount();
        uint256 time = f.finalAt();
        if (Codes.isPaid(f.code())) {
            a = a.withSpent(a.spent() - file.units);
        } else {
            amount = a.earned() + file.units;
            a = a.withEarned(amount);
            time = block.timestamp + _desks[pool].challengeWindow;
        }
        _accounts[_member(pool, file.node)].w = a;
        _finish(pool, sequence, f, amount, time, code, FileSlot.CUMULATIVE);
        emit FileResolved(pool, file.node, sequence, code, time);
        _refundFees(pool, code);
    }

    /// @dev A file that is finally not paid: the budget gets back what nobody is paid; its node's stake pays the rest.
    function _charge(uint256 pool, uint256 sequence, address node, Charging.Unpaid memory u)
        private
        returns (uint256 taken, uint256 rewardPaid)
    {
        uint256 p = _pools[pool].w;
        uint256 a = _accounts[_member(pool, node)].w.unsettledLess();
        IStakes.Slash memory s = _order(pool, p, u);
        s.kept = a.unsettled() * p.fees();
        bool member = a.limit() != 0;
        if (!member) s.minStake = 0; // whether it stays in another pool is that one's matter
        // the slash before the freeze ends, which would forget since when unvested pay is barred
        bool rejected = Codes.isReject(u.code);
        if (rejected) a = a.slashedAt(u.barredAt);
        if (u.frozen) a = a.frozenLess();
        if (!rejected && u.frozen && a.frozen() == 0) emit NodeReleased(pool, node);
        _accounts[_member(pool, node)].w = a;
        // what was late was refunded at once
        uint256 back = u.code == Codes.LATE ? 0 : Charging.refund(u.code, u.units, p);
        if (s.bps + s.amount != 0) {
            uint256 left;
            uint256 feesPaid;
            (taken, feesPaid, rewardPaid, left) = stakes.slash(node, s);
            back += feesPaid;
            if (a.limit() != 0) _relimit(pool, node, left);
            else if (!member) _relimitElsewhere(node, left);
        } else {
            stakes.release(node);
        }
        // The budget's word is read again: the token may have called back.
        _pools[pool].w = _credit(_pools[pool].w, back);
        emit FileFinalized(FileId.pack(pool, sequence), u.code, taken);
    }

    function _order(uint256 pool, uint256 p, Charging.Unpaid memory u) private view returns (IStakes.Slash memory s) {
        (uint256 bps, uint256 rewardBps, uint256 malformed) = params.slashing(u.settledAt);
        Desk storage desk = _desks[pool];
        s = Charging.order(u, p, bps, rewardBps, malformed, desk.minStake);
        s.lockedUntil = block.timestamp + desk.unbonding;
    }

    // ---- Helpers

    /// @dev A submission's slot in the phase that a call needs, after checking that `file` is what it binds.
    function _inPhase(uint256 pool, uint256 sequence, FileData calldata file, uint256 phase)
        private
        view
        returns (uint256 f)
    {
        f = _checked(pool, sequence, innerHash(pool, sequence, file), file.node);
        if (f.phase() != phase) revert WrongPhase(sequence, Phase(f.phase()));
    }

    function _finish(
        uint256 pool,
        uint256 sequence,
        uint256 f,
        uint256 amount,
        uint256 time,
        uint256 code,
        uint256 flags
    ) private {
        _files[FileId.checked(pool, sequence)] =
            FileSlot.pack(f.digest(), amount, time, code, FileSlot.FINAL) | flags;
    }

    /// @dev What nobody is paid of the fees of a file that is.
    function _refundFees(uint256 pool, uint256 code) private {
        uint256 back = Charging.refund(code, 0, _pools[pool].w);
        if (back != 0) _pools[pool].w = _credit(_pools[pool].w, back);
    }
}
