// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Court} from "./Court.sol";
import {Seats} from "./Seats.sol";
import {SuiteContract} from "./SuiteContract.sol";
import {Codes} from "./libraries/Codes.sol";
import {Reckoning} from "./libraries/Reckoning.sol";
import {AlreadyConcluded, Bounds, NotYet, PoolTerms, Suite} from "./libraries/Types.sol";
import {Voting} from "./libraries/Voting.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @title Juries
/// @notice Juries of up to fifteen seats. A jury judges one file, for a dispute or a canary, or the named files of one
/// node, for a node challenge. Its votes are hidden like a committee's, with one code instead of sixteen. It has
/// exactly the size that it was summoned with, and a verdict (accept, reject or malformed) needs a majority of that
/// size. It is drawn from one seed, by the end of the third epoch after the seed's own, or it lapses. Jurors are frozen
/// in Seats until closed.
///
/// A case has at most two juries. The first has the pool's `jury` seats. If it finds no verdict, a second one of
/// `appealJury` seats judges. If it does, anybody may appeal to the second one within `appealWindow`, whose verdict
/// then is the case's. A pool without `appealJury` has a second jury of the first one's size, to which only node
/// challenges can be appealed.
///
/// The case's verdict judges the jurors of both juries. Who voted its kind is paid the fee. Who contradicts it pays
/// `minorityPenalty`, and `overturnPenalty` besides in a first jury whose verdict it overturned. Who voted
/// `unavailable` pays one fee. In a case without a verdict nobody pays but who kept silent: who judged is paid the fee,
/// and who could not get the bytes a quarter of that for one file.
contract Juries is SuiteContract {
    struct Trial {
        /// Appeals, Canaries or NodeChallenges.
        address bench;
        /// Seats wanted.
        uint8 size;
        /// What its jurors are judged by, once concluded: the case's verdict, or `unavailable` (most could not get the
        /// bytes), or 0.
        uint8 code;
        bool concluded;
        /// A juror's, for all files that it judges.
        uint40 fee;
        uint32 commitWindow;
        // next word
        /// Dropped: nobody is blamed.
        bool discharged;
        uint32 revealWindow;
        uint32 seedBlock;
        /// Time of the draw, 0 before.
        uint32 time;
        /// Bit j: juror j has committed, revealed, was paid or fined.
        uint16 committed;
        uint16 revealed;
        uint16 closed;
        uint24 pool;
        /// The file; of a node challenge the last one that it names.
        uint32 sequence;
        // next word
        address excludedOwner;
        uint64 seed;
        uint32 group;
        // next word
        /// What a juror gets that judged, and one that could not.
        uint40 feePaid;
        uint40 attemptPaid;
        /// The second jury's trial, or 0.
        uint32 next;
        /// End of the time to appeal against this first jury's verdict; 0 before.
        uint40 appealUntil;
        // next word
        /// Who appealed to the second jury, or zero.
        address appellant;
        uint64 deposit;
        // next words
        uint16[] seats;
        uint256[] excluded;
    }

    event JurySummoned(
        uint256 indexed trial, uint256 indexed pool, uint256 indexed sequence, uint256 size, uint256 seedBlock
    );
    event JuryDrawn(uint256 indexed trial, uint256 seedBlock, bytes32 seed, uint256[] seats);
    event JurorCommitted(uint256 indexed trial, uint256 indexed seat, uint256 juror, bytes32 commitment);
    event JurorRevealed(uint256 indexed trial, uint256 indexed seat, uint256 juror, uint256 code, bytes32 verdictHash);
    /// @notice A first jury reached its verdict, which is the case's unless somebody appeals before `appealUntil`.
    event VerdictReached(uint256 indexed trial, uint256 code, uint256 appealUntil);
    /// @notice A first jury found no verdict; the second one has `next` as its trial.
    event JuryReplaced(uint256 indexed trial, uint256 indexed next);
    /// @notice Somebody appealed against the first jury's verdict; the second one has `next` as its trial.
    event Appealed(uint256 indexed trial, uint256 indexed next, address indexed appellant, uint256 deposit);
    /// @notice A juror of an overturned majority lost `amount`.
    event JurorOverturned(uint256 indexed trial, uint256 indexed seat, uint256 amount);
    /// @notice The case was dropped. Jurors who revealed are paid, and nobody is blamed.
    event JuryDischarged(uint256 indexed trial);
    event JuryConcluded(uint256 indexed trial, uint256 code);
    /// @notice Jurors who judged get `fee` each, and those who could not get the bytes `attempt`.
    event JurorsPaid(uint256 indexed trial, uint256 fee, uint256 attempt);
    event JurorClosed(uint256 indexed trial, uint256 indexed seat, uint256 paid, uint256 penalty);

    error NoSuchTrial();
    /// @notice The time to draw the jury is over.
    error Lapsed();
    error BadCode();
    error NotConcluded();
    /// @notice The jury is not done.
    error Undecided();
    error NoAppeal();
    error AppealOver(uint256 time);
    error AlreadyAppealed();

    bytes32 public constant SEED_TAG = keccak256("muster/jury-seed/1");

    uint256 public immutable epochBlocks;

    uint256 public trialCount;
    mapping(uint256 trial => Trial) private _trials;
    /// @notice Of ballot trial << 4 | juror: its commitment, then its code.
    mapping(uint256 ballot => bytes32) public ballotOf;

    modifier onlyBench(uint256 trial) {
        address bench = _trials[trial].bench;
        _onlyFrom(bench, bench);
        _;
    }

    constructor(Suite memory suite) SuiteContract(suite, suite.juries) {
        epochBlocks = Seats(seats).epochBlocks();
    }

    // ---- A case: one jury, and a second one where the first found nothing or somebody appeals

    /// @notice Summons the first jury of a case, of the pool's group and on the pool's terms, to judge `files` files.
    /// Each further file adds a committee's `fee` to `juryFee`, and every sixteen begun add a `commitWindow` to
    /// `juryCommitWindow`.
    function summon(uint256 pool, uint256 sequence, uint256 files, uint256[] calldata excluded, address excludedOwner)
        external
        returns (uint256 trial)
    {
        if (msg.sender != appeals) _onlyFrom(canaries, nodeChallenges);
        PoolTerms memory terms = Court(court).termsOf(pool);
        trial = ++trialCount;
        Trial storage trial_ = _trials[trial];
        trial_.bench = msg.sender;
        trial_.size = terms.jury;
        trial_.fee = uint40(_fee(terms, files));
        trial_.group = terms.group;
        // as a committee, a jury has another window for every lane of further files, but no more than any window may be
        uint256 lanes = (files + 14) / 16;
        uint256 window = Math.min(terms.juryCommitWindow + lanes * terms.commitWindow, Bounds.MAX_WINDOW);
        trial_.commitWindow = uint32(window);
        trial_.revealWindow = terms.juryRevealWindow;
        trial_.pool = uint24(pool); // whose terms there are: no number is larger
        trial_.sequence = uint32(sequence);
        trial_.excludedOwner = excludedOwner;
        trial_.excluded = excluded;
        _call(trial, trial_);
    }

    /// @notice Takes a case on: its second jury is summoned, the time to appeal begins, or it has `ended`. `code` is
    /// the verdict so far; 0 or `unavailable` where there is none.
    function proceed(uint256 trial) external onlyBench(trial) returns (uint256 code, bool ended) {
        Trial storage first = _trials[trial];
        uint256 next = first.next;
        bool done;
        (done, code) = verdictOf(next == 0 ? trial : next);
        if (!done) revert Undecided();
        if (next != 0) return (code, true);
        PoolTerms memory terms = Court(court).termsOf(first.pool);
        if (!Codes.isVerdict(code)) {
            emit JuryReplaced(trial, _second(first, terms, terms.appealJury != 0));
            return (Codes.NONE, false);
        }
        uint256 until = first.appealUntil;
        if (until == 0) {
            bool final_ = terms.appealJury == 0 && first.bench != nodeChallenges;
            until = final_ ? block.timestamp : block.timestamp + terms.appealWindow;
            first.appealUntil = uint40(until);
            emit VerdictReached(trial, code, until);
            return (code, final_);
        }
        if (block.timestamp < until) revert NotYet(until);
        return (code, true);
    }

    /// @notice Appeals against the verdict of a case's first jury; takes `appealDepositOf(trial)` (approved before). It
    /// goes back unless the second jury agrees with the first. If that finds no verdict, it pays the jurors who came.
    function appeal(uint256 trial) external nonReentrant returns (uint256 next) {
        Trial storage first = _trials[trial];
        if (first.appealUntil == 0 || first.concluded) revert NoAppeal();
        if (block.timestamp >= first.appealUntil) revert AppealOver(first.appealUntil);
        if (first.appellant != address(0)) revert AlreadyAppealed();
        uint256 deposit = appealDepositOf(trial);
        (first.appellant, first.deposit) = (msg.sender, uint64(deposit));
        next = _second(first, Court(court).termsOf(first.pool), true);
        emit Appealed(trial, next, msg.sender, deposit);
        _receive(deposit);
    }

    /// @notice Concludes a case that has ended, with its verdict (0 or `unavailable`: none). The bench gets `pot`:
    /// penalties of an overturned jury, and an appeal's lost deposit. `cost` are the jurors' fees that it is to pay.
    function judge(uint256 trial, uint256 code)
        external
        onlyBench(trial)
        nonReentrant
        returns (uint256 pot, uint256 cost)
    {
        Trial storage first = _trials[trial];
        if (first.concluded) revert AlreadyConcluded();
        (, uint256 verdict) = verdictOf(trial);
        cost = _conclude(trial, first, code);
        if (first.next == 0) return (0, cost);
        Trial storage second = _trials[first.next];
        uint256 costOfSecond = _conclude(first.next, second, code);
        if (Codes.contradict(verdict, code)) pot = _overturn(trial, first, verdict);
        if (first.appellant == address(0)) return (pot, cost + costOfSecond);

        uint256 deposit = first.deposit;
        if (!Codes.isVerdict(code)) {
            deposit -= _setPay(first.next, second, deposit); // the appellant pays the jurors who came
        } else {
            cost += costOfSecond;
            if (Codes.kind(verdict) == Codes.kind(code)) {
                _send(msg.sender, deposit);
                return (pot + deposit, cost);
            }
        }
        _send(first.appellant, deposit);
    }

    /// @notice Sets the pay of the jurors of a concluded case, the second jury's first, out of `funds`. The bench sends
    /// the `used` part here.
    function pay(uint256 trial, uint256 funds) external onlyBench(trial) returns (uint256 used) {
        Trial storage first = _trials[trial];
        bool paidByAppeal = first.appellant != address(0) && !Codes.isVerdict(first.code);
        if (first.next != 0 && !paidByAppeal) used = _setPay(first.next, _trials[first.next], funds);
        used += _setPay(trial, first, funds - used);
    }

    /// @notice Ends a case that has one jury without a verdict. Jurors who revealed are paid; the bench sends the
    /// `used` part here.
    function discharge(uint256 trial) external onlyBench(trial) returns (uint256 used) {
        Trial storage trial_ = _trials[trial];
        if (trial_.concluded) revert AlreadyConcluded();
        (trial_.concluded, trial_.discharged) = (true, true);
        used = _setPay(trial, trial_, type(uint256).max);
        emit JuryDischarged(trial);
        emit JuryConcluded(trial, Codes.NONE);
    }

    /// @notice The deposit that opens a case over so many files: the first jury's fees, and the compensation of a
    /// node that waits.
    function depositOf(uint256 pool, uint256 files) external view returns (uint256) {
        PoolTerms memory terms = Court(court).termsOf(pool);
        return terms.jury * _fee(terms, files) + delayCompensation;
    }

    /// @notice Twice that: what an appeal in a case takes.
    function appealDepositOf(uint256 trial) public view returns (uint256) {
        return 2 * (uint256(_trials[trial].size) * _trials[trial].fee + delayCompensation);
    }

    /// @dev A juror's for so many files, at least one: for each further one it gets what a seat of a committee does.
    function _fee(PoolTerms memory terms, uint256 files) private pure returns (uint256) {
        return terms.juryFee + (files - 1) * terms.fee;
    }

    /// @dev A case's second jury. A `fresh` one has nobody of the first.
    function _second(Trial storage first, PoolTerms memory terms, bool fresh) private returns (uint256 next) {
        next = ++trialCount;
        Trial storage second = _trials[next];
        first.next = uint32(next);
        (second.bench, second.size) = (first.bench, terms.appealJury == 0 ? terms.jury : terms.appealJury);
        (second.fee, second.pool, second.sequence) = (first.fee, first.pool, first.sequence);
        (second.commitWindow, second.revealWindow) = (first.commitWindow, first.revealWindow);
        (second.group, second.excludedOwner, second.excluded) = (first.group, first.excludedOwner, first.excluded);
        for (uint256 i = 0; fresh && i < first.seats.length; ++i) {
            second.excluded.push(first.seats[i]);
        }
        _call(next, second);
    }

    /// @dev The seed is the next but one block's hash; nobody knows it yet.
    function _call(uint256 trial, Trial storage trial_) private {
        trial_.seedBlock = uint32(block.number + 2);
        emit JurySummoned(trial, trial_.pool, trial_.sequence, trial_.size, trial_.seedBlock);
    }

    /// @dev Jurors are judged by the case's verdict. Without one, those who could not get the bytes are paid
    /// for the attempt, and those who judged the fee, unless most of the jury could not get the bytes.
    function _conclude(uint256 trial, Trial storage trial_, uint256 code) private returns (uint256 cost) {
        if (!Codes.isVerdict(code)) {
            (, code) = verdictOf(trial);
            if (code != Codes.UNAVAILABLE) code = Codes.NONE;
        }
        (trial_.concluded, trial_.code) = (true, uint8(code));
        emit JuryConcluded(trial, code);
        (uint256 judged, uint256 tried) = _toPay(trial, trial_);
        cost = judged * trial_.fee + tried * _attempt(trial_);
    }

    /// @dev Each juror of an overturned majority pays, whatever else its vote costs it.
    function _overturn(uint256 trial, Trial storage trial_, uint256 verdict) private returns (uint256 sum) {
        uint256 amount = _penalty(trial_, overturnPenalty);
        for (uint256 i = 0; i < trial_.seats.length; ++i) {
            if (Codes.kind(_vote(trial, trial_, i)) != Codes.kind(verdict)) continue;
            uint256 taken = Seats(seats).penalise(trial_.seats[i], amount, msg.sender);
            sum += taken;
            emit JurorOverturned(trial, trial_.seats[i], taken);
        }
    }

    /// @dev What each juror will get of `funds`, which are spread evenly where they are short.
    function _setPay(uint256 trial, Trial storage trial_, uint256 funds) private returns (uint256 used) {
        (uint256 judged, uint256 tried) = _toPay(trial, trial_);
        (uint256 fee, uint256 attempt) = (trial_.fee, _attempt(trial_));
        uint256 cost = judged * fee + tried * attempt;
        if (funds < cost) (fee, attempt) = (fee * funds / cost, attempt * funds / cost);
        (trial_.feePaid, trial_.attemptPaid) = (uint40(fee), uint40(attempt));
        emit JurorsPaid(trial, fee, attempt);
        return judged * fee + tried * attempt;
    }

    // ---- Draw

    /// @notice Draws the jury. Its first commit does so once the seed block is mined; anyone may call an epoch after that,
    /// while it can still be drawn: jurors who keep away cannot let a case lapse. Before, somebody who opens many cases
    /// at once would start all of their clocks, and jurors be fined for what nobody has the time to judge.
    function draw(uint256 trial) external {
        Trial storage trial_ = _trials[trial];
        if (trial_.time != 0) revert Voting.AlreadyDrawn();
        if (trial_.concluded) revert AlreadyConcluded(); // it would freeze jurors for nothing
        uint256 last = trial_.seedBlock + epochBlocks;
        if (trial_.size != 0 && block.number <= last) revert Voting.DrawNotOpen(last + 1);
        _draw(trial);
    }

    function _draw(uint256 trial) private {
        (uint256[] memory jurors, bytes32 seed, uint256 seedBlock) = _drawn(trial);
        Trial storage trial_ = _trials[trial];
        trial_.time = uint32(block.timestamp);
        trial_.seed = uint64(uint256(seed));
        for (uint256 i = 0; i < jurors.length; ++i) {
            trial_.seats.push(uint16(jurors[i]));
            Seats(seats).freeze(jurors[i]);
        }
        emit JuryDrawn(trial, seedBlock, seed, jurors);
    }

    function _drawn(uint256 trial) private view returns (uint256[] memory jurors, bytes32 seed, uint256 seedBlock) {
        Trial storage trial_ = _trials[trial];
        if (trial_.size == 0) revert NoSuchTrial();
        seedBlock = trial_.seedBlock;
        if (Voting.over(seedBlock, epochBlocks, block.number)) revert Lapsed();
        bytes32 hash = block.number > seedBlock ? Voting.hashOf(seedBlock) : bytes32(0);
        if (hash == 0) revert Voting.SeedNotMined(seedBlock);
        hash = keccak256(abi.encode(SEED_TAG, hash, trial));
        seed = bytes32(uint256(uint64(uint256(hash))));
        jurors = Seats(seats)
            .draw(hash, seedBlock / epochBlocks, trial_.group, trial_.size, trial_.excluded, trial_.excludedOwner);
        if (jurors.length < trial_.size) revert Voting.TooFewSeats(jurors.length);
    }

    // ---- Votes

    /// @param commitment `ballotHash(trial, voter, code, verdictHash, salt)`.
    function commit(uint256 trial, uint256 juror, bytes32 commitment) public {
        Trial storage trial_ = _trials[trial];
        if (trial_.time == 0) _draw(trial);
        if (trial_.concluded) revert AlreadyConcluded();
        if (juror >= trial_.seats.length) revert Voting.NotVoter();
        uint256 seat = trial_.seats[juror];
        if (Seats(seats).voterOf(seat) != msg.sender) revert Voting.NotVoter();
        Voting.checkCommit(_body(trial_), juror);
        if (commitment == 0) revert Voting.EmptyCommitment();
        trial_.committed |= uint16(1 << juror);
        ballotOf[(trial << 4) | juror] = commitment;
        emit JurorCommitted(trial, seat, juror, commitment);
    }

    function reveal(uint256 trial, uint256 juror, uint256 code, bytes32 verdictHash, bytes32 salt) public {
        Trial storage trial_ = _trials[trial];
        if (trial_.time == 0) revert Voting.NotDrawn();
        if (trial_.concluded) revert AlreadyConcluded();
        Voting.checkReveal(_body(trial_), juror);
        if (!Codes.isVote(code)) revert BadCode();
        if (ballotOf[(trial << 4) | juror] != ballotHash(trial, msg.sender, code, verdictHash, salt)) {
            revert Voting.WrongReveal();
        }
        trial_.revealed |= uint16(1 << juror);
        ballotOf[(trial << 4) | juror] = bytes32(code);
        emit JurorRevealed(trial, trial_.seats[juror], juror, code, verdictHash);
    }

    /// @notice Commits and reveals at once, for the last juror to commit.
    function vote(uint256 trial, uint256 juror, uint256 code, bytes32 verdictHash, bytes32 salt) external {
        commit(trial, juror, ballotHash(trial, msg.sender, code, verdictHash, salt));
        reveal(trial, juror, code, verdictHash, salt);
    }

    /// @notice keccak256(abi.encode(chainid, this, trial, voter, code, verdictHash, salt)).
    function ballotHash(uint256 trial, address voter, uint256 code, bytes32 verdictHash, bytes32 salt)
        public
        view
        returns (bytes32)
    {
        return keccak256(abi.encode(block.chainid, address(this), trial, voter, code, verdictHash, salt));
    }

    function _body(Trial storage trial_) private view returns (Voting.Body memory) {
        return Voting.Body(
            trial_.size, trial_.committed, trial_.revealed, trial_.time, trial_.commitWindow, trial_.revealWindow
        );
    }

    // ---- Pay

    /// @notice Pays one juror or takes its penalty. Anyone may call once the case is concluded.
    function closeJuror(uint256 trial, uint256 juror) external nonReentrant {
        Trial storage trial_ = _trials[trial];
        if (!trial_.concluded) revert NotConcluded();
        if (juror >= trial_.seats.length || trial_.closed & (1 << juror) != 0) revert Voting.AlreadyClosed();
        trial_.closed |= uint16(1 << juror);
        uint256 seat = trial_.seats[juror];
        Seats(seats).release(seat);
        uint256 voted = _vote(trial, trial_, juror);
        (bool judged, bool tried) = _earns(voted, trial_.code);
        uint256 paid = judged ? trial_.feePaid : tried ? trial_.attemptPaid : 0;
        uint256 penalty = trial_.discharged ? 0 : _owes(trial_, voted);
        if (penalty != 0) {
            penalty = voted == Codes.NONE
                ? Seats(seats).fine(seat, penalty, msg.sender)
                : Seats(seats).collect(seat, penalty, msg.sender);
        }
        emit JurorClosed(trial, seat, paid, penalty);
        if (paid != 0) _send(Seats(seats).ownerOf(seat), paid);
    }

    /// @dev Whether a vote earns the fee, or what an attempt is worth, in a case that ended with `code`.
    function _earns(uint256 voted, uint256 code) private pure returns (bool judged, bool tried) {
        if (voted == Codes.UNAVAILABLE) return (false, !Codes.isVerdict(code));
        judged = voted != Codes.NONE && (code == Codes.NONE || Codes.kind(voted) == Codes.kind(code));
    }

    /// @dev What a juror of a concluded case owes. Not to have judged what others could costs the fee that it would
    /// have earned: looking away must not be the safe vote.
    function _owes(Trial storage trial_, uint256 voted) private view returns (uint256) {
        if (voted == Codes.NONE) return _penalty(trial_, withheldPenalty);
        if (voted == Codes.UNAVAILABLE) return Codes.isVerdict(trial_.code) ? trial_.fee : 0;
        if (!Codes.contradict(voted, trial_.code)) return 0;
        return _penalty(trial_, minorityPenalty);
    }

    /// @dev As many times that of one file as the fee is: or the larger a case is, the more would a blind vote pay.
    function _penalty(Trial storage trial_, uint256 ofOneFile) private view returns (uint256) {
        return ofOneFile * trial_.fee / Court(court).termsOf(trial_.pool).juryFee;
    }

    /// @dev A quarter of the fee for one file, however many a case has: or the larger it is, the more would looking
    /// at nothing pay.
    function _attempt(Trial storage trial_) private view returns (uint256) {
        return Court(court).termsOf(trial_.pool).juryFee / 4;
    }

    /// @dev How many jurors have earned the fee, and how many an attempt.
    function _toPay(uint256 trial, Trial storage trial_) private view returns (uint256 fees, uint256 attempts) {
        for (uint256 i = 0; i < trial_.seats.length; ++i) {
            (bool judged, bool tried) = _earns(_vote(trial, trial_, i), trial_.code);
            if (judged) ++fees;
            if (tried) ++attempts;
        }
    }

    // ---- Views

    function caseOf(uint256 trial) external view returns (Trial memory) {
        return _trials[trial];
    }

    /// @notice The jury, known as soon as the seed block is mined, drawn or not.
    function juryOf(uint256 trial)
        external
        view
        returns (uint256[] memory jurors, address[] memory voters, bytes32 seed, bool drawn)
    {
        Trial storage trial_ = _trials[trial];
        drawn = trial_.time != 0;
        if (drawn) (jurors, seed) = (seatsOf(trial), bytes32(uint256(trial_.seed)));
        else (jurors, seed,) = _drawn(trial);
        voters = new address[](jurors.length);
        for (uint256 i = 0; i < jurors.length; ++i) {
            voters[i] = Seats(seats).voterOf(jurors[i]);
        }
    }

    function seatsOf(uint256 trial) public view returns (uint256[] memory jurors) {
        uint16[] storage drawn = _trials[trial].seats;
        jurors = new uint256[](drawn.length);
        for (uint256 i = 0; i < jurors.length; ++i) {
            jurors[i] = drawn[i];
        }
    }

    /// @notice Whether all votes are in or their time is over, and the majority's code (0: no majority, or lapsed).
    function verdictOf(uint256 trial) public view returns (bool done, uint256 code) {
        Trial storage trial_ = _trials[trial];
        // not drawn in time: a later seed would give those who waited a second try
        if (trial_.time == 0) {
            return (trial_.size != 0 && Voting.over(trial_.seedBlock, epochBlocks, block.number), Codes.NONE);
        }
        if (block.timestamp < Voting.countableFrom(_body(trial_))) return (false, Codes.NONE);
        uint256[] memory votes = new uint256[](trial_.size);
        for (uint256 i = 0; i < votes.length; ++i) {
            votes[i] = _vote(trial, trial_, i);
        }
        code = Reckoning.outcome(votes, 0, trial_.size);
        return (true, code == Codes.UNDECIDED ? Codes.NONE : code);
    }

    function _vote(uint256 trial, Trial storage trial_, uint256 juror) private view returns (uint256) {
        return trial_.revealed & (1 << juror) != 0 ? uint256(ballotOf[(trial << 4) | juror]) : Codes.NONE;
    }
}
