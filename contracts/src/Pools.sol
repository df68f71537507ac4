// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "./interfaces/IPools.sol";
import {AccountSlot} from "./libraries/AccountSlot.sol";
import {FileSlot} from "./libraries/FileSlot.sol";
import {PoolSlot} from "./libraries/PoolSlot.sol";
import {Suite} from "./libraries/Types.sol";
import {PoolBase} from "./pools/PoolBase.sol";
import {PoolMembers} from "./pools/PoolMembers.sol";
import {PoolOwners} from "./pools/PoolOwners.sol";
import {PoolVerdicts} from "./pools/PoolVerdicts.sol";
import {PoolWork} from "./pools/PoolWork.sol";

/// @title Pools
/// @notice The parts put together, and views.
contract Pools is PoolOwners, PoolMembers, PoolWork, PoolVerdicts {
    using AccountSlot for uint256;
    using FileSlot for uint256;
    using PoolSlot for uint256;

    constructor(Suite memory suite) PoolBase(suite) {}

    /// @inheritdoc IPools
    function poolOf(uint256 pool) external view returns (Pool memory) {
        uint256 p = _pools[pool].w;
        Desk memory desk = _desks[pool];
        bool closed = p.status() == uint256(Status.Closing) || p.status() == uint256(Status.Settled);
        return Pool({
            owner: desk.owner,
            status: Status(p.status()),
            free: p.free(),
            steps: p.steps(),
            sequence: p.sequence(),
            laneStart: p.laneStart(),
            seedBlock: desk.seedBlock,
            unbonding: desk.unbonding,
            settleAt: closed ? uint256(desk.since) + desk.unbonding : 0
        });
    }

    /// @inheritdoc IPools
    function ownerOf(uint256 pool) external view returns (address) {
        return _desks[pool].owner;
    }

    /// @inheritdoc IPools
    function accountOf(uint256 pool, address node) external view returns (Account memory) {
        uint256 a = _accounts[pool][node].w;
        return Account({
            earned: a.earned(),
            spent: a.spent(),
            pending: a.pending(),
            limit: a.limit(),
            counter: a.counter(),
            joinedStep: a.joinedStep(),
            barrier: a.barrier(),
            frozen: a.frozen(),
            slashed: a.slashed(),
            removed: a.removed(),
            unsettled: a.unsettled()
        });
    }

    /// @inheritdoc IPools
    function submissionOf(uint256 pool, uint256 sequence) external view returns (Submission memory) {
        uint256 f = _files[_id(pool, sequence)];
        bool pending = f.phase() == FileSlot.PENDING;
        bool cumulative = f & FileSlot.CUMULATIVE != 0;
        return Submission({
            digest: bytes20(f.digest()),
            phase: Phase(f.phase()),
            code: f.code(),
            units: cumulative ? 0 : f.amount(),
            earned: cumulative ? f.amount() : 0,
            submittedAt: pending ? f.submittedAt() : 0,
            finalAt: pending ? 0 : f.finalAt()
        });
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

    /// @inheritdoc IPools
    function canaryRootOf(uint256 pool, uint256 step) external view returns (bytes32) {
        return _steps[pool][step].canaryRoot;
    }
}
