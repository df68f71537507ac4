// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISiteRuns} from "./interfaces/ISiteRuns.sol";
import {Codes} from "./libraries/Codes.sol";
import {SuiteLib} from "./libraries/SuiteLib.sol";
import {Suite} from "./libraries/Types.sol";
import {SiteStakes} from "./sites/SiteStakes.sol";
import {StepRecords} from "./sites/StepRecords.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// @title SiteRuns
/// @notice Disputes of recorded steps, on top of stakes and records.
contract SiteRuns is StepRecords {
    using SafeERC20 for IERC20;

    /// What juries of outer steps judge in the place of a file: no file has this number.
    uint256 public constant NO_FILE = type(uint32).max;

    /// @inheritdoc ISiteRuns
    uint256 public disputed;
    mapping(uint256 number => Dispute) private _disputes;
    mapping(uint256 run => mapping(uint256 step => uint256 number)) private _tried;

    constructor(Suite memory suite) SiteStakes(suite) {}

    /// @inheritdoc ISiteRuns
    function dispute(uint256 run, uint256 step) external nonReentrant returns (uint256 number) {
        RunSlot storage slot = _run(run);
        if (slot.pool == 0) revert NoCourt();
        uint256 time = _steps[run][step].time;
        if (time == 0) revert NotRecorded(step);
        // no later than the stake can leave, so that no dispute after the other holds it for good
        if (block.timestamp >= time + slot.delay) revert WindowOver(time + slot.delay);
        if (_tried[run][step] != 0) revert AlreadyDisputed(_tried[run][step]);
        if (slot.stake == 0) revert NothingAtStake();

        number = ++disputed;
        _tried[run][step] = number;
        slot.disputes += 1;
        Dispute storage case_ = _disputes[number];
        (case_.run, case_.step, case_.disputer) = (run, step, msg.sender);
        (case_.outcome, case_.openedAt, case_.bond) = (Outcome.Open, block.timestamp, bondOf(run));
        case_.trial = _summon(slot.pool, NO_FILE, 1);
        emit StepDisputed(number, run, step, slot.pool, msg.sender, case_.trial, case_.bond);
        token.safeTransferFrom(msg.sender, address(this), case_.bond);
    }

    /// @inheritdoc ISiteRuns
    function conclude(uint256 number) external nonReentrant {
        Dispute storage case_ = _disputes[number];
        if (case_.outcome == Outcome.None) revert NoSuchDispute();
        if (case_.outcome != Outcome.Open) revert AlreadyConcluded();
        (uint256 code, uint256 next) = _heard(case_.trial);
        if (next != 0) {
            case_.trial = next;
            return;
        }
        case_.outcome = _outcome(code);
        RunSlot storage slot = _runs[case_.run];
        slot.disputes -= 1;
        uint256 slashed;
        uint256 back = case_.bond;
        if (case_.outcome == Outcome.Upheld) (slashed, back) = _uphold(case_, slot, code);
        if (case_.outcome == Outcome.Refuted) {
            back = 0;
            _forfeit(case_.trial, code, case_.bond, case_.openedAt, slot.owner);
        }
        if (case_.outcome == Outcome.Dismissed) back -= _payJury(case_.trial, code, back);
        // nothing was found: the step can be disputed again while its window lasts
        if (code == Codes.NONE || case_.outcome == Outcome.Dismissed) delete _tried[case_.run][case_.step];
        emit DisputeConcluded(number, case_.run, case_.step, case_.outcome, code, slashed, back);
        _send(case_.disputer, back);
    }

    /// @inheritdoc ISiteRuns
    function stepOf(uint256 run, uint256 step) external view returns (Step memory) {
        StepSlot storage slot = _steps[run][step];
        return Step({block: slot.block, time: slot.time, entry: slot.entry, dispute: _tried[run][step]});
    }

    /// @inheritdoc ISiteRuns
    function disputeOf(uint256 number) external view returns (Dispute memory) {
        return _disputes[number];
    }

    /// @inheritdoc ISiteRuns
    function bondOf(uint256 run) public view returns (uint256) {
        RunSlot storage slot = _run(run);
        if (slot.pool == 0) revert NoCourt();
        return _bond(slot.pool, 1);
    }

    /// @dev The jury's fees come first; what the stake cannot pay of them any more, the bond does.
    function _uphold(Dispute storage case_, RunSlot storage slot, uint256 code)
        private
        returns (uint256 slashed, uint256 back)
    {
        slashed = _free(slot, slot.disputes) * params.valuesAt(case_.openedAt).slashBps / 10_000;
        slot.stake = uint56(slot.stake - slashed);
        _end(slot);
        uint256 used = _payJury(case_.trial, code, case_.bond + slashed);
        uint256 rest = used > slashed ? 0 : slashed - used;
        uint256 reward = rest * REWARD_BPS / 10_000;
        back = case_.bond + slashed - used - (rest - reward);
        _send(SuiteLib.SINK, rest - reward);
    }
}
