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
        uint256 state = poolWord.word;
        uint256 account = accountWord.word;
        _onlyOpen(state);
        (state, account, sequence) = _place(state, account, account.limit(), state.maxLag(), pool, work, FRESH);
        poolWord.word = state;
        accountWord.word = account;
    }

    /// @inheritdoc IPools
    function submitMany(Work[] calldata works) external returns (uint256 firstSequence, uint256 lastSequence) {
        if (works.length == 0 || works.length > 16) revert BadCount();
        uint256 pool = PackedWork.pool(works[0].packed);
        uint256 state = _pools[pool].word;
        uint256 account = _accounts[_member(pool, msg.sender)].word;
        _onlyOpen(state);
        for (uint256 i = 0; i < works.length; ++i) {
            (state, account, lastSequence) =
                _place(state, account, account.limit(), state.maxLag(), pool, works[i], FRESH);
            if (i == 0) firstSequence = lastSequence;
        }
        _pools[pool].word = state;
        _accounts[_member(pool, msg.sender)].word = account;
    }

    /// @inheritdoc IPools
    function submitWithReceipt(Work calldata work, Receipt calldata receipt) external returns (uint256 sequence) {
        uint256 pool = PackedWork.pool(work.packed);
        uint256 state = _pools[pool].word;
        uint256 account = _accounts[_member(pool, msg.sender)].word;
        court.checkReceipt(pool, msg.sender, work.fileHash, receipt);
        (uint256 limit, uint256 last) = _lockedLimit(pool, state, account);
        uint256 first = block.timestamp - _desks[pool].receiptWindow;
        last = _lastInTime(pool, state, PackedWork.step(work.packed), last);
        if (receipt.time < first || receipt.time > last) revert ReceiptOutOfTime(first, last);
        (state, account, sequence) =
            _place(state, account, limit, PoolSlot.MAX_STEPS, pool, work, FRESH | FileSlot.ATTESTED);
        _pools[pool].word = state;
        _accounts[_member(pool, msg.sender)].word = account;
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
        uint256 state = _pools[pool].word;
        uint256 before = state;
        uint256 sequence = lane << 4;
        if (files.length == 0 || files.length > 16) revert BadCount();
        uint256 next = sequence + files.length;
        if (files.length < 16 && state.sequence() != next && _files[FileId.checked(pool, next)] != 0) {
            revert BadCount();
        }
        for (uint256 i = 0; i < files.length; ++i) {
            uint256 code = Codes.get(codes, i);
            if (code == Codes.NONE && round == 0) code = Codes.LATE;
            if (code == Codes.NONE || code == Codes.UNDECIDED) continue;
            state = _settle(state, pool, sequence + i, files[i], code, window);
        }
        if (state != before) _pools[pool].word = state;
    }

    // ---- Disputed

    /// @inheritdoc IPools
    function hold(uint256 pool, uint256 sequence, FileData calldata file) external onlyBench returns (uint256 code) {
        uint256 slot = _inPhase(pool, sequence, file, FileSlot.SETTLED);
        if (block.timestamp >= slot.finalAt()) revert WindowOver(slot.finalAt());
        code = slot.code();
        _files[FileId.checked(pool, sequence)] = slot.withPhase(FileSlot.DISPUTED);
        emit FileDisputed(pool, file.node, sequence);
        if (!Codes.isPaid(code)) return code; // its stake is frozen already
        uint256 account = _accounts[_member(pool, file.node)].word;
        _accounts[_member(pool, file.node)].word = account.withSpent(account.spent() + file.units).unsettledMore();
        stakes.freeze(file.node);
    }

    /// @inheritdoc IPools
    function freezeHeld(uint256 pool, uint256 sequence, FileData calldata file) external onlyBench {
        uint256 slot = _inPhase(pool, sequence, file, FileSlot.DISPUTED);
        if (slot & FileSlot.FROZEN != 0) return;
        _files[FileId.checked(pool, sequence)] = slot | FileSlot.FROZEN;
        _accounts[_member(pool, file.node)].word = _accounts[_member(pool, file.node)].word.frozenMore(block.timestamp);
        emit NodeFrozen(pool, file.node, block.timestamp);
    }

    /// @inheritdoc IPools
    function resolve(uint256 pool, uint256 sequence, FileData calldata file, uint256 code, uint256 reward)
        external
        onlyBench
        returns (uint256 slashed, uint256 rewardPaid)
    {
        uint256 slot = _inPhase(pool, sequence, file, FileSlot.DISPUTED);
        bool frozen = slot & FileSlot.FROZEN != 0;
        if (Codes.isPaid(code)) {
            _restore(pool, sequence, file, slot, code);
            if (frozen) _thaw(pool, file.node);
            stakes.release(file.node);
            return (0, 0);
        }
        _files[FileId.checked(pool, sequence)] =
            slot.ended(slot.amount(), slot.finalAt(), code) | (slot & FileSlot.CUMULATIVE);
        emit FileResolved(pool, file.node, sequence, code, slot.finalAt());
        uint256 settledAt = slot.finalAt() - _desks[pool].challengeWindow;
        // a node that was frozen when the committee rejected it was so since then; an overturned payment slashes now
        uint256 barredAt = Codes.isPaid(slot.code()) ? block.timestamp : settledAt;
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
        uint256 slot = _checked(pool, sequence, file.inner, file.node);
        uint256 code = slot.code();
        if (slot.phase() != FileSlot.SETTLED || Codes.kind(code) == Codes.KIND_ACCEPT) {
            revert WrongPhase(sequence, Phase(slot.phase()));
        }
        uint256 time = slot.finalAt();
        if (block.timestamp < time) revert NotYet(time);
        _files[FileId.checked(pool, sequence)] = slot.withPhase(FileSlot.FINAL) & ~FileSlot.FROZEN;
        if (Codes.isPaid(code)) {
            _refundFees(pool, code);
            emit FileFinalized(FileId.pack(pool, sequence), code, 0);
        } else {
            if (code != Codes.LATE) time -= _desks[pool].challengeWindow;
            bool frozen = slot & FileSlot.FROZEN != 0;
            _charge(pool, sequence, file.node, Charging.Unpaid(code, slot.amount(), time, time, frozen, 0, msg.sender));
        }
    }

    /// @inheritdoc IPools
    function claim(uint256 pool, address node, uint256 sequence, bytes32 inner)
        external
        nonReentrant
        returns (uint256 amount)
    {
        uint256 account = _accounts[_member(pool, node)].word;
        uint256 slot = _checked(pool, sequence, inner, node);
        if (slot & FileSlot.CUMULATIVE == 0) revert NothingToClaim();
        if (block.timestamp < slot.finalAt()) revert NotYet(slot.finalAt());
        uint256 barrier = account.barrier();
        if (barrier != 0 && slot.finalAt() > barrier) revert IsFrozen(barrier);
        if (slot.amount() <= account.spent()) revert NothingToClaim();
        uint256 units = slot.amount() - account.spent();
        _accounts[_member(pool, node)].word = account.withSpent(slot.amount());
        amount = units * _pools[pool].word.rate();
        address operator = stakes.operatorOf(node);
        emit Claimed(pool, node, units, amount);
        token.safeTransfer(operator, amount);
    }

    /// @inheritdoc IPools
    function forfeit(uint256 pool, uint256 sequence, FileData calldata file) external nonReentrant {
        uint256 slot = _checked(pool, sequence, innerHash(pool, sequence, file), file.node);
        uint256 account = _accounts[_member(pool, file.node)].word;
        bool lost = account.slashed() && slot.finalAt() > account.barrier();
        if (!lost || slot & FileSlot.CUMULATIVE == 0 || slot.phase() == FileSlot.DISPUTED) {
            revert WrongPhase(sequence, Phase(slot.phase()));
        }
        // until then the seats that accepted it are liable: it can be disputed, or opened as a canary
        bool settled = slot.phase() == FileSlot.SETTLED;
        if (settled && block.timestamp < slot.finalAt()) revert NotYet(slot.finalAt());
        _files[FileId.checked(pool, sequence)] = slot.ended(file.units, slot.finalAt(), slot.code());
        uint256 amount;
        if (Codes.isPaid(slot.code())) {
            amount = file.units * _pools[pool].word.rate();
            if (settled) _refundFees(pool, slot.code());
        } else {
            // its pay went back to the pool when it was overturned
            account = account.withSpent(account.spent() - file.units);
        }
        _accounts[_member(pool, file.node)].word = account.withEarned(account.earned() - file.units);
        emit FileForfeited(pool, file.node, sequence, amount);
        _burn(amount); // whose owner could have it back would gain by every node that is slashed
    }

    // ---- Outcomes

    /// @dev A pending file gets its committee's outcome.
    function _settle(uint256 state, uint256 pool, uint256 sequence, FileRef calldata file, uint256 code, uint256 window)
        private
        returns (uint256)
    {
        address node = file.node;
        uint256 slot = _checked(pool, sequence, file.inner, node);
        if (slot.phase() != FileSlot.PENDING) revert WrongPhase(sequence, Phase(slot.phase()));
        uint256 units = slot.amount();
        uint256 account = _accounts[_member(pool, node)].word;
        account = account.withPending(account.pending() - units);
        uint256 time = block.timestamp + window;
        uint256 amount = units;
        uint256 flags;
        uint256 phase = FileSlot.SETTLED;
        if (Codes.isPaid(code)) {
            amount = account.earned() + units;
            account = account.withEarned(amount).unsettledLess();
            flags = FileSlot.CUMULATIVE;
        } else if (code == Codes.VOID) {
            account = account.unsettledLess();
            phase = FileSlot.FINAL;
        } else if (code == Codes.LATE) {
            time = block.timestamp; // nothing can be said against it
        } else if (Codes.isReject(code)) {
            account = account.frozenMore(block.timestamp);
            flags = FileSlot.FROZEN;
        }
        if (code == Codes.VOID || code == Codes.LATE) {
            state = _credit(state, Charging.refund(code, units, state));
        }
        _accounts[_member(pool, node)].word = account;
        _files[FileId.checked(pool, sequence)] = FileSlot.pack(slot.digest(), amount, time, code, phase) | flags;
        emit FileSettled(FileId.pack(pool, sequence), code, time);
        // what it will cost cannot leave before it is collected
        if (!Codes.isPaid(code) && code != Codes.VOID) stakes.freeze(node);
        return state;
    }

    /// @dev A held file is paid after all: at its own time, or at that of work settled now; vesting never goes back.
    function _restore(uint256 pool, uint256 sequence, FileData calldata file, uint256 slot, uint256 code) private {
        uint256 account = _accounts[_member(pool, file.node)].word.unsettledLess();
        uint256 amount = slot.amount();
        uint256 time = slot.finalAt();
        if (Codes.isPaid(slot.code())) {
            account = account.withSpent(account.spent() - file.units);
        } else {
            amount = account.earned() + file.units;
            account = account.withEarned(amount);
            time = block.timestamp + _desks[pool].challengeWindow;
        }
        _accounts[_member(pool, file.node)].word = account;
        _files[FileId.checked(pool, sequence)] = slot.ended(amount, time, code) | FileSlot.CUMULATIVE;
        emit FileResolved(pool, file.node, sequence, code, time);
        _refundFees(pool, code);
    }

    /// @dev A file that is finally not paid: the budget gets back what nobody is paid; its node's stake pays the rest.
    function _charge(uint256 pool, uint256 sequence, address node, Charging.Unpaid memory unpaid)
        private
        returns (uint256 taken, uint256 rewardPaid)
    {
        uint256 state = _pools[pool].word;
        uint256 account = _accounts[_member(pool, node)].word.unsettledLess();
        IStakes.Slash memory order = _order(pool, state, unpaid);
        order.kept = account.unsettled() * state.fees();
        bool member = account.limit() != 0;
        if (!member) order.minStake = 0; // whether it stays in another pool is that one's matter
        // the slash before the freeze ends, which would forget since when unvested pay is barred
        bool rejected = Codes.isReject(unpaid.code);
        if (rejected) account = account.slashedAt(unpaid.barredAt);
        if (unpaid.frozen) account = account.frozenLess();
        if (!rejected && unpaid.frozen && account.frozen() == 0) emit NodeReleased(pool, node);
        _accounts[_member(pool, node)].word = account;
        // what was late was refunded at once
        uint256 back = unpaid.code == Codes.LATE ? 0 : Charging.refund(unpaid.code, unpaid.units, state);
        if (order.bps + order.amount != 0) {
            uint256 left;
            uint256 feesPaid;
            (taken, feesPaid, rewardPaid, left) = stakes.slash(node, order);
            back += feesPaid;
            if (account.limit() != 0) _relimit(pool, node, left);
            else if (!member) _relimitElsewhere(node, left);
        } else {
            stakes.release(node);
        }
        // The budget's word is read again: the token may have called back.
        _pools[pool].word = _credit(_pools[pool].word, back);
        emit FileFinalized(FileId.pack(pool, sequence), unpaid.code, taken);
    }

    function _order(uint256 pool, uint256 state, Charging.Unpaid memory unpaid)
        private
        view
        returns (IStakes.Slash memory order)
    {
        (uint256 bps, uint256 rewardBps, uint256 malformed) = params.slashing(unpaid.settledAt);
        Desk storage desk = _desks[pool];
        order = Charging.order(unpaid, state, bps, rewardBps, malformed, desk.minStake);
        order.lockedUntil = block.timestamp + desk.unbonding;
    }

    // ---- Helpers

    /// @dev A submission's slot in the phase that a call needs, after checking that `file` is what it binds.
    function _inPhase(uint256 pool, uint256 sequence, FileData calldata file, uint256 phase)
        private
        view
        returns (uint256 slot)
    {
        slot = _checked(pool, sequence, innerHash(pool, sequence, file), file.node);
        if (slot.phase() != phase) revert WrongPhase(sequence, Phase(slot.phase()));
    }

    /// @dev What nobody is paid of the fees of a file that is.
    function _refundFees(uint256 pool, uint256 code) private {
        uint256 back = Charging.refund(code, 0, _pools[pool].word);
        if (back != 0) _pools[pool].word = _credit(_pools[pool].word, back);
    }
}
