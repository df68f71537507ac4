// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICourt} from "./interfaces/ICourt.sol";
import {IJuries} from "./interfaces/IJuries.sol";
import {IParams} from "./interfaces/IParams.sol";
import {ISeats} from "./interfaces/ISeats.sol";
import {Codes} from "./libraries/Codes.sol";
import {Epochs} from "./libraries/Epochs.sol";
import {JuryTerms} from "./libraries/JuryTerms.sol";
import {SuiteLib} from "./libraries/SuiteLib.sol";
import {Tally} from "./libraries/Tally.sol";
import {PoolTerms, Suite} from "./libraries/Types.sol";
import {Voting} from "./libraries/Voting.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @title Juries
/// @notice Juries that judge single cases for a bench: summoning, the draw, hidden votes, replacement and pay.
contract Juries is IJuries, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    bytes32 public constant SEED_TAG = keccak256("muster/jury-seed/1");

    struct Trial {
        address bench;
        uint8 size;
        uint8 code;
        bool concluded;
        uint40 fee;
        uint32 commitWindow;
        // next word
        bool replacement;
        bool discharged;
        uint32 revealWindow;
        uint32 seedBlock;
        uint32 time;
        uint16 committed;
        uint16 revealed;
        uint16 closed;
        uint24 pool;
        uint32 sequence;
        uint40 feePaid;
        // next word
        address excludedOwner;
        uint64 seed;
        uint32 group;
        // next words
        uint16[] seats;
        uint256[] excluded;
    }

    IERC20 public immutable token;
    IParams public immutable params;
    ISeats public immutable seats;
    ICourt public immutable court;
    address public immutable appeals;
    address public immutable canaries;
    address public immutable nodeChallenges;
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
        court = ICourt(suite.court);
        appeals = suite.appeals;
        canaries = suite.canaries;
        nodeChallenges = suite.nodeChallenges;
        epochBlocks = ISeats(suite.seats).epochBlocks();
    }

    // ---- A bench summons and dismisses

    /// @inheritdoc IJuries
    function summon(
        uint256 pool,
        uint256 sequence,
        uint256 files,
        uint256 size,
        uint256[] calldata excluded,
        address excludedOwner
    ) external returns (uint256 trial) {
        if (msg.sender != appeals && msg.sender != canaries && msg.sender != nodeChallenges) revert NotBench();
        PoolTerms memory terms = court.termsOf(pool);
        trial = ++trialCount;
        Trial storage trial_ = _trials[trial];
        trial_.bench = msg.sender;
        trial_.size = uint8(size);
        trial_.fee = JuryTerms.fee(terms, files);
        trial_.group = terms.group;
        trial_.commitWindow = JuryTerms.commitWindow(terms, files);
        trial_.revealWindow = terms.juryRevealWindow;
        trial_.pool = uint24(pool); // whose terms there are: no number is larger
        trial_.sequence = uint32(sequence);
        trial_.excludedOwner = excludedOwner;
        trial_.excluded = excluded;
        _call(trial, trial_);
    }

    /// @inheritdoc IJuries
    function replace(uint256 trial) external onlyBench(trial) returns (uint256 next) {
        Trial storage old = _trials[trial];
        if (old.concluded) revert AlreadyConcluded();
        old.concluded = true;
        emit JuryConcluded(trial, Codes.NONE, 0);
        if (old.replacement || old.time == 0) return 0;
        next = ++trialCount;
        Trial storage trial_ = _trials[next];
        (trial_.bench, trial_.size, trial_.fee, trial_.replacement) = (old.bench, old.size, old.fee, true);
        (trial_.commitWindow, trial_.revealWindow, trial_.pool, trial_.sequence) =
        (old.commitWindow, old.revealWindow, old.pool, old.sequence);
        (trial_.group, trial_.excludedOwner, trial_.excluded) = (old.group, old.excludedOwner, old.excluded);
        emit JuryReplaced(trial, next);
        _call(next, trial_);
    }

    /// @inheritdoc IJuries
    function discharge(uint256 trial) external onlyBench(trial) returns (uint256 used) {
        Trial storage trial_ = _trials[trial];
        if (trial_.concluded) revert AlreadyConcluded();
        (trial_.concluded, trial_.discharged, trial_.feePaid) = (true, true, trial_.fee);
        for (uint256 i = 0; i < trial_.seats.length; ++i) {
            if (trial_.revealed & (1 << i) != 0) used += trial_.fee;
        }
        emit JuryDischarged(trial);
        emit JuryConcluded(trial, Codes.NONE, trial_.fee);
    }

    /// @inheritdoc IJuries
    function conclude(uint256 trial, uint256 code, uint256 funds) external onlyBench(trial) returns (uint256 used) {
        Trial storage trial_ = _trials[trial];
        if (trial_.concluded) revert AlreadyConcluded();
        trial_.concluded = true;
        trial_.code = uint8(code);
        uint256 right = _matching(trial, trial_, code);
        uint256 each = right == 0 ? 0 : funds / right;
        if (each > trial_.fee) each = trial_.fee;
        trial_.feePaid = uint40(each);
        used = each * right;
        emit JuryConcluded(trial, code, each);
    }

    /// @dev The seed is the next but one block's hash; nobody knows it yet.
    function _call(uint256 trial, Trial storage trial_) private {
        trial_.seedBlock = uint32(block.number + 2);
        emit JurySummoned(trial, trial_.pool, trial_.sequence, trial_.size, trial_.seedBlock);
    }

    // ---- Draw

    /// @inheritdoc IJuries
    function draw(uint256 trial) external {
        if (_trials[trial].time != 0) revert AlreadyDrawn();
        _draw(trial);
    }

    function _draw(uint256 trial) private {
        (uint256[] memory jurors, bytes32 seed, uint256 seedBlock) = _drawn(trial);
        Trial storage trial_ = _trials[trial];
        trial_.time = uint32(block.timestamp);
        trial_.seed = uint64(uint256(seed));
        for (uint256 i = 0; i < jurors.length; ++i) {
            trial_.seats.push(uint16(jurors[i]));
            seats.freeze(jurors[i]);
        }
        emit JuryDrawn(trial, seedBlock, seed, jurors);
    }

    function _drawn(uint256 trial) private view returns (uint256[] memory jurors, bytes32 seed, uint256 seedBlock) {
        Trial storage trial_ = _trials[trial];
        if (trial_.size == 0) revert NoSuchTrial();
        seedBlock = trial_.seedBlock;
        if (Epochs.over(seedBlock, epochBlocks, block.number)) revert Lapsed();
        bytes32 hash = block.number > seedBlock ? Epochs.hashOf(seedBlock) : bytes32(0);
        if (hash == 0) revert SeedNotMined(seedBlock);
        hash = keccak256(abi.encode(SEED_TAG, hash, trial));
        seed = bytes32(uint256(uint64(uint256(hash))));
        jurors =
            seats.draw(hash, seedBlock / epochBlocks, trial_.group, trial_.size, trial_.excluded, trial_.excludedOwner);
        if (jurors.length < trial_.size) revert TooFewSeats(jurors.length);
    }

    // ---- Votes

    /// @inheritdoc IJuries
    function commit(uint256 trial, uint256 juror, bytes32 commitment) public {
        Trial storage trial_ = _trials[trial];
        if (trial_.time == 0) _draw(trial);
        if (trial_.concluded) revert AlreadyConcluded();
        uint256 seat = _onlyVoter(trial_, juror);
        Voting.checkCommit(_body(trial_), juror);
        if (commitment == 0) revert EmptyCommitment();
        trial_.committed |= uint16(1 << juror);
        _ballots[(trial << 4) | juror] = commitment;
        emit JurorCommitted(trial, seat, juror, commitment);
    }

    /// @inheritdoc IJuries
    function reveal(uint256 trial, uint256 juror, uint256 code, bytes32 verdictHash, bytes32 salt) public {
        Trial storage trial_ = _trials[trial];
        if (trial_.time == 0) revert NotDrawn();
        if (trial_.concluded) revert AlreadyConcluded();
        Voting.checkReveal(_body(trial_), juror);
        if (!Codes.isVote(code)) revert BadCode();
        if (_ballots[(trial << 4) | juror] != ballotHash(trial, msg.sender, code, verdictHash, salt)) {
            revert WrongReveal();
        }
        trial_.revealed |= uint16(1 << juror);
        _ballots[(trial << 4) | juror] = bytes32(code);
        emit JurorRevealed(trial, trial_.seats[juror], juror, code, verdictHash);
    }

    /// @inheritdoc IJuries
    function vote(uint256 trial, uint256 juror, uint256 code, bytes32 verdictHash, bytes32 salt) external {
        commit(trial, juror, ballotHash(trial, msg.sender, code, verdictHash, salt));
        reveal(trial, juror, code, verdictHash, salt);
    }

    /// @inheritdoc IJuries
    function ballotHash(uint256 trial, address voter, uint256 code, bytes32 verdictHash, bytes32 salt)
        public
        view
        returns (bytes32)
    {
        return keccak256(abi.encode(block.chainid, address(this), trial, voter, code, verdictHash, salt));
    }

    function _onlyVoter(Trial storage trial_, uint256 juror) private view returns (uint256 seat) {
        if (juror >= trial_.seats.length) revert NotVoter();
        seat = trial_.seats[juror];
        if (seats.voterOf(seat) != msg.sender) revert NotVoter();
    }

    function _body(Trial storage trial_) private view returns (Voting.Body memory) {
        return Voting.Body(
            trial_.size, trial_.committed, trial_.revealed, trial_.time, trial_.commitWindow, trial_.revealWindow
        );
    }

    // ---- Pay

    /// @inheritdoc IJuries
    function closeJuror(uint256 trial, uint256 juror) external nonReentrant {
        Trial storage trial_ = _trials[trial];
        if (!trial_.concluded) revert NotConcluded();
        if (juror >= trial_.seats.length || trial_.closed & (1 << juror) != 0) revert AlreadyClosed();
        trial_.closed |= uint16(1 << juror);
        uint256 seat = trial_.seats[juror];
        seats.release(seat);
        (uint256 paid, uint256 penalty) = _due(trial, trial_, juror);
        if (penalty != 0) penalty = seats.collect(seat, penalty, msg.sender);
        emit JurorClosed(trial, seat, paid, penalty);
        if (paid != 0) token.safeTransfer(seats.ownerOf(seat), paid);
    }

    /// @dev What a juror of a concluded case is paid and owes.
    function _due(uint256 trial, Trial storage trial_, uint256 juror)
        private
        view
        returns (uint256 paid, uint256 penalty)
    {
        bool revealed = trial_.revealed & (1 << juror) != 0;
        if (trial_.discharged) return (revealed ? trial_.feePaid : 0, 0);
        if (!revealed) return (0, _penalty(trial_, params.valuesAt(trial_.time).withheldPenalty));
        uint256 voted = _vote(trial, trial_, juror);
        // a case without majority, or dismissed because the file could not be had, blames nobody
        if (trial_.code != Codes.NONE && Codes.kind(voted) == Codes.kind(trial_.code)) return (trial_.feePaid, 0);
        if (!Codes.contradict(voted, trial_.code)) return (0, 0);
        return (0, _penalty(trial_, params.valuesAt(trial_.time).minorityPenalty));
    }

    /// @dev As many times that of one file as the fee is: or the larger a case is, the more would a blind vote pay.
    function _penalty(Trial storage trial_, uint256 ofOneFile) private view returns (uint256) {
        return ofOneFile * trial_.fee / court.termsOf(trial_.pool).juryFee;
    }

    // ---- Views

    /// @inheritdoc IJuries
    function caseOf(uint256 trial) external view returns (Case memory case_) {
        Trial storage trial_ = _trials[trial];
        case_.bench = trial_.bench;
        case_.pool = trial_.pool;
        case_.sequence = trial_.sequence;
        case_.size = trial_.size;
        case_.fee = trial_.fee;
        case_.commitWindow = trial_.commitWindow;
        case_.revealWindow = trial_.revealWindow;
        case_.time = trial_.time;
        case_.committed = trial_.committed;
        case_.revealed = trial_.revealed;
        case_.closed = trial_.closed;
        case_.concluded = trial_.concluded;
        case_.code = trial_.code;
        if (trial_.time == 0) {
            case_.seedBlock = trial_.seedBlock;
        } else {
            case_.seats = _seats(trial_);
            case_.commitUntil = uint256(trial_.time) + trial_.commitWindow;
            case_.revealUntil = case_.commitUntil + trial_.revealWindow;
        }
    }

    /// @inheritdoc IJuries
    function juryOf(uint256 trial)
        external
        view
        returns (uint256[] memory jurors, address[] memory voters, bytes32 seed, bool drawn)
    {
        Trial storage trial_ = _trials[trial];
        drawn = trial_.time != 0;
        if (drawn) (jurors, seed) = (_seats(trial_), bytes32(uint256(trial_.seed)));
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
        Trial storage trial_ = _trials[trial];
        // Never drawn, and no longer to be drawn: a later seed would be a second try for whoever waited.
        if (trial_.time == 0) {
            return (trial_.size != 0 && Epochs.over(trial_.seedBlock, epochBlocks, block.number), Codes.NONE);
        }
        if (block.timestamp < Voting.countableFrom(_body(trial_))) return (false, Codes.NONE);
        uint256[] memory votes = new uint256[](trial_.size);
        for (uint256 i = 0; i < trial_.size; ++i) {
            votes[i] = _vote(trial, trial_, i);
        }
        code = Tally.outcome(votes, 0, trial_.size);
        return (true, code == Codes.UNDECIDED ? Codes.NONE : code);
    }

    /// @inheritdoc IJuries
    function votesOf(uint256 trial) external view returns (uint256[] memory votes) {
        Trial storage trial_ = _trials[trial];
        votes = new uint256[](trial_.seats.length);
        for (uint256 i = 0; i < votes.length; ++i) {
            votes[i] = _vote(trial, trial_, i);
        }
    }

    /// @inheritdoc IJuries
    function costOf(uint256 trial, uint256 code) external view returns (uint256) {
        Trial storage trial_ = _trials[trial];
        return _matching(trial, trial_, code) * trial_.fee;
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

    /// @dev Jurors who voted the kind of `code`.
    function _matching(uint256 trial, Trial storage trial_, uint256 code) private view returns (uint256 count) {
        uint256 kind = Codes.kind(code);
        if (kind == Codes.KIND_NONE) return 0;
        for (uint256 i = 0; i < trial_.seats.length; ++i) {
            if (Codes.kind(_vote(trial, trial_, i)) == kind) ++count;
        }
    }

    function _vote(uint256 trial, Trial storage trial_, uint256 juror) private view returns (uint256) {
        return trial_.revealed & (1 << juror) != 0 ? uint256(_ballots[(trial << 4) | juror]) : Codes.NONE;
    }

    function _seats(Trial storage trial_) private view returns (uint256[] memory out) {
        out = new uint256[](trial_.seats.length);
        for (uint256 i = 0; i < out.length; ++i) {
            out[i] = trial_.seats[i];
        }
    }
}
