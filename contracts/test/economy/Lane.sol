// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Audit} from "../../src/libraries/Audit.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, FileRef, Receipt} from "../../src/libraries/Types.sol";
import {Market} from "./Market.sol";

/// @notice A lane's files, their attestation and its committees.
abstract contract Lane is Market {
    /// In a strategy's votes: what an honest seat would vote.
    uint256 internal constant TRUTH = 12;
    /// Each seat votes its own way, so that nothing is decided.
    uint256 internal constant SPLIT = 13;
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
        bool paused = plan.service == POOL_PAUSED;
        if (paused) {
            vm.prank(owner);
            pools.pausePool(pool);
        }
        for (uint256 i = 0; i < count; ++i) {
            bool own = i < plan.files;
            uint256 sequence = _handIn(own ? coalitionNode : honestNode, paused);
            if (i == 0) lane = sequence / 16;
            kinds[i] = own ? (plan.held ? Kind.Held : Kind.Own) : Kind.Other;
        }
        if (decoy) kinds[count - 1] = Kind.Decoy;
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
        if (places != 0 && plan.service != POOL_PAUSED) {
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

    function _judge(uint256 round) internal {
        if (court.roundOf(pool, lane, round).seedBlock == 0) return _settle(round); // nothing was attested
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
        if (court.roundOf(pool, lane, round).seed == 0) _blocks(uint256(defaultTerms().attestBlocks) + 1);
        FileRef[] memory refs = _refs(lane);
        vm.prank(coalition);
        court.settle(pool, lane, round, refs);
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
                seen[i] = Audit.sampled(seed, lane * 16 + i, plan.rows, rules.auditRate, row);
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
