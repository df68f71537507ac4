// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileRef} from "../../src/libraries/Types.sol";
import {Phase} from "../helpers/Phase.sol";
import {IPools} from "../interfaces/IPools.sol";
import {Contest} from "./Contest.sol";

/// @notice One lane with a coalition among honest parties. Honest seats vote the truth and serve the bytes, wronged
/// workers dispute and appeal, the honest owner opens its canary, watchers re-check in watched lanes. The coalition
/// collects every penalty that is due, so that it gets each collector's share: the worst case.
abstract contract Coalition is Contest {
    /// @return gain The coalition's tokens beyond what honest play would have left it, with the work that it saved.
    /// @return harm What everybody else has less than after honest play.
    function play(bool watched, bool decoy) external returns (int256 gain, int256 harm) {
        _restore(decoy || plan.canary != 0);
        (int256 ours, int256 theirs) = _wealth();
        firstTrial = juries.trialCount();
        (looks, theirLooks) = (0, 0);
        _submitAll(decoy);
        _judge(0);
        if (_round(pool, lane, 1).time != 0) _judge(1);
        _open(decoy);
        _disputeAll(watched);
        _hearAll();
        _settleUp();
        (int256 oursNow, int256 theirsNow) = _wealth();
        (int256 honest, int256 theirHonest) = _honestPlay(decoy);
        (int256 checks, int256 theirChecks) = _honestChecks();
        gain = oursNow - ours - honest + _spared() - _unverified();
        // an owner who spares its seats a check has not got the verdict either
        if (!plan.owner) gain += (checks - looks) * int256(rules.check);
        harm = theirHonest - (theirsNow - theirs) + (theirLooks - theirChecks) * int256(rules.check);
    }

    // Money

    function _settleUp() private {
        _wait(rules.challengeWindow + 1);
        for (uint256 i = 0; i < count; ++i) {
            Submission memory s = _submission(lane * 16 + i);
            if (s.phase != Phase.Settled || Codes.isPaid(s.code)) continue;
            FileRef memory file = _ref(lane * 16 + i);
            vm.prank(coalition);
            pools.finalize(pool, lane * 16 + i, file, _none());
        }
        for (uint256 i = count; i > 0; --i) {
            uint256 sequence = lane * 16 + i - 1;
            (, uint256 amount) = _claimable(sequence);
            if (amount != 0) _claim(sequence);
            else try pools.forfeit(pool, sequence, files[pool][sequence]) {} catch {}
        }
        for (uint256 round = 0; round < 2; ++round) {
            if (_round(pool, lane, round).seats.length == 0) continue;
            vm.prank(coalition);
            court.closeCommittee(pool, lane, round);
            _withdrawFees(lane, round);
        }
        for (uint256 trial = firstTrial + 1; trial <= juries.trialCount(); ++trial) {
            uint256 size = juries.seatsOf(trial).length;
            for (uint256 i = 0; i < size; ++i) {
                vm.prank(coalition);
                juries.closeJuror(trial, i);
            }
        }
    }

    /// @dev What both sides' tokens would have changed by had everybody done this lane's work and told the truth.
    function _honestPlay(bool decoy) private view returns (int256 ours, int256 theirs) {
        uint256 pay = plan.units * rules.rate;
        // an owner who lacks its own node's bytes would not have had them judged
        uint256 fees = rules.fee * (plan.owner && plan.served == SERVES_NOBODY ? plan.others : count);
        uint256 members = _count(_round(pool, lane, 0).seats);
        uint256 paid = count - (decoy ? 1 : 0);
        int256 cost = int256(paid * pay + fees * rules.committee);
        ours = int256(plan.files * pay + fees * members);
        theirs = int256((paid - plan.files) * pay + fees * (rules.committee - members));
        if (plan.owner) ours -= cost;
        else theirs -= cost;
    }

    /// @dev What a committee's fees buy is a verdict: an owner who saved them has not got one.
    function _unverified() private view returns (int256) {
        uint256 missing;
        for (uint256 i = plan.served == SERVES_NOBODY ? plan.files : 0; plan.owner && i < count; ++i) {
            if (Codes.kind(_code(lane * 16 + i)) != Codes.KIND_ACCEPT) ++missing;
        }
        return int256(missing * rules.committee * rules.fee);
    }

    /// @dev Work costs its whole pay, the most that not doing it can spare. A coalition with the owner spares nothing: it
    /// is the one who lacks the work then.
    function _spared() private view returns (int256) {
        return plan.owner ? int256(0) : int256(plan.files * plan.units * rules.rate * plan.forged / plan.rows);
    }

    /// @dev How many files each side's members of one committee would have checked; the coalition knows its own.
    function _honestChecks() private view returns (int256 ours, int256 theirs) {
        uint256 members = _count(_round(pool, lane, 0).seats);
        ours = int256(members * plan.others);
        theirs = int256((rules.committee - members) * (plan.served == SERVES_NOBODY ? plan.others : count));
    }
}
