// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IOneJury} from "./IOneJury.sol";

/// @title ISiteRuns
/// @notice Runs of several sites that train one policy and synchronise seldom (docs/sites.md): the stakes of sites and
/// keeper, and what the keeper records of each outer step: the state that it led to, and every contribution with its
/// weight. Two breaches a contract can judge alone: a site that signs two contributions to one attempt, and a keeper that
/// writes two entries at one place of its log, or records another than it wrote. Whether a recorded step follows from what
/// was published is for a jury of the seats of the run's pool, as in node cases: one jury, the larger of the pool's two,
/// replaced once, no appeal. Stakes of one run never pay for another, and a dispute touches the keeper's alone.
interface ISiteRuns is IOneJury {
    /// @notice Terms of a run; nothing of them can change.
    struct Terms {
        /// SHA-256 of the run's canonical document, in whose name sites and keeper sign.
        bytes32 document;
        /// Digest of the outer state that the run begins from.
        bytes32 start;
        /// The document's pool: its seats judge disputes; 0: nobody does.
        uint256 pool;
        /// The key that writes the log and records steps.
        address keeper;
        /// Grains that each site locks.
        uint256 siteStake;
        /// Grains that the keeper locks.
        uint256 keeperStake;
        /// Seconds for which a recorded step can be disputed, and for which stakes stay after the end of what they stand
        /// for.
        uint256 delay;
    }

    struct Run {
        bytes32 document;
        bytes32 start;
        uint256 pool;
        address keeper;
        /// Who paid the keeper's stake and gets it back; zero when there is no such run.
        address owner;
        uint256 siteStake;
        /// The keeper's, still locked.
        uint256 stake;
        uint256 delay;
        /// Outer steps recorded; the number of the next.
        uint256 steps;
        /// Once it is closed, or its keeper was found out: when the keeper's stake can be withdrawn; 0 before.
        uint256 releaseAt;
        /// Open disputes, which hold the keeper's stake.
        uint256 disputes;
        /// Whether the keeper was found to have signed two entries at one place.
        bool ejected;
    }

    struct Site {
        /// Who paid the stake and gets it back; zero when it never joined.
        address owner;
        uint256 stake;
        /// After it left or was ejected: when stake can be withdrawn; 0 before.
        uint256 releaseAt;
        /// Whether it was found to have signed two contributions to one attempt.
        bool ejected;
    }

    /// @notice One of the contributions that an outer step was made of.
    struct Contribution {
        address site;
        /// What it was multiplied by, in 1e-9, rounded down; 0: it does not count.
        uint256 weight;
        /// SHA-256 of its signed document.
        bytes32 document;
    }

    /// @notice An entry of the keeper's log: what it signs, without place and run.
    struct Entry {
        /// SHA-256 of the stored bytes of the entry before.
        bytes32 previous;
        /// SHA-256 of the entry's canonical JSON.
        bytes32 body;
    }

    /// @notice A note by which a site signs a contribution, without run, step and attempt.
    struct Note {
        uint256 number;
        /// SHA-256 of the contribution's signed document; zero in a note that signs none.
        bytes32 document;
        /// SHA-256 of the note's canonical JSON.
        bytes32 body;
    }

    struct Step {
        /// The block of its `StepRecorded`; 0: not recorded.
        uint256 block;
        uint256 time;
        /// First 20 bytes of its log entry's digest.
        bytes20 entry;
        /// The dispute of it that is open or was decided; 0: none.
        uint256 dispute;
    }

    struct Dispute {
        uint256 run;
        uint256 step;
        address disputer;
        uint256 bond;
        /// The jury, in the end perhaps its replacement.
        uint256 trial;
        Outcome outcome;
        /// The penalties of this time hold.
        uint256 openedAt;
    }

    event RunOpened(
        uint256 indexed run,
        bytes32 indexed document,
        address indexed keeper,
        address owner,
        uint256 pool,
        bytes32 start,
        uint256 siteStake,
        uint256 keeperStake,
        uint256 delay
    );
    event SiteJoined(uint256 indexed run, address indexed site, address owner, uint256 stake);
    event SiteLeft(uint256 indexed run, address indexed site, uint256 releaseAt);
    event RunClosed(uint256 indexed run, uint256 releaseAt);
    /// @notice `key` is a site, or the run's keeper.
    event StakeWithdrawn(uint256 indexed run, address indexed key, address owner, uint256 amount);
    /// @notice Outer step `step` led to the state of digest `state`, made of these contributions; `entry`, at place `number`
    /// of the log, says so.
    event StepRecorded(
        uint256 indexed run,
        uint256 indexed step,
        bytes32 state,
        uint256 number,
        Entry entry,
        Contribution[] contributions
    );
    /// @notice `key`, a site or the keeper, signed two things that cannot both be. Of its stake, `reward` went to the prover
    /// and `burnt` to nobody; the rest stays locked until `releaseAt`.
    event SignerEjected(
        uint256 indexed run, address indexed key, address prover, uint256 reward, uint256 burnt, uint256 releaseAt
    );
    event StepDisputed(
        uint256 indexed dispute,
        uint256 indexed run,
        uint256 indexed step,
        uint256 pool,
        address disputer,
        uint256 trial,
        uint256 bond
    );
    /// @notice `slashed` grains left the keeper's stake; `back` is what the disputer got: bond and reward.
    event DisputeConcluded(
        uint256 indexed dispute,
        uint256 indexed run,
        uint256 indexed step,
        Outcome outcome,
        uint256 code,
        uint256 slashed,
        uint256 back
    );

    error Paused();
    error BadRunTerms();
    error NoSuchRun();
    /// @notice It was closed, or its keeper found out: nobody joins, nothing is recorded.
    error RunOver();
    /// @notice A key joins a run once.
    error AlreadyJoined();
    error WrongConsent();
    error ExpiredConsent();
    error NoSuchSite(address site);
    error NotStakeOwner();
    error AlreadyLeft();
    /// @notice 0: it has not ended.
    error StakeHeld(uint256 releaseAt);
    error NothingAtStake();
    error NotRunKeeper();
    /// @notice Outer steps are recorded in order, each once.
    error WrongStep(uint256 next);
    /// @notice More than 64, out of order, weights above one, or a hash of zero.
    error BadContributions();
    error AlreadyEjected();
    /// @notice Both are the same: signing it twice is no breach.
    error NoContradiction();
    error BadSignature();
    error NotRecorded(uint256 step);
    error WrongEntry();
    /// @notice The run names no pool whose seats could judge.
    error NoCourt();
    error WindowOver(uint256 time);
    /// @notice `dispute` of this step is open, or was decided.
    error AlreadyDisputed(uint256 dispute);
    error NoSuchDispute();

    /// @notice Opens a run, and locks the keeper's stake (approved before) from the caller, who owns it. Anybody may, with
    /// the keeper's consent.
    /// @param expiry Last second at which the consent may be used.
    /// @param consent The keeper's EIP-712 signature of Consent(bytes32 document,address key,address owner,uint256 expiry),
    /// domain {name "muster-sites", version "1", chainId, this}; not looked at when the keeper calls.
    function open(Terms calldata terms, uint256 expiry, bytes calldata consent) external returns (uint256 run);
    /// @notice Locks a site's stake, from that key itself or, with its consent (as for `open`), from whoever owns it then.
    function join(uint256 run, address site, uint256 expiry, bytes calldata consent) external;
    /// @notice Ends a site's membership; by the owner of its stake.
    function leave(uint256 run, address site) external;
    /// @notice Ends the run: nothing more is recorded; by the owner of the keeper's stake.
    function close(uint256 run) external;
    /// @notice Takes a site's stake back, `delay` seconds after its end.
    function withdraw(uint256 run, address site) external;
    /// @notice Takes the keeper's stake back, `delay` seconds after the run's end, once no dispute is open.
    function withdrawKeeper(uint256 run) external;
    /// @notice By the keeper, once for each outer step, in order, from 0 on. `contributions` ascend by site, each of one that
    /// has joined: all that the step was made of, also those that do not count.
    /// @param number Place of the log that holds `entry`, the boundary after the step.
    function record(
        uint256 run,
        uint256 step,
        bytes32 state,
        uint256 number,
        Entry calldata entry,
        Contribution[] calldata contributions
    ) external;
    /// @notice Shows that a site signed two contributions to one attempt at an outer step: takes half of its stake, a tenth of
    /// that for the caller. Anybody may, while stake is locked.
    function accuseSite(
        uint256 run,
        address site,
        uint256 step,
        uint256 attempt,
        Note calldata a,
        bytes calldata signatureA,
        Note calldata b,
        bytes calldata signatureB
    ) external;
    /// @notice Shows that the keeper signed two entries at place `number` of its log; likewise, and the run is over.
    function accuseKeeper(
        uint256 run,
        uint256 number,
        Entry calldata a,
        bytes calldata signatureA,
        Entry calldata b,
        bytes calldata signatureB
    ) external;
    /// @notice Shows that the keeper signed another entry at the place of the one that it recorded for `step`; likewise.
    function accuseRecord(
        uint256 run,
        uint256 step,
        uint256 number,
        Entry calldata recorded,
        Entry calldata other,
        bytes calldata signature
    ) external;
    /// @notice Says that a recorded step does not follow from what was published. Takes `bondOf(run)` (approved before). Who
    /// disputes must see to it that the jury can get what was published.
    function dispute(uint256 run, uint256 step) external returns (uint256 number);
    /// @notice The one call for keepers of juries, once the jury has voted or its time is over. Anyone may call.
    function conclude(uint256 number) external;

    function runOf(uint256 run) external view returns (Run memory);
    /// @notice Runs ever opened; the last one's number.
    function opened() external view returns (uint256);
    function siteOf(uint256 run, address site) external view returns (Site memory);
    /// @notice Several at once, in the order asked for.
    function sitesOf(uint256 run, address[] calldata sites) external view returns (Site[] memory);
    /// @notice Whether the keeper is to take it in: staked, and neither left nor ejected.
    function isSite(uint256 run, address site) external view returns (bool);
    function stepOf(uint256 run, uint256 step) external view returns (Step memory);
    function disputeOf(uint256 number) external view returns (Dispute memory);
    /// @notice Disputes ever opened; the last one's number.
    function disputed() external view returns (uint256);
    /// @notice Bond of a dispute: its jury's fees, and the compensation of a keeper disputed without reason.
    function bondOf(uint256 run) external view returns (uint256);
    function consentDigest(bytes32 document, address key, address owner, uint256 expiry) external view returns (bytes32);
    /// @notice What a site signs: Note(uint256 pool,address site,uint256 number,bytes32 run,uint256 step,uint256 attempt,
    /// bytes32 document,bytes32 body), domain {name "muster-sites", version "1", chainId, Pools}; `run` is the document's
    /// hash.
    function noteDigest(uint256 run, address site, uint256 step, uint256 attempt, Note calldata note)
        external
        view
        returns (bytes32);
    /// @notice What the keeper signs: LogEntry(uint256 pool,uint256 number,bytes32 run,bytes32 previous,bytes32 body), domain
    /// as for a note.
    function entryDigest(uint256 run, uint256 number, Entry calldata entry) external view returns (bytes32);
}
