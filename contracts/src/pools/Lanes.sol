// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../interfaces/IPools.sol";
import {AccountSlot} from "../libraries/AccountSlot.sol";
import {Charging} from "../libraries/Charging.sol";
import {FileSlot} from "../libraries/FileSlot.sol";
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
    function laneOf(uint256 pool, uint256 lane) external view returns (uint256 start, uint256 end, uint256 files) {
        uint256 id = _id(pool, lane << 4);
        uint256 last = _files[id | 15];
        if (last != 0) {
            files = 16;
        } else {
            // places fill in order
            for (uint256 half = 8; half != 0; half >>= 1) {
                if (_files[id + files + half - 1] != 0) files += half;
            }
        }
        uint256 first = _files[id];
        if (first.phase() != FileSlot.PENDING) return (0, 0, files);
        start = first.submittedAt();
        end = start + _pools[pool].w.laneBlocks();
        if (files == 16 && last.submittedAt() < end) end = last.submittedAt();
    }

    function _onlyOpen(uint256 p) internal pure {
        if (p.status() != uint256(Status.Open)) revert WrongStatus(Status(p.status()));
    }

    /// @dev What holds for all files of one call.
    function _enter(uint256 p, uint256 a, uint256 step, uint256 counter, uint256 maxLag) internal pure {
        unchecked {
            if (a.counter() != counter) revert CounterMismatch(counter, a.counter());
            if (a.frozen() != 0) revert NodeIsFrozen();
            uint256 steps = p.steps();
            if (step >= steps || step < a.joinedStep() || step + maxLag + 1 < steps) {
                revert StepOutOfRange(step, a.joinedStep(), steps);
            }
        }
    }

    /// @dev The last time, at most `last`, at which nothing but the node itself spoke against work for `step`.
    function _lastInTime(uint256 pool, uint256 p, uint256 step, uint256 last) internal view returns (uint256) {
        uint256 status = p.status();
        if (status == uint256(Status.Settled)) revert WrongStatus(Status.Settled);
        if (status != uint256(Status.Open) && _desks[pool].since < last) last = _desks[pool].since;
        uint256 newer = step + p.maxLag() + 1;
        uint256 published = _steps[pool][newer].publishedAt;
        return published != 0 && published < last ? published : last;
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
    ) internal returns (uint256, uint256, uint256 sequence) {
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
            uint256 cost = Charging.reserved(units, p);
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
