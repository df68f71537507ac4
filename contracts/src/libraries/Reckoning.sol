// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "./Codes.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @title Reckoning
/// @notice From votes to outcomes, and what a member of a committee is owed and owes once they are final. Every outcome
/// needs a majority: accept; fraud; fraud or malformed, which is malformed; unavailable, which is paid and so counts
/// for nothing else.
library Reckoning {
    uint256 private constant ONES = 0x1111111111111111;

    /// @notice Per file one fee: paid for a vote of the outcome's kind, burnt otherwise. For a file that it could not get,
    /// or that two committees left undecided, a seat is paid an attempt's worth. A vote that contradicts the outcome costs
    /// `minority`, no valid vote `withheld`. A vote of unavailable where others could judge costs another fee, and at
    /// most `minority`: enough to make looking the better choice, too little to ruin a seat that bytes are kept from.
    /// @param votes Sixteen codes, 0 where there is no vote. @param codes Final outcomes.
    function member(uint256 votes, uint256 codes, uint256 fee, uint256 minority, uint256 withheld)
        internal
        pure
        returns (uint256 paid, uint256 burnt, uint256 penalty)
    {
        for (uint256 place = 0; place < 16; ++place) {
            uint256 code = Codes.get(codes, place);
            if (code == Codes.NONE) continue;
            uint256 vote = Codes.get(votes, place);
            uint256 share;
            if (!Codes.isVote(vote)) penalty += withheld;
            else if (Codes.kind(vote) == Codes.kind(code)) share = vote == Codes.UNAVAILABLE ? fee >> 2 : fee;
            else if (vote == Codes.UNAVAILABLE) penalty += fee < minority ? fee : minority;
            // on a canary the slash is the penalty
            else if (code != Codes.CANARY && Codes.contradict(vote, code)) penalty += minority;
            paid += share;
            burnt += fee - share;
        }
    }

    /// @notice The same, without the loop where all that there is was accepted, and by this member.
    function closed(uint256 votes, uint256 codes, uint256 fee, uint256 minority, uint256 withheld)
        internal
        pure
        returns (uint256 paid, uint256 burnt, uint256 penalty)
    {
        if (votes == codes && codes & ~ONES == 0) {
            uint256 pairs = (codes & 0x0f0f0f0f0f0f0f0f) + ((codes >> 4) & 0x0f0f0f0f0f0f0f0f);
            return ((((pairs * 0x0101010101010101) >> 56) & 0xff) * fee, 0, 0);
        }
        return member(votes, codes, fee, minority, withheld);
    }

    /// @notice Whether one of sixteen codes is `code`: a word with a zero nibble, found without a loop.
    function has(uint256 codes, uint256 code) internal pure returns (bool) {
        unchecked {
            uint256 word = codes ^ (code * ONES);
            return (word - ONES) & ~word & (ONES << 3) != 0;
        }
    }

    /// @notice Sixteen codes without those that are not `code`.
    function only(uint256 codes, uint256 code) internal pure returns (uint256) {
        return Codes.spread(~Codes.gather(codes ^ (code * ONES)), code);
    }

    /// @notice Whether a member that voted `votes` would be penalised if `codes` were final.
    function owes(uint256 votes, uint256 codes) internal pure returns (bool) {
        (,, uint256 penalty) = member(votes, codes, 1, 1, 1);
        return penalty != 0;
    }

    /// @notice How many of sixteen codes are set.
    function count(uint256 codes) internal pure returns (uint256 files) {
        for (uint256 places = Codes.gather(codes); places != 0; places &= places - 1) {
            ++files;
        }
    }

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
            uint256 named = Codes.get(reasons, code);
            if (named > most) (most, best) = (named, code);
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

    /// @notice What is taken of a stake, and how it is split: fees first, then a reward of at most `rewardBps` of it;
    /// what is left is burnt.
    /// @param kept What other files of the node may still cost.
    function split(uint256 stake, uint256 amount, uint256 kept, uint256 fees, uint256 reward, uint256 rewardBps)
        internal
        pure
        returns (uint256 taken, uint256 feesPaid, uint256 rewardPaid)
    {
        taken = Math.min(amount, stake < kept ? 0 : stake - kept);
        feesPaid = Math.min(fees, taken);
        rewardPaid = Math.min(Math.min(reward, taken * rewardBps / 10_000), taken - feesPaid);
    }
}
