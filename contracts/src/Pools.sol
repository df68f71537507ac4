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
        uint256 poolSlot = _pools[pool].word;
        Desk memory desk = _desks[pool];
        bool closed = poolSlot.status() == uint256(Status.Closing) || poolSlot.status() == uint256(Status.Settled);
        return Pool({
            owner: desk.owner,
            status: Status(poolSlot.status()),
            free: poolSlot.free(),
            steps: poolSlot.steps(),
            sequence: poolSlot.sequence(),
            laneStart: poolSlot.laneStart(),
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
        uint256 account = _accounts[_member(pool, node)].word;
        return Account({
            earned: account.earned(),
            spent: account.spent(),
            pending: account.pending(),
            limit: account.limit(),
            counter: account.counter(),
            joinedStep: account.joinedStep(),
            barrier: account.barrier(),
            frozen: account.frozen(),
            slashed: account.slashed(),
            removed: account.removed(),
            unsettled: account.unsettled()
        });
    }

    /// @inheritdoc IPools
    function submissionOf(uint256 pool, uint256 sequence) external view returns (Submission memory) {
        uint256 fileSlot = _files[FileId.checked(pool, sequence)];
        bool pending = fileSlot.phase() == FileSlot.PENDING;
        bool cumulative = fileSlot & FileSlot.CUMULATIVE != 0;
        return Submission({
            digest: bytes20(fileSlot.digest()),
            phase: Phase(fileSlot.phase()),
            code: fileSlot.code(),
            units: cumulative ? 0 : fileSlot.amount(),
            earned: cumulative ? fileSlot.amount() : 0,
            submittedAt: pending ? fileSlot.submittedAt() : 0,
            finalAt: pending ? 0 : fileSlot.finalAt()
        });
    }

    /// @inheritdoc IPools
    function claimable(uint256 pool, address node, uint256 sequence)
        external
        view
        returns (uint256 units, uint256 amount)
    {
        uint256 account = _accounts[_member(pool, node)].word;
        uint256 fileSlot = _files[FileId.checked(pool, sequence)];
        uint256 barrier = account.barrier();
        bool vested = block.timestamp >= fileSlot.finalAt() && (barrier == 0 || fileSlot.finalAt() <= barrier);
        if (fileSlot & FileSlot.CUMULATIVE != 0 && vested && fileSlot.amount() > account.spent()) {
            units = fileSlot.amount() - account.spent();
        }
        amount = units * _pools[pool].word.rate();
    }

    /// @inheritdoc IPools
    function canaryRootOf(uint256 pool, uint256 step) external view returns (bytes32) {
        return _steps[pool][step].canaryRoot;
    }
}
