// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileData, FileRef, PoolTerms, Receipt} from "../libraries/Types.sol";

/// @title IPools
/// @notice Pools with escrowed budgets, their nodes' accounts and submissions, and pay. A node signs its submission, and
/// the pool's service relays up to sixteen in one call. They are a lane, which one committee judges together. Every
/// submission gets a sequence number in its pool (`lane = sequence >> 4`, `place = sequence & 15`). A lane of fewer
/// leaves unused places.
interface IPools {
    enum Status {
        None,
        Open,
        Paused,
        Closing,
        Settled,
        /// Open, but its validator group has too few seats. Takes no submissions.
        Understaffed
    }

    enum Phase {
        None,
        Pending,
        Settled,
        Disputed,
        Final
    }

    struct Pool {
        address owner;
        Status status;
        /// Base units of the budget that are not reserved.
        uint256 free;
        /// Steps published; the current step is steps − 1.
        uint256 steps;
        /// Lanes so far: the next one's number.
        uint256 lanes;
        /// Block whose hash seeds the current step.
        uint256 seedBlock;
        /// Seconds that stake stays locked after leaving this pool.
        uint256 unbonding;
        /// Once closing: when the owner can take the leftovers.
        uint256 settleAt;
    }

    struct Account {
        /// Units settled to be paid so far.
        uint256 earned;
        /// Units of `earned` that no claim will pay: claimed, held by a dispute, or lost in one.
        uint256 spent;
        /// Units submitted and not settled.
        uint256 pending;
        /// Most units that may be pending or earned and not spent; 0 when not a member.
        uint256 limit;
        /// The counter of the next submission.
        uint256 counter;
        /// First step it may submit for.
        uint256 joinedStep;
        /// Work that vests after this time is not paid: when the earliest open reject was settled, or any reject once
        /// the node is slashed. 0 without one.
        uint256 barrier;
        /// Rejected files that are not final yet.
        uint256 frozen;
        bool slashed;
        bool removed;
        /// Files whose cost is open: pending, not accepted and not final, or disputed.
        uint256 unsettled;
    }

    event PoolCreated(
        uint256 indexed pool, address indexed owner, bytes32 indexed configHash, PoolTerms terms, uint256 unbonding
    );
    event PoolFunded(uint256 indexed pool, address indexed from, uint256 amount);
    event StatusSet(uint256 indexed pool, Status status);
    event LeftoverTaken(uint256 indexed pool, address indexed owner, uint256 amount);
    /// @notice The step's seed is derived from the hash of `seedBlock` (later than this block).
    event StepPublished(
        uint256 indexed pool, uint256 indexed step, bytes32 manifestHash, bytes32 canaryRoot, uint256 seedBlock
    );
    event NodeJoined(
        uint256 indexed pool, address indexed node, address indexed operator, uint256 joinedStep, uint256 limit
    );
    event LimitSet(uint256 indexed pool, address indexed node, uint256 limit);
    /// @notice `removed`: by the owner, for good; otherwise the node left by itself.
    event NodeLeft(uint256 indexed pool, address indexed node, bool removed);
    /// @notice file = pool << 32 | sequence, here and below, where it is one word.
    /// placed = pool << 128 | sequence << 96 | step << 64 | counter << 40 | units << 16 | rows: the same word
    /// that the file's digest binds.
    event WorkSubmitted(address node, uint256 placed, bytes32 root, bytes32 fileHash);
    /// @notice Outcomes of a lane's files, from `file` on, by a committee, or void: their words now (`FileSlot`), zero
    /// where it was not this round's matter. A fraud code freezes the node. What is paid stays in the lane, whose words
    /// these are with zero for the rest, unless the round did not settle all of its files.
    event FilesSettled(uint256 file, uint256[] words);
    event FileDisputed(uint256 indexed pool, address indexed node, uint256 indexed sequence);
    /// @notice A jury or canary replaced or confirmed an outcome. Accepted work can be claimed from `time` on.
    event FileResolved(
        uint256 indexed pool, address indexed node, uint256 indexed sequence, uint256 code, uint256 time
    );
    /// @notice A file that was not accepted is final. `slashed` base units left the stake. A fraud code ejects the node
    /// for good.
    event FileFinalized(uint256 file, uint256 code, uint256 slashed);
    /// @notice Unvested pay of a slashed node was burnt.
    event FileForfeited(uint256 indexed pool, address indexed node, uint256 indexed sequence, uint256 amount);
    /// @notice A first jury called a held file a fraud, which freezes its node.
    event NodeFrozen(uint256 indexed pool, address indexed node, uint256 frozenAt);
    event NodeReleased(uint256 indexed pool, address indexed node);
    /// @notice The budget paid the juries of a dispute or challenge, because those who were wrong could not.
    event JuryPaid(uint256 indexed pool, address indexed to, uint256 amount);
    /// @notice A node challenge ejected the node for good. Pay that had not vested is barred.
    event NodeExpelled(uint256 indexed pool, address indexed node);
    /// @notice A node's operator was paid for `units`.
    event Claimed(uint256 pool, address node, uint256 units, uint256 amount);
    event FeePaid(uint256 indexed pool, address indexed to, uint256 paid, uint256 burnt);

    error NoSuchPool();
    error NotOwner();
    error NotCourt();
    error NotOperatorOrNode();
    error NotService();
    /// @notice Not signed by the node's own key for this.
    error BadSignature();
    error SignatureExpired();
    error Paused();
    error WrongStatus(Status status);
    error AmountTooLarge();
    error StepMismatch(uint256 expected, uint256 actual);
    error InviteRequired();
    error BadInvite();
    error Removed();
    error AlreadyMember();
    error NotMember();
    error NodeIsFrozen();
    /// @notice The node has `most` files under way, the maximum.
    error TooManyUnsettled(uint256 most);
    /// @notice The caller expected counter `expected`, the account is at `actual`.
    error CounterMismatch(uint256 expected, uint256 actual);
    /// @notice File `index` of the lane cannot come in; `reason` are the error's selector and its arguments, in
    /// three words. The others may without it.
    error FileRefused(uint256 index, bytes reason);
    /// @notice The receipt's time must be from `first` to `last`.
    error ReceiptOutOfTime(uint256 first, uint256 last);
    error StepOutOfRange(uint256 step, uint256 first, uint256 last);
    error BadUnits(uint256 units, uint256 most);
    error BadRows();
    error OverLimit(uint256 units, uint256 limit);
    error EscrowExhausted(uint256 needed, uint256 free);
    error BadCount();
    error WrongFile(uint256 sequence);
    error WrongPhase(uint256 sequence, Phase phase);
    error NotYet(uint256 time);
    error WindowOver(uint256 time);
    error NothingToClaim();
    error IsFrozen(uint256 barrier);

    // ---- Owner
    /// @notice Creates a pool and escrows `budget` (approved before). It is `Understaffed` while its validator group
    /// has fewer seats than two committees and both juries have together.
    function createPool(PoolTerms calldata terms, uint256 budget) external returns (uint256 pool);
    /// @notice Adds to the budget; anyone may pay.
    function fund(uint256 pool, uint256 amount) external;
    /// @notice Publishes the next policy step; `step` must be the number of steps so far (the first is 0).
    /// @param manifestHash SHA-256 of the weight manifest.
    /// @param canaryRoot Root of the step's salted canary leaves (padded when empty).
    function publishStep(uint256 pool, uint256 step, bytes32 manifestHash, bytes32 canaryRoot) external;
    function pausePool(uint256 pool) external;
    /// @notice Ends a pause. The pool is understaffed if its group has too few seats.
    function resumePool(uint256 pool) external;
    /// @notice Closes the pool for good: no more joins, steps or submissions.
    function closePool(uint256 pool) external;
    /// @notice Sends the free budget to the owner, from `settleAt` on. Can be repeated when late outcomes free more.
    function settlePool(uint256 pool) external returns (uint256 amount);
    /// @notice Bars a node from later submissions. Its stake and its accepted and pending work stay as they are.
    function removeNode(uint256 pool, address node) external;

    // ---- Node operator
    /// @notice The node, or its operator for it, joins an open-to-all pool.
    function join(uint256 pool, address node) external;
    /// @notice Joins with the pool owner's EIP-712 signature of Invite(uint256 pool,address node,uint256 expiry),
    /// domain {name "muster-pools", version "1", chainId, this}. Contract owners sign by ERC-1271.
    function joinWithInvite(uint256 pool, address node, uint256 expiry, bytes calldata invite) external;
    /// @notice Joins with the node key's EIP-712 signature of Join(uint256 pool,address node,uint256 nonce,uint256
    /// expiry), same domain, and for its pool's `inviteOnly` an invite of the same expiry. Anyone may send it, once.
    function joinFor(uint256 pool, address node, uint256 expiry, bytes calldata signature, bytes calldata invite)
        external;
    /// @notice The node or its operator leaves; the stake unlocks `unbonding` seconds later.
    function leavePool(uint256 pool, address node) external;
    /// @notice Leaves with the node key's signature of Leave(uint256 pool,address node,uint256 nonce,uint256 expiry).
    function leaveFor(uint256 pool, address node, uint256 expiry, bytes calldata signature) external;
    /// @notice Recomputes a member's limit after its stake grew; anyone may call.
    function refresh(uint256 pool, address node) external;
    /// @notice Pays the operator everything of `node` that vested up to its submission `sequence`; anyone may call. An
    /// older submission than the latest vested one pays less. The cost is constant.
    /// @param words Of the file's settled lane; none where it has a word of its own.
    function claim(uint256 pool, address node, uint256 sequence, bytes32 inner, uint256[] calldata words)
        external
        returns (uint256 amount);

    // ---- Submissions
    /// @notice Submits a lane of one to sixteen files whose bytes are in the pool's storage, as their receipts say, or,
    /// without any, the caller: the service key or the owner. Anyone may send files with receipts.
    /// Each has its node's EIP-712 signature of Submission(uint256 pool,address node,uint256 step,uint256 counter,uint256
    /// units,uint256 rows,bytes32 root,bytes32 file), domain as for invites, and its counter, from which its problems
    /// were derived, must be the account's. Reverts with `FileRefused` for the first file that cannot come in.
    /// A receipt is at most `receiptWindow` seconds old. It must precede whatever else would refuse the file: the pool's
    /// pause or closing, the newer step that put its step out of `maxLag`, or the node's leaving or removal, whose locked
    /// stake then sets its limit.
    function submitLane(
        uint256 pool,
        FileData[] calldata files,
        bytes[] calldata signatures,
        Receipt[] calldata receipts
    ) external returns (uint256 lane);

    // ---- Keepers
    /// @notice Gives files of a settled lane words of their own, which disputes, canaries, challenges and `forfeit` need;
    /// anyone may call. Those that have one keep it.
    /// @param words The lane's. @param places Bit i: the file at place i.
    function unpack(uint256 pool, uint256 lane, uint256[] calldata words, uint256 places) external;
    /// @notice Opens an understaffed pool whose group has enough seats in this epoch, or the reverse; anyone may call.
    /// Every new step does the same.
    function reviewSeats(uint256 pool) external;
    /// @notice Makes a file final that was not accepted: slashes or charges its node and refunds the pool. Anyone may
    /// call after the challenge window.
    function finalize(uint256 pool, uint256 sequence, FileRef calldata file) external;
    /// @notice Burns the pay of an accepted file that had not vested when its node was slashed. Anyone may call after
    /// its challenge window.
    function forfeit(uint256 pool, uint256 sequence, FileData calldata file) external;

    // ---- Hooks of Court, Appeals, Canaries and NodeChallenges
    /// @notice Writes a round's outcomes: sixteen 4-bit codes, place 0 lowest. UNDECIDED stays pending. NONE is not this
    /// round's matter. `rounds`: how many committees were drawn; the fees of others go back.
    function settleLane(
        uint256 pool,
        uint256 lane,
        uint256 codes,
        uint256 rounds,
        uint256 window,
        FileRef[] calldata files
    ) external;
    function payFees(uint256 pool, address to, uint256 paid, uint256 burnt) external;
    /// @notice Begins a dispute or canary: holds the file's pay.
    function hold(uint256 pool, uint256 sequence, FileData calldata file) external returns (uint256 code);
    /// @notice Freezes the node of a held file after a first jury's reject.
    function freezeHeld(uint256 pool, uint256 sequence, FileData calldata file) external;
    /// @notice Ends a dispute or canary with the final code. At most `reward` of a slash goes to Appeals. A node whose
    /// file is not paid pays the budget back what `juryFees` it will spend.
    function resolve(
        uint256 pool,
        uint256 sequence,
        FileData calldata file,
        uint256 code,
        uint256 reward,
        uint256 juryFees
    ) external returns (uint256 rewardPaid);
    /// @notice Pays Appeals or NodeChallenges for juries, as far as the budget lasts.
    function payJury(uint256 pool, uint256 amount) external returns (uint256 paid);
    /// @notice Ends a node's membership for good and bars its unvested pay, as a rejected file does. Its stake is
    /// unbound.
    function expel(uint256 pool, address node) external;

    // ---- Views
    function poolOf(uint256 pool) external view returns (Pool memory);
    function poolCount() external view returns (uint256);
    function ownerOf(uint256 pool) external view returns (address);
    function accountOf(uint256 pool, address node) external view returns (Account memory);
    /// @notice A file's own word (`FileSlot`), zero where it has none.
    function wordOf(uint256 pool, uint256 sequence) external view returns (uint256);
    function canaryRootOf(uint256 pool, uint256 step) external view returns (bytes32);
    /// @notice How often the node's signature was used to join or leave.
    function nonceOf(address node) external view returns (uint256);
}
