// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice A contract was deployed elsewhere than its suite says.
error WrongAddress(address expected, address actual);

// What several contracts refuse.

error Paused();
/// @notice Not by a contract of the suite that may call this.
error NotPermitted();
error AmountTooLarge();
/// @notice Not signed by the node's own key for this.
error BadSignature();
error SignatureExpired();
error BadCount();
error AlreadyConcluded();
/// @notice Too early; at `time` it can be done.
error NotYet(uint256 time);
error WindowOver(uint256 time);

/// @notice Addresses of one deployment. Every contract gets the same value and keeps what it needs as immutables.
struct Suite {
    address token;
    address params;
    address stakes;
    address seats;
    address pools;
    address court;
    address juries;
    address appeals;
    address canaries;
    address nodeChallenges;
}

/// @notice What bounds every pool.
library Bounds {
    uint256 internal constant MAX_WINDOW = 30 days;
    /// Most files of a node that may be under way at once; `minStake` covers the committees' fees of all of them.
    uint256 internal constant MAX_UNSETTLED = 64;
    /// Groups below are single pools.
    uint256 internal constant FIRST_SHARED_GROUP = 1 << 24;
}

/// @notice A pool's terms, which never change. Amounts are base units, 1e-9 token.
struct PoolTerms {
    // the first word is all that a round needs of them
    /// Seats per committee: 3 or 5.
    uint8 committee;
    /// Blocks after the seed block within which a committee must be drawn; later the next one judges.
    uint16 drawBlocks;
    /// C: seconds to commit, from the draw.
    uint32 commitWindow;
    /// V: seconds to reveal, after the commit window.
    uint32 revealWindow;
    /// W: seconds from settlement in which an outcome can be disputed or a canary opened.
    uint32 challengeWindow;
    /// Seconds for which an upload receipt allows a submission, and for which a service key that was replaced counts.
    uint32 receiptWindow;
    /// Fee per seat and file of a committee.
    uint32 fee;
    /// Validator group that judges: 0 for the seats that opted into this pool, or a group from 2^24 on that pools
    /// share.
    uint32 group;
    /// Share of rollouts audited: 1 to 65536; 65536 is every rollout.
    uint24 auditRate;
    /// How many steps behind the newest a submission may be.
    uint8 maxLag;
    /// Seats of the first jury (odd, 3 to 15).
    uint8 jury;
    // next words
    /// Pay per verified unit (output token).
    uint32 rate;
    /// Fee per juror, where it judges one file; each further file of a node challenge adds `fee`.
    uint32 juryFee;
    /// Stake a node needs to join.
    uint56 minStake;
    /// Reserved plus unclaimed pay of a node may reach this multiple of its stake.
    uint16 leverage;
    /// Units of one file.
    uint32 maxUnits;
    /// Seats of the second jury (odd, up to 15), or 0 when the first jury is final.
    uint8 appealJury;
    /// A: seconds in which a first jury's verdict can be appealed.
    uint32 appealWindow;
    /// Cj: seconds for jurors to commit, from the draw. A node challenge of several files adds `commitWindow` for every
    /// sixteen begun. The sum is at most thirty days.
    uint32 juryCommitWindow;
    /// Whether nodes need the owner's signed invite.
    bool inviteOnly;
    /// Vj: seconds for jurors to reveal, after the commit window.
    uint32 juryRevealWindow;
    /// SHA-256 of the pool's canonical JSON configuration.
    bytes32 configHash;
}

/// @notice What a node signs of its file, and its submission's stored digest binds; `WorkSubmitted` carries it.
struct FileData {
    address node;
    uint24 step;
    uint24 counter;
    /// Paid units: output tokens, EOS included.
    uint32 units;
    /// Rollouts of the file.
    uint16 rows;
    /// Merkle root over the file's rollouts.
    bytes32 root;
    /// SHA-256 of the file.
    bytes32 fileHash;
}

/// @notice The pool's storage took a node's file: the service key's EIP-712 signature of
/// UploadReceipt(uint256 pool,address node,bytes32 sha256,uint256 size,uint256 time), domain {name "muster-receipts",
/// version "1", chainId, Pools}.
struct Receipt {
    /// Bytes of the file.
    uint64 size;
    /// When all of it was there.
    uint40 time;
    bytes signature;
}

/// @notice A submission's file in short: see `FileSlot.digest`.
struct FileRef {
    bytes32 inner;
    address node;
    /// Read where its lane is settled.
    uint32 units;
}
