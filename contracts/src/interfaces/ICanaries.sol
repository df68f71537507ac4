// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileData} from "../libraries/Types.sol";

/// @title ICanaries
/// @notice Files that a pool owner plants to fail, so that validators who do not look lose money. The owner commits to
/// them with each step, before its seed is known, and opens them after the votes. A file can be opened only with its
/// node's consent, so nobody else's work can be called a canary. Every opening that accuses seats goes to a jury
/// without the owner's seats. A false one costs the owner the bonds that it put at stake.
interface ICanaries {
    struct Planted {
        /// Secret until the opening, so that nobody can guess a step's leaves.
        bytes32 salt;
        /// Exactly DEPTH hashes: inclusion in the step's canary root of
        /// keccak256(keccak256(abi.encode(salt, pool, step, node, counter))), pairs sorted.
        bytes32[] proof;
        /// The decoy node's EIP-712 signature of DecoyConsent(bytes32 leaf), domain {name "muster-canaries", version
        /// "1", chainId, Canaries}. The leaf names pool, step, node and counter, so it is valid for one file.
        bytes consent;
    }

    struct Rollout {
        /// Row number of a rollout in the audit sample that fails by at least twice the reject threshold.
        uint256 row;
        /// keccak256 of the row's bytes; its leaf is the keccak256 of that.
        bytes32 rowHash;
        /// Inclusion of the leaf in the file's root, pairs sorted.
        bytes32[] proof;
    }

    struct Canary {
        address owner;
        uint256 deposit;
        /// The committee's outcome before the opening.
        uint256 code;
        /// Reject reason that the owner claims.
        uint256 reason;
        uint256[] accused;
        /// The first jury, or 0 when nobody is accused.
        uint256 trial;
        bool concluded;
    }

    /// @notice Jury `trial` judges the opening; 0 when nobody is accused.
    event CanaryOpened(
        uint256 indexed pool,
        uint256 indexed sequence,
        uint256 row,
        uint256 reason,
        uint256[] accused,
        uint256 deposit,
        uint256 trial
    );
    event CanaryConcluded(uint256 indexed pool, uint256 indexed sequence, bool upheld, uint256 code);
    event SeatSlashed(uint256 indexed pool, uint256 indexed sequence, uint256 indexed seat, uint256 amount);

    error NotThisFile();
    error WindowOver(uint256 time);
    error NotPoolOwner();
    error NotPlanted();
    error NoConsent();
    error NotInFile();
    error NotInSample();
    error BadReason();
    error NotOpened();
    error AlreadyConcluded();

    /// @notice Opens a canary after its lane is settled and within its challenge window. Pool owner only. Takes a
    /// deposit of the bonds at stake, a jury's fees, and the fees of jurors whose dispute it cancels. The file pays no
    /// units, and its decoy node is unfrozen at the end.
    /// @param reason The reject code that an honest check gives.
    function open(
        uint256 pool,
        uint256 sequence,
        FileData calldata file,
        Planted calldata planted,
        Rollout calldata rollout,
        uint256 reason
    ) external;
    /// @notice Takes the canary's case on (`Juries.proceed`), and ends it after that, or at once without a jury. Anyone
    /// may call.
    function conclude(uint256 pool, uint256 sequence, FileData calldata file) external;

    /// @notice Depth of every step's tree of leaves: 16 leaves, padded with random ones.
    function DEPTH() external view returns (uint256);
    /// @notice The digest that a decoy node signs so that the pool's owner may open its file.
    function consentDigest(bytes32 leaf) external view returns (bytes32);
    /// @notice The leaf of a planted file.
    function leafOf(bytes32 salt, uint256 pool, uint256 step, address node, uint256 counter)
        external
        pure
        returns (bytes32);
    function canaryOf(uint256 pool, uint256 sequence) external view returns (Canary memory);
    /// @notice Whether row `row` is in a file's audit sample (docs/reference/protocol.md, section 3): when the last sixteen
    /// bits of H("muster/audit/1", lane seed, sequence, row) are below the rate; and row H("muster/audit-one/1", lane seed,
    /// sequence) mod rows always. A constant cost, whatever the file's size.
    function inSample(bytes32 seed, uint256 sequence, uint256 rows, uint256 auditRate, uint256 row)
        external
        pure
        returns (bool);
}
