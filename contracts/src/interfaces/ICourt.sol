// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileRef, PoolTerms, Receipt} from "../libraries/Types.sol";
import {IVoting} from "./IVoting.sol";

/// @title ICourt
/// @notice Committees over lanes: draw, hidden votes, outcome. The block after a lane's submission seeds its draw: the
/// bytes of its files are in the pool's storage before anybody knows who judges them. A fresh committee (round 1) judges
/// what round 0 left undecided because it disagreed, kept silent or was never drawn; its outcome judges the votes of
/// both. What round 1 leaves undecided is void. A drawn seat that does not reveal loses `withheldPenalty` per file at
/// settlement, up to what Seats allows in an epoch.
///
/// A round: seed block mined → draw (with the first commit, or later by anyone) → commit → reveal (once all have
/// committed, or after the commit window) → settle (once all have revealed, or after the reveal window).
interface ICourt is IVoting {
    struct Round {
        /// Until the draw the block whose hash seeds it, then the time of the draw, and of settlement afterwards.
        uint256 time;
        /// Seed of the draw and of the audit sample: eight random bytes, left-padded; zero before the draw.
        bytes32 seed;
        /// Drawn seats.
        uint256[] seats;
        /// Bit j: seat j has committed, revealed.
        uint256 committed;
        uint256 revealed;
        /// Its members are paid.
        bool closed;
        bool settled;
        /// Sixteen 4-bit codes: UNDECIDED for a place that this round judges, then its outcome; NONE without a
        /// file.
        uint256 codes;
    }

    /// @notice What opens a member's vote: see `reveal`.
    struct Opening {
        uint256 member;
        uint256 codes;
        bytes32 verdictHash;
        bytes32 salt;
    }

    /// @notice The pool's owner named a service key. The previous one counts until `previousUntil`.
    event ServiceSet(uint256 indexed pool, address service, uint256 previousUntil);
    /// @notice The URL of the pool's service.
    event ServiceAnnounced(uint256 indexed pool, string url);
    /// @notice Another place to fetch a file from. Anyone can emit it; readers decide whom to believe.
    event MirrorAnnounced(uint256 indexed pool, uint256 indexed sequence, address indexed sender, string uri);
    /// @notice A lane of so many files, from place 0 on. The hash of `seedBlock` will draw its committee.
    event LaneSubmitted(uint256 indexed pool, uint256 indexed lane, uint256 files, uint256 seedBlock);
    /// @notice which = pool << 64 | lane << 32 | round << 8; drawn: seed 64 | up to five seats of 16, lowest first.
    event CommitteeDrawn(uint256 which, uint256 seedBlock, uint256 drawn);
    /// @notice ballot = pool << 64 | lane << 32 | seat << 16 | round << 8 | member.
    event VoteCommitted(uint256 ballot, bytes32 commitment);
    /// @notice `codes` are sixteen 4-bit codes, `verdictHash` the keccak256 of the voter's verdict document. A member
    /// that had not committed did so by this (`vote`).
    event VoteRevealed(uint256 ballot, uint256 codes, bytes32 verdictHash);
    event LaneSettled(uint256 which, uint256 codes);
    /// @notice Round 1 will be seeded by the hash of `seedBlock`.
    event LaneRedrawn(uint256 indexed pool, uint256 indexed lane, uint256 seedBlock);
    event OutcomeSet(uint256 indexed pool, uint256 indexed lane, uint256 place, uint256 round, uint256 code);
    event MemberClosed(
        uint256 indexed pool,
        uint256 indexed lane,
        uint256 indexed seat,
        uint256 round,
        uint256 paid,
        uint256 burnt,
        uint256 penalty
    );
    /// @notice A drawn seat that did not reveal lost `penalty` at settlement.
    event MemberAbsent(
        uint256 indexed pool, uint256 indexed lane, uint256 indexed seat, uint256 round, uint256 penalty
    );

    error NotPools();
    /// @notice A lane of the largest files would earn more than the bonds of a committee's majority.
    error PayAboveBonds(uint256 pay, uint256 bonds);
    error NotAppeals();
    /// @notice No such lane or round.
    error NoSuchLane();
    /// @notice Not signed for this node and file by a valid key of this pool's service, or from the future.
    error BadReceipt();
    /// @notice The key before the present one is still valid.
    error TooSoon(uint256 time);
    /// @notice Before this block only a drawn member's commit draws.
    error DrawNotOpen(uint256 firstBlock);
    error DrawOver(uint256 lastBlock);
    error NotSettleable(uint256 time);
    error AlreadySettled();
    error NotSettled();
    error NotFinal(uint256 time);

    // ---- Service
    /// @notice Sets the key that relays submissions and signs receipts. Pool owner only. The previous key stays valid as
    /// long as a receipt that it signed before allows a submission. No other rotation is possible meanwhile.
    function setService(uint256 pool, address service) external;
    /// @notice Announces the URL of the pool's service. Pool owner only. Emits an event and stores nothing.
    function announceService(uint256 pool, string calldata url) external;
    /// @notice Announces where else a file can be fetched. Emits an event and stores nothing.
    function announceMirror(uint256 pool, uint256 sequence, string calldata uri) external;

    // ---- Votes
    /// @notice Draws the committee of a round and starts its clock. The first commit draws once the seed block is mined;
    /// anyone may call once half of `drawBlocks` has passed after it.
    function draw(uint256 pool, uint256 lane, uint256 round) external;

    /// @notice A member's hidden vote for the whole lane; `member` is its index in the committee.
    /// @param commitment `ballotHash(pool, lane, round, voter, codes, verdictHash, salt)`.
    function commit(uint256 pool, uint256 lane, uint256 round, uint256 member, bytes32 commitment) external;

    /// @notice Opens a member's vote, from the account that committed it.
    function reveal(
        uint256 pool,
        uint256 lane,
        uint256 round,
        uint256 member,
        uint256 codes,
        bytes32 verdictHash,
        bytes32 salt
    ) external;

    /// @notice Commits and reveals at once, for the last member to commit. Nobody can have revealed before, so there is
    /// nothing to copy.
    function vote(uint256 pool, uint256 lane, uint256 round, uint256 member, uint256 codes, bytes32 verdictHash)
        external;

    /// @notice Reveals and settles at once, for the last member to reveal.
    function revealAndSettle(
        uint256 pool,
        uint256 lane,
        uint256 round,
        Opening calldata vote_,
        FileRef[] calldata files
    ) external;

    /// @notice Counts the votes and writes the outcomes. Anyone may call after the last reveal or the reveal window.
    /// @param files All files of the lane, in order of their places.
    function settle(uint256 pool, uint256 lane, uint256 round, FileRef[] calldata files) external;

    /// @notice Pays a committee its fees and takes its penalties. Anyone may call once the outcomes that judge it are
    /// final: its own, and round 1's where it is round 0 and left files undecided. The caller gets a share of the
    /// penalties. Members that may owe one are frozen in Seats until then.
    function closeCommittee(uint256 pool, uint256 lane, uint256 round) external;

    // Hooks.
    /// @notice A lane of one to sixteen files. Pools only.
    function openLane(uint256 pool, uint256 lane, uint256 files) external;
    /// @notice Checks and stores the terms of a new pool; returns its unbonding seconds. Pools only.
    function registerPool(uint256 pool, PoolTerms calldata terms) external returns (uint256 unbonding);
    /// @notice Sets the outcome of one file in the round that decided it. Appeals and Canaries only. A file that goes
    /// before a jury freezes the seats of its committee until they are closed.
    function setOutcome(uint256 pool, uint256 sequence, uint256 code) external;

    // Views.
    /// @notice Whether the pool's group has enough seats in this epoch for two committees and both juries without
    /// overlap, and for two first juries.
    function staffed(uint256 pool) external view returns (bool);
    function termsOf(uint256 pool) external view returns (PoolTerms memory);
    /// @notice The service key, and the one before it, which is valid until `previousUntil`.
    function serviceOf(uint256 pool) external view returns (address service, address previous, uint40 previousUntil);
    /// @notice Whether this is the service key, or the one before it while that is valid.
    function isService(uint256 pool, address who) external view returns (bool);
    /// @notice Reverts unless a valid key of the pool's service signed the receipt for this node and file.
    function checkReceipt(uint256 pool, address node, bytes32 fileHash, Receipt calldata receipt) external view;
    /// @notice The digest that the service signs (see `Receipt`). ERC-1271 signatures do not count.
    function receiptDigest(uint256 pool, address node, bytes32 fileHash, uint256 size, uint256 time)
        external
        view
        returns (bytes32);
    /// @notice The committee of a round, known as soon as the seed block is mined, drawn or not.
    function committeeOf(uint256 pool, uint256 lane, uint256 round)
        external
        view
        returns (uint256[] memory seats, address[] memory voters, bytes32 seed, bool drawn);
    function roundOf(uint256 pool, uint256 lane, uint256 round) external view returns (Round memory);
    /// @notice Of ballot pool << 35 | lane << 4 | round << 3 | member: its commitment; once revealed
    /// its codes in the low 64 bits, with bit 64 while its seat is frozen.
    function ballotOf(uint256 ballot) external view returns (bytes32);
    /// @notice The round that decided a file, its seed, and the seats and votes that its outcome judges: those of that
    /// round, after those of a first one that left the file undecided. Reverts while the file is undecided.
    function decisionOf(uint256 pool, uint256 sequence)
        external
        view
        returns (uint256 round, uint256[] memory seats, uint256[] memory votes, bytes32 seed, uint256 code);
    /// @notice keccak256(abi.encode(chainid, this, pool, lane, round, voter, codes, verdictHash, salt)).
    function ballotHash(
        uint256 pool,
        uint256 lane,
        uint256 round,
        address voter,
        uint256 codes,
        bytes32 verdictHash,
        bytes32 salt
    ) external view returns (bytes32);
}
