// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Court} from "./Court.sol";
import {Seats} from "./Seats.sol";
import {Stakes} from "./Stakes.sol";
import {SuiteContract} from "./SuiteContract.sol";
import {AccountSlot} from "./libraries/AccountSlot.sol";
import {Codes} from "./libraries/Codes.sol";
import {FileSlot} from "./libraries/FileSlot.sol";
import {TypedData} from "./libraries/TypedData.sol";
import {
    AmountTooLarge,
    BadCount,
    BadSignature,
    Bounds,
    FileData,
    FileRef,
    NotYet,
    Paused,
    PoolTerms,
    Receipt,
    SignatureExpired,
    Suite,
    WindowOver
} from "./libraries/Types.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @title Pools
/// @notice Pools with escrowed budgets, their nodes' accounts and submissions, and pay. A node signs its submission, and
/// the pool's service relays up to sixteen in one call. They are a lane, which one committee judges together. Every
/// submission gets a sequence number in its pool (`lane = sequence >> 4`, `place = sequence & 15`). A lane of fewer
/// leaves unused places.
contract Pools is SuiteContract {
    using AccountSlot for uint256;
    using FileSlot for uint256;

    enum Status {
        None,
        Open,
        Paused,
        Closing,
        Settled,
        /// Open, but its validator group has too few seats. Takes no submissions.
        Understaffed
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
    /// placed = pool << 136 | sequence << 104 | step << 72 | counter << 48 | units << 16 | rows: the same word
    /// that the file's digest binds.
    event WorkSubmitted(address node, uint256 placed, bytes32 root, bytes32 fileHash);
    /// @notice Outcomes of a lane's files, from `file` on, by a committee, or void: their words now (`FileSlot`), zero
    /// where it was not this round's matter. They are the lane's, unless the round did not settle all of its files: then
    /// each file has its own.
    event FilesSettled(uint256 file, uint256[] words);
    /// @notice Files of a settled lane, those from `file` on whose bit is set, have words of their own.
    event FilesUnpacked(uint256 file, uint256 places);
    /// @notice A jury or canary replaced or confirmed an outcome. Accepted work can be claimed from `time` on.
    event FileResolved(
        uint256 indexed pool, address indexed node, uint256 indexed sequence, uint256 code, uint256 time
    );
    /// @notice A file that was not accepted is final. `slashed` base units left the stake. A fraud code ejects the node
    /// for good. Where the file has no word of its own, its lane has zero for it from now on.
    event FileFinalized(uint256 file, uint256 code, uint256 slashed);
    /// @notice Unvested pay of a slashed node was burnt.
    event FileForfeited(uint256 indexed pool, address indexed node, uint256 indexed sequence, uint256 amount);
    /// @notice A first jury called a held file a fraud, which freezes its node.
    event NodeFrozen(uint256 indexed pool, address indexed node, uint256 frozenAt);
    /// @notice The budget paid the juries of a dispute or challenge, because the losing side's money did not suffice.
    event JuryPaid(uint256 indexed pool, address indexed to, uint256 amount);
    /// @notice A node challenge ejected the node for good. Pay that had not vested is barred.
    event NodeExpelled(uint256 indexed pool, address indexed node);
    /// @notice A seat's owner was paid what the seat had earned in committees.
    event FeesWithdrawn(uint256 indexed seat, address indexed owner, uint256 amount);
    /// @notice A node's operator was paid for `units`.
    event Claimed(uint256 pool, address node, uint256 units, uint256 amount);

    error NoSuchPool();
    /// @notice On this chain block `anchor` has another hash than the caller named, or is too old to check.
    error OtherChain();
    error NotOwner();
    error NotOperatorOrNode();
    error NotService();
    error WrongStatus(Status status);
    error StepMismatch(uint256 expected, uint256 actual);
    error BadInvite();
    error Removed();
    error AlreadyMember();
    error NotMember();
    error NodeIsFrozen();
    /// @notice The node has `most` files under way, the maximum.
    error TooManyUnsettled(uint256 most);
    /// @notice The caller expected counter `expected`, the account is at `actual`.
    error CounterMismatch(uint256 expected, uint256 actual);
    /// @notice File `index` of the lane is refused. `reason` has the error's selector and three words for its arguments.
    /// Without this file the others may be accepted.
    error FileRefused(uint256 index, bytes reason);
    /// @notice The receipt's time must be from `first` to `last`.
    error ReceiptOutOfTime(uint256 first, uint256 last);
    error StepOutOfRange(uint256 step, uint256 first, uint256 last);
    error BadUnits(uint256 units, uint256 most);
    error BadRows();
    error OverLimit(uint256 units, uint256 limit);
    error EscrowExhausted(uint256 needed, uint256 free);
    error WrongFile(uint256 sequence);
    /// @notice The file is in phase `phase` (`FileSlot`).
    error WrongPhase(uint256 sequence, uint256 phase);
    error NothingToClaim();
    error IsFrozen(uint256 barrier);

    /// @dev One packed word; a struct, so that the hot path can keep a pointer to it.
    struct Word {
        uint256 word;
    }

    /// @notice What a submission needs to know of its pool, in one word. `free`: base units of the budget that are not
    /// reserved. `steps`: published so far. `lanes`: so far, and the next one's number.
    struct Intake {
        uint64 free;
        uint32 rate;
        /// A committee's, for one file.
        uint40 fees;
        uint24 lanes;
        uint32 maxUnits;
        uint24 steps;
        uint8 maxLag;
        Status status;
    }

    /// @notice The rest. Once it is closing, its owner can take the leftovers `unbonding` seconds after `since`.
    struct Desk {
        address owner;
        /// Block whose hash seeds the current step.
        uint32 seedBlock;
        /// When it became what its status says: open (again), paused, closing.
        uint32 since;
        // next word: what is needed here of the terms
        /// Seconds that stake stays locked after leaving this pool.
        uint32 unbonding;
        uint56 minStake;
        uint16 leverage;
        uint32 challengeWindow;
        uint32 receiptWindow;
        bool inviteOnly;
    }

    struct Step {
        bytes32 canaryRoot;
        uint40 publishedAt;
    }

    bytes32 private constant INVITE_TYPEHASH = keccak256("Invite(uint256 pool,address node,uint256 expiry)");
    /// The struct `FileData` with its pool.
    bytes32 private constant SUBMISSION_TYPEHASH = keccak256(
        "Submission(uint256 pool,address node,uint256 step,uint256 counter,uint256 units,uint256 rows,bytes32 root,bytes32 file)"
    );
    bytes32 private constant JOIN_TYPEHASH = keccak256("Join(uint256 pool,address node,uint256 nonce,uint256 expiry)");
    bytes32 private constant LEAVE_TYPEHASH =
        keccak256("Leave(uint256 pool,address node,uint256 nonce,uint256 expiry)");
    /// Committees that may judge a file, one after the other.
    uint256 private constant ROUNDS = 2;
    /// An account counts steps in 20 bits.
    uint256 private constant MAX_STEPS = (1 << 20) - 1;
    bytes32 private constant DOMAIN = keccak256("muster-pools");

    uint256 public poolCount;
    mapping(uint256 pool => Intake) private _pools;
    mapping(uint256 pool => Desk) private _desks;
    mapping(uint256 pool => mapping(uint256 step => Step)) private _steps;
    /// By pool << 160 | node.
    mapping(uint256 member => Word) private _accounts;
    /// By `FileSlot.idOf` >> 4: the hash of its files' words as they came in, or as the round left them that settled
    /// all.
    mapping(uint256 key => bytes32) private _lanes;
    /// By `FileSlot.idOf`: the word of a file that its lane's hash does not cover, or no longer does.
    mapping(uint256 id => uint256 slot) private _files;
    /// Of an opened seat: its owner's fees, and one more.
    mapping(uint256 seat => uint256) private _fees;
    /// @notice How many of the node's signatures were used to join or leave.
    mapping(address node => uint256) public nonceOf;

    modifier onlyOwner(uint256 pool) {
        if (_desks[pool].owner != msg.sender) revert NotOwner();
        _;
    }

    constructor(Suite memory suite) SuiteContract(suite, suite.pools) {}

    // ---- A pool: created, funded, stepped, paused, closed, settled

    /// @notice Creates a pool and escrows `budget` (approved before). It is `Understaffed` while its validator group
    /// has fewer seats than two committees and both juries have together.
    function createPool(PoolTerms memory terms, uint256 budget) external nonReentrant returns (uint256 pool) {
        if (params.paused()) revert Paused();
        if (budget > type(uint64).max) revert AmountTooLarge();
        pool = ++poolCount;
        if (pool > type(uint24).max) revert AmountTooLarge();
        uint256 unbonding = Court(court).registerPool(pool, terms);
        if (terms.group == 0) terms.group = uint32(pool);
        Intake storage intake = _pools[pool];
        (intake.free, intake.rate, intake.status) = (uint64(budget), terms.rate, Status.Open);
        (intake.maxUnits, intake.maxLag) = (terms.maxUnits, terms.maxLag);
        intake.fees = uint40(terms.committee) * terms.fee;
        Desk storage desk = _desks[pool];
        (desk.owner, desk.unbonding, desk.inviteOnly) = (msg.sender, uint32(unbonding), terms.inviteOnly);
        (desk.minStake, desk.leverage) = (terms.minStake, terms.leverage);
        (desk.challengeWindow, desk.receiptWindow) = (terms.challengeWindow, terms.receiptWindow);
        emit PoolCreated(pool, msg.sender, terms.configHash, terms, unbonding);
        emit PoolFunded(pool, msg.sender, budget);
        _review(pool);
        _receive(budget);
    }

    /// @notice Adds to the budget; anyone may pay.
    function fund(uint256 pool, uint256 amount) external nonReentrant {
        Intake storage intake = _pools[pool];
        if (intake.status == Status.None) revert NoSuchPool();
        if (amount > type(uint64).max - intake.free) revert AmountTooLarge();
        intake.free = uint64(intake.free + amount);
        emit PoolFunded(pool, msg.sender, amount);
        _receive(amount);
    }

    /// @notice Publishes the next policy step; `step` must be the number of steps so far (the first is 0).
    /// @param manifestHash SHA-256 of the weight manifest.
    /// @param canaryRoot Root of the step's salted canary leaves (padded when empty).
    function publishStep(uint256 pool, uint256 step, bytes32 manifestHash, bytes32 canaryRoot)
        external
        onlyOwner(pool)
    {
        _onlyRunning(pool, true);
        Intake storage intake = _pools[pool];
        if (step != intake.steps) revert StepMismatch(intake.steps, step);
        if (step == MAX_STEPS) revert AmountTooLarge();
        ++intake.steps;
        uint256 seedBlock = block.number + 1;
        _desks[pool].seedBlock = uint32(seedBlock);
        _steps[pool][step] = Step(canaryRoot, uint40(block.timestamp));
        emit StepPublished(pool, step, manifestHash, canaryRoot, seedBlock);
        if (intake.status != Status.Paused) _review(pool);
    }

    /// @notice Opens an understaffed pool whose group has enough seats in this epoch, or the reverse; anyone may call.
    /// Every new step does the same.
    function reviewSeats(uint256 pool) external {
        _onlyRunning(pool, false);
        _review(pool);
    }

    function pausePool(uint256 pool) external onlyOwner(pool) {
        _onlyRunning(pool, false);
        _setStatus(pool, Status.Paused);
    }

    /// @notice Ends a pause. The pool is understaffed if its group has too few seats.
    function resumePool(uint256 pool) external onlyOwner(pool) {
        Status status = _pools[pool].status;
        if (status != Status.Paused) revert WrongStatus(status);
        _review(pool);
    }

    /// @notice Closes the pool for good: no more joins, steps or submissions.
    function closePool(uint256 pool) external onlyOwner(pool) {
        _onlyRunning(pool, true);
        _setStatus(pool, Status.Closing);
    }

    /// @notice Sends the free budget to the owner, from `settleAt` on. Can be repeated when late outcomes free more.
    function settlePool(uint256 pool) external onlyOwner(pool) nonReentrant returns (uint256 amount) {
        Intake storage intake = _pools[pool];
        Status status = intake.status;
        if (status != Status.Closing && status != Status.Settled) revert WrongStatus(status);
        uint256 settleAt = uint256(_desks[pool].since) + _desks[pool].unbonding;
        if (block.timestamp < settleAt) revert NotYet(settleAt);
        amount = intake.free;
        (intake.free, intake.status) = (0, Status.Settled);
        if (status == Status.Closing) emit StatusSet(pool, Status.Settled);
        emit LeftoverTaken(pool, msg.sender, amount);
        _send(msg.sender, amount);
    }

    /// @dev Open when the pool's group has enough seats, else understaffed.
    function _review(uint256 pool) private {
        _setStatus(pool, Court(court).staffed(pool) ? Status.Open : Status.Understaffed);
    }

    function _setStatus(uint256 pool, Status to) private {
        if (_pools[pool].status == to) return;
        _pools[pool].status = to;
        _desks[pool].since = uint32(block.timestamp);
        emit StatusSet(pool, to);
    }

    /// @dev Open or understaffed, or paused where that will do.
    function _onlyRunning(uint256 pool, bool orPaused) private view {
        Status status = _pools[pool].status;
        bool runs = status == Status.Open || status == Status.Understaffed || (orPaused && status == Status.Paused);
        if (!runs) revert WrongStatus(status);
    }

    // ---- A node: joined, left, removed

    /// @notice The node, or its operator for it, joins; or anyone, once, with the node key's EIP-712 signature of
    /// Join(uint256 pool,address node,uint256 nonce,uint256 expiry), domain {name "muster-pools", version "1", chainId,
    /// this}. A pool that is `inviteOnly` wants its owner's signature of Invite(uint256 pool,address node,uint256 expiry)
    /// besides, where contracts sign by ERC-1271.
    function join(uint256 pool, address node, uint256 expiry, bytes calldata signature, bytes calldata invite)
        external
    {
        if (_desks[pool].inviteOnly) {
            bytes32 hash = keccak256(abi.encode(INVITE_TYPEHASH, pool, node, expiry));
            bytes32 digest = TypedData.digest(DOMAIN, address(this), hash);
            if (!SignatureChecker.isValidSignatureNowCalldata(_desks[pool].owner, digest, invite)) revert BadInvite();
        }
        _authorise(JOIN_TYPEHASH, pool, node, expiry, signature);
        _onlyRunning(pool, false);
        if (params.paused()) revert Paused();
        uint256 account = _account(pool, node).word;
        if (account & (AccountSlot.REMOVED | AccountSlot.SLASHED) != 0) revert Removed();
        if (account.limit() != 0) revert AlreadyMember();
        (address operator, uint256 stake) = Stakes(stakes).bind(node, pool, _desks[pool].minStake);
        uint256 limit = _limit(pool, stake);
        // only steps whose seed block is later than the join: nobody can choose an address that gets easy problems
        uint256 steps = _pools[pool].steps;
        uint256 step = steps != 0 && block.number < _desks[pool].seedBlock ? steps - 1 : steps;
        _account(pool, node).word = account.withLimit(limit).withJoinedStep(step);
        emit NodeJoined(pool, node, operator, step, limit);
    }

    /// @notice The node or its operator leaves, or anyone with the node key's signature of Leave(uint256 pool,address
    /// node,uint256 nonce,uint256 expiry), same domain. The stake unlocks `unbonding` seconds later.
    function leavePool(uint256 pool, address node, uint256 expiry, bytes calldata signature) external {
        _authorise(LEAVE_TYPEHASH, pool, node, expiry, signature);
        Word storage account = _account(pool, node);
        if (account.word.limit() == 0) revert NotMember();
        account.word = account.word.withLimit(0);
        emit NodeLeft(pool, node, false);
        _unbind(pool, node);
    }

    /// @notice Bars a node from later submissions. Its stake and its accepted and pending work stay as they are.
    function removeNode(uint256 pool, address node) external onlyOwner(pool) {
        uint256 account = _account(pool, node).word;
        if (account & AccountSlot.REMOVED != 0) revert Removed();
        bool member = account.limit() != 0;
        _account(pool, node).word = account.withLimit(0) | AccountSlot.REMOVED;
        emit NodeLeft(pool, node, true);
        if (member) _unbind(pool, node);
    }

    /// @notice Recomputes a member's limit after its stake grew; anyone may call.
    function refresh(uint256 pool, address node) external {
        if (_account(pool, node).word.limit() == 0) revert NotMember();
        _relimit(pool, node, Stakes(stakes).nodeOf(node).stake);
    }

    /// @notice Ends a node's membership for good and bars its unvested pay, as a rejected file does. Its stake is
    /// unbound.
    function expel(uint256 pool, address node) external {
        _onlyFrom(nodeChallenges, nodeChallenges);
        Word storage account = _account(pool, node);
        bool member = account.word.limit() != 0;
        account.word = account.word.slashedAt(block.timestamp);
        emit NodeExpelled(pool, node);
        if (member) _unbind(pool, node);
    }

    /// @dev Anyone may send what the node's key signed, once. Without a signature the node or its operator calls.
    function _authorise(bytes32 typehash, uint256 pool, address node, uint256 expiry, bytes calldata signature)
        private
    {
        if (block.timestamp > expiry) revert SignatureExpired();
        if (signature.length == 0) {
            if (msg.sender != node && msg.sender != Stakes(stakes).operatorOf(node)) revert NotOperatorOrNode();
            return;
        }
        bytes32 hash = keccak256(abi.encode(typehash, pool, node, nonceOf[node]++, expiry));
        TypedData.check(node, DOMAIN, hash, signature);
    }

    /// @dev Its stake unlocks later.
    function _unbind(uint256 pool, address node) private {
        Stakes(stakes).unbind(node, block.timestamp + _desks[pool].unbonding);
    }

    /// @dev A member's limit follows its stake. Below the pool's least stake its membership ends.
    function _relimit(uint256 pool, address node, uint256 stake) private {
        bool stays = stake >= _desks[pool].minStake;
        uint256 limit = stays ? _limit(pool, stake) : 0;
        _account(pool, node).word = _account(pool, node).word.withLimit(limit);
        if (stays) {
            emit LimitSet(pool, node, limit);
        } else {
            emit NodeLeft(pool, node, false);
            _unbind(pool, node);
        }
    }

    /// @dev Units that may be under way or unclaimed at once: never none, as the least stake allows one.
    function _limit(uint256 pool, uint256 stake) private view returns (uint256) {
        return Math.min(stake * _desks[pool].leverage / _pools[pool].rate, AccountSlot.MAX_34);
    }

    // ---- A submission comes in

    /// @notice Submits a lane of one to sixteen files whose bytes are in the pool's storage, as their receipts say, or,
    /// without any, the caller: the service key or the owner. Anyone may send files with receipts.
    /// Each has its node's EIP-712 signature of Submission(uint256 pool,address node,uint256 step,uint256 counter,uint256
    /// units,uint256 rows,bytes32 root,bytes32 file), domain as for invites, and its counter, from which its problems
    /// were derived, must be the account's. Reverts with `FileRefused` for the first file that cannot come in.
    /// A chain that has another block `anchor` than that of `anchorHash`, one of the last 256, takes nothing: a step
    /// whose seed block is not later has the seed that the lane was made for, whatever was reorganised. With receipts
    /// `anchorHash` may be zero: what a chain is forced to include can wait for longer than 256 blocks.
    /// A receipt is at most `receiptWindow` seconds old. It must precede whatever else would refuse the file: the pool's
    /// pause or closing, the newer step that put its step out of `maxLag`, or the node's leaving or removal, whose locked
    /// stake then sets its limit.
    function submitLane(
        uint256 pool,
        FileData[] calldata files,
        bytes[] calldata signatures,
        Receipt[] calldata receipts,
        uint256 anchor,
        bytes32 anchorHash
    ) external returns (uint256 lane) {
        Intake memory intake = _pools[pool];
        bool relayed = receipts.length == 0;
        if (anchorHash == 0 ? relayed : blockhash(anchor) != anchorHash) revert OtherChain();
        if (files.length == 0 || files.length > 16 || files.length != signatures.length) revert BadCount();
        if (relayed) {
            if (msg.sender != _desks[pool].owner && !Court(court).isService(pool, msg.sender)) revert NotService();
            if (intake.status != Status.Open) revert WrongStatus(intake.status);
        } else if (files.length != receipts.length) {
            revert BadCount();
        }
        lane = intake.lanes;
        bytes32 domain = TypedData.domain(DOMAIN, address(this));
        uint256[] memory words = new uint256[](files.length);
        for (uint256 i = 0; i < files.length; ++i) {
            FileData calldata file = files[i];
            Word storage accountWord = _account(pool, file.node);
            uint256 account = accountWord.word;
            (uint256 limit, uint256 maxLag) = relayed
                ? (account.limit(), intake.maxLag)
                : (_limitInTime(pool, intake, account, file, receipts[i]), MAX_STEPS);
            (bytes4 error_, uint256 a, uint256 b, uint256 c) = _refusal(intake, account, limit, maxLag, file);
            bytes32 signed = MessageHashUtils.toTypedDataHash(domain, _submissionHash(pool, file));
            if (!TypedData.signedBy(file.node, signed, signatures[i])) {
                (error_, a, b, c) = (BadSignature.selector, 0, 0, 0);
            }
            if (error_ != 0) revert FileRefused(i, abi.encodePacked(error_, a, b, c));
            uint256 placed = FileSlot.placed(pool, (lane << 4) | i, file);
            uint256 digest = FileSlot.digest(FileSlot.inner(file.root, file.fileHash, placed), file.node);
            emit WorkSubmitted(file.node, placed, file.root, file.fileHash);
            words[i] = FileSlot.pack(digest, file.units, 0, 0, FileSlot.PENDING);
            accountWord.word = account.submitted(file.units);
            unchecked {
                intake.free -= uint64(_reserved(file.units, intake)); // it is free
            }
        }
        _lanes[FileSlot.knownId(pool, lane << 4) >> 4] = FileSlot.hash(words);
        (_pools[pool].free, _pools[pool].lanes) = (intake.free, intake.lanes + 1);
        Court(court).openLane(pool, lane, files.length);
    }

    /// @dev The node's limit if the receipt of its file came before all that would refuse it.
    function _limitInTime(
        uint256 pool,
        Intake memory intake,
        uint256 account,
        FileData calldata file,
        Receipt calldata receipt
    ) private view returns (uint256 limit) {
        uint256 last;
        (limit, last) = (account.limit(), block.timestamp);
        if (limit == 0) {
            // it may have been a member in time: the limit is that of the stake that is still locked here
            Stakes.Node memory node = Stakes(stakes).nodeOf(file.node);
            Desk storage desk = _desks[pool];
            bool locked = node.pool == 0 && node.lastPool == pool && node.stake >= desk.minStake;
            if (!locked || account.slashed()) revert NotMember();
            (limit, last) = (_limit(pool, node.stake), node.releaseAt - desk.unbonding);
        }
        if (intake.status == Status.Settled) revert WrongStatus(Status.Settled);
        if (intake.status != Status.Open && _desks[pool].since < last) last = _desks[pool].since;
        uint256 newer = uint256(file.step) + intake.maxLag + 1;
        if (newer < intake.steps) {
            uint256 published = _steps[pool][newer].publishedAt;
            if (published < last) last = published;
        }
        uint256 first = block.timestamp - _desks[pool].receiptWindow;
        if (receipt.time < first || receipt.time > last) revert ReceiptOutOfTime(first, last);
        Court(court).checkReceipt(pool, file.node, file.fileHash, receipt);
    }

    /// @dev keccak256(abi.encode(SUBMISSION_TYPEHASH, pool, file)), from the file's words as they came: a word that is no
    /// value of its type reverts where the field is read. Every submission pays for it.
    function _submissionHash(uint256 pool, FileData calldata file) private pure returns (bytes32 hash) {
        bytes32 typehash = SUBMISSION_TYPEHASH;
        assembly ("memory-safe") {
            let words := mload(0x40)
            mstore(words, typehash)
            mstore(add(words, 0x20), pool)
            calldatacopy(add(words, 0x40), file, 0xe0)
            hash := keccak256(words, 0x120)
        }
    }

    /// @dev What a file of `units` reserves of the budget: its pay, and the fees of all committees that may judge it.
    function _reserved(uint256 units, Intake memory intake) private pure returns (uint256) {
        unchecked {
            return units * intake.rate + ROUNDS * intake.fees; // 32 + 32 bits, and 2 + 40
        }
    }

    /// @dev The error that refuses a file, or zero, and its arguments.
    function _refusal(Intake memory intake, uint256 account, uint256 limit, uint256 maxLag, FileData calldata file)
        private
        pure
        returns (bytes4 error_, uint256 a, uint256 b, uint256 c)
    {
        unchecked {
            (uint256 counter, uint256 units) = (file.counter, file.units);
            if (limit == 0) return (NotMember.selector, 0, 0, 0);
            if (account.counter() != counter) return (CounterMismatch.selector, counter, account.counter(), 0);
            if (account.underWay() >= Bounds.MAX_UNSETTLED) {
                if (account.frozen() != 0) return (NodeIsFrozen.selector, 0, 0, 0);
                return (TooManyUnsettled.selector, Bounds.MAX_UNSETTLED, 0, 0);
            }
            uint256 lag = uint256(intake.steps) - 1 - file.step; // of a step that is not published yet it wraps
            if (lag > maxLag || file.step < account.joinedStep()) {
                return (StepOutOfRange.selector, file.step, account.joinedStep(), intake.steps);
            }
            // 0 wraps
            if (units - 1 >= intake.maxUnits) return (BadUnits.selector, units, intake.maxUnits, 0);
            if (file.rows == 0) return (BadRows.selector, 0, 0, 0);
            bool full = counter == AccountSlot.MAX_COUNTER || account.earned() >= AccountSlot.ENOUGH;
            if (full) return (AmountTooLarge.selector, 0, 0, 0);
            a = account.open() + units;
            if (a > limit) return (OverLimit.selector, a, limit, 0);
            a = _reserved(units, intake);
            if (a > intake.free) return (EscrowExhausted.selector, a, intake.free, 0);
        }
    }

    // ---- Its committee settles it

    /// @notice Writes a round's outcomes: sixteen 4-bit codes, place 0 lowest. UNDECIDED stays pending. NONE is not this
    /// round's matter. `rounds`: how many committees were drawn; the fees of others go back.
    function settleLane(
        uint256 pool,
        uint256 lane,
        uint256 codes,
        uint256 rounds,
        uint256 window,
        FileRef[] calldata files
    ) external onlyFrom(court, court) {
        uint256 first = FileSlot.knownId(pool, lane << 4);
        uint256[] memory words = new uint256[](files.length);
        for (uint256 i = 0; i < words.length; ++i) {
            uint256 digest = FileSlot.digest(files[i].inner, files[i].node);
            words[i] = FileSlot.pack(digest, files[i].units, 0, 0, FileSlot.PENDING);
        }
        if (FileSlot.hash(words) != _lanes[first >> 4]) revert WrongFile(lane << 4);
        uint256 settled;
        for (uint256 i = 0; i < words.length; ++i) {
            uint256 code = Codes.get(codes, i);
            bool decided = code != Codes.NONE && code != Codes.UNDECIDED;
            if (decided) ++settled;
            words[i] = decided ? _settle(pool, files[i].node, words[i], code, block.timestamp + window) : 0;
        }
        emit FilesSettled(first, words);
        if (settled == words.length) {
            _lanes[first >> 4] = FileSlot.hash(words);
        } else {
            // the lane's hash stands for those that are not settled
            for (uint256 i = 0; i < words.length; ++i) {
                if (words[i] != 0) _files[first | i] = words[i];
            }
        }
        uint256 back = (ROUNDS - rounds) * _pools[pool].fees * settled;
        if (back != 0) _credit(pool, back);
    }

    /// @notice Gives files of a settled lane words of their own, which disputes, canaries, challenges and `forfeit` need;
    /// anyone may call. Those that have one keep it.
    /// @param words The lane's. @param places Bit i: the file at place i.
    function unpack(uint256 pool, uint256 lane, uint256[] calldata words, uint256 places) external {
        uint256 first = FileSlot.idOf(pool, lane << 4);
        uint256 given;
        for (uint256 i = 0; i < words.length; ++i) {
            uint256 id = first + i;
            if ((places >> i) & 1 == 0 || _files[id] != 0) continue;
            uint256 slot = _wordIn(id, words);
            if (slot.phase() != FileSlot.SETTLED) revert WrongPhase(uint32(id), slot.phase());
            _files[id] = slot;
            given |= 1 << i;
        }
        if (given != 0) emit FilesUnpacked(first, given);
    }

    /// @notice Makes the word of a seat's fees, so that no lane pays for a fresh one. Seats only.
    function openFees(uint256 seat) external onlyFrom(seats, seats) {
        if (_fees[seat] == 0) _fees[seat] = 1;
    }

    /// @notice A committee's fees: what one of its seats has earned, and what is burnt. Court only.
    function payFees(uint256 seat, uint256 paid, uint256 burnt) external onlyFrom(court, court) nonReentrant {
        if (paid != 0) _fees[seat] += paid;
        _send(SINK, burnt);
    }

    /// @notice Sends a seat's fees to its owner; anyone may call.
    function withdrawFees(uint256 seat) external nonReentrant returns (uint256 amount) {
        amount = feesOf(seat);
        if (amount == 0) return 0;
        _fees[seat] = 1;
        address owner = Seats(seats).ownerOf(seat);
        emit FeesWithdrawn(seat, owner, amount);
        _send(owner, amount);
    }

    /// @dev A pending file gets its committee's outcome, which is final at `time`: its new word.
    function _settle(uint256 pool, address node, uint256 slot, uint256 code, uint256 time) private returns (uint256) {
        Word storage word = _account(pool, node);
        uint256 amount = slot.amount();
        uint256 account = word.word;
        account = account.withPending(account.pending() - amount);
        uint256 flags;
        if (Codes.isPaid(code)) {
            amount += account.earned();
            account = account.withEarned(amount).unsettledLess();
            flags = FileSlot.CUMULATIVE;
        } else if (Codes.isReject(code)) {
            account = account.frozenMore(block.timestamp);
            flags = FileSlot.FROZEN;
        }
        word.word = account;
        // the stake stays until the penalty is collected
        if (!Codes.isPaid(code)) Stakes(stakes).freeze(node);
        return FileSlot.pack(slot.digest(), amount, time, code, FileSlot.SETTLED) | flags;
    }

    // ---- A dispute holds and resolves it

    /// @notice Begins a dispute or canary: holds the file's pay.
    function hold(uint256 pool, uint256 sequence, FileData calldata file)
        external
        onlyFrom(appeals, canaries)
        returns (uint256 code)
    {
        uint256 slot = _inPhase(pool, sequence, file, FileSlot.SETTLED);
        if (block.timestamp >= slot.finalAt()) revert WindowOver(slot.finalAt());
        code = slot.code();
        _files[FileSlot.idOf(pool, sequence)] = slot.withPhase(FileSlot.DISPUTED);
        if (!Codes.isPaid(code)) return code; // its stake is frozen already
        Word storage account = _account(pool, file.node);
        account.word = account.word.withSpent(account.word.spent() + file.units).unsettledMore();
        Stakes(stakes).freeze(file.node);
    }

    /// @notice Freezes the node of a held file after a first jury's reject.
    function freezeHeld(uint256 pool, uint256 sequence, FileData calldata file) external onlyFrom(appeals, canaries) {
        uint256 slot = _inPhase(pool, sequence, file, FileSlot.DISPUTED);
        if (slot & FileSlot.FROZEN != 0) return;
        _files[FileSlot.idOf(pool, sequence)] = slot | FileSlot.FROZEN;
        _account(pool, file.node).word = _account(pool, file.node).word.frozenMore(block.timestamp);
        emit NodeFrozen(pool, file.node, block.timestamp);
    }

    /// @notice Ends a dispute or canary with the final code. At most `reward` of a slash goes to Appeals. A node whose
    /// file is not paid pays the budget back what `juryFees` it will spend.
    function resolve(
        uint256 pool,
        uint256 sequence,
        FileData calldata file,
        uint256 code,
        uint256 reward,
        uint256 juryFees
    ) external onlyFrom(appeals, canaries) returns (uint256 rewardPaid) {
        uint256 slot = _inPhase(pool, sequence, file, FileSlot.DISPUTED);
        bool frozen = slot & FileSlot.FROZEN != 0;
        if (Codes.isPaid(code)) {
            _restore(pool, sequence, file, slot, code);
            if (frozen) _account(pool, file.node).word = _account(pool, file.node).word.frozenLess();
            Stakes(stakes).release(file.node);
            return 0;
        }
        _files[FileSlot.idOf(pool, sequence)] =
            slot.ended(slot.amount(), slot.finalAt(), code) | (slot & FileSlot.CUMULATIVE);
        emit FileResolved(pool, file.node, sequence, code, slot.finalAt());
        // a committee's reject has frozen the node since it was settled; an overturned acceptance slashes now
        uint256 barredAt = Codes.isPaid(slot.code()) ? block.timestamp : slot.finalAt() - _desks[pool].challengeWindow;
        Stakes.Slash memory order;
        (order.reward, order.fees) = (reward, juryFees);
        return _charge(pool, sequence, file.node, code, file.units, barredAt, frozen, order);
    }

    /// @notice Pays Appeals or NodeChallenges for juries, as far as the budget lasts.
    function payJury(uint256 pool, uint256 amount) external nonReentrant returns (uint256 paid) {
        _onlyFrom(appeals, nodeChallenges);
        uint256 free = _pools[pool].free;
        paid = amount < free ? amount : free;
        if (paid == 0) return 0;
        _pools[pool].free = uint64(free - paid);
        emit JuryPaid(pool, msg.sender, paid);
        _send(msg.sender, paid);
    }

    /// @dev A held file is paid after all: at its own time, or at that of work settled now; vesting never goes back.
    function _restore(uint256 pool, uint256 sequence, FileData calldata file, uint256 slot, uint256 code) private {
        uint256 account = _account(pool, file.node).word.unsettledLess();
        uint256 amount = slot.amount();
        uint256 time = slot.finalAt();
        if (Codes.isPaid(slot.code())) {
            account = account.withSpent(account.spent() - file.units);
        } else {
            amount = account.earned() + file.units;
            account = account.withEarned(amount);
            time = block.timestamp + _desks[pool].challengeWindow;
        }
        _account(pool, file.node).word = account;
        _files[FileSlot.idOf(pool, sequence)] = slot.ended(amount, time, code) | FileSlot.CUMULATIVE;
        emit FileResolved(pool, file.node, sequence, code, time);
    }

    // ---- It becomes final: paid, charged or forfeited

    /// @notice Makes a file final that was not accepted: slashes or charges its node and refunds the pool. Anyone may
    /// call after the challenge window.
    /// @param words Of the file's settled lane; none where it has a word of its own.
    function finalize(uint256 pool, uint256 sequence, FileRef calldata file, uint256[] calldata words) external {
        uint256 id = FileSlot.idOf(pool, sequence);
        uint256 own = _files[id];
        uint256 slot = own == 0 ? _wordIn(id, words) : own;
        if (slot.digest() != FileSlot.digest(file.inner, file.node)) revert WrongFile(sequence);
        uint256 code = slot.code();
        if (slot.phase() != FileSlot.SETTLED || Codes.isPaid(code)) {
            revert WrongPhase(sequence, slot.phase());
        }
        uint256 time = slot.finalAt();
        if (block.timestamp < time) revert NotYet(time);
        if (own == 0) {
            uint256[] memory left = words;
            left[id & 15] = 0;
            _lanes[id >> 4] = FileSlot.hash(left);
        } else {
            _files[id] = slot.withPhase(FileSlot.FINAL) & ~FileSlot.FROZEN;
        }
        uint256 settledAt = time - _desks[pool].challengeWindow;
        Stakes.Slash memory order;
        order.collector = msg.sender;
        _charge(pool, sequence, file.node, code, slot.amount(), settledAt, slot & FileSlot.FROZEN != 0, order);
    }

    /// @notice Pays the operator everything of `node` that vested up to its submission `sequence`; anyone may call. An
    /// older submission than the latest vested one pays less. The cost is constant.
    /// @param words Of the file's settled lane; none where it has a word of its own.
    function claim(uint256 pool, address node, uint256 sequence, bytes32 inner, uint256[] calldata words)
        external
        nonReentrant
        returns (uint256 amount)
    {
        Word storage account = _account(pool, node);
        uint256 id = FileSlot.idOf(pool, sequence);
        uint256 slot = _files[id];
        if (slot == 0) slot = _wordIn(id, words);
        if (slot.digest() != FileSlot.digest(inner, node)) revert WrongFile(sequence);
        if (slot & FileSlot.CUMULATIVE == 0) revert NothingToClaim();
        if (block.timestamp < slot.finalAt()) revert NotYet(slot.finalAt());
        uint256 barrier = account.word.barrier();
        if (barrier != 0 && slot.finalAt() > barrier) revert IsFrozen(barrier);
        if (slot.amount() <= account.word.spent()) revert NothingToClaim();
        uint256 units = slot.amount() - account.word.spent();
        account.word = account.word.withSpent(slot.amount());
        amount = units * _pools[pool].rate;
        address operator = Stakes(stakes).operatorOf(node);
        emit Claimed(pool, node, units, amount);
        _send(operator, amount);
    }

    /// @notice Burns the pay of an accepted file that had not vested when its node was slashed. Anyone may call after
    /// its challenge window.
    function forfeit(uint256 pool, uint256 sequence, FileData calldata file) external nonReentrant {
        uint256 slot = _checked(pool, sequence, FileSlot.inner(pool, sequence, file), file.node);
        uint256 account = _account(pool, file.node).word;
        bool lost = account.slashed() && slot.finalAt() > account.barrier();
        if (!lost || slot & FileSlot.CUMULATIVE == 0 || slot.phase() == FileSlot.DISPUTED) {
            revert WrongPhase(sequence, slot.phase());
        }
        // until its time it can be disputed or opened as a canary, and the seats that accepted it are liable
        if (slot.phase() == FileSlot.SETTLED && block.timestamp < slot.finalAt()) revert NotYet(slot.finalAt());
        _files[FileSlot.idOf(pool, sequence)] = slot.ended(file.units, slot.finalAt(), slot.code());
        uint256 amount;
        if (Codes.isPaid(slot.code())) {
            amount = uint256(file.units) * _pools[pool].rate;
        } else {
            // its pay went back to the pool when it was overturned
            account = account.withSpent(account.spent() - file.units);
        }
        _account(pool, file.node).word = account.withEarned(account.earned() - file.units);
        emit FileForfeited(pool, file.node, sequence, amount);
        _send(SINK, amount); // an owner that got it back would gain from every slashed node
    }

    /// @dev A file that is finally not paid: the budget gets back what nobody is paid, and its node's stake pays the
    /// rest. A rejected file costs a share of the stake and the membership, and bars unvested pay since `barredAt`; a
    /// malformed one costs a fixed amount. Both pay their committee's fees back to the budget. A canary, which is its
    /// owner's, does not. `frozen`: the file counts as a frozen one in its node's account. `order` has the juries' fees,
    /// the reward and the collector.
    function _charge(
        uint256 pool,
        uint256 sequence,
        address node,
        uint256 code,
        uint256 units,
        uint256 barredAt,
        bool frozen,
        Stakes.Slash memory order
    ) private returns (uint256 rewardPaid) {
        Intake storage intake = _pools[pool];
        uint256 account = _account(pool, node).word.unsettledLess();
        bool rejected = Codes.isReject(code);
        bool malformed = code == Codes.MALFORMED;
        if (rejected || malformed) order.fees += intake.fees;
        if (rejected) (order.bps, order.rewardBps) = (slashBps, rewardBps);
        else order.amount = order.fees + (malformed ? malformedPenalty : 0);
        order.kept = account.unsettled() * intake.fees;
        // the slash before the freeze ends, which would forget since when unvested pay is barred
        if (rejected) account = account.slashedAt(barredAt);
        if (frozen) account = account.frozenLess();
        _account(pool, node).word = account;
        uint256 back = units * intake.rate;
        uint256 taken;
        if (order.bps + order.amount != 0) {
            uint256 left;
            uint256 feesPaid;
            uint256 home;
            (taken, feesPaid, rewardPaid, left, home) = Stakes(stakes).slash(node, order);
            back += feesPaid;
            // the node may be in another pool by now, whose limit follows the stake too
            if (rejected && home == pool) _unbind(pool, node);
            else if (home != 0) _relimit(home, node, left);
        } else {
            Stakes(stakes).release(node);
        }
        _credit(pool, back);
        emit FileFinalized(FileSlot.knownId(pool, sequence), code, taken);
    }

    /// @dev Refunds never exceed what was once deposited; a budget at its cap burns nothing, it only stays in escrow.
    function _credit(uint256 pool, uint256 amount) private {
        _pools[pool].free = uint64(Math.min(_pools[pool].free + amount, type(uint64).max));
    }

    // ---- Views

    function poolOf(uint256 pool) external view returns (Intake memory, Desk memory) {
        return (_pools[pool], _desks[pool]);
    }

    function ownerOf(uint256 pool) external view returns (address) {
        return _desks[pool].owner;
    }

    /// @notice A node's account, in one word (`AccountSlot`).
    function accountOf(uint256 pool, address node) external view returns (uint256) {
        return _account(pool, node).word;
    }

    /// @notice A file's own word (`FileSlot`), zero where it has none.
    function wordOf(uint256 pool, uint256 sequence) external view returns (uint256) {
        return _files[FileSlot.idOf(pool, sequence)];
    }

    /// @notice A seat's fees that are not withdrawn yet.
    function feesOf(uint256 seat) public view returns (uint256) {
        return _fees[seat] < 2 ? 0 : _fees[seat] - 1;
    }

    function canaryRootOf(uint256 pool, uint256 step) external view returns (bytes32) {
        return _steps[pool][step].canaryRoot;
    }

    // ---- Shared checks

    function _account(uint256 pool, address node) private view returns (Word storage) {
        if (pool >> 24 != 0) revert NoSuchPool(); // it would stand for another
        return _accounts[(pool << 160) | uint160(node)];
    }

    /// @dev The file's slot, after checking that `inner` and `node` are what it binds.
    function _checked(uint256 pool, uint256 sequence, bytes32 inner, address node) private view returns (uint256 slot) {
        slot = _files[FileSlot.idOf(pool, sequence)];
        if (slot.phase() == 0 || slot.digest() != FileSlot.digest(inner, node)) revert WrongFile(sequence);
    }

    /// @dev The word at a file's place of its settled lane, after checking that these are the lane's words.
    function _wordIn(uint256 id, uint256[] calldata words) private view returns (uint256) {
        bool bound = keccak256(abi.encodePacked(words)) == _lanes[id >> 4];
        if (!bound || words.length <= id & 15) revert WrongFile(uint32(id));
        return words[id & 15];
    }

    /// @dev A submission's slot in the phase that a call needs, after checking that `file` is what it binds.
    function _inPhase(uint256 pool, uint256 sequence, FileData calldata file, uint256 phase)
        private
        view
        returns (uint256 slot)
    {
        slot = _checked(pool, sequence, FileSlot.inner(pool, sequence, file), file.node);
        if (slot.phase() != phase) revert WrongPhase(sequence, slot.phase());
    }
}
