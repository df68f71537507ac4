// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileData, FileRef, PoolTerms, Receipt} from "../libraries/Types.sol";
import {IVoting} from "./IVoting.sol";

/// @title ICourt
/// @notice Committees over lanes: attestation, draw, hidden votes, outcome. A lane is judged as far as its files' bytes
/// were attested, by the pool's service key or a receipt of it, with the submission or later, but before the block that
/// seeds its draw; the others are late.
/// It has up to two rounds: round 1 is a fresh committee for files that round 0 left undecided, because it disagreed,
/// kept silent or was never drawn; what round 1 leaves undecided is void. Whoever is drawn and does not reveal loses
/// `withheldPenalty` per file at settlement.
/// Life of a round: seed block fixed and mined → draw (by anyone, or with the first commit) → commit → reveal (once all have
/// committed, or after the commit window) → settle (once all have revealed, or after the reveal window).
interface ICourt is IVoting {
    struct Round {
        /// Block whose hash seeds the draw, if drawn now; 0 once drawn, and before anything is attested.
        uint256 seedBlock;
        /// Seed of the draw and of the audit sample: eight random bytes, left-padded; zero before the draw.
        bytes32 seed;
        /// Drawn seats.
        uint256[] seats;
        /// Bit j: seat j has committed, revealed, been closed.
        uint256 committed;
        uint256 revealed;
        uint256 closed;
        /// Time of the draw, from then until settlement.
        uint256 drawnAt;
        /// Time of settlement.
        uint256 settledAt;
        bool settled;
        /// What is known of each place, sixteen 4-bit codes: UNDECIDED for what this round judges, then its outcome; NONE
        /// for what it does not: no such file, or not attested (yet).
        uint256 codes;
        /// Deadlines, 0 before the draw.
        uint256 commitUntil;
        uint256 revealUntil;
    }

    /// @notice The pool's owner named a service key. The previous one counts until `previousUntil`.
    event ServiceSet(uint256 indexed pool, address service, uint256 previousUntil);
    /// @notice Where the pool's service answers.
    event ServiceAnnounced(uint256 indexed pool, string url);
    /// @notice `places`: bit for bit the files of the lane attested so far; `seedBlock`: S, as that fixes it now.
    event LaneAttested(uint256 indexed pool, uint256 indexed lane, uint256 places, uint256 seedBlock);
    /// @notice which = pool << 64 | lane << 32 | round << 8; drawn: seed 64 | up to five seats of 16, lowest first.
    event CommitteeDrawn(uint256 which, uint256 seedBlock, uint256 drawn);
    /// @notice ballot = pool << 64 | lane << 32 | seat << 16 | round << 8 | member.
    event VoteCommitted(uint256 ballot, bytes32 commitment);
    /// @notice `ballot`: as above; `codes`: sixteen 4-bit codes; `verdictHash`: keccak256 of the voter's verdict document.
    /// A member that had not committed did so by that (`vote`).
    event VoteRevealed(uint256 ballot, uint256 codes, bytes32 verdictHash);
    /// @notice `which`: as above.
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
    error NotAppeals();
    /// @notice No such lane or round; or, for a draw, nothing of it is attested yet.
    error NoSuchLane();
    error NotService();
    /// @notice The lane takes files until the end of block `end`.
    error LaneOpen(uint256 end);
    error AttestationOver(uint256 lastBlock);
    error NoSuchFile();
    error NothingNew();
    /// @notice Not signed by a key of this pool's service that counts, for this node and file; or from the future.
    error BadReceipt();
    /// @notice The key was rotated lately.
    error TooSoon(uint256 time);
    error DrawOver(uint256 lastBlock);
    error NotSettleable(uint256 time);
    error AlreadySettled();
    error NotSettled();
    error NotFinal(uint256 time);

    // ---- Attestation
    /// @notice Names the key that attests and signs receipts; the pool's owner. The previous key counts for
    /// `receiptWindow` seconds more and for as long as a lane takes to be attested: a receipt that was good at the
    /// submission is good until the last chance. Before that is over there is no other rotation.
    function setService(uint256 pool, address service) external;
    /// @notice Says where the pool's service answers; the pool's owner. Emits an event, stores nothing.
    function announceService(uint256 pool, string calldata url) external;
    /// @notice Says that the bytes of the files in `places` (bit p: place p) are in the pool's storage. Service key only;
    /// when the lane takes no more files, and until `attestBlocks` blocks after its end.
    function attest(uint256 pool, uint256 lane, uint256 places) external;
    /// @notice The same for one file by the receipt that its node got, no older than a replaced key still counts; anyone
    /// may call.
    function attestByReceipt(uint256 pool, uint256 sequence, FileData calldata file, Receipt calldata receipt) external;

    // ---- Votes
    /// @notice Draws the committee of a round and fixes its seed; anyone may call once the seed block is mined. The
    /// first commit does it too.
    function draw(uint256 pool, uint256 lane, uint256 round) external;

    /// @notice A member's hidden vote for the whole lane; `member` is its index in the committee.
    /// @param commitment `ballotHash(pool, lane, round, voter, codes, verdictHash, salt)`.
    function commit(uint256 pool, uint256 lane, uint256 round, uint256 member, bytes32 commitment) external;

    /// @notice Opens a member's vote; the account that committed it.
    function reveal(
        uint256 pool,
        uint256 lane,
        uint256 round,
        uint256 member,
        uint256 codes,
        bytes32 verdictHash,
        bytes32 salt
    ) external;

    /// @notice For the last to commit, when all others have: `commit` and `reveal` in one, without a commitment. Nobody
    /// can have revealed before, so nothing could be copied.
    function vote(uint256 pool, uint256 lane, uint256 round, uint256 member, uint256 codes, bytes32 verdictHash)
        external;

    /// @notice For the last to reveal: both calls in one, cheaper and a block earlier. Reverts when others are missing.
    function revealAndSettle(
        uint256 pool,
        uint256 lane,
        uint256 round,
        uint256 member,
        uint256 codes,
        bytes32 verdictHash,
        bytes32 salt,
        FileRef[] calldata files
    ) external;

    /// @notice Tallies and writes the outcomes; anyone may call at the last reveal or after the reveal window.
    /// @param files All files of the lane, in order of their places.
    function settle(uint256 pool, uint256 lane, uint256 round, FileRef[] calldata files) external;

    /// @notice Pays one member its fees and takes its penalties, once every outcome of the round is final; anyone may
    /// call, and gets a share of a penalty. Members that may owe one are frozen in Seats until then.
    function closeMember(uint256 pool, uint256 lane, uint256 round, uint256 member) external;

    // Hooks.
    /// @notice Pools: keeps what a new pool promises.
    function registerPool(uint256 pool, PoolTerms calldata terms) external;
    /// @notice Appeals, Canaries: sets the outcome of one file in the round that decided it. A file that goes before a
    /// jury freezes the seats of its committee until they are closed.
    function setOutcome(uint256 pool, uint256 sequence, uint256 code) external;

    // Views.
    /// @notice Whether the pool's group has enough seats in this epoch that a lane's two committees and both juries can
    /// all be different.
    function staffed(uint256 pool) external view returns (bool);
    function termsOf(uint256 pool) external view returns (PoolTerms memory);
    /// @notice The key that attests and signs receipts, and the one before it, which counts until `previousUntil`.
    function serviceOf(uint256 pool) external view returns (address service, address previous, uint256 previousUntil);
    /// @notice Reverts unless a key of the pool's service that counts now signed the receipt of this node and file.
    function checkReceipt(uint256 pool, address node, bytes32 fileHash, Receipt calldata receipt) external view;
    /// @notice What the service signs: see `Receipt`. Only a key's own signature counts, whatever code its account has.
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
    /// @notice A member's ballot: before the reveal its commitment, afterwards its codes.
    function ballotOf(uint256 pool, uint256 lane, uint256 round, uint256 member)
        external
        view
        returns (bytes32 commitment, uint256 codes, bool revealed);
    /// @notice The round that decided a file, its committee, seed and votes; reverts while nothing did.
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
