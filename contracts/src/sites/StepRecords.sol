// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISiteRuns} from "../interfaces/ISiteRuns.sol";
import {SignerStakes} from "../libraries/SignerStakes.sol";
import {SuiteLib} from "../libraries/SuiteLib.sol";
import {TypedData} from "../libraries/TypedData.sol";
import {SiteStakes} from "./SiteStakes.sol";

/// @title StepRecords
/// @notice What the keeper says of each outer step, and proofs that sites or keeper signed what cannot both be.
abstract contract StepRecords is SiteStakes {
    bytes32 public constant NOTE_TYPEHASH = keccak256(
        "Note(uint256 pool,address site,uint256 number,bytes32 run,uint256 step,uint256 attempt,bytes32 document,bytes32 body)"
    );
    bytes32 public constant ENTRY_TYPEHASH =
        keccak256("LogEntry(uint256 pool,uint256 number,bytes32 run,bytes32 previous,bytes32 body)");
    uint256 public constant SLASH_BPS = SignerStakes.SLASH_BPS;
    uint256 public constant REWARD_BPS = SignerStakes.REWARD_BPS;
    uint256 public constant MAX_SITES = 64;
    /// Of the weights of one step.
    uint256 public constant ONE = 1e9;

    struct StepSlot {
        bytes20 entry;
        uint40 time;
        uint40 block;
    }

    mapping(uint256 run => mapping(uint256 step => StepSlot)) internal _steps;

    /// @inheritdoc ISiteRuns
    function record(
        uint256 run,
        uint256 step,
        bytes32 state,
        uint256 number,
        Entry calldata entry,
        Contribution[] calldata contributions
    ) external {
        RunSlot storage slot = _run(run);
        if (slot.keeper != msg.sender) revert NotRunKeeper();
        if (slot.releaseAt != 0) revert RunOver();
        uint256 next = slot.steps;
        if (step != next) revert WrongStep(next);
        if (state == 0) revert BadContributions();
        _checkContributions(run, contributions);
        slot.steps = uint32(next + 1);
        bytes20 digest = bytes20(_entryDigest(slot, number, entry));
        _steps[run][step] = StepSlot(digest, uint40(block.timestamp), uint40(block.number));
        emit StepRecorded(run, step, state, number, entry, contributions);
    }

    /// @inheritdoc ISiteRuns
    function accuseSite(
        uint256 run,
        address site,
        uint256 step,
        uint256 attempt,
        Note calldata a,
        bytes calldata signatureA,
        Note calldata b,
        bytes calldata signatureB
    ) external nonReentrant {
        SiteSlot storage slot = _sites[run][site];
        if (slot.owner == address(0)) revert NoSuchSite(site);
        if (slot.ejected) revert AlreadyEjected();
        uint256 stake = slot.stake;
        if (stake == 0) revert NothingAtStake();
        if (a.document == b.document || a.document == 0 || b.document == 0) revert NoContradiction();
        if (!TypedData.signedBy(site, noteDigest(run, site, step, attempt, a), signatureA)) revert BadSignature();
        if (!TypedData.signedBy(site, noteDigest(run, site, step, attempt, b), signatureB)) revert BadSignature();
        (uint256 taken, uint256 reward) = SignerStakes.slashed(stake);
        uint256 releaseAt = slot.releaseAt;
        if (releaseAt == 0) releaseAt = block.timestamp + _runs[run].delay;
        (slot.stake, slot.releaseAt, slot.ejected) = (uint56(stake - taken), uint40(releaseAt), true);
        _share(run, site, taken, reward, releaseAt);
    }

    /// @inheritdoc ISiteRuns
    function accuseKeeper(
        uint256 run,
        uint256 number,
        Entry calldata a,
        bytes calldata signatureA,
        Entry calldata b,
        bytes calldata signatureB
    ) external nonReentrant {
        RunSlot storage slot = _run(run);
        bytes32 digest = _entryDigest(slot, number, a);
        if (!TypedData.signedBy(slot.keeper, digest, signatureA)) revert BadSignature();
        _eject(run, slot, digest, _entryDigest(slot, number, b), signatureB);
    }

    /// @inheritdoc ISiteRuns
    function accuseRecord(
        uint256 run,
        uint256 step,
        uint256 number,
        Entry calldata recorded,
        Entry calldata other,
        bytes calldata signature
    ) external nonReentrant {
        RunSlot storage slot = _run(run);
        bytes32 digest = _entryDigest(slot, number, recorded);
        // before it is recorded a step has the entry zero, which no digest has
        if (_steps[run][step].entry != bytes20(digest)) revert WrongEntry();
        _eject(run, slot, digest, _entryDigest(slot, number, other), signature);
    }

    /// @inheritdoc ISiteRuns
    function noteDigest(uint256 run, address site, uint256 step, uint256 attempt, Note calldata note)
        public
        view
        returns (bytes32)
    {
        RunSlot storage slot = _runs[run];
        return _digest(
            keccak256(
                abi.encode(
                    NOTE_TYPEHASH,
                    uint256(slot.pool),
                    site,
                    note.number,
                    slot.document,
                    step,
                    attempt,
                    note.document,
                    note.body
                )
            )
        );
    }

    /// @inheritdoc ISiteRuns
    function entryDigest(uint256 run, uint256 number, Entry calldata entry) external view returns (bytes32) {
        return _entryDigest(_runs[run], number, entry);
    }

    /// @dev What of the keeper's stake can be taken now: open disputes keep their juries' fees.
    function _free(RunSlot storage slot, uint256 disputes) internal view returns (uint256) {
        uint256 kept = disputes == 0 ? 0 : disputes * _fees(slot.pool, 1);
        return slot.stake > kept ? slot.stake - kept : 0;
    }

    function _eject(uint256 run, RunSlot storage slot, bytes32 known, bytes32 other, bytes calldata signature) private {
        if (slot.ejected) revert AlreadyEjected();
        if (slot.stake == 0) revert NothingAtStake();
        if (known == other) revert NoContradiction();
        if (!TypedData.signedBy(slot.keeper, other, signature)) revert BadSignature();
        (uint256 taken, uint256 reward) = SignerStakes.slashed(_free(slot, slot.disputes));
        (slot.stake, slot.ejected) = (uint56(slot.stake - taken), true);
        _share(run, slot.keeper, taken, reward, _end(slot));
    }

    function _share(uint256 run, address key, uint256 taken, uint256 reward, uint256 releaseAt) private {
        emit SignerEjected(run, key, msg.sender, reward, taken - reward, releaseAt);
        _send(msg.sender, reward);
        _send(SuiteLib.SINK, taken - reward);
    }

    function _checkContributions(uint256 run, Contribution[] calldata contributions) private view {
        if (contributions.length > MAX_SITES) revert BadContributions();
        uint256 weights;
        address last;
        for (uint256 i = 0; i < contributions.length; ++i) {
            Contribution calldata one = contributions[i];
            if (one.site <= last || one.document == 0 || one.weight > ONE) revert BadContributions();
            // also of one that left or was ejected since: the step was made of it all the same
            if (_sites[run][one.site].owner == address(0)) revert NoSuchSite(one.site);
            last = one.site;
            weights += one.weight;
        }
        if (weights > ONE) revert BadContributions();
    }

    function _entryDigest(RunSlot storage slot, uint256 number, Entry calldata entry) private view returns (bytes32) {
        return _digest(
            keccak256(abi.encode(ENTRY_TYPEHASH, uint256(slot.pool), number, slot.document, entry.previous, entry.body))
        );
    }

    function _digest(bytes32 structHash) private view returns (bytes32) {
        return TypedData.digest(DOMAIN, pools, structHash);
    }
}
