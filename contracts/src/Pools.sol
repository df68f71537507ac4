// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "./interfaces/IPools.sol";
import {AccountSlot} from "./libraries/AccountSlot.sol";
import {FileSlot} from "./libraries/FileSlot.sol";
import {PoolSlot} from "./libraries/PoolSlot.sol";
import {PoolTerms, Suite} from "./libraries/Types.sol";
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
        return Pool({
            owner: desk.owner,
            status: Status(p.status()),
            free: p.free(),
            steps: p.steps(),
            sequence: p.sequence(),
            laneStart: p.laneStart(),
            seedBlock: desk.seedBlock,
            unbonding: desk.unbonding,
            settleAt: desk.settleAt,
            terms: _terms[pool]
        });
    }

    /// @inheritdoc IPools
    function ownerOf(uint256 pool) external view returns (address) {
        return _desks[pool].owner;
    }

    /// @inheritdoc IPools
    function termsOf(uint256 pool) external view returns (PoolTerms memory) {
        return _terms[pool];
    }

    /// @inheritdoc IPools
    function accountOf(uint256 pool, address node) external view returns (Account memory) {
        uint256 a = _accounts[pool][node].w;
        return Account({
            earned: a.earned(),
            drawn: a.drawn(),
            pending: a.pending(),
            limit: a.limit(),
            counter: a.counter(),
            joinedStep: a.joinedStep(),
            frozenAt: a.barrier(),
            frozen: a.frozen(),
            slashed: a.slashed(),
            removed: a.removed(),
            unsettled: a.unsettled()
        });
    }

    /// @inheritdoc IPools
    function submissionOf(uint256 pool, uint256 sequence) external view returns (Submission memory) {
        uint256 f = _files[_id(pool, sequence)];
        return Submission({
            digest: bytes20(f.digest()),
            phase: Phase(f.phase()),
            code: f.code(),
            units: f.amount(),
            time: f.time(),
            cumulative: f & FileSlot.CUMULATIVE != 0
        });
    }

    /// @inheritdoc IPools
    function laneOf(uint256 pool, uint256 lane) external view returns (uint256 start, uint256 files) {
        while (files < 16 && _files[_id(pool, (lane << 4) | files)] != 0) ++files;
        start = laneStart(pool, lane);
    }

    /// @inheritdoc IPools
    function laneStart(uint256 pool, uint256 lane) public view returns (uint256) {
        uint256 f = _files[_id(pool, lane << 4)];
        return f.phase() == FileSlot.PENDING ? f.time() : 0;
    }

    /// @inheritdoc IPools
    function laneEnd(uint256 pool, uint256 lane) external view returns (uint256 end) {
        end = laneStart(pool, lane);
        if (end == 0) return 0;
        end += _terms[pool].laneBlocks;
        uint256 last = _files[_id(pool, (lane << 4) | 15)];
        if (last.phase() == FileSlot.PENDING && last.time() < end) end = last.time();
    }

    /// @inheritdoc IPools
    function canaryRootOf(uint256 pool, uint256 step) external view returns (bytes32) {
        return _canaryRoots[pool][step];
    }
}
