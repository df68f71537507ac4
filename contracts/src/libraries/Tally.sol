// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "./Codes.sol";

/// @title Tally
/// @notice From votes to outcomes. Every outcome needs a majority: accept; fraud; fraud or malformed, which is
/// malformed; unavailable, which is paid and so counts for nothing else.
library Tally {
    /// @notice Outcome of one file. `votes`: sixteen-code words of those who revealed, read at `place`.
    /// @param seats Seats of the whole committee; a majority is more than half of them.
    function outcome(uint256[] memory votes, uint256 place, uint256 seats) internal pure returns (uint256) {
        uint256 majority = seats / 2 + 1;
        uint256 accepts;
        uint256 rejects;
        uint256 reasons; // sixteen 4-bit counters
        for (uint256 i = 0; i < votes.length; ++i) {
            uint256 code = Codes.get(votes[i], place);
            if (!Codes.isVote(code)) continue;
            if (Codes.kind(code) == Codes.KIND_ACCEPT) {
                ++accepts;
            } else {
                if (Codes.isReject(code)) ++rejects;
                reasons = Codes.set(reasons, code, Codes.get(reasons, code) + 1);
            }
        }
        if (accepts >= majority) return Codes.ACCEPT;
        if (rejects >= majority) return mostNamed(reasons);
        if (rejects + Codes.get(reasons, Codes.MALFORMED) >= majority) return Codes.MALFORMED;
        return Codes.get(reasons, Codes.UNAVAILABLE) >= majority ? Codes.UNAVAILABLE : Codes.UNDECIDED;
    }

    /// @notice The fraud reason named most often; the lowest code on a tie.
    function mostNamed(uint256 reasons) internal pure returns (uint256 best) {
        uint256 most;
        for (uint256 code = Codes.REJECT_WEIGHTS; code <= Codes.REJECT_COMMITMENT; ++code) {
            uint256 count = Codes.get(reasons, code);
            if (count > most) (most, best) = (count, code);
        }
    }

    /// @notice Outcomes of the places that `open` says are undecided. What stays so is `otherwise`.
    function lane(uint256[] memory votes, uint256 open, uint256 seats, uint256 otherwise)
        internal
        pure
        returns (uint256 codes)
    {
        // the usual case, without the loop: everybody accepts all that there is
        uint256 accepted = open / Codes.UNDECIDED;
        uint256 accepting;
        while (accepting < votes.length && votes[accepting] & (accepted * 15) == accepted) ++accepting;
        if (accepting == seats) return accepted;
        for (uint256 place = 0; open >> (place << 2) != 0; ++place) {
            if (Codes.get(open, place) != Codes.UNDECIDED) continue;
            uint256 code = outcome(votes, place, seats);
            codes |= (code == Codes.UNDECIDED ? otherwise : code) << (place << 2);
        }
    }
}
