// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "./interfaces/IParams.sol";
import {TermsLib} from "./libraries/TermsLib.sol";
import {PoolTerms} from "./libraries/Types.sol";
import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";

/// @title Params
contract Params is IParams, Ownable2Step {
    /// Most grains that one penalty may be: ten thousand tokens.
    uint256 public constant MAX_PENALTY = 10_000e9;

    /// @inheritdoc IParams
    uint256 public immutable minWindow;
    /// @inheritdoc IParams
    uint256 public immutable blockSeconds;
    /// @inheritdoc IParams
    uint256 public immutable unbonding;

    /// @inheritdoc IParams
    bool public paused;
    Values private _values;

    constructor(address owner, uint256 minWindow_, uint256 blockSeconds_, uint256 unbonding_, Values memory values_)
        Ownable(owner)
    {
        if (minWindow_ == 0 || minWindow_ > 1 days) revert OutOfBounds("minWindow");
        if (blockSeconds_ == 0 || blockSeconds_ > 60) revert OutOfBounds("blockSeconds");
        if (unbonding_ < minWindow_ || unbonding_ > 90 days) revert OutOfBounds("unbonding");
        (minWindow, blockSeconds, unbonding) = (minWindow_, blockSeconds_, unbonding_);
        _set(values_);
    }

    /// @inheritdoc IParams
    function set(Values calldata values_) external onlyOwner {
        _set(values_);
    }

    /// @inheritdoc IParams
    function setPaused(bool paused_) external onlyOwner {
        paused = paused_;
        emit PausedSet(paused_);
    }

    /// @inheritdoc IParams
    function values() external view returns (Values memory) {
        return _values;
    }

    /// @inheritdoc IParams
    function slashing() external view returns (uint256, uint256, uint256) {
        return (_values.slashBps, _values.rewardBps, _values.malformedPenalty);
    }

    /// @inheritdoc IParams
    function checkTerms(PoolTerms calldata terms) external view returns (uint256) {
        return TermsLib.check(terms, minWindow, blockSeconds, unbonding);
    }

    function _set(Values memory v) private {
        if (v.slashBps < 5_000 || v.slashBps > 10_000) revert OutOfBounds("slashBps");
        if (v.rewardBps > 2_000) revert OutOfBounds("rewardBps");
        if (v.malformedPenalty > MAX_PENALTY) revert OutOfBounds("malformedPenalty");
        if (v.minorityPenalty == 0) revert OutOfBounds("minorityPenalty");
        if (v.withheldPenalty <= v.minorityPenalty || v.withheldPenalty > MAX_PENALTY) {
            revert OutOfBounds("withheldPenalty");
        }
        if (v.overturnPenalty < v.minorityPenalty || v.overturnPenalty > MAX_PENALTY) {
            revert OutOfBounds("overturnPenalty");
        }
        if (v.canarySlash < v.withheldPenalty || v.canarySlash > MAX_PENALTY) revert OutOfBounds("canarySlash");
        if (v.delayCompensation > MAX_PENALTY) revert OutOfBounds("delayCompensation");
        _values = v;
        emit ValuesSet(v);
    }
}
