// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IVoting} from "./IVoting.sol";

/// @title IJuries
/// @notice Juries of up to fifteen seats. A jury judges one file, for a dispute or a canary, or the named files of one
/// node, for a node challenge. Its votes are hidden like a committee's, with one code instead of sixteen. It has
/// exactly the size that it was summoned with, and its verdict needs a majority of that size. It is drawn from one
/// seed, by the end of the third epoch after the seed's own, or it lapses. A jury that was drawn and found no majority
/// is replaced once. Jurors are frozen in Seats until closed.
interface IJuries is IVoting {
    struct Case {
        /// Appeals, Canaries or NodeChallenges.
        address bench;
        uint256 pool;
        /// The file; of a node challenge the last one that it names.
        uint256 sequence;
        /// Seats wanted.
        uint256 size;
        /// A juror's, for all files that it judges.
        uint256 fee;
        uint256 seedBlock;
        uint256 commitWindow;
        uint256 revealWindow;
        /// Time of the draw, 0 before.
        uint256 time;
        uint256[] seats;
        uint256 committed;
        uint256 revealed;
        uint256 closed;
        bool concluded;
        /// Final code of the case once concluded (0: none).
        uint256 code;
        uint256 commitUntil;
        uint256 revealUntil;
    }

    event JurySummoned(
        uint256 indexed trial, uint256 indexed pool, uint256 indexed sequence, uint256 size, uint256 seedBlock
    );
    event JuryDrawn(uint256 indexed trial, uint256 seedBlock, bytes32 seed, uint256[] seats);
    event JurorCommitted(uint256 indexed trial, uint256 indexed seat, uint256 juror, bytes32 commitment);
    event JurorRevealed(uint256 indexed trial, uint256 indexed seat, uint256 juror, uint256 code, bytes32 verdictHash);
    /// @notice A jury without majority was replaced by a fresh one, with `next` as its trial.
    event JuryReplaced(uint256 indexed trial, uint256 indexed next);
    /// @notice The case was dropped. Jurors who revealed are paid, and nobody is blamed.
    event JuryDischarged(uint256 indexed trial);
    event JuryConcluded(uint256 indexed trial, uint256 code, uint256 feePerJuror);
    event JurorClosed(uint256 indexed trial, uint256 indexed seat, uint256 paid, uint256 penalty);

    error NotBench();
    error NoSuchTrial();
    /// @notice The jury was not drawn in time, and is not drawn any more.
    error Lapsed();
    error BadCode();
    error AlreadyConcluded();
    error NotConcluded();

    /// @notice Draws the jury. Anyone may call once the seed block is mined; the first commit also draws.
    function draw(uint256 trial) external;
    /// @param commitment `ballotHash(trial, voter, code, verdictHash, salt)`.
    function commit(uint256 trial, uint256 juror, bytes32 commitment) external;
    function reveal(uint256 trial, uint256 juror, uint256 code, bytes32 verdictHash, bytes32 salt) external;
    /// @notice Commits and reveals at once, for the last juror to commit.
    function vote(uint256 trial, uint256 juror, uint256 code, bytes32 verdictHash, bytes32 salt) external;
    /// @notice Pays one juror or takes its penalty. Anyone may call once the case is concluded.
    function closeJuror(uint256 trial, uint256 juror) external;

    // Hooks of Appeals, Canaries and NodeChallenges.
    /// @notice Summons a jury of `size` seats of the pool's group, on the pool's terms, to judge `files` files. Each
    /// further file adds a committee's `fee` to `juryFee`, and every sixteen begun add a `commitWindow` to
    /// `juryCommitWindow`.
    function summon(
        uint256 pool,
        uint256 sequence,
        uint256 files,
        uint256 size,
        uint256[] calldata excluded,
        address excludedOwner
    ) external returns (uint256 trial);
    /// @notice Ends the case with its final `code` (0: none). Jurors who voted its kind share `funds`, at most the fee
    /// each. The bench sends the `used` part here.
    function conclude(uint256 trial, uint256 code, uint256 funds) external returns (uint256 used);
    /// @notice Replaces a jury that was drawn and found no majority. Returns 0 for a replacement, or a jury never
    /// drawn.
    function replace(uint256 trial) external returns (uint256 next);
    /// @notice Ends a case without a verdict. Jurors who revealed are paid; the bench sends the `used` part here.
    function discharge(uint256 trial) external returns (uint256 used);

    // Views.
    function caseOf(uint256 trial) external view returns (Case memory);
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
    /// @notice Full fees of all jurors who voted the kind of `code`.
    function costOf(uint256 trial, uint256 code) external view returns (uint256);
    function ballotOf(uint256 trial, uint256 juror)
        external
        view
        returns (bytes32 commitment, uint256 code, bool revealed);
    /// @notice keccak256(abi.encode(chainid, this, trial, voter, code, verdictHash, salt)).
    function ballotHash(uint256 trial, address voter, uint256 code, bytes32 verdictHash, bytes32 salt)
        external
        view
        returns (bytes32);
}
