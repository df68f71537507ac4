// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, FileRef, Receipt} from "../../src/libraries/Types.sol";
import {Market} from "./Market.sol";

/// @notice A lane's files and its committees.
abstract contract Lane is Market {
    /// In a strategy's votes: what an honest seat would vote.
    uint256 internal constant TRUTH = 12;
    /// Each seat votes its own way, so that nothing is decided.
    uint256 internal constant SPLIT = 13;
    uint256 internal constant ALWAYS = 0;
    uint256 internal constant WITH_MAJORITY = 1;
    uint256 internal constant WITH_ALL = 2;
    uint256 internal constant IN_MINORITY = 3;
    uint256 internal constant SERVICE_RELAYS = 0;
    uint256 internal constant SERVICE_ROTATED = 2;
    uint256 internal constant POOL_PAUSED = 3;

    enum Kind {
        Own,
        Held,
        Other,
        Decoy
    }

    uint256 internal lane;
    uint256 internal count;
    Kind[16] internal kinds;
    /// Whether a forged row is in the audit sample, by place.
    bool[16] internal seen;

    // Files and committees

    function _submitAll(bool decoy) internal {
        count = plan.files + plan.others;
        uploadedAt = clock;
        _wait(1);
        FileData[] memory files_ = new FileData[](count);
        for (uint256 i = 0; i < count; ++i) {
            bool own = i < plan.files;
            files_[i] = own ? _made(coalitionNode, i) : _made(honestNode, i - plan.files);
            kinds[i] = own ? (plan.held ? Kind.Held : Kind.Own) : Kind.Other;
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
        lane = pools.submitLane(pool, files_, signatures, receipts);
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
        uint256 rank; // among the coalition's members
        for (uint256 i = 0; i < members.length; ++i) {
            bool mine = _ours(members[i]);
            words[i] = _word(mine, _ready(ours, members.length), rank);
            if (mine) ++rank;
            if (words[i] == 0) absent = true;
            else _commit(lane, round, i, words[i]);
        }
        if (absent) _wait(court.termsOf(pool).commitWindow);
        for (uint256 i = 0; i < members.length; ++i) {
            if (words[i] != 0) _reveal(lane, round, i, words[i]);
        }
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

    function _word(bool ours, bool ready, uint256 rank) private view returns (uint256 word) {
        for (uint256 i = 0; i < count; ++i) {
            uint256 code = ours ? _strategic(i, ready, plan.ownVote, plan.otherVote, rank) : _truth(i);
            word |= code << (4 * i);
        }
    }

    function _truth(uint256 i) internal view returns (uint256) {
        if (kinds[i] == Kind.Held) return Codes.UNAVAILABLE;
        return seen[i] ? Codes.REJECT_WEIGHTS : Codes.ACCEPT;
    }

    function _strategic(uint256 i, bool ready, uint256 own, uint256 other, uint256 rank)
        internal
        view
        returns (uint256)
    {
        uint256 code = i < plan.files ? own : other;
        if (code == TRUTH || !ready) return _truth(i);
        if (code != SPLIT) return code;
        // first what contradicts the truth, then what decides nothing beside both
        if (rank % 3 == 1) return Codes.UNAVAILABLE;
        bool accepts = (_truth(i) == Codes.ACCEPT) == (rank % 3 == 2);
        return accepts ? Codes.ACCEPT : Codes.MALFORMED;
    }
}
