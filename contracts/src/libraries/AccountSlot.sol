// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title AccountSlot
/// @notice A node's account in a pool, in one word:
/// earned 46 | drawn 46 | pending 34 | limit 34 | counter 22 | frozenAt 32 | joined step 20 | unsettled 10 | frozen 10 |
/// flags 2. Units, not grains. A slashed node has no limit any more: the field then holds when it was slashed.
/// No field overflows: 2^22 files of less than 2^24 units earn less than 2^46; pending units stay below the limit.
library AccountSlot {
    uint256 internal constant MAX_46 = (1 << 46) - 1;
    uint256 internal constant MAX_34 = (1 << 34) - 1;
    uint256 internal constant MAX_COUNTER = (1 << 22) - 1;
    /// Counts that reach this stay there.
    uint256 internal constant MAX_COUNT = (1 << 10) - 1;
    uint256 internal constant REMOVED = 1 << 254;
    uint256 internal constant SLASHED = 1 << 255;

    function earned(uint256 w) internal pure returns (uint256) {
        return w & MAX_46;
    }

    function drawn(uint256 w) internal pure returns (uint256) {
        return (w >> 46) & MAX_46;
    }

    function pending(uint256 w) internal pure returns (uint256) {
        return (w >> 92) & MAX_34;
    }

    function limitField(uint256 w) internal pure returns (uint256) {
        return (w >> 126) & MAX_34;
    }

    /// @notice 0 for a node that is not a member, or was slashed.
    function limit(uint256 w) internal pure returns (uint256) {
        return w & SLASHED == 0 ? limitField(w) : 0;
    }

    function counter(uint256 w) internal pure returns (uint256) {
        return (w >> 160) & MAX_COUNTER;
    }

    function frozenAt(uint256 w) internal pure returns (uint256) {
        return (w >> 182) & 0xffffffff;
    }

    function joinedStep(uint256 w) internal pure returns (uint256) {
        return (w >> 214) & 0xfffff;
    }

    /// @notice Files whose cost to the node is open: pending, not accepted and not final, or disputed.
    function unsettled(uint256 w) internal pure returns (uint256) {
        return (w >> 234) & MAX_COUNT;
    }

    function frozen(uint256 w) internal pure returns (uint256) {
        return (w >> 244) & MAX_COUNT;
    }

    function removed(uint256 w) internal pure returns (bool) {
        return w & REMOVED != 0;
    }

    function slashed(uint256 w) internal pure returns (bool) {
        return w & SLASHED != 0;
    }

    /// @notice Until when work had to vest to be claimable: the earlier of the open freeze and the slash; 0: no bound.
    function barrier(uint256 w) internal pure returns (uint256 time) {
        time = frozenAt(w);
        if (slashed(w)) {
            uint256 slashTime = limitField(w);
            if (time == 0 || slashTime < time) time = slashTime;
        }
    }

    /// @notice Units that count against the limit.
    function open(uint256 w) internal pure returns (uint256) {
        return earned(w) - drawn(w) + pending(w);
    }

    function withEarned(uint256 w, uint256 value) internal pure returns (uint256) {
        return (w & ~MAX_46) | value;
    }

    function withDrawn(uint256 w, uint256 value) internal pure returns (uint256) {
        return (w & ~(MAX_46 << 46)) | (value << 46);
    }

    function withPending(uint256 w, uint256 value) internal pure returns (uint256) {
        return (w & ~(MAX_34 << 92)) | (value << 92);
    }

    function withLimit(uint256 w, uint256 value) internal pure returns (uint256) {
        return (w & ~(MAX_34 << 126)) | (value << 126);
    }

    function withJoinedStep(uint256 w, uint256 value) internal pure returns (uint256) {
        return (w & ~(uint256(0xfffff) << 214)) | (value << 214);
    }

    /// @notice After one more submission of `units`.
    function submitted(uint256 w, uint256 units) internal pure returns (uint256) {
        unchecked {
            return w + (units << 92) + (1 << 160) + (1 << 234);
        }
    }

    /// @notice After one more file whose cost is open. A count at its end stays there.
    function unsettledMore(uint256 w) internal pure returns (uint256) {
        return unsettled(w) == MAX_COUNT ? w : w + (1 << 234);
    }

    /// @notice After one such file less.
    function unsettledLess(uint256 w) internal pure returns (uint256) {
        return unsettled(w) == MAX_COUNT ? w : w - (1 << 234);
    }

    /// @notice After one more frozen file. Earliest time wins; the count sticks at its end.
    function frozenMore(uint256 w, uint256 time) internal pure returns (uint256) {
        uint256 count = frozen(w);
        if (count == 0) w = (w & ~(uint256(0xffffffff) << 182)) | (time << 182);
        return count == MAX_COUNT ? w : w + (1 << 244);
    }

    /// @notice After one frozen file less. A count that once stuck never comes down.
    function frozenLess(uint256 w) internal pure returns (uint256) {
        uint256 count = frozen(w);
        if (count == MAX_COUNT) return w;
        w -= 1 << 244;
        return count == 1 ? w & ~(uint256(0xffffffff) << 182) : w;
    }

    /// @notice After a slash for a file that was frozen at `time`; the earliest wins.
    function slashedAt(uint256 w, uint256 time) internal pure returns (uint256) {
        if (slashed(w) && limitField(w) <= time) return w;
        return withLimit(w, time) | SLASHED;
    }
}
