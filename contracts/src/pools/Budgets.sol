// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../interfaces/IPools.sol";
import {PoolSlot} from "../libraries/PoolSlot.sol";
import {PoolTerms} from "../libraries/Types.sol";
import {PoolBase} from "./PoolBase.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// @title Budgets
/// @notice A pool's life: created, funded, stepped, paused, closed and settled; and what its escrow pays to seats.
abstract contract Budgets is PoolBase {
    using SafeERC20 for IERC20;
    using PoolSlot for uint256;

    /// @inheritdoc IPools
    function createPool(PoolTerms memory terms, uint256 budget) external nonReentrant returns (uint256 pool) {
        if (params.paused()) revert Paused();
        uint256 unbonding = params.checkTerms(terms);
        if (budget > PoolSlot.MAX_FREE) revert AmountTooLarge();
        // the same seats may judge all of a lane's files wrongly
        uint256 pay = 16 * uint256(terms.maxUnits) * terms.rate;
        uint256 bonds = (terms.committee / 2 + 1) * seats.minBond();
        if (pay > bonds) revert PayAboveBonds(pay, bonds);

        pool = ++poolCount;
        if (pool > type(uint24).max) revert AmountTooLarge();
        if (terms.class == 0) terms.class = uint32(pool);
        _pools[pool].word = PoolSlot.pack(
                terms.rate,
                terms.fee,
                terms.maxUnits,
                terms.laneBlocks,
                terms.maxLag,
                terms.committee,
                uint256(Status.Open)
            ).withFree(budget);
        _desks[pool] = Desk({
            owner: msg.sender,
            seedBlock: 0,
            since: 0,
            unbonding: uint32(unbonding),
            minStake: terms.minStake,
            leverage: terms.leverage,
            challengeWindow: terms.challengeWindow,
            receiptWindow: terms.receiptWindow,
            inviteOnly: terms.inviteOnly
        });
        emit PoolCreated(pool, msg.sender, terms.configHash, terms, unbonding);
        emit PoolFunded(pool, msg.sender, budget);
        court.registerPool(pool, terms);
        _review(pool);
        token.safeTransferFrom(msg.sender, address(this), budget);
    }

    /// @inheritdoc IPools
    function fund(uint256 pool, uint256 amount) external nonReentrant {
        uint256 state = _pools[pool].word;
        if (state.status() == uint256(Status.None)) revert NoSuchPool();
        uint256 free = state.free() + amount;
        if (free > PoolSlot.MAX_FREE) revert AmountTooLarge();
        _pools[pool].word = state.withFree(free);
        emit PoolFunded(pool, msg.sender, amount);
        token.safeTransferFrom(msg.sender, address(this), amount);
    }

    /// @inheritdoc IPools
    function publishStep(uint256 pool, uint256 step, bytes32 manifestHash, bytes32 canaryRoot)
        external
        onlyOwner(pool)
    {
        _onlyRunning(pool);
        uint256 state = _pools[pool].word;
        uint256 steps = state.steps();
        if (step != steps) revert StepMismatch(steps, step);
        if (steps == PoolSlot.MAX_STEPS) revert AmountTooLarge();
        _pools[pool].word = state.withSteps(steps + 1);
        uint256 seedBlock = block.number + 1;
        _desks[pool].seedBlock = uint32(seedBlock);
        _steps[pool][step] = Step(canaryRoot, uint40(block.timestamp));
        emit StepPublished(pool, step, manifestHash, canaryRoot, seedBlock);
        if (state.status() != uint256(Status.Paused)) _review(pool);
    }

    /// @inheritdoc IPools
    function reviewSeats(uint256 pool) external {
        uint256 status = _onlyRunning(pool);
        if (status == uint256(Status.Paused)) revert WrongStatus(Status.Paused);
        _review(pool);
    }

    /// @inheritdoc IPools
    function pausePool(uint256 pool) external onlyOwner(pool) {
        uint256 status = _onlyRunning(pool);
        if (status == uint256(Status.Paused)) revert WrongStatus(Status.Paused);
        _setStatus(pool, Status.Paused);
    }

    /// @inheritdoc IPools
    function resumePool(uint256 pool) external onlyOwner(pool) {
        uint256 status = _pools[pool].word.status();
        if (status != uint256(Status.Paused)) revert WrongStatus(Status(status));
        _review(pool);
    }

    /// @inheritdoc IPools
    function closePool(uint256 pool) external onlyOwner(pool) {
        _onlyRunning(pool);
        _setStatus(pool, Status.Closing);
    }

    /// @inheritdoc IPools
    function settlePool(uint256 pool) external onlyOwner(pool) nonReentrant returns (uint256 amount) {
        uint256 state = _pools[pool].word;
        uint256 status = state.status();
        if (status != uint256(Status.Closing) && status != uint256(Status.Settled)) revert WrongStatus(Status(status));
        uint256 settleAt = uint256(_desks[pool].since) + _desks[pool].unbonding;
        if (block.timestamp < settleAt) revert NotYet(settleAt);
        amount = state.free();
        _pools[pool].word = state.withFree(0).withStatus(uint256(Status.Settled));
        if (status == uint256(Status.Closing)) emit StatusSet(pool, Status.Settled);
        emit LeftoverTaken(pool, msg.sender, amount);
        token.safeTransfer(msg.sender, amount);
    }

    /// @inheritdoc IPools
    function payFees(uint256 pool, address to, uint256 paid, uint256 burnt) external onlyCourt nonReentrant {
        emit FeePaid(pool, to, paid, burnt);
        if (paid != 0) token.safeTransfer(to, paid);
        _burn(burnt);
    }

    /// @dev Open when the pool's class has enough seats, else understaffed.
    function _review(uint256 pool) private {
        _setStatus(pool, court.staffed(pool) ? Status.Open : Status.Understaffed);
    }

    function _setStatus(uint256 pool, Status to) private {
        uint256 state = _pools[pool].word;
        if (state.status() == uint256(to)) return;
        _pools[pool].word = state.withStatus(uint256(to));
        _desks[pool].since = uint32(block.timestamp);
        emit StatusSet(pool, to);
    }

    /// @dev Open, understaffed or paused.
    function _onlyRunning(uint256 pool) private view returns (uint256 status) {
        status = _pools[pool].word.status();
        if (
            status != uint256(Status.Open) && status != uint256(Status.Understaffed) && status != uint256(Status.Paused)
        ) {
            revert WrongStatus(Status(status));
        }
    }
}
