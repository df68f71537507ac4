// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {PoolTerms} from "../libraries/Types.sol";

/// @title IParams
/// @notice The windows and penalties of a deployment, fixed for ever within compiled bounds; the other contracts copy
/// what they need when they are made. Governance is one owner (Ownable2Step), meant to be a timelock. It can pause new
/// entries (node registration, joins, seats, pools) for a while, never exits, submissions, votes, disputes or claims.
interface IParams {
    /// @notice Amounts are base units.
    struct Values {
        /// Share of a node's stake that a final reject takes, in 1/10000: 5000 to 10000.
        uint16 slashBps;
        /// A vindicated disputer's reward as a share of what was slashed: at most 2000, and at most its deposit.
        uint16 rewardBps;
        /// What a malformed file costs its submitter, besides the committee's fees.
        uint56 malformedPenalty;
        /// Per file, for a vote that contradicts the final outcome. A juror's penalty grows with its fee.
        uint56 minorityPenalty;
        /// Per file, for not revealing. Above minorityPenalty; a juror's penalty grows with its fee.
        uint56 withheldPenalty;
        /// Per file, for a vote with an overturned majority, besides minorityPenalty.
        uint56 overturnPenalty;
        /// Per lane, for accepting a canary.
        uint56 canarySlash;
        /// Part of a dispute's deposit that goes to the party it delayed without reason.
        uint56 delayCompensation;
    }

    /// @notice The values of the deployment.
    event ValuesSet(Values values);
    /// @notice New entries are refused until `time`, unless governance ends the pause earlier.
    event PausedUntil(uint256 time);

    /// @notice A value is outside its bounds.
    error OutOfBounds(string name);
    /// @notice A pool's term is outside its bounds.
    error BadTerms(string field);
    /// @notice The last pause ended too recently.
    error TooSoon(uint256 time);

    /// @notice Refuses new entries for `MAX_PAUSE` seconds at most, or allows them again. The next pause can begin only
    /// `MAX_PAUSE` after the end of this one.
    function setPaused(bool paused) external;

    function values() external view returns (Values memory);
    function paused() external view returns (bool);
    /// @notice End of the last pause, unless it was ended earlier.
    function pausedUntil() external view returns (uint256);
    /// @notice Shortest window, in seconds, that a pool of this deployment may have.
    function minWindow() external view returns (uint256);
    /// @notice Seconds per block, an upper estimate for unbonding periods.
    function blockSeconds() external view returns (uint256);
    /// @notice Seconds a validator's bond stays after leaving; no pool may need more than this.
    function unbonding() external view returns (uint256);
    /// @notice Reverts on terms out of bounds; returns the pool's unbonding period in seconds:
    /// (1 + 4 draws) blocks + 2 (C + V) + W + receipts + 2 (A + Cj + Vj), and an eighth more.
    function checkTerms(PoolTerms calldata terms) external view returns (uint256 unbonding);
}
