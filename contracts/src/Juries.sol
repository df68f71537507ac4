// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJuries} from "./interfaces/IJuries.sol";
import {IParams} from "./interfaces/IParams.sol";
import {ISeats} from "./interfaces/ISeats.sol";
import {Codes} from "./libraries/Codes.sol";
import {Epochs} from "./libraries/Epochs.sol";
import {SuiteLib} from "./libraries/SuiteLib.sol";
import {Tally} from "./libraries/Tally.sol";
import {Suite} from "./libraries/Types.sol";
import {Voting} from "./libraries/Voting.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @title Juries
contract Juries is IJuries, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    bytes32 public constant SEED_TAG = keccak256("muster/jury-seed/1");

    struct Trial {
        address bench;
        uint8 size;
        uint8 code;
        bool concluded;
        uint32 fee;
        uint32 commitWindow;
        bool replacement;
        bool discharged;
        // next word
        uint32 revealWindow;
        uint32 seedBlock;
        uint32 time;
        uint16 committed;
        uint16 revealed;
        uint16 closed;
        uint32 pool;
        uint32 sequence;
        uint32 feePaid;
        // next word
        address excludedOwner;
        uint64 seed;
        // next words
        uint16[] seats;
        uint256[] excluded;
    }

    IERC20 public immutable token;
    IParams public immutable params;
    ISeats public immutable seats;
    address public immutable appeals;
    address public immutable canaries;
    uint256 public immutable epochBlocks;

    /// @inheritdoc IJuries
    uint256 public trialCount;
    mapping(uint256 trial => Trial) private _trials;
    /// By trial << 4 | juror: the commitment, then the revealed code.
    mapping(uint256 key => bytes32) private _ballots;

    modifier onlyBench(uint256 trial) {
        if (msg.sender != _trials[trial].bench) revert NotBench();
        _;
    }

    constructor(Suite memory suite) {
        SuiteLib.checkPlace(suite.juries);
        token = IERC20(suite.token);
        params = IParams(suite.params);
        seats = ISeats(suite.seats);
        appeals = suite.appeals;
        canaries = suite.canaries;
        epochBlocks = ISeats(suite.seats).epochBlocks();
    }

    /// @inheritdoc IJuries
    function summon(
        uint256 pool,
        uint256 sequence,
        uint256 size,
        uint256 fee,
        uint256 commitWindow,
        uint256 revealWindow,
        uint256[] calldata excluded,
        address excludedOwner
    ) external returns (uint256 trial) {
        if (msg.sender != appeals && msg.sender != canaries) revert NotBench();
        trial = ++trialCount;
        Trial storage t = _trials[trial];
        t.bench = msg.sender;
        t.size = uint8(size);
        t.fee = uint32(fee);
        t.commitWindow = uint32(commitWindow);
        t.revealWindow = uint32(revealWindow);
        t.pool = uint32(pool);
        t.sequence = uint32(sequence);
        t.excludedOwner = excludedOwner;
        t.excluded = excluded;
        _call(trial, t);
    }

    /// @inheritdoc IJuries
    function replace(uint256 trial) external onlyBench(trial) returns (uint256 next) {
        Trial storage old = _trials[trial];
        if (old.concluded) revert AlreadyConcluded();
        old.concluded = true;
        emit JuryConcluded(trial, Codes.NONE, 0);
        if (old.replacement || old.time == 0) return 0;
        next = ++trialCount;
        Trial storage t = _trials[next];
        (t.bench, t.size, t.fee, t.replacement) = (old.bench, old.size, old.fee, true);
        (t.commitWindow, t.revealWindow, t.pool, t.sequence) =
        (old.commitWindow, old.revealWindow, old.pool, old.sequence);
        (t.excludedOwner, t.excluded) = (old.excludedOwner, old.excluded);
        emit JuryReplaced(trial, next);
        _call(next, t);
    }

    /// @inheritdoc IJuries
    function discharge(uint256 trial) external onlyBench(trial) returns (uint256 used) {
        Trial storage t = _trials[trial];
        if (t.concluded) revert AlreadyConcluded();
        (t.concluded, t.discharged, t.feePaid) = (true, true, t.fee);
        for (uint256 i = 0; i < t.seats.length; ++i) {
            if (t.revealed & (1 << i) != 0) used += t.fee;
        }
        emit JuryDischarged(trial);
        emit JuryConcluded(trial, Codes.NONE, t.fee);
    }

    /// @inheritdoc IJuries
    function draw(uint256 trial) external {
        if (_trials[trial].time != 0) revert AlreadyDrawn();
        _draw(trial);
    }

    /// @inheritdoc IJuries
    function commit(uint256 trial, uint256 juror, bytes32 commitment) external {
        Trial storage t = _trials[trial];
        if (t.time == 0) _draw(trial);
        if (t.concluded) revert AlreadyConcluded();
        uint256 seat = _onlyVoter(t, juror);
        Voting.checkCommit(_body(t), juror, commitment);
        t.committed |= uint16(1 << juror);
        _ballots[(trial << 4) | juror] = commitment;
        emit JurorCommitted(trial, seat, juror, commitment);
    }

    /// @inheritdoc IJuries
    function reveal(uint256 trial, uint256 juror, uint256 code, bytes32 verdictHash, bytes32 salt) external {
        Trial storage t = _trials[trial];
        if (t.time == 0) revert NotDrawn();
        if (t.concluded) revert AlreadyConcluded();
        Voting.checkReveal(_body(t), juror);
        if (!Codes.isVote(code)) revert BadCode();
        if (_ballots[(trial << 4) | juror] != ballotHash(trial, msg.sender, code, verdictHash, salt)) {
            revert WrongReveal();
        }
        t.revealed |= uint16(1 << juror);
        _ballots[(trial << 4) | juror] = bytes32(code);
        emit JurorRevealed(trial, t.seats[juror], juror, code, verdictHash);
    }

    /// @inheritdoc IJuries
    function conclude(uint256 trial, uint256 code, uint256 funds) external onlyBench(trial) returns (uint256 used) {
        Trial storage t = _trials[trial];
        if (t.concluded) revert AlreadyConcluded();
        t.concluded = true;
        t.code = uint8(code);
        uint256 right = _matching(trial, t, code);
        uint256 each = right == 0 ? 0 : funds / right;
        if (each > t.fee) each = t.fee;
        t.feePaid = uint32(each);
        used = each * right;
        emit JuryConcluded(trial, code, each);
    }

    /// @inheritdoc IJuries
    function closeJuror(uint256 trial, uint256 juror) external nonReentrant {
        Trial storage t = _trials[trial];
        if (!t.concluded) revert NotConcluded();
        if (juror >= t.seats.length || t.closed & (1 << juror) != 0) revert AlreadyClosed();
        t.closed |= uint16(1 << juror);
        uint256 seat = t.seats[juror];
        seats.release(seat);
        (uint256 paid, uint256 penalty) = _due(trial, t, juror);
        if (penalty != 0) penalty = seats.collect(seat, penalty, msg.sender);
        emit JurorClosed(trial, seat, paid, penalty);
        if (paid != 0) token.safeTransfer(seats.ownerOf(seat), paid);
    }

    /// @inheritdoc IJuries
    function caseOf(uint256 trial) external view returns (Case memory c) {
        Trial storage t = _trials[trial];
        c.bench = t.bench;
        c.pool = t.pool;
        c.sequence = t.sequence;
        c.size = t.size;
        c.fee = t.fee;
        c.commitWindow = t.commitWindow;
        c.revealWindow = t.revealWindow;
        c.time = t.time;
        c.committed = t.committed;
        c.revealed = t.revealed;
        c.closed = t.closed;
        c.concluded = t.concluded;
        c.code = t.code;
        if (t.time == 0) {
            c.seedBlock = t.seedBlock;
        } else {
            c.seats = _seats(t);
            c.commitUntil = uint256(t.time) + t.commitWindow;
            c.revealUntil = c.commitUntil + t.revealWindow;
        }
    }

    /// @inheritdoc IJuries
    function juryOf(uint256 trial)
        external
        view
        returns (uint256[] memory jurors, address[] memory voters, bytes32 seed, bool drawn)
    {
        Trial storage t = _trials[trial];
        drawn = t.time != 0;
        if (drawn) (jurors, seed) = (_seats(t), bytes32(uint256(t.seed)));
        else (jurors, seed,) = _drawn(trial);
        voters = new address[](jurors.length);
        for (uint256 i = 0; i < jurors.length; ++i) {
            voters[i] = seats.voterOf(jurors[i]);
        }
    }

    /// @inheritdoc IJuries
    function seatsOf(uint256 trial) external view returns (uint256[] memory) {
        return _seats(_trials[trial]);
    }

    /// @inheritdoc IJuries
    function verdictOf(uint256 trial) public view returns (bool done, uint256 code) {
        Trial storage t = _trials[trial];
        // Never drawn, and no longer to be drawn: a later seed would be a second try for whoever waited.
        if (t.time == 0) return (t.size != 0 && Epochs.over(t.seedBlock, epochBlocks, block.number), Codes.NONE);
        if (block.timestamp < Voting.countableFrom(_body(t))) return (false, Codes.NONE);
        uint256[] memory votes = new uint256[](t.size);
        for (uint256 i = 0; i < t.size; ++i) {
            votes[i] = _vote(trial, t, i);
        }
        code = Tally.outcome(votes, 0, t.size);
        return (true, code == Codes.UNDECIDED ? Codes.NONE : code);
    }

    /// @inheritdoc IJuries
    function votesOf(uint256 trial) external view returns (uint256[] memory votes) {
        Trial storage t = _trials[trial];
        votes = new uint256[](t.seats.length);
        for (uint256 i = 0; i < votes.length; ++i) {
            votes[i] = _vote(trial, t, i);
        }
    }

    /// @inheritdoc IJuries
    function costOf(uint256 trial, uint256 code) external view returns (uint256) {
        Trial storage t = _trials[trial];
        return _matching(trial, t, code) * t.fee;
    }

    /// @inheritdoc IJuries
    function ballotOf(uint256 trial, uint256 juror)
        external
        view
        returns (bytes32 commitment, uint256 code, bool revealed)
    {
        bytes32 ballot = _ballots[(trial << 4) | juror];
        revealed = _trials[trial].revealed & (1 << juror) != 0;
        if (revealed) code = uint256(ballot);
        else commitment = ballot;
    }

    /// @inheritdoc IJuries
    function ballotHash(uint256 trial, address voter, uint256 code, bytes32 verdictHash, bytes32 salt)
        public
        view
        returns (bytes32)
    {
        return keccak256(abi.encode(block.chainid, address(this), trial, voter, code, verdictHash, salt));
    }

    function _draw(uint256 trial) private {
        (uint256[] memory jurors, bytes32 seed, uint256 seedBlock) = _drawn(trial);
        Trial storage t = _trials[trial];
        t.time = uint32(block.timestamp);
        t.seed = uint64(uint256(seed));
        for (uint256 i = 0; i < jurors.length; ++i) {
            t.seats.push(uint16(jurors[i]));
            seats.freeze(jurors[i]);
        }
        emit JuryDrawn(trial, seedBlock, seed, jurors);
    }

    function _drawn(uint256 trial) private view returns (uint256[] memory jurors, bytes32 seed, uint256 seedBlock) {
        Trial storage t = _trials[trial];
        if (t.size == 0) revert NoSuchTrial();
        seedBlock = t.seedBlock;
        if (Epochs.over(seedBlock, epochBlocks, block.number)) revert Lapsed();
        bytes32 hash = block.number > seedBlock ? Epochs.hashOf(seedBlock) : bytes32(0);
        if (hash == 0) revert SeedNotMined(seedBlock);
        hash = keccak256(abi.encode(SEED_TAG, hash, trial));
        seed = bytes32(uint256(uint64(uint256(hash))));
        jurors = seats.draw(hash, seedBlock / epochBlocks, t.size, t.excluded, t.excludedOwner);
        if (jurors.length < t.size) revert TooFewSeats(jurors.length);
    }

    /// @dev The seed is the next but one block's hash; nobody knows it yet.
    function _call(uint256 trial, Trial storage t) private {
        t.seedBlock = uint32(block.number + 2);
        emit JurySummoned(trial, t.pool, t.sequence, t.size, t.seedBlock);
    }

    /// @dev What a juror of a concluded case is paid and owes.
    function _due(uint256 trial, Trial storage t, uint256 juror) private view returns (uint256 paid, uint256 penalty) {
        bool revealed = t.revealed & (1 << juror) != 0;
        if (t.discharged) return (revealed ? t.feePaid : 0, 0);
        if (!revealed) return (0, params.valuesAt(t.time).withheldPenalty);
        uint256 vote = _vote(trial, t, juror);
        // a case without majority, or dismissed because the file could not be had, blames nobody
        if (t.code != Codes.NONE && Codes.kind(vote) == Codes.kind(t.code)) return (t.feePaid, 0);
        return (0, Codes.contradict(vote, t.code) ? params.valuesAt(t.time).minorityPenalty : 0);
    }

    /// @dev Jurors who voted the kind of `code`.
    function _matching(uint256 trial, Trial storage t, uint256 code) private view returns (uint256 count) {
        uint256 kind = Codes.kind(code);
        if (kind == Codes.KIND_NONE) return 0;
        for (uint256 i = 0; i < t.seats.length; ++i) {
            if (Codes.kind(_vote(trial, t, i)) == kind) ++count;
        }
    }

    function _body(Trial storage t) private view returns (Voting.Body memory) {
        return Voting.Body(t.size, t.committed, t.revealed, t.time, t.commitWindow, t.revealWindow);
    }

    function _vote(uint256 trial, Trial storage t, uint256 juror) private view returns (uint256) {
        return t.revealed & (1 << juror) != 0 ? uint256(_ballots[(trial << 4) | juror]) : Codes.NONE;
    }

    function _onlyVoter(Trial storage t, uint256 juror) private view returns (uint256 seat) {
        if (juror >= t.seats.length) revert NotVoter();
        seat = t.seats[juror];
        if (seats.voterOf(seat) != msg.sender) revert NotVoter();
    }

    function _seats(Trial storage t) private view returns (uint256[] memory out) {
        out = new uint256[](t.seats.length);
        for (uint256 i = 0; i < out.length; ++i) {
            out[i] = t.seats[i];
        }
    }
}
