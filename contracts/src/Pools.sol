// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICourt} from "./interfaces/ICourt.sol";
import {IParams} from "./interfaces/IParams.sol";
import {IPools} from "./interfaces/IPools.sol";
import {ISeats} from "./interfaces/ISeats.sol";
import {IStakes} from "./interfaces/IStakes.sol";
import {AccountSlot} from "./libraries/AccountSlot.sol";
import {Charging} from "./libraries/Charging.sol";
import {Codes} from "./libraries/Codes.sol";
import {FileId} from "./libraries/FileId.sol";
import {FileSlot} from "./libraries/FileSlot.sol";
import {PackedWork} from "./libraries/PackedWork.sol";
import {PoolSlot} from "./libraries/PoolSlot.sol";
import {SuiteLib} from "./libraries/SuiteLib.sol";
import {TermsLib} from "./libraries/TermsLib.sol";
import {TypedData} from "./libraries/TypedData.sol";
import {FileData, FileRef, PoolTerms, Receipt, Suite, Work} from "./libraries/Types.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Hashes} from "@openzeppelin/contracts/utils/cryptography/Hashes.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";

/// @title Pools
/// @notice Pools with escrowed budgets, the accounts of their nodes, and every submission from its arrival to its last
/// payment.
contract Pools is IPools, ReentrancyGuardTransient {
    using AccountSlot for uint256;
    using FileSlot for uint256;
    using PoolSlot for uint256;
    using SafeERC20 for IERC20;

    /// @dev One packed word; a struct, so that the hot path can keep a pointer to it.
    struct Word {
        uint256 word;
    }

    struct Desk {
        address owner;
        uint32 seedBlock;
        /// When it became what its status says: open (again), paused, closing.
        uint32 since;
        // next word: what is needed here of the terms
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

    bytes32 public constant INVITE_TYPEHASH = keccak256("Invite(uint256 pool,address node,uint256 expiry)");
    uint256 private constant FRESH = FileSlot.PENDING << 248;

    IERC20 public immutable token;
    IParams private immutable params;
    IStakes private immutable stakes;
    ISeats private immutable seats;
    ICourt private immutable court;
    address private immutable appeals;
    address private immutable canaries;
    address private immutable nodeChallenges;

    /// @inheritdoc IPools
    uint256 public poolCount;
    mapping(uint256 pool => Word) private _pools;
    mapping(uint256 pool => Desk) private _desks;
    mapping(uint256 pool => mapping(uint256 step => Step)) private _steps;
    /// By pool << 160 | node.
    mapping(uint256 member => Word) private _accounts;
    /// By FileId.
    mapping(uint256 id => uint256 slot) private _files;

    modifier onlyOwner(uint256 pool) {
        _checkOwner(pool);
        _;
    }

    modifier onlyCourt() {
        _checkSender(address(court), address(court));
        _;
    }

    modifier onlyBench() {
        _checkSender(appeals, canaries);
        _;
    }

    modifier onlyNodeChallenges() {
        _checkSender(nodeChallenges, nodeChallenges);
        _;
    }

    modifier onlyCases() {
        _checkSender(appeals, nodeChallenges);
        _;
    }

    constructor(Suite memory suite) {
        SuiteLib.checkPlace(suite.pools);
        token = IERC20(suite.token);
        params = IParams(suite.params);
        stakes = IStakes(suite.stakes);
        seats = ISeats(suite.seats);
        court = ICourt(suite.court);
        appeals = suite.appeals;
        canaries = suite.canaries;
        nodeChallenges = suite.nodeChallenges;
    }

    // ---- A pool: created, funded, stepped, paused, closed, settled

    /// @inheritdoc IPools
    function createPool(PoolTerms memory terms, uint256 budget) external nonReentrant returns (uint256 pool) {
        if (params.paused()) revert Paused();
        uint256 unbonding = params.checkTerms(terms);
        if (budget > PoolSlot.MAX_FREE) revert AmountTooLarge();
        // the same seats may judge all of a lane's files wrongly
        uint256 pay = 16 * uint256(terms.maxUnits) * terms.rate;
        uint256 bonds = (terms.committee / 2 + 1) * seats.minBond();
        if (pay > bonds) revert PayAboveBonds(pay, bonds);

        pool = ++poolCount;
        if (pool > type(uint24).max) revert AmountTooLarge();
        if (terms.group == 0) terms.group = uint32(pool);
        _pools[pool].word = PoolSlot.pack(
                terms.rate,
                terms.fee,
                terms.maxUnits,
                terms.laneBlocks,
                terms.maxLag,
                terms.committee,
                uint256(Status.Open)
            ).withFree(budget);
        _desks[pool] = Desk({
            owner: msg.sender,
            seedBlock: 0,
            since: 0,
            unbonding: uint32(unbonding),
            minStake: terms.minStake,
            leverage: terms.leverage,
            challengeWindow: terms.challengeWindow,
            receiptWindow: terms.receiptWindow,
            inviteOnly: terms.inviteOnly
        });
        emit PoolCreated(pool, msg.sender, terms.configHash, terms, unbonding);
        emit PoolFunded(pool, msg.sender, budget);
        court.registerPool(pool, terms);
        _review(pool);
        token.safeTransferFrom(msg.sender, address(this), budget);
    }

    /// @inheritdoc IPools
    function fund(uint256 pool, uint256 amount) external nonReentrant {
        uint256 state = _pools[pool].word;
        if (state.status() == uint256(Status.None)) revert NoSuchPool();
        uint256 free = state.free() + amount;
        if (free > PoolSlot.MAX_FREE) revert AmountTooLarge();
        _pools[pool].word = state.withFree(free);
        emit PoolFunded(pool, msg.sender, amount);
        token.safeTransferFrom(msg.sender, address(this), amount);
    }

    /// @inheritdoc IPools
    function publishStep(uint256 pool, uint256 step, bytes32 manifestHash, bytes32 canaryRoot)
        external
        onlyOwner(pool)
    {
        _onlyRunning(pool);
        uint256 state = _pools[pool].word;
        uint256 steps = state.steps();
        if (step != steps) revert StepMismatch(steps, step);
        if (steps == PoolSlot.MAX_STEPS) revert AmountTooLarge();
        _pools[pool].word = state.withSteps(steps + 1);
        uint256 seedBlock = block.number + 1;
        _desks[pool].seedBlock = uint32(seedBlock);
        _steps[pool][step] = Step(canaryRoot, uint40(block.timestamp));
        emit StepPublished(pool, step, manifestHash, canaryRoot, seedBlock);
        if (state.status() != uint256(Status.Paused)) _review(pool);
    }

    /// @inheritdoc IPools
    function reviewSeats(uint256 pool) external {
        uint256 status = _onlyRunning(pool);
        if (status == uint256(Status.Paused)) revert WrongStatus(Status.Paused);
        _review(pool);
    }

    /// @inheritdoc IPools
    function pausePool(uint256 pool) external onlyOwner(pool) {
        uint256 status = _onlyRunning(pool);
        if (status == uint256(Status.Paused)) revert WrongStatus(Status.Paused);
        _setStatus(pool, Status.Paused);
    }

    /// @inheritdoc IPools
    function resumePool(uint256 pool) external onlyOwner(pool) {
        uint256 status = _pools[pool].word.status();
        if (status != uint256(Status.Paused)) revert WrongStatus(Status(status));
        _review(pool);
    }

    /// @inheritdoc IPools
    function closePool(uint256 pool) external onlyOwner(pool) {
        _onlyRunning(pool);
        _setStatus(pool, Status.Closing);
    }

    /// @inheritdoc IPools
    function settlePool(uint256 pool) external onlyOwner(pool) nonReentrant returns (uint256 amount) {
        uint256 state = _pools[pool].word;
        uint256 status = state.status();
        if (status != uint256(Status.Closing) && status != uint256(Status.Settled)) revert WrongStatus(Status(status));
        uint256 settleAt = uint256(_desks[pool].since) + _desks[pool].unbonding;
        if (block.timestamp < settleAt) revert NotYet(settleAt);
        amount = state.free();
        _pools[pool].word = state.withFree(0).withStatus(uint256(Status.Settled));
        if (status == uint256(Status.Closing)) emit StatusSet(pool, Status.Settled);
        emit LeftoverTaken(pool, msg.sender, amount);
        token.safeTransfer(msg.sender, amount);
    }

    /// @dev Open when the pool's group has enough seats, else understaffed.
    function _review(uint256 pool) private {
        _setStatus(pool, court.staffed(pool) ? Status.Open : Status.Understaffed);
    }

    function _setStatus(uint256 pool, Status to) private {
        uint256 state = _pools[pool].word;
        if (state.status() == uint256(to)) return;
        _pools[pool].word = state.withStatus(uint256(to));
        _desks[pool].since = uint32(block.timestamp);
        emit StatusSet(pool, to);
    }

    /// @dev Open, understaffed or paused.
    function _onlyRunning(uint256 pool) private view returns (uint256 status) {
        status = _pools[pool].word.status();
        if (
            status != uint256(Status.Open) && status != uint256(Status.Understaffed) && status != uint256(Status.Paused)
        ) {
            revert WrongStatus(Status(status));
        }
    }

    // ---- A node: joined, left, removed

    /// @inheritdoc IPools
    function join(uint256 pool, address node) external {
        if (_desks[pool].inviteOnly) revert InviteRequired();
        _join(pool, node);
    }

    /// @inheritdoc IPools
    function joinWithInvite(uint256 pool, address node, uint256 expiry, bytes calldata invite) external {
        if (block.timestamp > expiry) revert InviteExpired();
        bytes32 digest = inviteDigest(pool, node, expiry);
        if (!SignatureChecker.isValidSignatureNowCalldata(_desks[pool].owner, digest, invite)) revert BadInvite();
        _join(pool, node);
    }

    /// @inheritdoc IPools
    function leavePool(uint256 pool, address node) external {
        uint256 account = _accounts[_member(pool, node)].word;
        if (account.limit() == 0) revert NotMember();
        _onlyNode(node, stakes.operatorOf(node));
        _accounts[_member(pool, node)].word = account.withLimit(0);
        emit NodeLeft(pool, node, false);
        stakes.unbind(node, block.timestamp + _desks[pool].unbonding);
    }

    /// @inheritdoc IPools
    function removeNode(uint256 pool, address node) external onlyOwner(pool) {
        uint256 account = _accounts[_member(pool, node)].word;
        if (account.removed()) revert Removed();
        bool member = account.limit() != 0;
        _accounts[_member(pool, node)].word = (member ? account.withLimit(0) : account) | AccountSlot.REMOVED;
        emit NodeLeft(pool, node, true);
        if (member) stakes.unbind(node, block.timestamp + _desks[pool].unbonding);
    }

    /// @inheritdoc IPools
    function refresh(uint256 pool, address node) external {
        uint256 account = _accounts[_member(pool, node)].word;
        if (account.limit() == 0) revert NotMember();
        uint256 limit = _limit(pool, _pools[pool].word, stakes.stakeOf(node));
        _accounts[_member(pool, node)].word = account.withLimit(limit);
        emit LimitSet(pool, node, limit);
    }

    /// @inheritdoc IPools
    function expel(uint256 pool, address node) external onlyNodeChallenges {
        uint256 account = _accounts[_member(pool, node)].word;
        _accounts[_member(pool, node)].word = account.slashedAt(block.timestamp);
        emit NodeExpelled(pool, node);
        if (account.limit() != 0) stakes.unbind(node, block.timestamp + _desks[pool].unbonding);
    }

    /// @inheritdoc IPools
    function inviteDigest(uint256 pool, address node, uint256 expiry) public view returns (bytes32) {
        bytes32 hash = keccak256(abi.encode(INVITE_TYPEHASH, pool, node, expiry));
        return TypedData.digest(keccak256("muster-pools"), address(this), hash);
    }

    function _join(uint256 pool, address node) private {
        uint256 p = _pools[pool].word;
        if (p.status() != uint256(Status.Open) && p.status() != uint256(Status.Understaffed)) {
            revert WrongStatus(Status(p.status()));
        }
        if (params.paused()) revert Paused();
        uint256 first = _accounts[_member(pool, node)].word;
        if (first.removed() || first.slashed()) revert Removed();
        if (first.limit() != 0) revert AlreadyMember();
        (address operator, uint256 stake) = stakes.bind(node, pool, _desks[pool].minStake);
        _onlyNode(node, operator);
        uint256 limit = _limit(pool, p, stake);
        // Only steps whose seed block is later than the join: nobody can pick an address that has easy problems.
        uint256 steps = p.steps();
        uint256 step = steps != 0 && block.number < _desks[pool].seedBlock ? steps - 1 : steps;
        _accounts[_member(pool, node)].word = first.withLimit(limit).withJoinedStep(step);
        emit NodeJoined(pool, node, operator, step, limit);
    }

    /// @dev Of a node that may be no member any more: its limit, out of the stake that is still locked here, and the
    /// last time at which it was one.
    function _lockedLimit(uint256 pool, uint256 state, uint256 account)
        private
        view
        returns (uint256 limit, uint256 last)
    {
        limit = account.limit();
        if (limit != 0) return (limit, block.timestamp);
        IStakes.Node memory node = stakes.nodeOf(msg.sender);
        Desk storage desk = _desks[pool];
        bool locked = node.pool == 0 && node.lastPool == pool && node.stake >= desk.minStake;
        if (!locked || account.slashed()) revert NotMember();
        return (_limit(pool, state, node.stake), node.releaseAt - desk.unbonding);
    }

    /// @dev A member whose stake shrank: its limit follows; below the pool's least stake it is no member any more.
    function _relimit(uint256 pool, address node, uint256 stake) private returns (bool stays) {
        stays = stake >= _desks[pool].minStake;
        uint256 limit = stays ? _limit(pool, _pools[pool].word, stake) : 0;
        _accounts[_member(pool, node)].word = _accounts[_member(pool, node)].word.withLimit(limit);
        if (stays) emit LimitSet(pool, node, limit);
        else emit NodeLeft(pool, node, false);
    }

    /// @dev A node that went to another pool before this one was done with it: the stake under that membership shrank.
    function _relimitElsewhere(address node, uint256 stake) private {
        uint256 other = stakes.nodeOf(node).pool;
        if (other == 0 || _relimit(other, node, stake)) return;
        stakes.unbind(node, block.timestamp + _desks[other].unbonding);
    }

    /// @dev Units that may be under way or unclaimed at once: never none, as the least stake allows one.
    function _limit(uint256 pool, uint256 state, uint256 stake) private view returns (uint256 limit) {
        limit = stake * _desks[pool].leverage / state.rate();
        if (limit > AccountSlot.MAX_34) limit = AccountSlot.MAX_34;
    }

    function _onlyNode(address node, address operator) private view {
        if (msg.sender != node && msg.sender != operator) revert NotOperatorOrNode();
    }

    // ---- A submission comes in

    /// @inheritdoc IPools
    function submit(Work calldata work) external returns (uint256 sequence) {
        uint256 pool = PackedWork.pool(work.packed);
        Word storage poolWord = _pools[pool];
        Word storage accountWord = _accounts[_member(pool, msg.sender)];
        uint256 state = poolWord.word;
        uint256 account = accountWord.word;
        _onlyOpen(state);
        (state, account, sequence) = _place(state, account, account.limit(), state.maxLag(), pool, work, FRESH);
        poolWord.word = state;
        accountWord.word = account;
    }

    /// @inheritdoc IPools
    function submitMany(Work[] calldata works) external returns (uint256 firstSequence, uint256 lastSequence) {
        if (works.length == 0 || works.length > 16) revert BadCount();
        uint256 pool = PackedWork.pool(works[0].packed);
        uint256 state = _pools[pool].word;
        uint256 account = _accounts[_member(pool, msg.sender)].word;
        _onlyOpen(state);
        for (uint256 i = 0; i < works.length; ++i) {
            (state, account, lastSequence) =
                _place(state, account, account.limit(), state.maxLag(), pool, works[i], FRESH);
            if (i == 0) firstSequence = lastSequence;
        }
        _pools[pool].word = state;
        _accounts[_member(pool, msg.sender)].word = account;
    }

    /// @inheritdoc IPools
    function submitWithReceipt(Work calldata work, Receipt calldata receipt) external returns (uint256 sequence) {
        uint256 pool = PackedWork.pool(work.packed);
        uint256 state = _pools[pool].word;
        uint256 account = _accounts[_member(pool, msg.sender)].word;
        court.checkReceipt(pool, msg.sender, work.fileHash, receipt);
        (uint256 limit, uint256 last) = _lockedLimit(pool, state, account);
        uint256 first = block.timestamp - _desks[pool].receiptWindow;
        last = _lastInTime(pool, state, PackedWork.step(work.packed), last);
        if (receipt.time < first || receipt.time > last) revert ReceiptOutOfTime(first, last);
        (state, account, sequence) =
            _place(state, account, limit, PoolSlot.MAX_STEPS, pool, work, FRESH | FileSlot.ATTESTED);
        _pools[pool].word = state;
        _accounts[_member(pool, msg.sender)].word = account;
        emit ReceiptPresented(FileId.pack(pool, sequence));
    }

    /// @inheritdoc IPools
    function announceMirror(uint256 pool, uint256 sequence, string calldata uri) external {
        emit MirrorAnnounced(pool, sequence, msg.sender, uri);
    }

    function _onlyOpen(uint256 state) private pure {
        if (state.status() != uint256(Status.Open)) revert WrongStatus(Status(state.status()));
    }

    /// @dev The last time, at most `last`, at which nothing but the node itself spoke against work for `step`.
    function _lastInTime(uint256 pool, uint256 state, uint256 step, uint256 last) private view returns (uint256) {
        uint256 status = state.status();
        if (status == uint256(Status.Settled)) revert WrongStatus(Status.Settled);
        if (status != uint256(Status.Open) && _desks[pool].since < last) last = _desks[pool].since;
        uint256 newer = step + state.maxLag() + 1;
        if (newer >= state.steps()) return last;
        uint256 published = _steps[pool][newer].publishedAt;
        return published < last ? published : last;
    }

    /// @dev One file: next place, limits, reservation, storage, event. Returns the words of pool and account to write.
    /// @param fresh Phase and flags of its slot.
    function _place(
        uint256 state,
        uint256 account,
        uint256 limit,
        uint256 maxLag,
        uint256 pool,
        Work calldata work,
        uint256 fresh
    ) private returns (uint256, uint256, uint256 sequence) {
        uint256 packed = work.packed;
        uint256 units = PackedWork.units(packed);
        _mayWork(state, account, packed ^ (pool << 128), maxLag);
        unchecked {
            if (account.open() + units > limit) {
                if (limit == 0) revert NotMember();
                revert OverLimit(account.open() + units, limit);
            }
            uint256 cost = Charging.reserved(units, state);
            if (cost > state.free()) revert EscrowExhausted(cost, state.free());
            state -= cost;

            sequence = state.sequence();
            uint256 start = state.laneStart();
            if (block.number > start + state.laneBlocks()) sequence = (sequence + 15) & ~uint256(15);
            if (sequence & 15 == 0) start = block.number;
            if (sequence >= PoolSlot.MAX_SEQUENCE) revert AmountTooLarge();
            state = state.withLane(sequence + 1, start);
        }
        bytes32 root = work.root;
        bytes32 fileHash = work.fileHash;
        uint256 placed = PackedWork.placed(packed, sequence);
        uint256 digest = _digest(_inner(root, fileHash, placed), msg.sender);
        _files[PackedWork.id(placed)] = FileSlot.pack(digest, units, block.number, 0, 0) | fresh;
        emit WorkSubmitted(msg.sender, placed, root, fileHash);
        return (state, account.submitted(units), sequence);
    }

    /// @dev What a node says of its file, against its account and its pool's steps. `packed` is without the pool: what
    /// is left above the step, of another pool or a sequence of the node's own, makes it a step that nobody published.
    function _mayWork(uint256 state, uint256 account, uint256 packed, uint256 maxLag) private pure {
        unchecked {
            uint256 counter = PackedWork.counter(packed);
            if (account.counter() != counter) revert CounterMismatch(counter, account.counter());
            if (account.underWay() >= TermsLib.MAX_UNSETTLED) {
                if (account.frozen() != 0) revert NodeIsFrozen();
                revert TooManyUnsettled(TermsLib.MAX_UNSETTLED);
            }
            uint256 step = packed >> 64;
            // of a step that is not published yet it wraps
            uint256 lag = state.steps() - 1 - step;
            if (lag > maxLag) revert StepOutOfRange(step, account.joinedStep(), state.steps());
            if (step < account.joinedStep()) revert StepOutOfRange(step, account.joinedStep(), state.steps());
            if (PackedWork.units(packed) - 1 >= state.maxUnits()) {
                revert BadUnits(PackedWork.units(packed), state.maxUnits()); // 0 wraps
            }
            if (PackedWork.rows(packed) == 0) revert BadRows();
            if (counter == AccountSlot.MAX_COUNTER) revert AmountTooLarge();
        }
    }

    // ---- Its committee settles it

    /// @inheritdoc IPools
    function settleLane(
        uint256 pool,
        uint256 lane,
        uint256 round,
        uint256 codes,
        uint256 rounds,
        uint256 window,
        FileRef[] calldata files
    ) external onlyCourt {
        uint256 state = _pools[pool].word;
        uint256 back;
        uint256 sequence = lane << 4;
        if (files.length == 0 || files.length > 16) revert BadCount();
        uint256 next = sequence + files.length;
        if (files.length < 16 && state.sequence() != next && _files[FileId.checked(pool, next)] != 0) {
            revert BadCount();
        }
        for (uint256 i = 0; i < files.length; ++i) {
            uint256 code = Codes.get(codes, i);
            if (code == Codes.NONE && round == 0) code = Codes.LATE;
            if (code == Codes.NONE || code == Codes.UNDECIDED) continue;
            uint256 units = _settle(pool, sequence + i, files[i], code, window);
            back += code == Codes.LATE ? Charging.reserved(units, state) : Charging.undrawn(rounds, state);
        }
        if (back != 0) _pools[pool].word = _credit(state, back);
    }

    /// @inheritdoc IPools
    function payFees(uint256 pool, address to, uint256 paid, uint256 burnt) external onlyCourt nonReentrant {
        emit FeePaid(pool, to, paid, burnt);
        if (paid != 0) token.safeTransfer(to, paid);
        _burn(burnt);
    }

    /// @dev A pending file gets its committee's outcome.
    function _settle(uint256 pool, uint256 sequence, FileRef calldata file, uint256 code, uint256 window)
        private
        returns (uint256 units)
    {
        address node = file.node;
        uint256 slot = _checked(pool, sequence, file.inner, node);
        if (slot.phase() != FileSlot.PENDING) revert WrongPhase(sequence, Phase(slot.phase()));
        units = slot.amount();
        uint256 account = _accounts[_member(pool, node)].word;
        account = account.withPending(account.pending() - units);
        uint256 time = block.timestamp + window;
        uint256 amount = units;
        uint256 flags;
        if (Codes.isPaid(code)) {
            amount = account.earned() + units;
            account = account.withEarned(amount).unsettledLess();
            flags = FileSlot.CUMULATIVE;
        } else if (code == Codes.LATE) {
            time = block.timestamp; // nothing can be said against it
        } else if (Codes.isReject(code)) {
            account = account.frozenMore(block.timestamp);
            flags = FileSlot.FROZEN;
        }
        _accounts[_member(pool, node)].word = account;
        _files[FileId.checked(pool, sequence)] =
            FileSlot.pack(slot.digest(), amount, time, code, FileSlot.SETTLED) | flags;
        emit FileSettled(FileId.pack(pool, sequence), code, time);
        // what it will cost cannot leave before it is collected
        if (!Codes.isPaid(code)) stakes.freeze(node);
    }

    // ---- A dispute holds and resolves it

    /// @inheritdoc IPools
    function hold(uint256 pool, uint256 sequence, FileData calldata file) external onlyBench returns (uint256 code) {
        uint256 slot = _inPhase(pool, sequence, file, FileSlot.SETTLED);
        if (block.timestamp >= slot.finalAt()) revert WindowOver(slot.finalAt());
        code = slot.code();
        _files[FileId.checked(pool, sequence)] = slot.withPhase(FileSlot.DISPUTED);
        emit FileDisputed(pool, file.node, sequence);
        if (!Codes.isPaid(code)) return code; // its stake is frozen already
        uint256 account = _accounts[_member(pool, file.node)].word;
        _accounts[_member(pool, file.node)].word = account.withSpent(account.spent() + file.units).unsettledMore();
        stakes.freeze(file.node);
    }

    /// @inheritdoc IPools
    function freezeHeld(uint256 pool, uint256 sequence, FileData calldata file) external onlyBench {
        uint256 slot = _inPhase(pool, sequence, file, FileSlot.DISPUTED);
        if (slot & FileSlot.FROZEN != 0) return;
        _files[FileId.checked(pool, sequence)] = slot | FileSlot.FROZEN;
        _accounts[_member(pool, file.node)].word = _accounts[_member(pool, file.node)].word.frozenMore(block.timestamp);
        emit NodeFrozen(pool, file.node, block.timestamp);
    }

    /// @inheritdoc IPools
    function resolve(
        uint256 pool,
        uint256 sequence,
        FileData calldata file,
        uint256 code,
        uint256 reward,
        uint256 juryFees
    ) external onlyBench returns (uint256 rewardPaid) {
        uint256 slot = _inPhase(pool, sequence, file, FileSlot.DISPUTED);
        bool frozen = slot & FileSlot.FROZEN != 0;
        if (Codes.isPaid(code)) {
            _restore(pool, sequence, file, slot, code);
            if (frozen) _thaw(pool, file.node);
            stakes.release(file.node);
            return 0;
        }
        _files[FileId.checked(pool, sequence)] =
            slot.ended(slot.amount(), slot.finalAt(), code) | (slot & FileSlot.CUMULATIVE);
        emit FileResolved(pool, file.node, sequence, code, slot.finalAt());
        uint256 settledAt = slot.finalAt() - _desks[pool].challengeWindow;
        // a node that was frozen when the committee rejected it was so since then; an overturned payment slashes now
        uint256 barredAt = Codes.isPaid(slot.code()) ? block.timestamp : settledAt;
        return _charge(
            pool,
            sequence,
            file.node,
            Charging.Unpaid(code, file.units, settledAt, barredAt, frozen, reward, juryFees, address(0))
        );
    }

    /// @inheritdoc IPools
    function payJury(uint256 pool, uint256 amount) external onlyCases nonReentrant returns (uint256 paid) {
        uint256 state = _pools[pool].word;
        paid = amount < state.free() ? amount : state.free();
        if (paid == 0) return 0;
        _pools[pool].word = state.withFree(state.free() - paid);
        emit JuryPaid(pool, msg.sender, paid);
        token.safeTransfer(msg.sender, paid);
    }

    /// @dev A held file is paid after all: at its own time, or at that of work settled now; vesting never goes back.
    function _restore(uint256 pool, uint256 sequence, FileData calldata file, uint256 slot, uint256 code) private {
        uint256 account = _accounts[_member(pool, file.node)].word.unsettledLess();
        uint256 amount = slot.amount();
        uint256 time = slot.finalAt();
        if (Codes.isPaid(slot.code())) {
            account = account.withSpent(account.spent() - file.units);
        } else {
            amount = account.earned() + file.units;
            account = account.withEarned(amount);
            time = block.timestamp + _desks[pool].challengeWindow;
        }
        _accounts[_member(pool, file.node)].word = account;
        _files[FileId.checked(pool, sequence)] = slot.ended(amount, time, code) | FileSlot.CUMULATIVE;
        emit FileResolved(pool, file.node, sequence, code, time);
    }

    // ---- It becomes final: paid, charged or forfeited

    /// @inheritdoc IPools
    function finalize(uint256 pool, uint256 sequence, FileRef calldata file) external {
        uint256 slot = _checked(pool, sequence, file.inner, file.node);
        uint256 code = slot.code();
        if (slot.phase() != FileSlot.SETTLED || Codes.isPaid(code)) {
            revert WrongPhase(sequence, Phase(slot.phase()));
        }
        uint256 time = slot.finalAt();
        if (block.timestamp < time) revert NotYet(time);
        _files[FileId.checked(pool, sequence)] = slot.withPhase(FileSlot.FINAL) & ~FileSlot.FROZEN;
        if (code != Codes.LATE) time -= _desks[pool].challengeWindow;
        bool frozen = slot & FileSlot.FROZEN != 0;
        _charge(pool, sequence, file.node, Charging.Unpaid(code, slot.amount(), time, time, frozen, 0, 0, msg.sender));
    }

    /// @inheritdoc IPools
    function claim(uint256 pool, address node, uint256 sequence, bytes32 inner)
        external
        nonReentrant
        returns (uint256 amount)
    {
        uint256 account = _accounts[_member(pool, node)].word;
        uint256 slot = _checked(pool, sequence, inner, node);
        if (slot & FileSlot.CUMULATIVE == 0) revert NothingToClaim();
        if (block.timestamp < slot.finalAt()) revert NotYet(slot.finalAt());
        uint256 barrier = account.barrier();
        if (barrier != 0 && slot.finalAt() > barrier) revert IsFrozen(barrier);
        if (slot.amount() <= account.spent()) revert NothingToClaim();
        uint256 units = slot.amount() - account.spent();
        _accounts[_member(pool, node)].word = account.withSpent(slot.amount());
        amount = units * _pools[pool].word.rate();
        address operator = stakes.operatorOf(node);
        emit Claimed(pool, node, units, amount);
        token.safeTransfer(operator, amount);
    }

    /// @inheritdoc IPools
    function forfeit(uint256 pool, uint256 sequence, FileData calldata file) external nonReentrant {
        uint256 slot = _checked(pool, sequence, innerHash(pool, sequence, file), file.node);
        uint256 account = _accounts[_member(pool, file.node)].word;
        bool lost = account.slashed() && slot.finalAt() > account.barrier();
        if (!lost || slot & FileSlot.CUMULATIVE == 0 || slot.phase() == FileSlot.DISPUTED) {
            revert WrongPhase(sequence, Phase(slot.phase()));
        }
        // until then the seats that accepted it are liable: it can be disputed, or opened as a canary
        if (slot.phase() == FileSlot.SETTLED && block.timestamp < slot.finalAt()) revert NotYet(slot.finalAt());
        _files[FileId.checked(pool, sequence)] = slot.ended(file.units, slot.finalAt(), slot.code());
        uint256 amount;
        if (Codes.isPaid(slot.code())) {
            amount = file.units * _pools[pool].word.rate();
        } else {
            // its pay went back to the pool when it was overturned
            account = account.withSpent(account.spent() - file.units);
        }
        _accounts[_member(pool, file.node)].word = account.withEarned(account.earned() - file.units);
        emit FileForfeited(pool, file.node, sequence, amount);
        _burn(amount); // whose owner could have it back would gain by every node that is slashed
    }

    /// @dev A file that is finally not paid: the budget gets back what nobody is paid; its node's stake pays the rest.
    function _charge(uint256 pool, uint256 sequence, address node, Charging.Unpaid memory unpaid)
        private
        returns (uint256 rewardPaid)
    {
        uint256 state = _pools[pool].word;
        uint256 account = _accounts[_member(pool, node)].word.unsettledLess();
        uint256 taken;
        IStakes.Slash memory order = _order(pool, state, unpaid);
        order.kept = account.unsettled() * state.fees();
        bool member = account.limit() != 0;
        if (!member) order.minStake = 0; // whether it stays in another pool is that one's matter
        // the slash before the freeze ends, which would forget since when unvested pay is barred
        bool rejected = Codes.isReject(unpaid.code);
        if (rejected) account = account.slashedAt(unpaid.barredAt);
        if (unpaid.frozen) account = account.frozenLess();
        if (!rejected && unpaid.frozen && account.frozen() == 0) emit NodeReleased(pool, node);
        _accounts[_member(pool, node)].word = account;
        // what was late was refunded at once
        uint256 back = unpaid.code == Codes.LATE ? 0 : unpaid.units * state.rate();
        if (order.bps + order.amount != 0) {
            uint256 left;
            uint256 feesPaid;
            (taken, feesPaid, rewardPaid, left) = stakes.slash(node, order);
            back += feesPaid;
            if (account.limit() != 0) _relimit(pool, node, left);
            else if (!member) _relimitElsewhere(node, left);
        } else {
            stakes.release(node);
        }
        // The budget's word is read again: the token may have called back.
        _pools[pool].word = _credit(_pools[pool].word, back);
        emit FileFinalized(FileId.pack(pool, sequence), unpaid.code, taken);
    }

    function _order(uint256 pool, uint256 state, Charging.Unpaid memory unpaid)
        private
        view
        returns (IStakes.Slash memory order)
    {
        (uint256 bps, uint256 rewardBps, uint256 malformed) = params.slashing(unpaid.settledAt);
        Desk storage desk = _desks[pool];
        order = Charging.order(unpaid, state, bps, rewardBps, malformed, desk.minStake);
        order.lockedUntil = block.timestamp + desk.unbonding;
    }

    /// @dev One frozen file less.
    function _thaw(uint256 pool, address node) private {
        uint256 account = _accounts[_member(pool, node)].word.frozenLess();
        _accounts[_member(pool, node)].word = account;
        if (account.frozen() == 0) emit NodeReleased(pool, node);
    }

    /// @dev Refunds never exceed what was once deposited; a budget at its cap burns nothing, it only stays in escrow.
    function _credit(uint256 state, uint256 amount) private pure returns (uint256) {
        uint256 free = state.free() + amount;
        return state.withFree(free < PoolSlot.MAX_FREE ? free : PoolSlot.MAX_FREE);
    }

    function _burn(uint256 amount) private {
        if (amount != 0) token.safeTransfer(SuiteLib.SINK, amount);
    }

    // ---- Views

    /// @inheritdoc IPools
    function poolOf(uint256 pool) external view returns (Pool memory) {
        uint256 state = _pools[pool].word;
        Desk memory desk = _desks[pool];
        bool closed = state.status() == uint256(Status.Closing) || state.status() == uint256(Status.Settled);
        return Pool({
            owner: desk.owner,
            status: Status(state.status()),
            free: state.free(),
            steps: state.steps(),
            sequence: state.sequence(),
            laneStart: state.laneStart(),
            seedBlock: desk.seedBlock,
            unbonding: desk.unbonding,
            settleAt: closed ? uint256(desk.since) + desk.unbonding : 0
        });
    }

    /// @inheritdoc IPools
    function ownerOf(uint256 pool) external view returns (address) {
        return _desks[pool].owner;
    }

    /// @inheritdoc IPools
    function accountOf(uint256 pool, address node) external view returns (Account memory) {
        uint256 account = _accounts[_member(pool, node)].word;
        return Account({
            earned: account.earned(),
            spent: account.spent(),
            pending: account.pending(),
            limit: account.limit(),
            counter: account.counter(),
            joinedStep: account.joinedStep(),
            barrier: account.barrier(),
            frozen: account.frozen(),
            slashed: account.slashed(),
            removed: account.removed(),
            unsettled: account.unsettled()
        });
    }

    /// @inheritdoc IPools
    function submissionOf(uint256 pool, uint256 sequence) external view returns (Submission memory) {
        uint256 slot = _files[FileId.checked(pool, sequence)];
        bool pending = slot.phase() == FileSlot.PENDING;
        bool cumulative = slot & FileSlot.CUMULATIVE != 0;
        return Submission({
            digest: bytes20(slot.digest()),
            phase: Phase(slot.phase()),
            code: slot.code(),
            units: cumulative ? 0 : slot.amount(),
            earned: cumulative ? slot.amount() : 0,
            submittedAt: pending ? slot.submittedAt() : 0,
            finalAt: pending ? 0 : slot.finalAt()
        });
    }

    /// @inheritdoc IPools
    function claimable(uint256 pool, address node, uint256 sequence)
        external
        view
        returns (uint256 units, uint256 amount)
    {
        uint256 account = _accounts[_member(pool, node)].word;
        uint256 slot = _files[FileId.checked(pool, sequence)];
        uint256 barrier = account.barrier();
        bool vested = block.timestamp >= slot.finalAt() && (barrier == 0 || slot.finalAt() <= barrier);
        if (slot & FileSlot.CUMULATIVE != 0 && vested && slot.amount() > account.spent()) {
            units = slot.amount() - account.spent();
        }
        amount = units * _pools[pool].word.rate();
    }

    /// @inheritdoc IPools
    function canaryRootOf(uint256 pool, uint256 step) external view returns (bytes32) {
        return _steps[pool][step].canaryRoot;
    }

    /// @inheritdoc IPools
    function laneOf(uint256 pool, uint256 lane) public view returns (uint256 start, uint256 end, uint256 files) {
        uint256 id = FileId.checked(pool, lane << 4);
        uint256 state = _pools[pool].word;
        files = _filled(state, id);
        uint256 first = _files[id];
        if (first.phase() != FileSlot.PENDING) return (0, 0, files);
        start = first.submittedAt();
        end = start + state.laneBlocks();
        if (files < 16) return (start, end, files);
        uint256 last = _files[id | 15].submittedAt();
        if (last < end) end = last;
    }

    /// @inheritdoc IPools
    function presentedIn(uint256 pool, uint256 lane, uint256 known)
        external
        view
        returns (uint256 end, uint256 files, uint256 places)
    {
        (, end, files) = laneOf(pool, lane);
        bool all = known + 1 == 1 << files;
        for (uint256 place = 0; place < files; ++place) {
            if (_files[FileId.pack(pool, (lane << 4) | place)] & FileSlot.ATTESTED != 0) places |= 1 << place;
            else if (all) break;
        }
    }

    /// @inheritdoc IPools
    function innerHash(uint256 pool, uint256 sequence, FileData calldata file) public pure returns (bytes32) {
        FileId.checked(pool, sequence);
        uint256 packed = PackedWork.pack(pool, file.step, file.counter, file.units, file.rows);
        return _inner(file.root, file.fileHash, PackedWork.placed(packed, sequence));
    }

    /// @inheritdoc IPools
    function digestOf(bytes32 inner, address node) public pure returns (bytes20) {
        return bytes20(uint160(_digest(inner, node)));
    }

    /// @dev How many places of the lane that begins at `id` are taken. They fill in order, and the pool's word counts
    /// those of the newest lane.
    function _filled(uint256 state, uint256 id) private view returns (uint256 files) {
        uint256 next = state.sequence();
        if (next >> 4 == (id & type(uint32).max) >> 4) return next & 15;
        if (_files[id | 15] != 0) return 16;
        for (uint256 half = 8; half != 0; half >>= 1) {
            if (_files[id + files + half - 1] != 0) files += half;
        }
    }

    // ---- Shared checks

    // Modifiers are copied wherever they stand; what they check stands here once.
    function _checkOwner(uint256 pool) private view {
        if (_desks[pool].owner != msg.sender) revert NotOwner();
    }

    function _checkSender(address one, address other) private view {
        if (msg.sender != one && msg.sender != other) revert NotCourt();
    }

    function _member(uint256 pool, address node) private pure returns (uint256) {
        if (pool >> 24 != 0) revert NoSuchPool(); // it would stand for another
        return (pool << 160) | uint160(node);
    }

    /// @dev keccak256(abi.encode(root, fileHash, placed)); every submission pays for it, so the words lie beyond the
    /// free memory pointer, which stays where it is.
    function _inner(bytes32 root, bytes32 fileHash, uint256 placed) private pure returns (bytes32 inner) {
        assembly ("memory-safe") {
            let words := mload(0x40)
            mstore(words, root)
            mstore(add(words, 0x20), fileHash)
            mstore(add(words, 0x40), placed)
            inner := keccak256(words, 0x60)
        }
    }

    function _digest(bytes32 inner, address node) private pure returns (uint256) {
        return uint256(Hashes.efficientKeccak256(inner, bytes32(uint256(uint160(node))))) >> 96;
    }

    /// @dev The file's slot, after checking that `inner` and `node` are what it binds.
    function _checked(uint256 pool, uint256 sequence, bytes32 inner, address node) private view returns (uint256 slot) {
        slot = _files[FileId.checked(pool, sequence)];
        if (slot.phase() == 0 || slot.digest() != _digest(inner, node)) revert WrongFile(sequence);
    }

    /// @dev A submission's slot in the phase that a call needs, after checking that `file` is what it binds.
    function _inPhase(uint256 pool, uint256 sequence, FileData calldata file, uint256 phase)
        private
        view
        returns (uint256 slot)
    {
        slot = _checked(pool, sequence, innerHash(pool, sequence, file), file.node);
        if (slot.phase() != phase) revert WrongPhase(sequence, Phase(slot.phase()));
    }
}
