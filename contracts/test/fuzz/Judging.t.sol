// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Reckoning} from "../../src/libraries/Reckoning.sol";
import {PRBTest} from "@prb/test/PRBTest.sol";

/// @notice Outcomes, fees and penalties against plain references.
contract JudgingTest is PRBTest {
    /// @dev The rules in words, without counters packed in words.
    function _reference(uint256[] memory votes, uint256 place) private pure returns (uint256) {
        uint256[16] memory named;
        for (uint256 i = 0; i < votes.length; ++i) {
            ++named[(votes[i] >> (4 * place)) % 16];
        }
        uint256 majority = votes.length / 2 + 1;
        uint256 frauds;
        uint256 most;
        uint256 reason;
        for (uint256 code = 3; code <= 9; ++code) {
            frauds += named[code];
            if (named[code] > most) (most, reason) = (named[code], code);
        }
        if (named[1] + named[2] >= majority) return Codes.ACCEPT;
        if (frauds >= majority) return reason;
        if (frauds + named[10] >= majority) return Codes.MALFORMED;
        return named[11] >= majority ? Codes.UNAVAILABLE : Codes.UNDECIDED;
    }

    function testFuzz_tallyOfThree(uint64[3] calldata words) public pure {
        uint256[] memory votes = new uint256[](3);
        for (uint256 i = 0; i < 3; ++i) {
            votes[i] = words[i];
        }
        for (uint256 place = 0; place < 16; ++place) {
            require(Reckoning.outcome(votes, place, 3) == _reference(votes, place), "three");
        }
    }

    /// Up to fifteen jurors, who agree often enough to decide.
    function testFuzz_tallyOfAnyBody(uint64[15] calldata words, uint8 size, uint8 leaning) public pure {
        uint256 n = 3 + 2 * (uint256(size) % 7);
        uint256[] memory votes = new uint256[](n);
        for (uint256 i = 0; i < n; ++i) {
            votes[i] = words[i] % 3 == 0 ? uint256(words[i]) : uint256(leaning % 16) * 0x1111111111111111;
        }
        for (uint256 place = 0; place < 16; ++place) {
            require(Reckoning.outcome(votes, place, n) == _reference(votes, place), "any");
        }
    }

    /// Order and identity of the voters do not matter.
    function testFuzz_tallyIsSymmetric(uint64[5] calldata words, uint8 shift) public pure {
        uint256[] memory votes = new uint256[](5);
        uint256[] memory turned = new uint256[](5);
        for (uint256 i = 0; i < 5; ++i) {
            votes[i] = words[i];
            turned[(i + shift) % 5] = words[i];
        }
        for (uint256 place = 0; place < 16; ++place) {
            require(Reckoning.outcome(votes, place, 5) == Reckoning.outcome(turned, place, 5), "order");
        }
    }

    /// A lane's word has outcomes where it is undecided, and nothing elsewhere.
    function testFuzz_laneIsSixteenTallies(uint64[3] calldata words, uint16 places, bool last) public pure {
        uint256[] memory votes = new uint256[](3);
        for (uint256 i = 0; i < 3; ++i) {
            votes[i] = words[i];
        }
        uint256 otherwise = last ? Codes.VOID : Codes.UNDECIDED;
        uint256 codes = Reckoning.lane(votes, Codes.spread(places, Codes.UNDECIDED), 3, otherwise);
        for (uint256 place = 0; place < 16; ++place) {
            uint256 code = _reference(votes, place);
            if (code == Codes.UNDECIDED) code = otherwise;
            require(Codes.get(codes, place) == (places >> place & 1 == 1 ? code : 0), "lane");
        }
    }

    function _agree(uint256 vote, uint256 code) private pure returns (bool) {
        if (vote <= 2 || code <= 2) return vote <= 2 && code <= 2;
        if (vote <= 9) return code <= 9 || code == 12;
        return vote == code || (vote == 11 && code == 13);
    }

    function testFuzz_memberIsPaidByTheRules(uint64 votes, uint64 codes, uint32 fee, uint32 minority, uint32 withheld)
        public
        pure
    {
        (uint256 paid, uint256 burnt, uint256 penalty) = Reckoning.member(votes, codes, fee, minority, withheld);
        uint256[3] memory sums;
        for (uint256 place = 0; place < 16; ++place) {
            uint256 code = (codes >> (4 * place)) % 16;
            uint256 vote = (votes >> (4 * place)) % 16;
            if (code == 0) continue;
            bool voted = vote >= 1 && vote <= 11;
            bool same = _agree(vote, code);
            uint256 due = voted && same ? (vote == 11 ? fee / 4 : uint256(fee)) : 0;
            (sums[0], sums[1]) = (sums[0] + due, sums[1] + fee - due);
            if (!voted) sums[2] += withheld;
            else if (vote == 11) sums[2] += same ? 0 : fee < minority ? fee : minority;
            else if ((vote <= 2) != (code <= 2) && code < 11) sums[2] += minority;
        }
        require(paid == sums[0] && burnt == sums[1] && penalty == sums[2], "member");
        (,, uint256 any) = Reckoning.member(votes, codes, 1, 1, 1);
        require(Reckoning.owes(votes, codes) == (any != 0), "owes");
    }

    function testFuzz_blameIsMutual(uint8 a, uint8 b) public pure {
        require(Codes.contradict(a, b) == Codes.contradict(b, a), "mutual");
        require(!Codes.contradict(a, a), "nobody contradicts himself");
        require(!Codes.contradict(a, Codes.UNAVAILABLE) && !Codes.contradict(a, Codes.VOID), "an honest unavailable");
        bool known = a >= 1 && a <= 12 && b >= 1 && b <= 12 && a != 11 && b != 11;
        require(Codes.contradict(a, b) == (known && ((a <= 2) != (b <= 2))), "accept against the rest");
    }

    /// Who is slashed, step by step: what other files may cost stays; fees first; a bounded reward; nothing is made.
    function testFuzz_slashIsSplitInOrder(
        uint56 stake,
        uint56 amount,
        uint48 kept,
        uint40 fees,
        uint56 reward,
        uint16 b
    ) public pure {
        uint256 bps = b % 2_001;
        (uint256 taken, uint256 feesPaid, uint256 rewardPaid) = Reckoning.split(stake, amount, kept, fees, reward, bps);
        uint256 left = stake > kept ? stake - kept : 0;
        if (left > amount) left = amount;
        require(taken == left, "taken");
        uint256 first = left > fees ? fees : left;
        require(feesPaid == first, "fees");
        uint256 bound = left * bps / 10_000;
        uint256 rest = left - first;
        if (bound > rest) bound = rest;
        require(rewardPaid == (reward > bound ? bound : reward), "reward");
    }
}
