// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title INodeChallenges
/// @notice Challenges against a node whose files each pass, although together no honest node could have made them. The
/// accuser names final, accepted files of one node and pool, and deposits a bond. One jury judges, the larger of the
/// pool's two, replaced once, without appeal. Its seed is later than the challenge and also draws the rows that jurors
/// measure again. Each juror compares the measurements with the null model that the pool's configuration names. While a
/// challenge is open, the node's stake cannot leave.
///
/// Upheld: the node loses what a rejected file costs and is ejected. The files stay accepted and paid. Refuted: the
/// bond pays the jury and compensates the node's operator, and the rest is burnt. A jury without a majority, or one
/// that could not get the files, changes nothing, and the same files can be challenged again. Fee, bond and time to
/// commit grow with the number of files (`IJuries.summon`). A juror that could not judge gets `juryFee` alone.
interface INodeChallenges {
    enum Outcome {
        None,
        Open,
        /// The accuser is right: the node is slashed.
        Upheld,
        /// The accuser is wrong and loses the bond.
        Refuted,
        /// The jury could not get the files. The bond pays it, and the rest goes back.
        Dismissed,
        /// Two juries found no majority, or nobody drew one. The bond goes back.
        Lapsed
    }

    struct NodeChallenge {
        uint256 pool;
        address node;
        address accuser;
        uint256 bond;
        /// The jury, in the end perhaps its replacement.
        uint256 trial;
        Outcome outcome;
        /// The penalties of this time hold.
        uint256 openedAt;
        /// keccak256(abi.encode(sequences)).
        bytes32 files;
    }

    /// @notice `sequences` ascend. `evidence` is the SHA-256 of what the accuser says it found. No contract reads it.
    event ChallengeOpened(
        uint256 indexed challenge,
        uint256 indexed pool,
        address indexed node,
        address accuser,
        uint256 trial,
        uint256 bond,
        uint256[] sequences,
        bytes32 evidence
    );
    /// @notice `slashed` base units left the stake. The accuser got `back` of its bond; its share of the slash is in
    /// `Stakes.Collected`.
    event ChallengeConcluded(
        uint256 indexed challenge,
        uint256 indexed pool,
        address indexed node,
        Outcome outcome,
        uint256 code,
        uint256 slashed,
        uint256 back
    );

    error BadCount();
    error NotAscending(uint256 sequence);
    error NotThisFile(uint256 sequence);
    /// @notice The file is not accepted, or not for good yet.
    error NotAccepted(uint256 sequence);
    error AlreadyEjected();
    /// @notice The node has no stake, or it is not this pool's any more, or was to be free by now.
    error NothingAtStake();
    /// @notice More challenges are open against this node than its stake can be held for.
    error TooManyChallenges();
    /// @notice `challenge` is open over the same files, or was decided.
    error AlreadyTried(uint256 challenge);
    error NoSuchChallenge();
    error AlreadyConcluded();
    /// @notice The jury is not done.
    error Undecided();

    /// @notice Accuses `node` by the files at `sequences`, one to `MAX_FILES` in ascending order; `inners` are their
    /// `FileRef.inner`. Takes `bondOf(pool, files)` (approved before). The accuser must make the files' bytes
    /// available.
    function open(uint256 pool, address node, uint256[] calldata sequences, bytes32[] calldata inners, bytes32 evidence)
        external
        returns (uint256 challenge);
    /// @notice Replaces a jury without majority, or ends the challenge. Anyone may call once the jury has voted or its
    /// time is over.
    function conclude(uint256 challenge) external;

    /// @notice Most files of one challenge.
    function MAX_FILES() external view returns (uint256);
    function challengeOf(uint256 challenge) external view returns (NodeChallenge memory);
    /// @notice Challenges ever opened; the last one's number.
    function opened() external view returns (uint256);
    /// @notice Bond of a challenge that names so many files, one to `MAX_FILES`: its jury's fees, and the compensation
    /// of a node accused without reason.
    function bondOf(uint256 pool, uint256 files) external view returns (uint256);
    /// @notice The challenge over exactly these files of this pool that is open or was decided; 0: none.
    function triedIn(uint256 pool, uint256[] calldata sequences) external view returns (uint256 challenge);
}
