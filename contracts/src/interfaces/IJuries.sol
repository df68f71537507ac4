// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IVoting} from "./IVoting.sol";

/// @title IJuries
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
interface IJuries is IVoting {
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

    error NotBench();
    error NoSuchTrial();
    /// @notice The jury was not drawn in time, and is not drawn any more.
    error Lapsed();
    error BadCode();
    error AlreadyConcluded();
    error NotConcluded();
    /// @notice The jury is not done.
    error Undecided();
    /// @notice The first jury's verdict can be appealed until `time`.
    error NotYet(uint256 time);
    error NoAppeal();
    error AppealOver(uint256 time);
    error AlreadyAppealed();

    /// @notice Draws the jury. Anyone may call once the seed block is mined; the first commit also draws.
    function draw(uint256 trial) external;
    /// @param commitment `ballotHash(trial, voter, code, verdictHash, salt)`.
    function commit(uint256 trial, uint256 juror, bytes32 commitment) external;
    function reveal(uint256 trial, uint256 juror, uint256 code, bytes32 verdictHash, bytes32 salt) external;
    /// @notice Commits and reveals at once, for the last juror to commit.
    function vote(uint256 trial, uint256 juror, uint256 code, bytes32 verdictHash, bytes32 salt) external;
    /// @notice Pays one juror or takes its penalty. Anyone may call once the case is concluded.
    function closeJuror(uint256 trial, uint256 juror) external;

    /// @notice Appeals against the verdict of a case's first jury; takes `appealDepositOf(trial)` (approved before). It
    /// goes back unless the second jury agrees with the first. If that finds no verdict, it pays the jurors who came.
    function appeal(uint256 trial) external returns (uint256 next);

    // Hooks of Appeals, Canaries and NodeChallenges, which name a case by its first trial.
    /// @notice Summons the first jury of a case, of the pool's group and on the pool's terms, to judge `files` files.
    /// Each further file adds a committee's `fee` to `juryFee`, and every sixteen begun add a `commitWindow` to
    /// `juryCommitWindow`.
    function summon(uint256 pool, uint256 sequence, uint256 files, uint256[] calldata excluded, address excludedOwner)
        external
        returns (uint256 trial);
    /// @notice Takes a case on: its second jury is summoned, the time to appeal begins, or it has `ended`. `code` is
    /// the verdict so far; 0 or `unavailable` where there is none.
    function proceed(uint256 trial) external returns (uint256 code, bool ended);
    /// @notice Concludes a case that has ended, with its verdict (0 or `unavailable`: none). The bench gets `pot`:
    /// penalties of an overturned jury, and an appeal's lost deposit. `cost` are the jurors' fees that it is to pay.
    function judge(uint256 trial, uint256 code) external returns (uint256 pot, uint256 cost);
    /// @notice Sets the pay of the jurors of a concluded case, the second jury's first, out of `funds`. The bench sends
    /// the `used` part here.
    function pay(uint256 trial, uint256 funds) external returns (uint256 used);
    /// @notice Ends a case that has one jury without a verdict. Jurors who revealed are paid; the bench sends the
    /// `used` part here.
    function discharge(uint256 trial) external returns (uint256 used);

    // Views.
    function caseOf(uint256 trial) external view returns (Trial memory);
    function trialCount() external view returns (uint256);
    /// @notice The jury, known as soon as the seed block is mined, drawn or not.
    function juryOf(uint256 trial)
        external
        view
        returns (uint256[] memory seats, address[] memory voters, bytes32 seed, bool drawn);
    /// @notice Whether all votes are in or their time is over, and the majority's code (0: no majority, or lapsed).
    function verdictOf(uint256 trial) external view returns (bool done, uint256 code);
    function seatsOf(uint256 trial) external view returns (uint256[] memory);
    /// @notice The jurors' revealed codes, 0 where there is none.
    function votesOf(uint256 trial) external view returns (uint256[] memory);
    /// @notice What a case over so many files costs whoever opens it: the first jury's fees, and the compensation of a
    /// node that waits.
    function depositOf(uint256 pool, uint256 files) external view returns (uint256);
    /// @notice Twice that: what an appeal in a case takes.
    function appealDepositOf(uint256 trial) external view returns (uint256);
    /// @notice Of ballot trial << 4 | juror: its commitment, then its code.
    function ballotOf(uint256 ballot) external view returns (bytes32);
    /// @notice keccak256(abi.encode(chainid, this, trial, voter, code, verdictHash, salt)).
    function ballotHash(uint256 trial, address voter, uint256 code, bytes32 verdictHash, bytes32 salt)
        external
        view
        returns (bytes32);
}
