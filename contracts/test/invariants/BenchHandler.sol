// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Phase} from "../helpers/Phase.sol";
import {IAppeals} from "../interfaces/IAppeals.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {IPools} from "../interfaces/IPools.sol";
import {World} from "./World.sol";

/// @notice What disputers, the owner with its canaries, jurors and keepers of cases do.
abstract contract BenchHandler is World {
    /// @dev The watcher disputes what it knows to be wrong, and now and then what is right.
    function dispute(uint256 i) external acts {
        (bool any, uint256 sequence) = _pickOpen(i, true);
        if (!any) {
            (any, sequence) = _pickOpen(i, false);
            if (!any || (i % 4 != 0 && !_planted(files[pool][sequence]))) return;
        }
        _dispute(watcher, sequence);
        _reach("dispute");
    }

    /// @dev One planted file, and whatever else of its lane is.
    function openCanary(uint256 i) external acts {
        uint256 lane = type(uint256).max;
        for (uint256 k = 0; k < sequences.length; ++k) {
            uint256 sequence = sequences[(i % sequences.length + k) % sequences.length];
            bool held = ghostFiles[sequence].phase == Phase.Disputed;
            if (!_openable(sequence) || (!held && i % 3 == 0)) continue;
            if (lane != type(uint256).max && sequence >> 4 != lane) continue;
            if (held) _reach("canary before dispute");
            _reach(lane == sequence >> 4 ? "canary beside another" : "canary");
            lane = sequence >> 4;
            _openCanary(sequence);
        }
    }

    /// @dev Jurors vote in time once their jury is drawn; a keeper concludes what is due.
    function hear(uint256 i, uint256 appeals_) external acts {
        (bool any, uint256 sequence) = _pickCase(i);
        if (any) _hear(sequence, appeals_ % 2 == 0);
    }

    function closeJuror(uint256 i) external acts {
        uint256 count = juries.trialCount();
        for (uint256 k = 1; k <= count; ++k) {
            uint256 trial = 1 + (i % count + k) % count;
            GhostTrial storage j = ghostTrials[trial];
            for (uint256 juror = 0; juror < j.jurors.length; ++juror) {
                if (!j.concluded || j.closed & (1 << juror) != 0) continue;
                juries.closeJuror(trial, juror);
                return _reach("close juror");
            }
        }
    }

    // Steps

    function _hear(uint256 sequence, bool appeals_) internal {
        if (!ghostDisputes[sequence].resolved && ghostDisputes[sequence].open != 0) {
            uint256 trial = appeals.disputeOf(pool, sequence).trial;
            if (!_continue(trial, appeals_)) return;
            uint256 until = _submission(sequence).finalAt; // the owner may still open it as a canary
            if (clock < until) _wait(until - clock);
            _conclude(sequence);
            _reach("conclude dispute");
        } else {
            uint256 trial = canaries.canaryOf(pool, sequence).trial;
            if (trial != 0 && !_continue(trial, appeals_)) return;
            canaries.conclude(pool, sequence, files[pool][sequence]);
            _reach("conclude canary");
        }
    }

    /// @dev Whatever a case waits for: a jury's votes, an appeal, or the end of the time for one.
    /// @return Whether it can be concluded.
    function _continue(uint256 trial, bool appeals_) private returns (bool) {
        IJuries.Trial memory case_ = juries.caseOf(trial);
        if (case_.next != 0) {
            _sit(case_.next);
        } else if (case_.appealUntil == 0) {
            _sit(trial);
        } else if (clock < case_.appealUntil) {
            if (appeals_) {
                _appealTrial(watcher, trial);
                _reach("appeal");
                return false;
            }
            _wait(case_.appealUntil - clock);
        }
        return true;
    }

    /// @dev A jury votes; one that cannot be drawn lapses.
    function _sit(uint256 trial) internal {
        (bool done,) = juries.verdictOf(trial);
        if (done) return;
        uint256 seedBlock = juries.caseOf(trial).seedBlock;
        if (ghostTrials[trial].jurors.length == 0) {
            if (height <= seedBlock) _blocks(seedBlock + 1 - height);
            vm.roll(juries.caseOf(trial).seedBlock + EPOCH + 1);
            try juries.draw(trial) {
                vm.roll(height);
            } catch {
                vm.roll(height);
                _blocks(4 * EPOCH);
                return;
            }
        }
        (uint256[] memory jurors, address[] memory voters,,) = juries.juryOf(trial);
        uint256 sequence = juries.caseOf(trial).sequence;
        bool silent;
        for (uint256 i = 0; i < jurors.length; ++i) {
            uint256 code = _opinion(jurors[i], sequence);
            if (code == Codes.NONE) {
                silent = true;
                continue;
            }
            bytes32 hash = juries.ballotHash(trial, voters[i], code, keccak256("verdict"), keccak256("salt"));
            vm.prank(voters[i]);
            juries.commit(trial, i, hash);
        }
        if (silent) _wait(60);
        for (uint256 i = 0; i < jurors.length; ++i) {
            uint256 code = _opinion(jurors[i], sequence);
            if (code == Codes.NONE) continue;
            vm.prank(voters[i]);
            juries.reveal(trial, i, code, keccak256("verdict"), keccak256("salt"));
        }
        _reach("jury");
    }

    function _pickCase(uint256 i) internal view returns (bool, uint256) {
        uint256 count = disputed.length + opened.length;
        for (uint256 k = 0; k < count; ++k) {
            uint256 at = (i % count + k) % count;
            uint256 sequence = at < disputed.length ? disputed[at] : opened[at - disputed.length];
            GhostDispute storage d = ghostDisputes[sequence];
            if ((d.open != 0 && !d.resolved) || (d.canary != 0 && !d.concluded)) return (true, sequence);
        }
        return (false, 0);
    }

    function _openable(uint256 sequence) private view returns (bool) {
        GhostFile storage f = ghostFiles[sequence];
        if (clock >= f.time || !_planted(files[pool][sequence])) return false;
        if (ghostDisputes[sequence].canary != 0 || ghostDisputes[sequence].concluded) return false;
        return f.phase == Phase.Settled || (f.phase == Phase.Disputed && ghostDisputes[sequence].open != 0);
    }
}
