// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {AccountSlot} from "../src/libraries/AccountSlot.sol";
import {Codes} from "../src/libraries/Codes.sol";
import {FileSlot} from "../src/libraries/FileSlot.sol";
import {Reckoning} from "../src/libraries/Reckoning.sol";

/// @notice Proved for all inputs by halmos (`check_*`): accrual, claim, slashing split, vesting, packing.
contract HalmosProofs {
    using AccountSlot for uint256;
    using FileSlot for uint256;

    /// Accrual: a submission moves its units and its counter, and nothing else.
    function check_submitted(uint256 w, uint256 units) external pure {
        if (units > type(uint24).max || w.pending() + units > AccountSlot.MAX_34) return;
        if (w.counter() == AccountSlot.MAX_COUNTER || w.unsettled() == AccountSlot.MAX_COUNT) return;
        uint256 after_ = w.submitted(units);
        assert(after_.pending() == w.pending() + units && after_.counter() == w.counter() + 1);
        assert(after_.earned() == w.earned() && after_.spent() == w.spent());
        assert(after_.limit() == w.limit() && after_ >> 244 == w >> 244 && after_.barrier() == w.barrier());
    }

    /// Claim: what is paid and what is left add up, and nothing else of the account changes.
    function check_claim(uint256 w, uint256 upTo) external pure {
        if (upTo > w.earned() || upTo <= w.spent()) return;
        uint256 after_ = w.withSpent(upTo);
        assert((upTo - w.spent()) + (after_.earned() - after_.spent()) == w.earned() - w.spent());
        assert(after_.earned() == w.earned() && after_ >> 92 == w >> 92);
    }

    /// Each field of the account is kept by writes of the others.
    function check_accountFields(uint256 w, uint256 earned, uint256 pending, uint256 limit, uint256 step)
        external
        pure
    {
        if (earned > AccountSlot.MAX_46 || pending > AccountSlot.MAX_34) return;
        if (limit > AccountSlot.MAX_34 || step >= 1 << 20) return;
        uint256 a = w.withEarned(earned).withPending(pending).withLimit(limit).withJoinedStep(step);
        assert(a.earned() == earned && a.pending() == pending && a.limit() == limit && a.joinedStep() == step);
        assert(a.spent() == w.spent() && a.counter() == w.counter() && a.barrier() == w.barrier());
        assert(a.frozen() == w.frozen() && a >> 254 == w >> 254 && a.unsettled() == w.unsettled());
    }

    /// Freezing and releasing once is no change but for the time kept by an earlier freeze.
    function check_freezeRelease(uint256 w, uint256 time) external pure {
        if (time > type(uint32).max || w.frozen() >= AccountSlot.MAX_COUNT - 1) return;
        if (time == 0 || (w.frozen() == 0 && !w.slashed() && w.barrier() != 0)) return;
        if (w.slashed() && w.barrier() == 0) return; // a slash always has a time
        if (w.frozen() != 0 && w.barrier() == 0) return;
        assert(w.frozenMore(time).frozenLess() == w);
    }

    /// Vesting: a slash can only make the barrier earlier, never later.
    function check_slashBarrier(uint256 w, uint256 time) external pure {
        if (time == 0 || time > type(uint32).max) return;
        uint256 after_ = w.slashedAt(time);
        assert(after_.slashed() && after_.barrier() != 0 && after_.barrier() <= time && after_.limit() == 0);
        if (w.barrier() != 0) assert(after_.barrier() <= w.barrier());
        assert(after_.earned() == w.earned() && after_.spent() == w.spent() && after_.pending() == w.pending());
    }

    /// Slashing: no more than is due, and never what is kept for other files.
    function check_taken(uint256 stake, uint256 amount, uint256 kept) external pure {
        (uint256 taken,,) = Reckoning.split(stake, amount, kept, 0, 0, 0);
        assert(taken <= stake && taken <= amount);
        assert(taken == 0 || stake - taken >= kept);
        assert(taken == amount || taken == 0 || stake - taken == kept); // and no less
    }

    /// The parts of a slash never exceed it, whatever share of it a reward may be: fees come first.
    function check_split(uint256 stake, uint256 fees, uint256 reward) external pure {
        if (stake > type(uint56).max) return;
        (uint256 taken, uint256 f, uint256 r) = Reckoning.split(stake, stake, 0, fees, reward, 10_000);
        assert(f <= taken && r <= taken - f);
        assert(f <= fees && (f == fees || f == taken));
        assert(r <= reward && (r == reward || r == taken - f));
    }

    /// A file's word gives back what was packed.
    function check_filePacking(uint160 digest, uint48 amount, uint32 time, uint8 code, uint8 phase, bool flag)
        external
        pure
    {
        if (phase > 15) return;
        uint256 f = FileSlot.pack(digest, amount, time, code, phase) | (flag ? FileSlot.CUMULATIVE : 0);
        assert(f.digest() == digest && f.amount() == amount && f.finalAt() == time);
        assert(f.code() == code && f.phase() == phase && (f & FileSlot.CUMULATIVE != 0) == flag);
        assert(f.withPhase(4).phase() == 4 && f.withPhase(4).code() == code);
    }

    /// Sixteen places and sixteen codes say the same.
    function check_placesAndCodes(uint16 places, uint64 codes, uint8 code) external pure {
        if (code == 0 || code > 15) return;
        uint256 word = Codes.spread(places, code);
        assert(Codes.gather(word) == places && word <= type(uint64).max);
        uint256 place = code; // any of the sixteen
        assert(Codes.get(word, place) == (places >> place & 1 == 1 ? code : 0));
        assert((Codes.gather(codes) >> place & 1 == 1) == (Codes.get(codes, place) != 0));
    }
}
