// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Reckoning} from "../../src/libraries/Reckoning.sol";
import {FileData, FileRef, Receipt} from "../../src/libraries/Types.sol";
import {Market} from "./Market.sol";

/// @notice A lane's files and its committees.
abstract contract Lane is Market {
    /// In a strategy's votes: what an honest seat would vote.
    uint256 internal constant TRUTH = 12;
    /// Each seat votes its own way, so that nothing is decided.
    uint256 internal constant SPLIT = 13;
    /// A commitment copied from another's, which its seat cannot reveal.
    uint256 internal constant COPY = 14;
    /// A plan's votes are nibbles: the coalition's first member of a body votes by the lowest, its sixth again.
    uint256 internal constant WAYS = 5;
    uint256 internal constant ALWAYS = 0;
    uint256 internal constant WITH_MAJORITY = 1;
    uint256 internal constant WITH_ALL = 2;
    uint256 internal constant IN_MINORITY = 3;
    uint256 internal constant ALONE = 4;
    uint256 internal constant SERVES_NOBODY = 1;
    uint256 internal constant SERVES_ITS_OWN = 2;
    uint256 internal constant HIDES_OTHERS = 3;
    uint256 internal constant SERVICE_RELAYS = 0;
    uint256 internal constant SERVICE_ROTATED = 2;
    uint256 internal constant POOL_PAUSED = 3;

    enum Kind {
        Own,
        Held,
        Shown,
        Other,
        Decoy
    }

    uint256 internal lane;
    uint256 internal count;
    Kind[16] internal kinds;
    /// Whether a forged row is in the audit sample, by place.
    bool[16] internal seen;
    /// Files that a seat or juror checked, own ones of the coalition aside: its own, and everybody else's.
    int256 internal looks;
    int256 internal theirLooks;

    // Files and committees

    function _submitAll(bool decoy) internal {
        count = plan.files + plan.others;
        uploadedAt = clock;
        _wait(1);
        FileData[] memory files_ = new FileData[](count);
        for (uint256 i = 0; i < count; ++i) {
            bool own = i < plan.files;
            files_[i] = own ? _made(coalitionNode, i) : _made(honestNode, i - plan.files);
            if (!own) kinds[i] = Kind.Other;
            else if (plan.served == SERVES_NOBODY) kinds[i] = Kind.Held;
            else kinds[i] = plan.served == SERVES_ITS_OWN ? Kind.Shown : Kind.Own;
        }
        if (decoy) kinds[count - 1] = Kind.Decoy;
        _send(files_);
    }

    /// @dev The service relays the lane. Where it is silent, was replaced, or its pool is paused, anybody sends the files
    /// with their receipts.
    function _send(FileData[] memory files_) private {
        string memory signer = _serviceName();
        if (plan.service == SERVICE_ROTATED) {
            _wait(defaultTerms().receiptWindow + 1);
            uploadedAt = clock;
            signer = _serviceName();
            ++rotations;
            vm.prank(owner);
            court.setService(pool, account(_serviceName()));
        }
        bool paused = plan.service == POOL_PAUSED;
        if (paused) {
            vm.prank(owner);
            pools.pausePool(pool);
        }
        Receipt[] memory receipts = new Receipt[](plan.service == SERVICE_RELAYS ? 0 : count);
        for (uint256 i = 0; i < receipts.length; ++i) {
            receipts[i] = _receipt(signer, files_[i].node, files_[i].fileHash);
        }
        bytes[] memory signatures = _signatures(files_);
        vm.prank(account(signer));
        lane = pools.submitLane(pool, files_, signatures, receipts, _anchor(), _anchorHash());
        for (uint256 i = 0; i < count; ++i) {
            files[pool][lane * 16 + i] = files_[i];
        }
        if (!paused) return;
        vm.prank(owner);
        pools.resumePool(pool);
    }

    function _judge(uint256 round) internal {
        _draw(lane, round);
        (uint256[] memory members,, bytes32 seed,) = court.committeeOf(pool, lane, round);
        _touch(members);
        _look(seed);
        uint256 ours = _count(members);
        uint256[] memory words = new uint256[](members.length);
        bool absent;
        bool copied;
        uint256 rank; // among the coalition's members
        for (uint256 i = 0; i < members.length; ++i) {
            bool mine = _ours(members[i]);
            words[i] = _word(mine, _ready(ours, members.length), rank);
            if (mine) ++rank;
            if (words[i] == 0) absent = true;
            else _commit(lane, round, i, words[i]);
            // of the windows, an hour on Base: the sequencer halts after the first commitment
            if (plan.halt && i == 0) _wait(rules.commitWindow / 2);
            if (Reckoning.has(words[i], COPY)) (words[i], copied) = (0, true);
        }
        if (absent) _wait(rules.commitWindow);
        for (uint256 i = 0; i < members.length; ++i) {
            if (words[i] != 0) _reveal(lane, round, i, words[i]);
        }
        if (copied) _wait(rules.commitWindow + rules.revealWindow);
        _settle(round);
    }

    function _settle(uint256 round) private {
        FileRef[] memory refs = _refs(lane);
        vm.prank(coalition);
        court.settle(pool, lane, round, refs);
        _unpack(lane);
    }

    /// @dev Whether `ours` of a body's `size` members are what the plan waits for.
    function _ready(uint256 ours, uint256 size) internal view returns (bool) {
        if (plan.when == WITH_MAJORITY) return ours > size / 2;
        if (plan.when == WITH_ALL) return ours == size;
        if (plan.when == ALONE) return ours == 1;
        return plan.when == ALWAYS || ours <= size / 2;
    }

    /// @dev Which forged files this seed's sample shows.
    function _look(bytes32 seed) private {
        for (uint256 i = 0; i < count; ++i) {
            seen[i] = kinds[i] == Kind.Decoy;
            for (uint256 row = 0; i < plan.files && row < plan.forged && !seen[i]; ++row) {
                seen[i] = canaries.inSample(seed, lane * 16 + i, plan.rows, rules.auditRate, row);
            }
        }
    }

    function _word(bool ours, bool ready, uint256 rank) private returns (uint256 word) {
        for (uint256 i = 0; i < count; ++i) {
            uint256 code = ours ? _strategic(i, ready, plan.ownVote, plan.otherVote, rank) : _honest(i, true);
            word |= code << (4 * i);
        }
    }

    function _truth(uint256 i) internal view returns (uint256) {
        if (kinds[i] == Kind.Held) return Codes.UNAVAILABLE;
        return seen[i] ? Codes.REJECT_WEIGHTS : Codes.ACCEPT;
    }

    /// @dev What an honest member of a committee, or a juror, votes: it judges what it is served. Whoever made a file
    /// shows it to jurors.
    function _honest(uint256 i, bool committee) internal returns (uint256) {
        bool hidden = committee && plan.served == HIDES_OTHERS && i >= plan.files;
        if (hidden || kinds[i] == Kind.Shown || kinds[i] == Kind.Held) return Codes.UNAVAILABLE;
        ++theirLooks;
        return _truth(i);
    }

    function _strategic(uint256 i, bool ready, uint256 own, uint256 other, uint256 rank) internal returns (uint256) {
        uint256 code = ((i < plan.files ? own : other) >> (4 * (rank % WAYS))) & 15;
        if (ready && code != TRUTH && code != SPLIT) return code;
        if (i >= plan.files) ++looks;
        if (code == TRUTH || !ready) return _truth(i);
        // first what contradicts the truth, then what decides nothing beside both
        if (rank % 3 == 1) return Codes.UNAVAILABLE;
        bool accepts = (_truth(i) == Codes.ACCEPT) == (rank % 3 == 2);
        return accepts ? Codes.ACCEPT : Codes.MALFORMED;
    }
}
