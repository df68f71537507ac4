// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "./Codes.sol";

/// @title Reckoning
/// @notice What a committee member is owed and owes once all outcomes of its round are final.
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
}
