// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IOneJury} from "./IOneJury.sol";

/// @title INodeCases
/// @notice Cases against a node, for files that each pass and together could be no honest node's (docs/evidence.md).
/// Whoever accuses names files of one node and pool that are final and accepted, and deposits a bond. The seed of the
/// jury's draw, which is later than the case, also draws the rows that the jurors measure again; each of them adds the
/// figures up by the law that the pool's configuration names. While a case is open the node's stake cannot leave. A node
/// that is found guilty loses what a rejected file costs, and is ejected; the files stay accepted, and their pay, which
/// has vested, stays paid. An accuser who is wrong loses the bond: the jury's fees, a compensation for the node's operator,
/// and the rest is burnt. A jury that finds no majority, or cannot get the files, moves nothing, and the case can be
/// opened again. There is one jury, the larger of the pool's two, replaced once, and no appeal. Its fee, and so the bond,
/// and its time to commit grow with the number of files (`IJuries.summon`); who could not judge gets `juryFee` alone.
interface INodeCases is IOneJury {
    struct NodeCase {
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

    /// @notice `sequences` ascend. `evidence` is the SHA-256 of what the accuser says it found: no contract reads it, and
    /// no juror has to.
    event CaseOpened(
        uint256 indexed nodeCase,
        uint256 indexed pool,
        address indexed node,
        address accuser,
        uint256 trial,
        uint256 bond,
        uint256[] sequences,
        bytes32 evidence
    );
    /// @notice `slashed` grains left the stake, for good reason or none (0); `back` is what the accuser got of the bond. Its
    /// share of the slash is in `Stakes.Collected`.
    event CaseConcluded(
        uint256 indexed nodeCase,
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
    /// @notice More cases are open against this node than its stake can be held for.
    error TooManyCases();
    /// @notice `nodeCase` is open over the same files, or was decided.
    error AlreadyTried(uint256 nodeCase);
    error NoSuchCase();

    /// @notice Accuses `node` by the files at `sequences`, one to `MAX_FILES` in ascending order; `inners` are their
    /// `Pools.innerHash`. Takes `bondOf(pool, files)` (approved before). The accuser must make the files' bytes available.
    function open(uint256 pool, address node, uint256[] calldata sequences, bytes32[] calldata inners, bytes32 evidence)
        external
        returns (uint256 nodeCase);
    /// @notice The one call for keepers, once the jury has voted or its time is over: replaces a jury without majority, or
    /// ends the case. Anyone may call.
    function conclude(uint256 nodeCase) external;

    /// @notice Most files of one case.
    function MAX_FILES() external view returns (uint256);
    function caseOf(uint256 nodeCase) external view returns (NodeCase memory);
    /// @notice Cases ever opened; the last one's number.
    function opened() external view returns (uint256);
    /// @notice Bond of a case that names so many files, one to `MAX_FILES`: its jury's fees, and the compensation of a node
    /// accused without reason.
    function bondOf(uint256 pool, uint256 files) external view returns (uint256);
    /// @notice The case over exactly these files of this pool that is open or was decided; 0: none.
    function triedIn(uint256 pool, uint256[] calldata sequences) external view returns (uint256 nodeCase);
}
