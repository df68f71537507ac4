// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Trials} from "./court/Trials.sol";
import {IJuries} from "./interfaces/IJuries.sol";
import {IParams} from "./interfaces/IParams.sol";
import {Codes} from "./libraries/Codes.sol";
import {JuryTerms} from "./libraries/JuryTerms.sol";
import {PoolTerms, Suite} from "./libraries/Types.sol";
import {Voting} from "./libraries/Voting.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @title Juries
/// @notice Summoning, hidden votes, replacement and pay of juries.
contract Juries is Trials, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    IERC20 public immutable token;
    IParams public immutable params;
    address public immutable appeals;
    address public immutable canaries;
    address public immutable nodeCases;

    modifier onlyBench(uint256 trial) {
        if (msg.sender != _trials[trial].bench) revert NotBench();
        _;
    }

    constructor(Suite memory suite) Trials(suite) {
        token = IERC20(suite.token);
        params = IParams(suite.params);
        appeals = suite.appeals;
        canaries = suite.canaries;
        nodeCases = suite.nodeCases;
    }

    /// @inheritdoc IJuries
    function summon(
        uint256 pool,
        uint256 sequence,
        uint256 files,
        uint256 size,
        uint256[] calldata excluded,
        address excludedOwner
    ) external returns (uint256 trial) {
        if (msg.sender != appeals && msg.sender != canaries && msg.sender != nodeCases) revert NotBench();
        PoolTerms memory terms = court.termsOf(pool);
        trial = ++trialCount;
        Trial storage trial_ = _trials[trial];
        trial_.bench = msg.sender;
        trial_.size = uint8(size);
        trial_.fee = JuryTerms.fee(terms, files);
        trial_.class = terms.class;
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
        (trial_.class, trial_.excludedOwner, trial_.excluded) = (old.class, old.excludedOwner, old.excluded);
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
    function draw(uint256 trial) external {
        if (_trials[trial].time != 0) revert AlreadyDrawn();
        _draw(trial);
    }

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

    /// @dev The seed is the next but one block's hash; nobody knows it yet.
    function _call(uint256 trial, Trial storage trial_) private {
        trial_.seedBlock = uint32(block.number + 2);
        emit JurySummoned(trial, trial_.pool, trial_.sequence, trial_.size, trial_.seedBlock);
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

    function _onlyVoter(Trial storage trial_, uint256 juror) private view returns (uint256 seat) {
        if (juror >= trial_.seats.length) revert NotVoter();
        seat = trial_.seats[juror];
        if (seats.voterOf(seat) != msg.sender) revert NotVoter();
    }
}
