// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICanaries} from "../../src/interfaces/ICanaries.sol";
import {IAppeals} from "../../src/interfaces/IAppeals.sol";
import {IPools} from "../../src/interfaces/IPools.sol";
import {Audit} from "../../src/libraries/Audit.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, FileRef, Receipt} from "../../src/libraries/Types.sol";
import {Market} from "./Market.sol";

/// @notice One lane with a coalition among honest parties. Honest seats vote the truth and serve the bytes, wronged
/// workers dispute and appeal, the honest owner opens its canary, watchers re-check in watched lanes. The coalition
/// collects every penalty that is due, so that it gets each collector's share: the worst case.
abstract contract Coalition is Market {
    /// In a strategy's votes: what an honest seat would vote.
    uint256 internal constant TRUTH = 12;
    uint256 internal constant DISPUTES_HONEST = 1;
    uint256 internal constant DISPUTES_OWN = 2;
    uint256 internal constant OPENS_ACCEPTED = 1;
    uint256 internal constant OPENS_OTHERS = 2;
    uint256 internal constant OPENS_UNACCUSED = 3;
    uint256 internal constant ALWAYS = 0;
    uint256 internal constant WITH_MAJORITY = 1;
    uint256 internal constant WITH_ALL = 2;
    uint256 internal constant IN_MINORITY = 3;
    uint256 internal constant SERVICE_SILENT = 1;
    uint256 internal constant SERVICE_ROTATED = 2;
    uint256 internal constant POOL_PAUSED = 3;

    enum Kind {
        Own,
        Held,
        Other,
        Carrier
    }

    uint256 internal lane;
    uint256 internal count;
    Kind[16] internal kinds;
    /// Whether a forged row is in the audit sample, by place.
    bool[16] internal seen;
    /// Places before a jury.
    uint256[] internal cases;
    uint256 internal opened;
    uint256 private _firstTrial;

    /// @return gain The coalition's tokens beyond what honest play would have left it, with the work that it saved.
    /// @return harm What everybody else has less than after honest play.
    function play(bool watched, bool carrier) external returns (int256 gain, int256 harm) {
        _restore(carrier || plan.canary != 0);
        (int256 ours, int256 theirs) = _wealth();
        _firstTrial = juries.trialCount();
        _submitAll(carrier);
        _judge(0);
        if (court.roundOf(pool, lane, 1).seedBlock != 0) _judge(1);
        _open(carrier);
        _disputeAll(watched);
        _hearAll();
        _settleUp();
        (int256 oursNow, int256 theirsNow) = _wealth();
        (int256 honest, int256 theirHonest) = _honestPlay(carrier);
        gain = oursNow - ours - honest + _saved() - _unverified();
        harm = theirHonest - (theirsNow - theirs);
    }

    // ---- Files and committees

    function _submitAll(bool carrier) private {
        count = plan.files + plan.others;
        uploadedAt = clock;
        _wait(1);
        bool paused = plan.service == POOL_PAUSED;
        vm.prank(owner);
        if (paused) pools.pausePool(pool);
        for (uint256 i = 0; i < count; ++i) {
            bool own = i < plan.files;
            uint256 sequence = _handIn(own ? coalitionNode : honestNode, paused);
            if (i == 0) lane = sequence / 16;
            kinds[i] = own ? (plan.held ? Kind.Held : Kind.Own) : Kind.Other;
        }
        if (carrier) kinds[count - 1] = Kind.Carrier;
        _blocks(uint256(defaultTerms().laneBlocks) + 1);
        _attestAll();
        if (!paused) return;
        vm.prank(owner);
        pools.resumePool(pool);
    }

    /// @dev The service attests what it has. One that keeps silent, or was replaced, attests the coalition's files only,
    /// and the others' workers present their receipts.
    function _attestAll() private {
        string memory signer = _serviceName();
        bool silent = plan.service == SERVICE_SILENT || plan.service == SERVICE_ROTATED;
        if (plan.service == SERVICE_ROTATED) {
            _wait(defaultTerms().receiptWindow);
            uploadedAt = clock;
            signer = _serviceName();
            ++rotations;
            vm.prank(owner);
            court.setService(pool, account(_serviceName()));
        }
        uint256 places = (1 << (silent ? plan.files : count)) - 1;
        if (plan.held) places &= ~((1 << plan.files) - 1);
        if (places != 0) {
            vm.prank(account(signer));
            court.attest(pool, lane, places);
        }
        for (uint256 i = plan.files; silent && i < count; ++i) {
            uint256 sequence = lane * 16 + i;
            FileData memory f = files[pool][sequence];
            Receipt memory receipt = _receipt(signer, f.node, f.fileHash);
            court.attestByReceipt(pool, sequence, f, receipt);
        }
    }

    function _judge(uint256 round) private {
        if (court.roundOf(pool, lane, round).seedBlock == 0) return _settle(round); // nothing was attested
        _draw(lane, round);
        (uint256[] memory members,, bytes32 seed,) = court.committeeOf(pool, lane, round);
        _touch(members);
        _look(seed);
        uint256 ours = _count(members);
        uint256[] memory words = new uint256[](members.length);
        bool absent;
        for (uint256 i = 0; i < members.length; ++i) {
            words[i] = _word(_ours(members[i]), _ready(ours, members.length));
            if (words[i] == 0) absent = true;
            else _commit(lane, round, i, words[i]);
        }
        if (absent) _wait(defaultTerms().commitWindow);
        for (uint256 i = 0; i < members.length; ++i) {
            if (words[i] != 0) _reveal(lane, round, i, words[i]);
        }
        _settle(round);
    }

    function _settle(uint256 round) private {
        if (court.roundOf(pool, lane, round).seed == 0) _blocks(uint256(defaultTerms().attestBlocks) + 1);
        FileRef[] memory refs = _refs(lane);
        vm.prank(coalition);
        court.settle(pool, lane, round, refs);
    }

    /// @dev Whether `ours` of a body's `size` members are what the plan waits for.
    function _ready(uint256 ours, uint256 size) private view returns (bool) {
        if (plan.when == WITH_MAJORITY) return ours > size / 2;
        if (plan.when == WITH_ALL) return ours == size;
        return plan.when == ALWAYS || ours <= size / 2;
    }

    /// @dev Which forged files this seed's sample shows.
    function _look(bytes32 seed) private {
        for (uint256 i = 0; i < count; ++i) {
            seen[i] = kinds[i] == Kind.Carrier;
            for (uint256 row = 0; i < plan.files && row < plan.forged && !seen[i]; ++row) {
                seen[i] = Audit.sampled(seed, lane * 16 + i, plan.rows, rules.auditRate, row);
            }
        }
    }

    function _word(bool ours, bool ready) private view returns (uint256 word) {
        for (uint256 i = 0; i < count; ++i) {
            uint256 code = ours ? _strategic(i, ready, plan.ownVote, plan.otherVote) : _truth(i);
            word |= code << (4 * i);
        }
    }

    function _truth(uint256 i) internal view returns (uint256) {
        return seen[i] ? Codes.REJECT_WEIGHTS : Codes.ACCEPT;
    }

    function _strategic(uint256 i, bool ready, uint256 own, uint256 other) private view returns (uint256) {
        uint256 code = i < plan.files ? own : other;
        return code == TRUTH || !ready ? _truth(i) : code;
    }

    // ---- Canaries and disputes

    function _open(bool carrier) private {
        opened = 16;
        if (carrier) {
            (, bool standing) = _standing(count - 1);
            if (standing) opened = count - 1;
        }
        for (uint256 i = plan.files; plan.canary != 0 && i < count && opened == 16; ++i) {
            (uint256 code, bool open) = _standing(i);
            bool accepted = Codes.kind(code) == Codes.KIND_ACCEPT;
            if (!open || accepted != (plan.canary == OPENS_ACCEPTED)) continue;
            if (plan.canary != OPENS_UNACCUSED || !_anyAccepted(lane * 16 + i)) opened = i;
        }
        if (opened == 16) return;
        uint256 sequence = lane * 16 + opened;
        FileData memory f = files[pool][sequence];
        uint256 place = _place(f);
        (,,, bytes32 seed,) = court.decisionOf(pool, sequence);
        uint256 row;
        while (!Audit.sampled(seed, sequence, plan.rows, rules.auditRate, row)) ++row;
        ICanaries.Planted memory p = ICanaries.Planted(_salt(f.step, place), _proof(_leaves(f.step), place));
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

    function _disputeAll(bool watched) private {
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

    /// @dev Wronged workers dispute, and the honest owner what was unavailable to the committee, for it has the bytes.
    function _disputer(uint256 i, uint256 code, bool watched, bool attacked) private view returns (address) {
        bool accepted = Codes.kind(code) == Codes.KIND_ACCEPT;
        bool judge = code == Codes.UNAVAILABLE && !plan.owner;
        if (i >= plan.files) {
            if (!accepted) return _truth(i) == Codes.ACCEPT && (judge || !Codes.isPaid(code)) ? everybody : address(0);
            return plan.dispute == DISPUTES_HONEST && !attacked ? coalition : address(0);
        }
        if (!Codes.isPaid(code) || _truth(i) == Codes.ACCEPT) return address(0);
        if (plan.dispute == DISPUTES_OWN) return coalition;
        return watched || judge ? everybody : address(0);
    }

    /// @return code Its outcome. @return open Whether it can be disputed.
    function _standing(uint256 i) internal view returns (uint256 code, bool open) {
        IPools.Submission memory s = pools.submissionOf(pool, lane * 16 + i);
        return (s.code, s.phase == IPools.Phase.Settled && clock < s.finalAt);
    }

    // ---- Juries

    function _hearAll() private {
        bool busy = true;
        for (uint256 turn = 0; busy; ++turn) {
            assertLt(turn, 8);
            _blocks(3);
            for (uint256 trial = _firstTrial + 1; trial <= juries.trialCount(); ++trial) {
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
        juries.draw(trial);
        (uint256[] memory jurors, address[] memory voters,,) = juries.juryOf(trial);
        _touch(jurors);
        uint256 i = juries.caseOf(trial).sequence & 15;
        bool ready = _ready(_count(jurors), jurors.length);
        uint256[] memory votes = new uint256[](jurors.length);
        bool absent;
        for (uint256 j = 0; j < jurors.length; ++j) {
            votes[j] = _ours(jurors[j]) ? _strategic(i, ready, plan.ownJury, plan.otherJury) : _truth(i);
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
            if (votes[j] == 0) continue;
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
        if (clock < d.appealUntil && d.appellant == address(0)) {
            bool just = Codes.kind(d.verdict) == Codes.kind(_truth(i));
            if (just && !plan.appeal) return false;
            vm.prank(just ? coalition : everybody);
            appeals.appeal(pool, sequence);
        }
        return false;
    }

    // ---- Money

    function _settleUp() private {
        _wait(rules.challengeWindow + 1);
        for (uint256 i = 0; i < count; ++i) {
            IPools.Submission memory s = pools.submissionOf(pool, lane * 16 + i);
            if (s.phase != IPools.Phase.Settled || Codes.kind(s.code) == Codes.KIND_ACCEPT) continue;
            FileRef memory file = _ref(lane * 16 + i);
            vm.prank(coalition);
            pools.finalize(pool, lane * 16 + i, file);
        }
        for (uint256 i = count; i > 0; --i) {
            uint256 sequence = lane * 16 + i - 1;
            (, uint256 amount) = pools.claimable(pool, files[pool][sequence].node, sequence);
            if (amount != 0) _claim(sequence);
            else try pools.forfeit(pool, sequence, files[pool][sequence]) {} catch {}
        }
        for (uint256 round = 0; round < 2; ++round) {
            uint256 size = court.roundOf(pool, lane, round).seats.length;
            for (uint256 i = 0; i < size; ++i) {
                vm.prank(coalition);
                court.closeMember(pool, lane, round, i);
            }
        }
        for (uint256 trial = _firstTrial + 1; trial <= juries.trialCount(); ++trial) {
            uint256 size = juries.seatsOf(trial).length;
            for (uint256 i = 0; i < size; ++i) {
                vm.prank(coalition);
                juries.closeJuror(trial, i);
            }
        }
    }

    /// @dev What both sides' tokens would have changed by had everybody done this lane's work and told the truth.
    function _honestPlay(bool carrier) private view returns (int256 ours, int256 theirs) {
        uint256 pay = plan.units * rules.rate;
        // an owner who lacks its own node's bytes would not have had them judged
        uint256 fees = rules.fee * (plan.owner && plan.held ? plan.others : count);
        uint256 members = _count(court.roundOf(pool, lane, 0).seats);
        uint256 paid = count - (carrier ? 1 : 0);
        int256 cost = int256(paid * pay + fees * rules.committee);
        ours = int256(plan.files * pay + fees * members);
        theirs = int256((paid - plan.files) * pay + fees * (rules.committee - members));
        if (plan.owner) ours -= cost;
        else theirs -= cost;
    }

    /// @dev What a committee's fees buy is a verdict: an owner who saved them has not got one.
    function _unverified() private view returns (int256) {
        uint256 missing;
        for (uint256 i = plan.held ? plan.files : 0; plan.owner && i < count; ++i) {
            if (Codes.kind(_code(lane * 16 + i)) != Codes.KIND_ACCEPT) ++missing;
        }
        return int256(missing * rules.committee * rules.fee);
    }

    /// @dev Work costs its whole pay and a check its whole fee: the most that not doing them can save. Forging spares
    /// a coalition with the owner nothing: it is the one who lacks the work then.
    function _saved() private view returns (int256) {
        uint256 pay = plan.units * rules.rate;
        uint256 saved = plan.owner ? 0 : plan.files * pay * plan.forged / plan.rows;
        bool lazy = plan.when == ALWAYS && plan.ownVote != TRUTH && plan.otherVote != TRUTH;
        if (lazy) saved += _count(court.roundOf(pool, lane, 0).seats) * count * rules.fee;
        return int256(saved);
    }
}
