// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Phase} from "../helpers/Phase.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {IPools} from "../interfaces/IPools.sol";
import {ISeats} from "../interfaces/ISeats.sol";
import {World} from "./World.sol";

/// @notice What the events tell is what the contracts store.
abstract contract StateChecks is World {
    function accountsAreTheEvents() external view {
        for (uint256 i = 0; i < everyNode.length; ++i) {
            Account memory a = _account(pool, everyNode[i]);
            GhostAccount storage g = ghostAccounts[everyNode[i]];
            require(a.earned == g.earned && a.spent == g.spent && a.pending == g.pending, "units");
            require(a.counter == g.counter && a.unsettled == g.unsettled && a.frozen == g.frozen, "counts");
            require(a.barrier == g.barrier && a.slashed == g.slashed, "barrier");
        }
    }

    function filesAreTheEvents() external view {
        for (uint256 i = 0; i < sequences.length; ++i) {
            Submission memory f = _submission(sequences[i]);
            GhostFile storage g = ghostFiles[sequences[i]];
            require(f.phase == g.phase && f.code == g.code, "outcome");
            require(f.earned == g.upTo, "earned");
            if (g.upTo == 0) require(f.units == g.units, "units");
            if (g.phase != Phase.Pending) require(f.finalAt == g.time, "time");
        }
    }

    function roundsAreTheEvents() external view {
        for (uint256 i = 0; i < sequences.length; ++i) {
            if (sequences[i] & 15 != 0) continue;
            for (uint256 round = 0; round < 2; ++round) {
                Round memory r = _round(pool, sequences[i] >> 4, round);
                GhostRound storage g = ghostRounds[((sequences[i] >> 4) << 1) | round];
                require(r.codes == g.codes && r.settled == g.settled, "codes");
                require(r.committed == g.committed && r.revealed == g.revealed, "votes");
                require(r.closed ? g.closed == 7 : g.closed == 0, "closed");
                require(keccak256(abi.encode(r.seats)) == keccak256(abi.encode(g.seats)), "members");
            }
        }
    }

    function trialsAreTheEvents() external view {
        uint256 count = juries.trialCount();
        for (uint256 trial = 1; trial <= count; ++trial) {
            IJuries.Trial memory c = juries.caseOf(trial);
            GhostTrial storage g = ghostTrials[trial];
            require(c.concluded == g.concluded && c.code == g.code, "case");
            require(c.committed == g.committed && c.revealed == g.revealed && c.closed == g.closed, "votes");
            require(keccak256(abi.encode(c.seats)) == keccak256(abi.encode(g.jurors)), "jurors");
        }
        for (uint256 i = 0; i < disputed.length; ++i) {
            require(appeals.disputeOf(pool, disputed[i]).resolved == ghostDisputes[disputed[i]].resolved, "dispute");
        }
        for (uint256 i = 0; i < opened.length; ++i) {
            require(canaries.canaryOf(pool, opened[i]).concluded == ghostDisputes[opened[i]].concluded, "canary");
        }
    }

    function seatsAreTheEvents() external view {
        for (uint256 seat = 1; seat <= seats.opened(); ++seat) {
            ISeats.Seat memory s = seats.seatOf(seat);
            GhostSeat storage g = ghostSeats[seat];
            require(s.bond == g.bond && s.frozen == g.frozen, "bond");
            require(_isActive(seat) == g.active, "active");
            if (g.active) require(g.bond >= BOND / 2, "a seat without a live bond is active");
            else require(_groupsOf(seat).length == 0, "a seat that left is in a group");
        }
    }

    /// @notice By epoch and group: as many seats as opted in, each in one place.
    function classesAreTheEvents() external {
        vm.roll(height);
        uint256 current = seats.currentEpoch();
        uint256[2] memory groups = [uint256(FAMILY), FAMILY - 1];
        for (uint256 i = 0; i < 2; ++i) {
            for (uint256 epoch = current - 3; epoch <= current + 1; ++epoch) {
                _checkClass(groups[i], epoch);
            }
        }
    }

    function _checkClass(uint256 group, uint256 epoch) private view {
        uint256 expected;
        uint256 size;
        Stay[] storage list = stays[group];
        for (uint256 i = 0; i < list.length; ++i) {
            if (list[i].first > epoch || (list[i].last != 0 && list[i].last < epoch)) continue;
            expected |= 1 << list[i].seat;
            ++size;
        }
        require(seats.countAt(group, epoch) == size, "group's size");
        for (uint256 seat = 1; seat <= seats.opened(); ++seat) {
            if (seats.seatOf(seat).bond < seats.minBond()) expected &= ~(1 << seat);
        }
        require(_setOf(group, epoch) == expected, "group's seats");
    }
}
