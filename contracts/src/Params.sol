// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "./interfaces/IParams.sol";
import {TermsLib} from "./libraries/TermsLib.sol";
import {PoolTerms} from "./libraries/Types.sol";
import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";

/// @title Params
contract Params is IParams, Ownable2Step {
    /// Most base units that one penalty may be: ten thousand tokens.
    uint256 public constant MAX_PENALTY = 10_000e9;
    /// Most base units that a dispute's deposit holds beyond the jury's fees: nobody is priced out of disputes.
    uint256 public constant MAX_COMPENSATION = 10e9;
    /// Seconds that new entries can be refused for at once.
    uint256 public constant MAX_PAUSE = 7 days;

    /// @inheritdoc IParams
    uint256 public immutable minWindow;
    /// @inheritdoc IParams
    uint256 public immutable blockSeconds;
    /// @inheritdoc IParams
    uint256 public immutable unbonding;

    /// @inheritdoc IParams
    uint256 public pausedUntil;
    /// The newest version, and since when it holds: in one word, because every penalty needs both.
    uint128 private _newest;
    uint128 private _newestSince;
    mapping(uint256 version => Values) private _values;
    /// Of versions before the newest.
    mapping(uint256 version => uint256) private _since;

    constructor(address owner, uint256 minWindow_, uint256 blockSeconds_, uint256 unbonding_, Values memory values_)
        Ownable(owner)
    {
        if (minWindow_ == 0 || minWindow_ > 1 days) revert OutOfBounds("minWindow");
        if (blockSeconds_ == 0 || blockSeconds_ > 60) revert OutOfBounds("blockSeconds");
        if (unbonding_ < minWindow_ || unbonding_ > 90 days) revert OutOfBounds("unbonding");
        (minWindow, blockSeconds, unbonding) = (minWindow_, blockSeconds_, unbonding_);
        _check(values_);
        _values[0] = values_;
        emit ValuesSet(values_);
    }

    /// @inheritdoc IParams
    function set(Values calldata values_) external onlyOwner {
        _check(values_);
        uint256 since = _newestSince;
        if (block.timestamp < since) revert TooSoon(since);
        uint256 time = block.timestamp + unbonding;
        _since[_newest] = since;
        _values[++_newest] = values_;
        _newestSince = uint128(time);
        emit ValuesScheduled(values_, time);
    }

    /// @inheritdoc IParams
    function setPaused(bool paused_) external onlyOwner {
        uint256 until = pausedUntil;
        if (paused_) {
            if (until != 0 && block.timestamp < until + MAX_PAUSE) revert TooSoon(until + MAX_PAUSE);
            until = block.timestamp + MAX_PAUSE;
        } else if (block.timestamp < until) {
            until = block.timestamp;
        }
        pausedUntil = until;
        emit PausedSet(paused_);
        emit PausedUntil(until);
    }

    /// @inheritdoc IParams
    function paused() external view returns (bool) {
        return block.timestamp < pausedUntil;
    }

    /// @inheritdoc IParams
    function values() external view returns (Values memory) {
        return _at(block.timestamp);
    }

    /// @inheritdoc IParams
    function valuesAt(uint256 time) external view returns (Values memory) {
        return _at(time);
    }

    /// @inheritdoc IParams
    function slashing(uint256 time) external view returns (uint256, uint256, uint256) {
        Values storage penalties = _at(time);
        return (penalties.slashBps, penalties.rewardBps, penalties.malformedPenalty);
    }

    /// @inheritdoc IParams
    function checkTerms(PoolTerms calldata terms) external view returns (uint256) {
        return TermsLib.check(terms, _at(block.timestamp).withheldPenalty, minWindow, blockSeconds, unbonding);
    }

    function _at(uint256 time) private view returns (Values storage) {
        (uint256 version, uint256 since) = (_newest, _newestSince);
        while (time < since) since = _since[--version];
        return _values[version];
    }

    function _check(Values memory penalties) private pure {
        if (penalties.slashBps < 5_000 || penalties.slashBps > 10_000) revert OutOfBounds("slashBps");
        if (penalties.rewardBps > 2_000) revert OutOfBounds("rewardBps");
        if (penalties.malformedPenalty == 0 || penalties.malformedPenalty > MAX_PENALTY) {
            revert OutOfBounds("malformedPenalty");
        }
        if (penalties.minorityPenalty == 0) revert OutOfBounds("minorityPenalty");
        // a hundredth is the least fee of a pool, which has 32 bits
        if (
            penalties.withheldPenalty <= penalties.minorityPenalty
                || penalties.withheldPenalty > 100 * uint256(type(uint32).max)
        ) {
            revert OutOfBounds("withheldPenalty");
        }
        if (penalties.overturnPenalty < penalties.minorityPenalty || penalties.overturnPenalty > MAX_PENALTY) {
            revert OutOfBounds("overturnPenalty");
        }
        if (penalties.canarySlash < penalties.withheldPenalty || penalties.canarySlash > MAX_PENALTY) {
            revert OutOfBounds("canarySlash");
        }
        if (penalties.delayCompensation > MAX_COMPENSATION) revert OutOfBounds("delayCompensation");
    }
}
