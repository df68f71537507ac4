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
        uint256 state = _pools[pool].word;
        Desk memory desk = _desks[pool];
        bool closed = state.status() == uint256(Status.Closing) || state.status() == uint256(Status.Settled);
        return Pool({
            owner: desk.owner,
            status: Status(state.status()),
            free: state.free(),
            steps: state.steps(),
            sequence: state.sequence(),
            laneStart: state.laneStart(),
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
        uint256 slot = _files[FileId.checked(pool, sequence)];
        bool pending = slot.phase() == FileSlot.PENDING;
        bool cumulative = slot & FileSlot.CUMULATIVE != 0;
        return Submission({
            digest: bytes20(slot.digest()),
            phase: Phase(slot.phase()),
            code: slot.code(),
            units: cumulative ? 0 : slot.amount(),
            earned: cumulative ? slot.amount() : 0,
            submittedAt: pending ? slot.submittedAt() : 0,
            finalAt: pending ? 0 : slot.finalAt()
        });
    }

    /// @inheritdoc IPools
    function claimable(uint256 pool, address node, uint256 sequence)
        external
        view
        returns (uint256 units, uint256 amount)
    {
        uint256 account = _accounts[_member(pool, node)].word;
        uint256 slot = _files[FileId.checked(pool, sequence)];
        uint256 barrier = account.barrier();
        bool vested = block.timestamp >= slot.finalAt() && (barrier == 0 || slot.finalAt() <= barrier);
        if (slot & FileSlot.CUMULATIVE != 0 && vested && slot.amount() > account.spent()) {
            units = slot.amount() - account.spent();
        }
        amount = units * _pools[pool].word.rate();
    }

    /// @inheritdoc IPools
    function canaryRootOf(uint256 pool, uint256 step) external view returns (bytes32) {
        return _steps[pool][step].canaryRoot;
    }
}
