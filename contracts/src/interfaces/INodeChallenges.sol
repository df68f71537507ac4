// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title INodeChallenges
/// @notice Challenges against a node whose files each pass, although together no node that computes as calibrated could
/// have made them. The accuser names final, accepted files of one node and pool, and deposits a bond. They are a case
/// of Juries, whose verdict either side may appeal. The juries' seeds are later than the challenge and also draw the
/// rows that jurors measure again. Each juror compares the measurements with the pool's null model. While a challenge is
/// open, the node's stake cannot leave.
///
/// Upheld (most say fraud): the node loses what a rejected file costs and is ejected. Different (most say fraud or
/// `DIFFERENT`): its membership ends and its unvested pay is barred, but its stake is untouched. In both cases the files
/// stay accepted, the accuser has its bond back, and the juries are paid by the slash, then by the pool, then by the
/// bond. Refuted: the bond pays the juries and compensates the node's operator, the rest is burnt, and nobody can
/// challenge the node for one challenge window. A case without a verdict changes nothing; the bond pays the jurors who
/// came. Fee, bond and time to commit grow with the number of files (`IJuries.summon`).
interface INodeChallenges {
    enum Outcome {
        None,
        Open,
        /// A cheat: the node is slashed.
        Upheld,
        /// The accuser is wrong and loses the bond.
        Refuted,
        /// The juries could not get the files.
        Dismissed,
        /// The juries found no majority, or nobody drew them.
        Lapsed,
        /// The node computes otherwise than calibrated: its membership ends.
        Different
    }

    struct NodeChallenge {
        uint256 pool;
        address node;
        address accuser;
        uint256 bond;
        /// The case's first jury.
        uint256 trial;
        Outcome outcome;
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
    /// @notice `slashed` base units left the stake. The accuser got `back` of its bond, and `reward` of the slash.
    event ChallengeConcluded(
        uint256 indexed challenge,
        uint256 indexed pool,
        address indexed node,
        Outcome outcome,
        uint256 code,
        uint256 slashed,
        uint256 back,
        uint256 reward
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
    /// @notice The node was acquitted, and cannot be challenged before `time`.
    error Acquitted(uint256 time);
    error NoSuchChallenge();
    error AlreadyConcluded();

    /// @notice Accuses `node` by the files at `sequences`, one to `MAX_FILES` in ascending order; `inners` are their
    /// `FileRef.inner`. Takes `Juries.depositOf(pool, files)` (approved before). The accuser must make the files' bytes
    /// available.
    function open(uint256 pool, address node, uint256[] calldata sequences, bytes32[] calldata inners, bytes32 evidence)
        external
        returns (uint256 challenge);
    /// @notice Takes the challenge's case on (`Juries.proceed`), and ends it once that has ended. Anyone may call.
    function conclude(uint256 challenge) external;

    /// @notice Most files of one challenge.
    function MAX_FILES() external view returns (uint256);
    function challengeOf(uint256 challenge) external view returns (NodeChallenge memory);
    /// @notice Challenges ever opened; the last one's number.
    function opened() external view returns (uint256);
    /// @notice When a node that was acquitted in a pool can be challenged there again; 0: it never was.
    function acquittedUntil(uint256 pool, address node) external view returns (uint256);
}
