// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "../interfaces/IParams.sol";
import {PoolTerms} from "./Types.sol";

/// @title TermsLib
/// @notice Bounds of a pool's terms, and how long stake has to stay after leaving it.
library TermsLib {
    uint256 internal constant MAX_WINDOW = 30 days;
    /// Most files of a node that may be under way at once; `minStake` covers the committees' fees of all of them.
    uint256 internal constant MAX_UNSETTLED = 64;
    /// Classes below are single pools.
    uint256 internal constant FIRST_FAMILY = 1 << 24;

    /// @notice Reverts on terms out of bounds; returns the unbonding period U in seconds.
    /// U = (R + 1 + D + 4 draws) blocks + 2 (C + V) + W + receipts + 2 (A + Cj + Vj), and an eighth more.
    function check(
        PoolTerms calldata t,
        uint256 withheldPenalty,
        uint256 minWindow,
        uint256 blockSeconds,
        uint256 maxUnbonding
    ) internal pure returns (uint256 unbonding) {
        if (t.rate == 0) revert IParams.BadTerms("rate");
        // a seat that misses one lane in a hundred must still earn
        if (uint256(t.fee) * 100 < withheldPenalty) revert IParams.BadTerms("fee");
        // a wronged node can always afford a dispute out of what it must have staked
        if (t.juryFee < t.fee || uint256(t.juryFee) * t.jury > t.minStake) revert IParams.BadTerms("juryFee");
        if (t.leverage == 0) revert IParams.BadTerms("leverage");
        // nor has a member no limit: what a penalty leaves of its stake allows a unit, or ends the membership
        if (t.minStake < MAX_UNSETTLED * t.committee * t.fee || uint256(t.minStake) * t.leverage < t.rate) {
            revert IParams.BadTerms("minStake");
        }
        if (t.maxUnits == 0) revert IParams.BadTerms("maxUnits");
        if (t.committee != 3 && t.committee != 5) revert IParams.BadTerms("committee");
        if (t.jury <= t.committee || t.jury > 15 || t.jury % 2 == 0) revert IParams.BadTerms("jury");
        if (t.appealJury != 0 && (t.appealJury <= t.jury || t.appealJury > 15 || t.appealJury % 2 == 0)) {
            revert IParams.BadTerms("appealJury");
        }
        if (t.class != 0 && t.class < FIRST_FAMILY) revert IParams.BadTerms("class");
        if (t.laneBlocks == 0) revert IParams.BadTerms("laneBlocks");
        if (t.attestBlocks < 2) revert IParams.BadTerms("attestBlocks");
        if (t.maxLag > 15) revert IParams.BadTerms("maxLag");
        if (t.auditRate == 0 || t.auditRate > 65536) revert IParams.BadTerms("auditRate");
        if (t.drawBlocks < 8) revert IParams.BadTerms("drawBlocks");
        _window(t.commitWindow, minWindow, "commitWindow");
        _window(t.revealWindow, minWindow, "revealWindow");
        _window(t.challengeWindow, minWindow, "challengeWindow");
        _window(t.appealWindow, minWindow, "appealWindow");
        _window(t.juryCommitWindow, minWindow, "juryCommitWindow");
        _window(t.juryRevealWindow, minWindow, "juryRevealWindow");
        _window(t.receiptWindow, minWindow, "receiptWindow");
        uint256 blocks = uint256(t.laneBlocks) + 1 + t.attestBlocks + 4 * uint256(t.drawBlocks);
        uint256 committees = 2 * (uint256(t.commitWindow) + t.revealWindow);
        uint256 juries = 2 * (uint256(t.appealWindow) + t.juryCommitWindow + t.juryRevealWindow);
        unbonding = blocks * blockSeconds + committees + t.challengeWindow + t.receiptWindow + juries;
        unbonding += unbonding / 8;
        if (unbonding > maxUnbonding) revert IParams.BadTerms("unbonding");
    }

    function _window(uint256 value, uint256 least, string memory name) private pure {
        if (value < least || value > MAX_WINDOW) revert IParams.BadTerms(name);
    }
}
