// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "./interfaces/IPools.sol";
import {AccountSlot} from "./libraries/AccountSlot.sol";
import {FileId} from "./libraries/FileId.sol";
import {FileSlot} from "./libraries/FileSlot.sol";
import {PoolSlot} from "./libraries/PoolSlot.sol";
import {Suite} from "./libraries/Types.sol";
import {Budgets} from "./pools/Budgets.sol";
import {Files} from "./pools/Files.sol";
import {PoolBase} from "./pools/PoolBase.sol";

/// @title Pools
/// @notice The parts put together, and views.
contract Pools is Budgets, Files {
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
        uint256 a = _accounts[_member(pool, node)].w;
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
        uint256 f = _files[FileId.checked(pool, sequence)];
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
    function claimable(uint256 pool, address node, uint256 sequence)
        external
        view
        returns (uint256 units, uint256 amount)
    {
        uint256 a = _accounts[_member(pool, node)].w;
        uint256 f = _files[FileId.checked(pool, sequence)];
        uint256 barrier = a.barrier();
        bool vested = block.timestamp >= f.finalAt() && (barrier == 0 || f.finalAt() <= barrier);
        if (f & FileSlot.CUMULATIVE != 0 && vested && f.amount() > a.spent()) units = f.amount() - a.spent();
        amount = units * _pools[pool].w.rate();
    }

    /// @inheritdoc IPools
    function canaryRootOf(uint256 pool, uint256 step) external view returns (bytes32) {
        return _steps[pool][step].canaryRoot;
    }
}
