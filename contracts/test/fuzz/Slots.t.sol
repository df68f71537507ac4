// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {AccountSlot} from "../../src/libraries/AccountSlot.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {FileSlot} from "../../src/libraries/FileSlot.sol";
import {LaneSlot} from "../../src/libraries/LaneSlot.sol";
import {Memberships} from "../../src/libraries/Memberships.sol";
import {Reckoning} from "../../src/libraries/Reckoning.sol";
import {PRBTest} from "@prb/test/PRBTest.sol";

/// @notice Packed words: what is written into a field comes out of it, and no other field moves.
contract SlotsTest is PRBTest {
    using AccountSlot for uint256;
    using FileSlot for uint256;
    using LaneSlot for uint256;
    using Memberships for uint256;

    uint256 private constant FLAGS = FileSlot.CUMULATIVE | FileSlot.FROZEN;

    function testFuzz_accountSettersTouchOneField(uint256 w, uint256 value) public pure {
        uint256 v46 = value & AccountSlot.MAX_46;
        uint256 v34 = value & AccountSlot.MAX_34;
        uint256 v32 = value & type(uint32).max;
        uint256 v20 = value & 0xfffff;
        require(w.withEarned(v46).earned() == v46 && w.withEarned(v46).withEarned(w.earned()) == w, "earned");
        require(w.withSpent(v46).spent() == v46 && w.withSpent(v46).withSpent(w.spent()) == w, "spent");
        require(w.withPending(v34).pending() == v34 && w.withPending(v34).withPending(w.pending()) == w, "pending");
        require(w.withLimit(v34).limit() == v34 && w.withLimit(v34).withLimit(w.limit()) == w, "limit");
        require(w.withBarrier(v32).barrier() == v32 && w.withBarrier(v32).withBarrier(w.barrier()) == w, "barrier");
        require(w.withJoinedStep(v20).joinedStep() == v20, "step");
        require(w.withJoinedStep(v20).withJoinedStep(w.joinedStep()) == w, "only the step");
    }

    /// As many submissions as may be under way, each with its units: three fields move, and come back.
    function testFuzz_submissionsAddUp(uint24[8] calldata units, uint32 before) public pure {
        uint256 w = uint256(0).withLimit(before).withJoinedStep(before & 0xfffff).withBarrier(before);
        uint256 start = w;
        uint256 sum;
        for (uint256 i = 0; i < 8; ++i) {
            w = w.submitted(units[i]);
            sum += units[i];
            require(w.pending() == sum && w.counter() == i + 1 && w.unsettled() == i + 1, "sums");
            require(w.open() == sum, "open");
        }
        for (uint256 i = 0; i < 8; ++i) {
            w = w.withPending(w.pending() - units[i]).unsettledLess();
        }
        require(w == start | (8 << 160), "only the counter stays");
    }

    function testFuzz_unsettledCountSticksAtItsEnd(uint16 more) public pure {
        uint256 w;
        uint256 n = uint256(more) % 1_100;
        for (uint256 i = 0; i < n; ++i) {
            w = w.unsettledMore();
        }
        uint256 most = AccountSlot.MAX_COUNT;
        require(w.unsettled() == (n < most ? n : most), "count");
        if (n != 0) require(w.unsettledLess().unsettled() == (n < most ? n - 1 : most), "less");
        require(w == w.unsettled() << 234, "no other field");
    }

    function testFuzz_fileFieldsAreTheirOwn(uint160 digest, uint48 amount, uint32 time, uint8 code, uint8 kind)
        public
        pure
    {
        uint256 phase = kind & 15;
        uint256 w = FileSlot.pack(digest, amount, time, code, phase);
        require(w.digest() == digest && w.amount() == amount, "low");
        require(w.finalAt() == time && w.code() == code && w.phase() == phase && w & FLAGS == 0, "high");
        uint256 flagged = w | FileSlot.CUMULATIVE | FileSlot.FROZEN;
        require(flagged & FLAGS == FLAGS && flagged.phase() == phase, "flags");
        for (uint256 next = 0; next < 5; ++next) {
            require(flagged.withPhase(next).phase() == next, "phase");
            require(flagged.withPhase(next).withPhase(phase) == flagged, "only the phase");
        }
    }

    function testFuzz_laneFieldsAreTheirOwn(
        uint64 seed,
        uint16[5] calldata members,
        uint32 time,
        uint64 codes,
        uint8 who
    ) public pure {
        uint256 index = who % LaneSlot.MOST;
        uint256 w = uint256(seed).withTime(time).withCodes(codes);
        for (uint256 i = 0; i < 5; ++i) {
            w = w.withMember(i, members[i]);
        }
        uint256 voted = w.withCommitted(index).withRevealed(index) | LaneSlot.CLOSED | LaneSlot.SETTLED;
        require(voted.seed() == seed && voted.codes() == codes && voted.settled() && !w.settled(), "ends");
        require(voted.time() == time, "time");
        require(voted.committed() == 1 << index && voted.revealed() == 1 << index, "votes");
        require(voted & LaneSlot.CLOSED != 0 && w & LaneSlot.CLOSED == 0, "closed");
        for (uint256 i = 0; i < 5; ++i) {
            require(voted.member(i) == members[i], "member");
        }
        require(voted.withCodes(~uint256(codes) & type(uint64).max).withCodes(codes) == voted, "only the codes");
        require(voted.withTime(0).withTime(time) == voted, "only the time");
    }

    function testFuzz_codeWordsAreSixteenFields(uint64 word, uint8 place, uint8 code) public pure {
        (place, code) = (place & 15, code & 15);
        uint256 w = Codes.set(word, place, code);
        for (uint256 i = 0; i < 16; ++i) {
            require(Codes.get(w, i) == (i == place ? code : Codes.get(word, i)), "one place");
            require(Codes.get(word, i) == (word >> (4 * i)) % 16, "a nibble");
        }
    }

    function testFuzz_spreadAndGatherAreInverse(uint16 places, uint64 codes, uint8 code) public pure {
        code = 1 + code % 15;
        uint256 w = Codes.spread(places, code);
        uint256 kept = Reckoning.only(codes, code);
        uint256 set;
        for (uint256 i = 0; i < 16; ++i) {
            require(Codes.get(w, i) == (places >> i & 1 == 1 ? code : 0), "spread");
            require(Codes.gather(codes) >> i & 1 == (Codes.get(codes, i) == 0 ? 0 : 1), "gather");
            require(Codes.get(kept, i) == (Codes.get(codes, i) == code ? code : 0), "only");
            if (Codes.get(codes, i) != 0) ++set;
        }
        require(Codes.gather(w) == places && Reckoning.count(codes) == set, "inverse");
    }

    function testFuzz_membershipsAreFiveEntries(uint32[5] calldata groups, uint16[5] calldata places, uint8 gone)
        public
        pure
    {
        uint256 w = Memberships.NONE;
        for (uint256 i = 0; i < 5; ++i) {
            w = w.withEntry(i, groups[i], places[i]);
        }
        uint256 index = gone % 5;
        uint256 less = w.withEntry(index, 0, 0);
        for (uint256 i = 0; i < 5; ++i) {
            require(w.groupAt(i) == groups[i] && w.placeAt(i) == places[i], "entry");
            require(less.groupAt(i) == (i == index ? 0 : groups[i]), "one less");
            require(groups[w.find(groups[i])] == groups[i] && w.find(groups[i]) <= i, "found");
        }
        require(less.withEntry(index, groups[index], places[index]) == w && w >> 255 == 1, "only that");
    }
}
