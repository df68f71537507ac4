// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Bounds, PoolTerms} from "./libraries/Types.sol";
import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";

/// @title Params
/// @notice The windows and penalties of a deployment, fixed within compiled bounds when it is made. The other contracts
/// copy what they need. Governance is one owner (Ownable2Step), meant to be a timelock. It can pause new
/// entries (node registration, joins, seats, pools) for a while, never exits, submissions, votes, disputes or claims.
contract Params is Ownable2Step {
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

    /// Most base units that one penalty may be: ten thousand tokens.
    uint256 public constant MAX_PENALTY = 10_000e9;
    /// Most base units that a dispute's deposit holds beyond the jury's fees: nobody is priced out of disputes.
    uint256 public constant MAX_COMPENSATION = 10e9;
    /// Seconds that new entries can be refused for at once.
    uint256 public constant MAX_PAUSE = 7 days;
    /// How many times longer a committee's windows are in a shared group: its seats are drawn for pools that they never
    /// looked at.
    uint256 private constant SHARED_WINDOWS = 16;

    /// @notice Shortest window, in seconds, that a pool of this deployment may have.
    uint256 public immutable minWindow;
    /// @notice Seconds per block, an upper estimate for unbonding periods.
    uint256 public immutable blockSeconds;
    /// @notice Seconds a validator's bond stays after leaving; no pool may need more than this.
    uint256 public immutable unbonding;
    /// @notice End of the last pause, unless it was ended earlier.
    uint256 public pausedUntil;
    Values private _values;

    constructor(address owner, uint256 minWindow_, uint256 blockSeconds_, uint256 unbonding_, Values memory values_)
        Ownable(owner)
    {
        _within(minWindow_, 1, 1 days, "minWindow");
        _within(blockSeconds_, 1, 60, "blockSeconds");
        _within(unbonding_, minWindow_, 90 days, "unbonding");
        _within(values_.slashBps, 5_000, 10_000, "slashBps");
        _within(values_.rewardBps, 0, 2_000, "rewardBps");
        _within(values_.malformedPenalty, 1, MAX_PENALTY, "malformedPenalty");
        _within(values_.minorityPenalty, 1, MAX_PENALTY, "minorityPenalty");
        // a hundredth is the least fee of a pool, which has 32 bits
        uint256 most = 100 * uint256(type(uint32).max);
        _within(values_.withheldPenalty, uint256(values_.minorityPenalty) + 1, most, "withheldPenalty");
        _within(values_.overturnPenalty, values_.minorityPenalty, MAX_PENALTY, "overturnPenalty");
        _within(values_.canarySlash, values_.withheldPenalty, MAX_PENALTY, "canarySlash");
        _within(values_.delayCompensation, 0, MAX_COMPENSATION, "delayCompensation");
        (minWindow, blockSeconds, unbonding, _values) = (minWindow_, blockSeconds_, unbonding_, values_);
        emit ValuesSet(values_);
    }

    /// @notice Refuses new entries for `MAX_PAUSE` seconds at most, or allows them again. The next pause can begin only
    /// `MAX_PAUSE` after the end of this one.
    function setPaused(bool paused_) external onlyOwner {
        uint256 until = pausedUntil;
        if (paused_) {
            if (until != 0 && block.timestamp < until + MAX_PAUSE) revert TooSoon(until + MAX_PAUSE);
            until = block.timestamp + MAX_PAUSE;
        } else if (block.timestamp < until) {
            until = block.timestamp;
        }
        pausedUntil = until;
        emit PausedUntil(until);
    }

    function paused() external view returns (bool) {
        return block.timestamp < pausedUntil;
    }

    function values() external view returns (Values memory) {
        return _values;
    }

    /// @notice Reverts on terms out of bounds; returns the pool's unbonding period in seconds:
    /// (1 + 4 draws) blocks + 2 (C + V) + W + receipts + 2 (A + Cj + Vj), and an eighth more.
    function checkTerms(PoolTerms calldata terms) external view returns (uint256 period) {
        _term(terms.rate != 0, "rate");
        // a seat that misses one lane in a hundred must still earn
        _term(uint256(terms.fee) * 100 >= _values.withheldPenalty, "fee");
        // a wronged node can always afford a dispute out of what it must have staked
        _term(terms.juryFee >= terms.fee && uint256(terms.juryFee) * terms.jury <= terms.minStake, "juryFee");
        _term(terms.leverage != 0, "leverage");
        // nor has a member no limit: what a penalty leaves of its stake allows a unit, or ends the membership
        bool covered = terms.minStake >= Bounds.MAX_UNSETTLED * terms.committee * terms.fee;
        _term(covered && uint256(terms.minStake) * terms.leverage >= terms.rate, "minStake");
        _term(terms.maxUnits != 0, "maxUnits");
        _term(terms.committee == 3 || terms.committee == 5, "committee");
        _term(_isJury(terms.jury, terms.committee), "jury");
        _term(terms.appealJury == 0 || _isJury(terms.appealJury, terms.jury), "appealJury");
        _term(terms.group == 0 || terms.group >= Bounds.FIRST_SHARED_GROUP, "group");
        _term(terms.maxLag <= 15, "maxLag");
        _term(terms.auditRate != 0 && terms.auditRate <= 65536, "auditRate");
        _term(terms.drawBlocks >= 8, "drawBlocks");
        uint256 least = terms.group == 0 ? minWindow : SHARED_WINDOWS * minWindow;
        _window(terms.commitWindow, least, "commitWindow");
        _window(terms.revealWindow, least, "revealWindow");
        _window(terms.challengeWindow, minWindow, "challengeWindow");
        _window(terms.appealWindow, minWindow, "appealWindow");
        _window(terms.juryCommitWindow, minWindow, "juryCommitWindow");
        _window(terms.juryRevealWindow, minWindow, "juryRevealWindow");
        _window(terms.receiptWindow, minWindow, "receiptWindow");
        period = (1 + 4 * uint256(terms.drawBlocks)) * blockSeconds;
        period += 2 * (uint256(terms.commitWindow) + terms.revealWindow) + terms.challengeWindow + terms.receiptWindow;
        period += 2 * (uint256(terms.appealWindow) + terms.juryCommitWindow + terms.juryRevealWindow);
        period += period / 8;
        _term(period <= unbonding, "unbonding");
    }

    /// @dev An odd number of seats, more than the body before it has.
    function _isJury(uint256 size, uint256 before) private pure returns (bool) {
        return size > before && size <= 15 && size % 2 == 1;
    }

    function _window(uint256 value, uint256 least, string memory name) private pure {
        _term(value >= least && value <= Bounds.MAX_WINDOW, name);
    }

    function _term(bool good, string memory name) private pure {
        if (!good) revert BadTerms(name);
    }

    function _within(uint256 value, uint256 least, uint256 most, string memory name) private pure {
        if (value < least || value > most) revert OutOfBounds(name);
    }
}
