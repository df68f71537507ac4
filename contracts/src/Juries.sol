// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Trials} from "./court/Trials.sol";
import {IJuries} from "./interfaces/IJuries.sol";
import {IParams} from "./interfaces/IParams.sol";
import {Codes} from "./libraries/Codes.sol";
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

    modifier onlyBench(uint256 trial) {
        if (msg.sender != _trials[trial].bench) revert NotBench();
        _;
    }

    constructor(Suite memory suite) Trials(suite) {
        token = IERC20(suite.token);
        params = IParams(suite.params);
        appeals = suite.appeals;
        canaries = suite.canaries;
    }

    /// @inheritdoc IJuries
    function summon(uint256 pool, uint256 sequence, uint256 size, uint256[] calldata excluded, address excludedOwner)
        external
        returns (uint256 trial)
    {
        if (msg.sender != appeals && msg.sender != canaries) revert NotBench();
        PoolTerms memory terms = court.termsOf(pool);
        trial = ++trialCount;
        Trial storage t = _trials[trial];
        t.bench = msg.sender;
        t.size = uint8(size);
        t.fee = terms.juryFee;
        t.class = terms.class;
        t.commitWindow = terms.juryCommitWindow;
        t.revealWindow = terms.juryRevealWindow;
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
        (t.class, t.excludedOwner, t.excluded) = (old.class, old.excludedOwner, old.excluded);
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
    function commit(uint256 trial, uint256 juror, bytes32 commitment) public {
        Trial storage t = _trials[trial];
        if (t.time == 0) _draw(trial);
        if (t.concluded) revert AlreadyConcluded();
        uint256 seat = _onlyVoter(t, juror);
        Voting.checkCommit(_body(t), juror);
        if (commitment == 0) revert EmptyCommitment();
        t.committed |= uint16(1 << juror);
        _ballots[(trial << 4) | juror] = commitment;
        emit JurorCommitted(trial, seat, juror, commitment);
    }

    /// @inheritdoc IJuries
    function reveal(uint256 trial, uint256 juror, uint256 code, bytes32 verdictHash, bytes32 salt) public {
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
    function vote(uint256 trial, uint256 juror, uint256 code, bytes32 verdictHash, bytes32 salt) external {
        commit(trial, juror, ballotHash(trial, msg.sender, code, verdictHash, salt));
        reveal(trial, juror, code, verdictHash, salt);
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
        uint256 voted = _vote(trial, t, juror);
        // a case without majority, or dismissed because the file could not be had, blames nobody
        if (t.code != Codes.NONE && Codes.kind(voted) == Codes.kind(t.code)) return (t.feePaid, 0);
        return (0, Codes.contradict(voted, t.code) ? params.valuesAt(t.time).minorityPenalty : 0);
    }

    function _onlyVoter(Trial storage t, uint256 juror) private view returns (uint256 seat) {
        if (juror >= t.seats.length) revert NotVoter();
        seat = t.seats[juror];
        if (seats.voterOf(seat) != msg.sender) revert NotVoter();
    }
}
