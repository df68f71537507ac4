// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData} from "../../src/libraries/Types.sol";
import {Phase} from "../helpers/Phase.sol";
import {IAppeals} from "../interfaces/IAppeals.sol";
import {ICanaries} from "../interfaces/ICanaries.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {IPools} from "../interfaces/IPools.sol";
import {Lane} from "./Lane.sol";

/// @notice What is contested of a lane: canaries, disputes, juries, appeals.
abstract contract Contest is Lane {
    uint256 internal constant DISPUTES_HONEST = 1;
    uint256 internal constant DISPUTES_OWN = 2;
    uint256 internal constant OPENS_ACCEPTED = 1;
    uint256 internal constant OPENS_OTHERS = 2;
    uint256 internal constant OPENS_UNACCUSED = 3;

    /// Places before a jury.
    uint256[] internal cases;
    /// The place whose canary is open; 16: none.
    uint256 internal opened;
    uint256 internal firstTrial;

    // Canaries and disputes

    function _open(bool decoy) internal {
        opened = 16;
        if (decoy) {
            (, bool standing) = _standing(count - 1);
            if (standing) opened = count - 1;
        }
        // only its own nodes would consent, to a false canary as to a true one
        for (uint256 i = 0; plan.canary != 0 && i < plan.files && opened == 16; ++i) {
            (uint256 code, bool open) = _standing(i);
            bool accepted = Codes.kind(code) == Codes.KIND_ACCEPT;
            if (!open || accepted != (plan.canary == OPENS_ACCEPTED)) continue;
            if (plan.canary != OPENS_UNACCUSED || !_anyAccepted(lane * 16 + i)) opened = i;
        }
        if (opened == 16) return;
        uint256 sequence = lane * 16 + opened;
        FileData memory f = files[pool][sequence];
        (,,, bytes32 seed,) = court.decisionOf(pool, sequence);
        uint256 row;
        while (!canaries.inSample(seed, sequence, plan.rows, rules.auditRate, row)) ++row;
        ICanaries.Planted memory p = _opening(f);
        ICanaries.Rollout memory r = ICanaries.Rollout(row, _rowHash(f), new bytes32[](0));
        vm.prank(owner);
        canaries.open(pool, sequence, f, p, r, Codes.REJECT_WEIGHTS);
    }

    function _anyAccepted(uint256 sequence) private view returns (bool any) {
        (,, uint256[] memory votes,,) = court.decisionOf(pool, sequence);
        for (uint256 i = 0; i < votes.length; ++i) {
            if (Codes.kind(votes[i]) == Codes.KIND_ACCEPT) any = true;
        }
    }

    function _disputeAll(bool watched) internal {
        delete cases;
        bool attacked;
        for (uint256 i = 0; i < count; ++i) {
            (uint256 code, bool open) = _standing(i);
            if (i == opened || !open) continue;
            address who = _disputer(i, code, watched, attacked);
            if (who == address(0)) continue;
            if (i >= plan.files && who == coalition) attacked = true;
            cases.push(i);
            vm.prank(who);
            appeals.dispute(pool, lane * 16 + i, files[pool][lane * 16 + i]);
        }
    }

    /// @dev Wronged workers dispute; of what was unavailable to the committee the honest owner disputes only what it can
    /// see to be forged, for it has the bytes: a receipt pays the rest, and a jury would cost more than that.
    function _disputer(uint256 i, uint256 code, bool watched, bool attacked) private view returns (address) {
        if (i >= plan.files) {
            if (!Codes.isPaid(code)) return _truth(i) == Codes.ACCEPT ? everybody : address(0);
            bool accepted = Codes.kind(code) == Codes.KIND_ACCEPT;
            return accepted && plan.dispute == DISPUTES_HONEST && !attacked ? coalition : address(0);
        }
        if (!Codes.isPaid(code) || _truth(i) == Codes.ACCEPT) return address(0);
        if (plan.dispute == DISPUTES_OWN) return coalition;
        bool owners = Codes.kind(code) == Codes.KIND_UNAVAILABLE && !plan.owner;
        // nobody disputes what it cannot see
        bool sees = watched && kinds[i] == Kind.Own;
        return sees || owners ? everybody : address(0);
    }

    /// @return code Its outcome. @return open Whether it can be disputed.
    function _standing(uint256 i) internal view returns (uint256 code, bool open) {
        Submission memory s = _submission(lane * 16 + i);
        return (s.code, s.phase == Phase.Settled && clock < s.finalAt);
    }

    // Juries

    function _hearAll() internal {
        bool busy = true;
        for (uint256 turn = 0; busy; ++turn) {
            assertLt(turn, 8);
            _blocks(3);
            for (uint256 trial = firstTrial + 1; trial <= juries.trialCount(); ++trial) {
                if (juries.caseOf(trial).time == 0 && !juries.caseOf(trial).concluded) _hear(trial);
            }
            _wait(rules.challengeWindow + defaultTerms().appealWindow + defaultTerms().juryRevealWindow);
            busy = opened < 16 && !_concluded();
            for (uint256 i = 0; i < cases.length; ++i) {
                if (!_resolved(cases[i])) busy = true;
            }
        }
    }

    function _hear(uint256 trial) private {
        _drawTrial(trial);
        (uint256[] memory jurors, address[] memory voters,,) = juries.juryOf(trial);
        _touch(jurors);
        uint256 i = juries.caseOf(trial).sequence & 15;
        bool ready = _ready(_count(jurors), jurors.length);
        uint256[] memory votes = new uint256[](jurors.length);
        bool absent;
        uint256 rank; // among the coalition's jurors
        for (uint256 j = 0; j < jurors.length; ++j) {
            bool mine = _ours(jurors[j]);
            votes[j] = mine ? _strategic(i, ready, plan.ownJury, plan.otherJury, rank) : _honest(i, false);
            if (mine) ++rank;
            if (votes[j] == 0) {
                absent = true;
                continue;
            }
            bytes32 hash = juries.ballotHash(trial, voters[j], votes[j], 0, "salt");
            vm.prank(voters[j]);
            juries.commit(trial, j, hash);
        }
        if (absent) _wait(defaultTerms().juryCommitWindow);
        for (uint256 j = 0; j < jurors.length; ++j) {
            if (votes[j] == 0 || votes[j] == COPY) continue;
            vm.prank(voters[j]);
            juries.reveal(trial, j, votes[j], 0, "salt");
        }
    }

    function _concluded() private returns (bool) {
        uint256 sequence = lane * 16 + opened;
        if (canaries.canaryOf(pool, sequence).concluded) return true;
        canaries.conclude(pool, sequence, files[pool][sequence]);
        return canaries.canaryOf(pool, sequence).concluded;
    }

    /// @dev Whoever a verdict wrongs appeals while it can: honest parties by the truth, the coalition by its plan.
    function _resolved(uint256 i) private returns (bool) {
        uint256 sequence = lane * 16 + i;
        IAppeals.Dispute memory d = appeals.disputeOf(pool, sequence);
        if (d.resolved) return true;
        vm.prank(coalition);
        appeals.conclude(pool, sequence, files[pool][sequence]);
        d = appeals.disputeOf(pool, sequence);
        if (d.resolved) return true;
        IJuries.Trial memory first = juries.caseOf(d.trial);
        if (clock < first.appealUntil && first.next == 0) {
            (, uint256 verdict) = juries.verdictOf(d.trial);
            bool just = Codes.kind(verdict) == Codes.kind(_truth(i));
            if (just && !plan.appeal) return false;
            vm.prank(just ? coalition : everybody);
            juries.appeal(d.trial);
        }
        return false;
    }
}
