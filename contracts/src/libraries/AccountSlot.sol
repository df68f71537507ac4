// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title AccountSlot
/// @notice A node's account in a pool, in one word:
/// earned 46 | spent 46 | pending 34 | limit 34 | counter 22 | barrier 32 | joined step 20 | unsettled 10 | frozen 10 |
/// flags 2. Units, not base units.
/// No field overflows: a node that has earned `ENOUGH` units submits no more, and its files under way, at most 64 of less
/// than 2^32 units, earn less than 2^38; pending units stay below the limit.
library AccountSlot {
    uint256 internal constant MAX_46 = (1 << 46) - 1;
    uint256 internal constant MAX_34 = (1 << 34) - 1;
    uint256 internal constant ENOUGH = 1 << 45;
    uint256 internal constant MAX_COUNTER = (1 << 22) - 1;
    /// Counts that reach this stay there.
    uint256 internal constant MAX_COUNT = (1 << 10) - 1;
    uint256 internal constant REMOVED = 1 << 254;
    uint256 internal constant SLASHED = 1 << 255;

    /// @notice Units settled to be paid so far.
    function earned(uint256 word) internal pure returns (uint256) {
        return word & MAX_46;
    }

    /// @notice Units of `earned` that no claim will pay: already claimed, held by a dispute, or lost in one.
    function spent(uint256 word) internal pure returns (uint256) {
        return (word >> 46) & MAX_46;
    }

    /// @notice Units submitted and not settled.
    function pending(uint256 word) internal pure returns (uint256) {
        return (word >> 92) & MAX_34;
    }

    /// @notice Most units that may be `open`; 0 for a node that is not a member.
    function limit(uint256 word) internal pure returns (uint256) {
        return (word >> 126) & MAX_34;
    }

    /// @notice The counter of the next submission.
    function counter(uint256 word) internal pure returns (uint256) {
        return (word >> 160) & MAX_COUNTER;
    }

    /// @notice Work that vests later is not paid: when its earliest reject was settled that is open, or, once the node
    /// is slashed, that ever was; 0: no bound.
    function barrier(uint256 word) internal pure returns (uint256) {
        return (word >> 182) & 0xffffffff;
    }

    /// @notice First step it may submit for.
    function joinedStep(uint256 word) internal pure returns (uint256) {
        return (word >> 214) & 0xfffff;
    }

    /// @notice Files whose cost to the node is open: pending, not accepted and not final, or disputed.
    function unsettled(uint256 word) internal pure returns (uint256) {
        return (word >> 234) & MAX_COUNT;
    }

    /// @notice Rejected files that are not final yet.
    function frozen(uint256 word) internal pure returns (uint256) {
        return (word >> 244) & MAX_COUNT;
    }

    /// @notice Unsettled files, and frozen ones above them: a limit of at most 2^10 on the former allows none of the
    /// latter.
    function underWay(uint256 word) internal pure returns (uint256) {
        return (word >> 234) & ((1 << 20) - 1);
    }

    function slashed(uint256 word) internal pure returns (bool) {
        return word & SLASHED != 0;
    }

    /// @notice Units that count against the limit.
    function open(uint256 word) internal pure returns (uint256) {
        unchecked {
            return earned(word) - spent(word) + pending(word); // nothing is spent that was not earned
        }
    }

    function withEarned(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~MAX_46) | value;
    }

    function withSpent(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~(MAX_46 << 46)) | (value << 46);
    }

    function withPending(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~(MAX_34 << 92)) | (value << 92);
    }

    function withLimit(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~(MAX_34 << 126)) | (value << 126);
    }

    function withBarrier(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~(uint256(0xffffffff) << 182)) | (value << 182);
    }

    function withJoinedStep(uint256 word, uint256 value) internal pure returns (uint256) {
        return (word & ~(uint256(0xfffff) << 214)) | (value << 214);
    }

    /// @notice After one more submission of `units`.
    function submitted(uint256 word, uint256 units) internal pure returns (uint256) {
        unchecked {
            return word + (units << 92) + (1 << 160) + (1 << 234);
        }
    }

    /// @notice After one more file whose cost is open. A count at its end stays there.
    function unsettledMore(uint256 word) internal pure returns (uint256) {
        return unsettled(word) == MAX_COUNT ? word : word + (1 << 234);
    }

    /// @notice After one such file less.
    function unsettledLess(uint256 word) internal pure returns (uint256) {
        return unsettled(word) == MAX_COUNT ? word : word - (1 << 234);
    }

    /// @notice After one more frozen file, at a time that never decreases. The count sticks at its end.
    function frozenMore(uint256 word, uint256 time) internal pure returns (uint256) {
        if (barrier(word) == 0) word = withBarrier(word, time);
        return frozen(word) == MAX_COUNT ? word : word + (1 << 244);
    }

    /// @notice After one frozen file less. A count that once stuck never comes down.
    function frozenLess(uint256 word) internal pure returns (uint256) {
        if (frozen(word) == MAX_COUNT) return word;
        word -= 1 << 244;
        return frozen(word) == 0 && !slashed(word) ? withBarrier(word, 0) : word;
    }

    /// @notice After a slash for a file that was rejected at `time`: no member any more; the earliest barrier stays.
    function slashedAt(uint256 word, uint256 time) internal pure returns (uint256) {
        uint256 old = barrier(word);
        return withLimit(old == 0 || time < old ? withBarrier(word, time) : word, 0) | SLASHED;
    }
}
