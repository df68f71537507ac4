// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../interfaces/IPools.sol";
import {AccountSlot} from "../libraries/AccountSlot.sol";
import {Charging} from "../libraries/Charging.sol";
import {FileId} from "../libraries/FileId.sol";
import {FileSlot} from "../libraries/FileSlot.sol";
import {PackedWork} from "../libraries/PackedWork.sol";
import {PoolSlot} from "../libraries/PoolSlot.sol";
import {TermsLib} from "../libraries/TermsLib.sol";
import {Work} from "../libraries/Types.sol";
import {Nodes} from "./Nodes.sol";

/// @title Lanes
/// @notice How work comes into a pool: who may submit what and when, and its place in the open lane.
abstract contract Lanes is Nodes {
    using AccountSlot for uint256;
    using FileSlot for uint256;
    using PoolSlot for uint256;

    /// @inheritdoc IPools
    function announceMirror(uint256 pool, uint256 sequence, string calldata uri) external {
        emit MirrorAnnounced(pool, sequence, msg.sender, uri);
    }

    /// @inheritdoc IPools
    function laneOf(uint256 pool, uint256 lane) public view returns (uint256 start, uint256 end, uint256 files) {
        uint256 id = FileId.checked(pool, lane << 4);
        uint256 state = _pools[pool].word;
        files = _filled(state, id);
        uint256 first = _files[id];
        if (first.phase() != FileSlot.PENDING) return (0, 0, files);
        start = first.submittedAt();
        end = start + state.laneBlocks();
        if (files < 16) return (start, end, files);
        uint256 last = _files[id | 15].submittedAt();
        if (last < end) end = last;
    }

    /// @inheritdoc IPools
    function presentedIn(uint256 pool, uint256 lane, uint256 known)
        external
        view
        returns (uint256 end, uint256 files, uint256 places)
    {
        (, end, files) = laneOf(pool, lane);
        bool all = known + 1 == 1 << files;
        for (uint256 place = 0; place < files; ++place) {
            if (_files[FileId.pack(pool, (lane << 4) | place)] & FileSlot.ATTESTED != 0) places |= 1 << place;
            else if (all) break;
        }
    }

    function _onlyOpen(uint256 state) internal pure {
        if (state.status() != uint256(Status.Open)) revert WrongStatus(Status(state.status()));
    }

    /// @dev The last time, at most `last`, at which nothing but the node itself spoke against work for `step`.
    function _lastInTime(uint256 pool, uint256 state, uint256 step, uint256 last) internal view returns (uint256) {
        uint256 status = state.status();
        if (status == uint256(Status.Settled)) revert WrongStatus(Status.Settled);
        if (status != uint256(Status.Open) && _desks[pool].since < last) last = _desks[pool].since;
        uint256 newer = step + state.maxLag() + 1;
        if (newer >= state.steps()) return last;
        uint256 published = _steps[pool][newer].publishedAt;
        return published < last ? published : last;
    }

    /// @dev How many places of the lane that begins at `id` are taken. They fill in order, and the pool's word counts
    /// those of the newest lane.
    function _filled(uint256 state, uint256 id) private view returns (uint256 files) {
        uint256 next = state.sequence();
        if (next >> 4 == (id & type(uint32).max) >> 4) return next & 15;
        if (_files[id | 15] != 0) return 16;
        for (uint256 half = 8; half != 0; half >>= 1) {
            if (_files[id + files + half - 1] != 0) files += half;
        }
    }

    /// @dev One file: next place, limits, reservation, storage, event. Returns the words of pool and account to write.
    /// @param fresh Phase and flags of its slot.
    function _place(
        uint256 state,
        uint256 account,
        uint256 limit,
        uint256 maxLag,
        uint256 pool,
        Work calldata work,
        uint256 fresh
    ) internal returns (uint256, uint256, uint256 sequence) {
        uint256 packed = work.packed;
        uint256 units = PackedWork.units(packed);
        _mayWork(state, account, packed ^ (pool << 128), maxLag);
        unchecked {
            if (account.open() + units > limit) {
                if (limit == 0) revert NotMember();
                revert OverLimit(account.open() + units, limit);
            }
            uint256 cost = Charging.reserved(units, state);
            if (cost > state.free()) revert EscrowExhausted(cost, state.free());
            state -= cost;

            sequence = state.sequence();
            uint256 start = state.laneStart();
            if (block.number > start + state.laneBlocks()) sequence = (sequence + 15) & ~uint256(15);
            if (sequence & 15 == 0) start = block.number;
            if (sequence >= PoolSlot.MAX_SEQUENCE) revert AmountTooLarge();
            state = state.withLane(sequence + 1, start);
        }
        bytes32 root = work.root;
        bytes32 fileHash = work.fileHash;
        uint256 placed = PackedWork.placed(packed, sequence);
        uint256 digest = _digest(_inner(root, fileHash, placed), msg.sender);
        _files[PackedWork.id(placed)] = FileSlot.pack(digest, units, block.number, 0, 0) | fresh;
        emit WorkSubmitted(msg.sender, placed, root, fileHash);
        return (state, account.submitted(units), sequence);
    }

    /// @dev What a node says of its file, against its account and its pool's steps. `packed` is without the pool: what is
    /// left above the step, of another pool or a sequence of the node's own, makes it a step that nobody published.
    function _mayWork(uint256 state, uint256 account, uint256 packed, uint256 maxLag) private pure {
        unchecked {
            uint256 counter = PackedWork.counter(packed);
            if (account.counter() != counter) revert CounterMismatch(counter, account.counter());
            if (account.underWay() >= TermsLib.MAX_UNSETTLED) {
                if (account.frozen() != 0) revert NodeIsFrozen();
                revert TooManyUnsettled(TermsLib.MAX_UNSETTLED);
            }
            uint256 step = packed >> 64;
            // of a step that is not published yet it wraps
            uint256 lag = state.steps() - 1 - step;
            if (lag > maxLag) revert StepOutOfRange(step, account.joinedStep(), state.steps());
            if (step < account.joinedStep()) revert StepOutOfRange(step, account.joinedStep(), state.steps());
            if (PackedWork.units(packed) - 1 >= state.maxUnits()) {
                revert BadUnits(PackedWork.units(packed), state.maxUnits()); // 0 wraps
            }
            if (PackedWork.rows(packed) == 0) revert BadRows();
            if (counter == AccountSlot.MAX_COUNTER) revert AmountTooLarge();
        }
    }
}
