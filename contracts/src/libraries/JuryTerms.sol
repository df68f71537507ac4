// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Bounds, PoolTerms} from "./Types.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @title JuryTerms
/// @notice What a juror gets for judging several files, and how long it has: for the first what a dispute's jury has,
/// for every further one what a committee has for as many. These are the prices and windows by which seats chose the
/// pool.
library JuryTerms {
    /// Files of a lane: what a committee judges in one window.
    uint256 internal constant LANE = 16;

    /// @notice Base units of one juror's fee for `files` files, at least one.
    function fee(PoolTerms memory terms, uint256 files) internal pure returns (uint40) {
        return SafeCast.toUint40(uint256(terms.juryFee) + (files - 1) * terms.fee);
    }

    /// @notice Seconds to commit, from the draw: no longer than any window may be, for a stake is held meanwhile.
    function commitWindow(PoolTerms memory terms, uint256 files) internal pure returns (uint32) {
        uint256 lanes = (files - 1 + LANE - 1) / LANE;
        return uint32(Math.min(terms.juryCommitWindow + lanes * terms.commitWindow, Bounds.MAX_WINDOW));
    }
}
