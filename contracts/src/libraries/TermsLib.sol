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
    /// How many times longer a committee's windows are in a shared group: its seats are drawn for pools that they never
    /// looked at.
    uint256 internal constant SHARED_WINDOWS = 16;
    /// Groups below are single pools.
    uint256 internal constant FIRST_SHARED_GROUP = 1 << 24;

    /// @notice Reverts on terms out of bounds; returns the unbonding period U in seconds.
    /// U = (R + 1 + D + 4 draws) blocks + 2 (C + V) + W + receipts + 2 (A + Cj + Vj), and an eighth more.
    function check(
        PoolTerms calldata terms,
        uint256 withheldPenalty,
        uint256 minWindow,
        uint256 blockSeconds,
        uint256 maxUnbonding
    ) internal pure returns (uint256 unbonding) {
        if (terms.rate == 0) revert IParams.BadTerms("rate");
        // a seat that misses one lane in a hundred must still earn
        if (uint256(terms.fee) * 100 < withheldPenalty) revert IParams.BadTerms("fee");
        // a wronged node can always afford a dispute out of what it must have staked
        if (terms.juryFee < terms.fee || uint256(terms.juryFee) * terms.jury > terms.minStake) {
            revert IParams.BadTerms("juryFee");
        }
        if (terms.leverage == 0) revert IParams.BadTerms("leverage");
        // nor has a member no limit: what a penalty leaves of its stake allows a unit, or ends the membership
        if (
            terms.minStake < MAX_UNSETTLED * terms.committee * terms.fee
                || uint256(terms.minStake) * terms.leverage < terms.rate
        ) {
            revert IParams.BadTerms("minStake");
        }
        if (terms.maxUnits == 0) revert IParams.BadTerms("maxUnits");
        if (terms.committee != 3 && terms.committee != 5) revert IParams.BadTerms("committee");
        if (terms.jury <= terms.committee || terms.jury > 15 || terms.jury % 2 == 0) revert IParams.BadTerms("jury");
        if (
            terms.appealJury != 0
                && (terms.appealJury <= terms.jury || terms.appealJury > 15 || terms.appealJury % 2 == 0)
        ) {
            revert IParams.BadTerms("appealJury");
        }
        if (terms.group != 0 && terms.group < FIRST_SHARED_GROUP) revert IParams.BadTerms("group");
        if (terms.laneBlocks == 0) revert IParams.BadTerms("laneBlocks");
        if (terms.attestBlocks < 2) revert IParams.BadTerms("attestBlocks");
        if (terms.maxLag > 15) revert IParams.BadTerms("maxLag");
        if (terms.auditRate == 0 || terms.auditRate > 65536) revert IParams.BadTerms("auditRate");
        if (terms.drawBlocks < 8) revert IParams.BadTerms("drawBlocks");
        uint256 least = terms.group == 0 ? minWindow : SHARED_WINDOWS * minWindow;
        _window(terms.commitWindow, least, "commitWindow");
        _window(terms.revealWindow, least, "revealWindow");
        _window(terms.challengeWindow, minWindow, "challengeWindow");
        _window(terms.appealWindow, minWindow, "appealWindow");
        _window(terms.juryCommitWindow, minWindow, "juryCommitWindow");
        _window(terms.juryRevealWindow, minWindow, "juryRevealWindow");
        _window(terms.receiptWindow, minWindow, "receiptWindow");
        uint256 blocks = uint256(terms.laneBlocks) + 1 + terms.attestBlocks + 4 * uint256(terms.drawBlocks);
        uint256 committees = 2 * (uint256(terms.commitWindow) + terms.revealWindow);
        uint256 juries = 2 * (uint256(terms.appealWindow) + terms.juryCommitWindow + terms.juryRevealWindow);
        unbonding = blocks * blockSeconds + committees + terms.challengeWindow + terms.receiptWindow + juries;
        unbonding += unbonding / 8;
        if (unbonding > maxUnbonding) revert IParams.BadTerms("unbonding");
    }

    function _window(uint256 value, uint256 least, string memory name) private pure {
        if (value < least || value > MAX_WINDOW) revert IParams.BadTerms(name);
    }
}
