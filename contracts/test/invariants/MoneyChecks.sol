// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Phase} from "../helpers/Phase.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IPools} from "../interfaces/IPools.sol";
import {World} from "./World.sol";

/// @notice Where every base unit is, and to whom it is owed.
abstract contract MoneyChecks is World {
    function tokensAreConserved() external view {
        uint256 sum;
        for (uint256 i = 0; i < holders.length; ++i) {
            require(token.balanceOf(holders[i]) == ghostBalance[holders[i]], "a balance");
            sum += ghostBalance[holders[i]];
        }
        require(sum == token.totalSupply(), "supply");
        require(token.balanceOf(address(court)) == 0, "the court holds nothing");
    }

    function escrowIsWhatCameInLessWhatWentOut() external view {
        require(token.balanceOf(address(pools)) + claimedBaseUnits + escrowOut == escrowIn, "escrow's flows");
        require(_pool(pool).free == ghostFree, "the free budget");
        require(ghostFree <= token.balanceOf(address(pools)), "more free than there is");
    }

    function escrowIsOwedToSomebody() external view {
        uint256 owed = _pool(1).free + _pool(pool).free + ghostFeesSum;
        for (uint256 seat = 1; seat <= seats.opened(); ++seat) {
            require(pools.feesOf(seat) == ghostFees[seat], "a seat's fees");
        }
        for (uint256 i = 0; i < everyNode.length; ++i) {
            Account memory a = _account(pool, everyNode[i]);
            owed += (a.earned - a.spent) * _rate();
        }
        for (uint256 i = 0; i < sequences.length; ++i) {
            owed += _reserved(sequences[i]);
        }
        require(token.balanceOf(address(pools)) == owed, "escrow");
    }

    /// @dev Pay and fees that the escrow holds for a file beside what its node has earned.
    function _reserved(uint256 sequence) private view returns (uint256 sum) {
        Submission memory f = _submission(sequence);
        uint256 pay = ghostFiles[sequence].units * _rate();
        if (f.phase == Phase.Pending) return pay + 2 * _fees();
        if (f.phase == Phase.Disputed) return pay + ghostFiles[sequence].rounds * _fees();
        if (f.phase == Phase.Settled && !Codes.isPaid(f.code)) sum = pay;
        uint256 last = Codes.get(_round(pool, sequence >> 4, 0).codes, sequence & 15) == Codes.UNDECIDED ? 1 : 0;
        for (uint256 round = 0; round <= last; ++round) {
            Round memory r = _round(pool, sequence >> 4, round);
            if (r.seats.length != 0 && !r.closed) sum += _fees();
        }
    }

    function stakesAndBondsAreBalances() external view {
        uint256 sum;
        for (uint256 i = 0; i < stakers.length; ++i) {
            require(stakes.nodeOf(stakers[i]).stake == ghostStake[stakers[i]], "a stake");
            require(stakes.nodeOf(stakers[i]).frozen == ghostStakeFrozen[stakers[i]], "a stake's freezes");
            sum += ghostStake[stakers[i]];
        }
        require(stakes.unburnt() == ghostUnburnt, "unburnt");
        require(token.balanceOf(address(stakes)) == sum + ghostUnburnt, "stakes");
        sum = 0;
        for (uint256 i = 1; i <= seats.opened(); ++i) {
            sum += ghostSeats[i].bond;
        }
        require(token.balanceOf(address(seats)) == sum, "bonds");
    }

    function depositsAreOpenCases() external view {
        uint256 sum;
        for (uint256 i = 0; i < disputed.length; ++i) {
            sum += ghostDisputes[disputed[i]].open;
        }
        require(token.balanceOf(address(appeals)) == sum, "appeals");
        sum = 0;
        for (uint256 i = 0; i < opened.length; ++i) {
            sum += ghostDisputes[opened[i]].canary;
        }
        require(token.balanceOf(address(canaries)) == sum, "canaries");
        sum = 0;
        uint256 count = juries.trialCount();
        for (uint256 trial = 1; trial <= count; ++trial) {
            sum += _owedToJurors(trial);
        }
        require(token.balanceOf(address(juries)) == sum, "juries");
    }

    function _owedToJurors(uint256 trial) private view returns (uint256 sum) {
        GhostTrial storage j = ghostTrials[trial];
        if (!j.concluded) return j.deposit;
        for (uint256 i = 0; i < j.jurors.length; ++i) {
            uint256 code = _jurorVote(trial, i);
            if (code == Codes.NONE || j.closed & (1 << i) != 0) continue;
            if (code == Codes.UNAVAILABLE) sum += Codes.isVerdict(j.code) ? 0 : j.attempt;
            else if (j.code == Codes.NONE || Codes.kind(code) == Codes.kind(j.code)) sum += j.fee;
        }
    }

    /// @notice Only work that vested, that nobody disputes and that was to be paid is paid, and once.
    function nobodyIsOverpaid() external view {
        for (uint256 i = 0; i < everyNode.length; ++i) {
            GhostAccount storage a = ghostAccounts[everyNode[i]];
            require(a.claimed <= _vested(everyNode[i]), "paid what had not vested, or twice");
        }
    }

    function _vested(address n) internal view returns (uint256 sum) {
        uint256 barrier = ghostAccounts[n].barrier;
        for (uint256 i = 0; i < sequences.length; ++i) {
            GhostFile storage f = ghostFiles[sequences[i]];
            if (f.node != n || !Codes.isPaid(f.code) || f.forfeited || f.phase == Phase.Disputed) continue;
            if (f.time <= clock && (barrier == 0 || f.time <= barrier)) sum += f.units;
        }
    }

    /// @notice What open files may still cost their committees is at stake, until their node's stake can leave. Nothing
    /// is for a file that was accepted and is held after its node lost its stake for another.
    function stakeCoversOpenFiles() external view {
        for (uint256 i = 0; i < everyNode.length; ++i) {
            address n = everyNode[i];
            // out of its pool for so long that whatever it did there should be final
            if (stakes.nodeOf(n).pool != pool && clock >= stakes.nodeOf(n).releaseAt) continue;
            uint256 files = ghostAccounts[n].unsettled - (ghostAccounts[n].slashed ? _heldAsPaid(n) : 0);
            require(stakes.nodeOf(n).stake >= files * _fees(), "too little at stake");
        }
    }

    function _heldAsPaid(address n) private view returns (uint256 count) {
        for (uint256 i = 0; i < sequences.length; ++i) {
            GhostFile storage f = ghostFiles[sequences[i]];
            if (f.node == n && f.phase == Phase.Disputed && Codes.isPaid(f.code)) ++count;
        }
    }
}
