// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {IAppeals} from "../interfaces/IAppeals.sol";
import {ICanaries} from "../interfaces/ICanaries.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {IPools} from "../interfaces/IPools.sol";
import {ISeats} from "../interfaces/ISeats.sol";
import {Ledger} from "./Ledger.sol";
import {Vm} from "@prb/test/Vm.sol";

/// @notice Seats, rounds, juries and disputes as the events tell it.
abstract contract Register is Ledger {
    struct GhostSeat {
        uint256 bond;
        uint256 frozen;
        bool active;
    }

    /// A stay of a seat in a group: the first epoch, and the last, or 0.
    struct Stay {
        uint256 seat;
        uint256 first;
        uint256 last;
    }

    struct GhostRound {
        uint256 codes;
        uint256 committed;
        uint256 revealed;
        uint256 closed;
        bool settled;
        uint256[] seats;
        uint256 first;
    }

    struct GhostTrial {
        uint256 sequence;
        uint256 size;
        uint256[] jurors;
        uint256 committed;
        uint256 revealed;
        uint256 closed;
        bool concluded;
        uint256 fee;
        uint256 attempt;
        uint256 code;
        bool discharged;
        /// Of an appeal.
        uint256 next;
        uint256 deposit;
    }

    struct GhostDispute {
        uint256 open;
        uint256 canary;
        bool resolved;
        bool concluded;
        uint256[] accused;
    }

    mapping(uint256 seat => GhostSeat) internal ghostSeats;
    mapping(uint256 group => Stay[]) internal stays;
    /// By lane << 1 | round.
    mapping(uint256 key => GhostRound) internal ghostRounds;
    uint256[] internal rounds;
    mapping(uint256 trial => GhostTrial) internal ghostTrials;
    mapping(uint256 sequence => GhostDispute) internal ghostDisputes;
    uint256[] internal disputed;
    uint256[] internal opened;
    /// By lane << 16 | seat: canary slashes.
    mapping(uint256 key => uint256) internal canarySlashes;
    uint256 internal mostCanarySlashes;

    function _fold(Vm.Log[] memory logs) internal {
        for (uint256 i = 0; i < logs.length; ++i) {
            address from = logs[i].emitter;
            if (from == address(token)) _foldToken(logs[i]);
            else if (from == address(pools)) _foldPools(logs[i]);
            else if (from == address(stakes)) _foldStakes(logs[i]);
            else if (from == address(seats)) _foldSeats(logs[i], uint256(logs[i].topics[1]));
            else if (from == address(court)) _foldCourt(logs[i]);
            else if (from == address(juries)) _foldJuries(logs[i], ghostTrials[uint256(logs[i].topics[1])]);
            else if (from == address(appeals)) _foldAppeals(logs[i], uint256(logs[i].topics[2]));
            else if (from == address(canaries)) _foldCanaries(logs[i], uint256(logs[i].topics[2]));
        }
    }

    function _foldSeats(Vm.Log memory log, uint256 seat) private {
        GhostSeat storage s = ghostSeats[seat];
        bytes32 t = log.topics[0];
        if (t == ISeats.SeatOpened.selector) {
            (s.bond, s.active) = (BOND, true);
        } else if (t == ISeats.SeatToppedUp.selector) {
            (uint256 amount,) = abi.decode(log.data, (uint256, uint256));
            s.bond += amount;
        } else if (t == ISeats.SeatPenalised.selector) {
            (uint256 amount,) = abi.decode(log.data, (uint256, uint256));
            s.bond -= amount;
        } else if (t == ISeats.SeatLeft.selector) {
            s.active = false;
        } else if (t == ISeats.SeatClosed.selector) {
            s.bond = 0;
        } else if (t == ISeats.SeatFrozen.selector) {
            ++s.frozen;
        } else if (t == ISeats.SeatReleased.selector) {
            --s.frozen;
        } else if (t == ISeats.SeatOptedIn.selector) {
            stays[uint256(log.topics[2])].push(Stay(seat, abi.decode(log.data, (uint256)), 0));
        } else if (t == ISeats.SeatOptedOut.selector) {
            Stay[] storage list = stays[uint256(log.topics[2])];
            for (uint256 i = list.length; i > 0; --i) {
                if (list[i - 1].seat != seat) continue;
                list[i - 1].last = abi.decode(log.data, (uint256));
                return;
            }
            _expect(false, "left a group that it was not in");
        }
    }

    /// @dev The key of a round that an event names, or of a vote's.
    function _keyOf(uint256 which) private pure returns (uint256) {
        return (((which >> 32) & type(uint32).max) << 1) | ((which >> 8) & 255);
    }

    function _foldDraw(uint256 which, uint256 members) private {
        if (which >> 64 != pool) return;
        GhostRound storage r = ghostRounds[_keyOf(which)];
        for (; members != 0; members >>= 16) {
            r.seats.push(members & 65_535);
        }
        rounds.push(_keyOf(which));
    }

    function _foldSettled(uint256 which, uint256 codes) private {
        if (which >> 64 != pool) return;
        GhostRound storage r = ghostRounds[_keyOf(which)];
        _expect(!r.settled, "a round settled twice");
        r.settled = true;
        r.codes = r.first = codes;
    }

    function _foldVote(uint256 ballot, bool revealed) private {
        if (ballot >> 64 != pool) return;
        GhostRound storage r = ghostRounds[_keyOf(ballot)];
        uint256 member = ballot & 255;
        _expect(r.seats[member] == (ballot >> 16) & 65_535, "a vote names another seat");
        r.committed |= 1 << member;
        if (revealed) r.revealed |= 1 << member;
    }

    function _drawnFor(uint256 sequence) internal view override returns (uint256 drawn) {
        for (uint256 round = 0; round < 2; ++round) {
            if (ghostRounds[((sequence >> 4) << 1) | round].seats.length != 0) ++drawn;
        }
    }

    function _foldCourt(Vm.Log memory log) private {
        bytes32 t = log.topics[0];
        if (t == ICourt.VoteCommitted.selector || t == ICourt.VoteRevealed.selector) {
            return _foldVote(uint256(bytes32(log.data)), t == ICourt.VoteRevealed.selector);
        }
        if (t == ICourt.CommitteeDrawn.selector) {
            (uint256 which,, uint256 drawn) = abi.decode(log.data, (uint256, uint256, uint256));
            return _foldDraw(which, drawn >> 64);
        }
        if (t == ICourt.LaneSettled.selector) {
            (uint256 which, uint256 codes) = abi.decode(log.data, (uint256, uint256));
            return _foldSettled(which, codes);
        }
        if (t == ICourt.MemberClosed.selector) return _closed(log);
        if (t == ICourt.MemberAbsent.selector) return _absent((uint256(bytes32(log.data)) >> 16) & 65_535);
        if (t == ICourt.ServiceSet.selector || uint256(log.topics[1]) != pool) return;
        uint256 lane = uint256(log.topics[2]);
        if (t == ICourt.LaneSubmitted.selector) {
            (uint256 count,) = abi.decode(log.data, (uint256, uint256));
            _expect(ghostRounds[lane << 1].codes == 0, "a lane was submitted twice");
            ghostRounds[lane << 1].codes = Codes.spread((1 << count) - 1, Codes.UNDECIDED);
        } else if (t == ICourt.LaneRedrawn.selector) {
            uint256 open = ghostRounds[lane << 1].codes;
            for (uint256 i = 0; i < 16; ++i) {
                if (Codes.get(open, i) != Codes.UNDECIDED) open = Codes.set(open, i, 0);
            }
            ghostRounds[(lane << 1) | 1].codes = open;
        } else if (t == ICourt.OutcomeSet.selector) {
            (uint256 place, uint256 round, uint256 code) = abi.decode(log.data, (uint256, uint256, uint256));
            GhostRound storage r = ghostRounds[(lane << 1) | round];
            r.codes = Codes.set(r.codes, place, code);
            if (code == Codes.DISPUTED) _held((lane << 4) | place);
        }
    }

    function _closed(Vm.Log memory log) private {
        (uint256 ballot, uint256 paid, uint256 burnt, uint256 penalty) =
            abi.decode(log.data, (uint256, uint256, uint256, uint256));
        uint256 seat = (ballot >> 16) & 65_535;
        escrowOut += burnt;
        (ghostFees[seat], ghostFeesSum) = (ghostFees[seat] + paid, ghostFeesSum + paid);
        GhostRound storage r = ghostRounds[_keyOf(ballot)];
        for (uint256 i = 0; i < r.seats.length; ++i) {
            if (r.seats[i] != seat) continue;
            _expect(r.closed & (1 << i) == 0, "a member closed twice");
            r.closed |= 1 << i;
        }
        _memberPaid(seat, uint32(ballot >> 32), uint8(ballot >> 8), penalty);
    }

    function _foldJuries(Vm.Log memory log, GhostTrial storage j) private {
        bytes32 t = log.topics[0];
        if (t == IJuries.JurySummoned.selector) {
            (j.size,) = abi.decode(log.data, (uint256, uint256));
            j.sequence = uint256(log.topics[3]);
        } else if (t == IJuries.JuryDrawn.selector) {
            (,, j.jurors) = abi.decode(log.data, (uint256, bytes32, uint256[]));
        } else if (t == IJuries.JurorCommitted.selector) {
            (uint256 juror,) = abi.decode(log.data, (uint256, bytes32));
            j.committed |= 1 << juror;
        } else if (t == IJuries.JurorRevealed.selector) {
            (uint256 juror,,) = abi.decode(log.data, (uint256, uint256, bytes32));
            j.revealed |= 1 << juror;
        } else if (t == IJuries.JuryDischarged.selector) {
            j.discharged = true;
        } else if (t == IJuries.JuryConcluded.selector) {
            (j.code, j.concluded) = (abi.decode(log.data, (uint256)), true);
        } else if (t == IJuries.VerdictReached.selector) {
            lastJudged = j.sequence;
        } else if (t == IJuries.JurorsPaid.selector) {
            (j.fee, j.attempt) = abi.decode(log.data, (uint256, uint256));
        } else if (t == IJuries.Appealed.selector) {
            (j.next, j.deposit) = (uint256(log.topics[2]), abi.decode(log.data, (uint256)));
        } else if (t == IJuries.JurorOverturned.selector) {
            _overturned(uint256(log.topics[2]), j.sequence);
        } else if (t == IJuries.JurorClosed.selector) {
            (uint256 paid, uint256 penalty) = abi.decode(log.data, (uint256, uint256));
            uint256 seat = uint256(log.topics[2]);
            for (uint256 i = 0; i < j.jurors.length; ++i) {
                if (j.jurors[i] == seat) j.closed |= 1 << i;
            }
            bool due = penalty == 0 && (paid == j.fee || paid == j.attempt);
            _expect(paid == 0 || due, "a juror paid another fee");
            if (penalty != 0) _jurorPaid(seat, j);
        }
    }

    function _foldAppeals(Vm.Log memory log, uint256 sequence) private {
        GhostDispute storage d = ghostDisputes[sequence];
        bytes32 t = log.topics[0];
        if (t == IAppeals.Disputed.selector) {
            (, uint256 deposit) = abi.decode(log.data, (uint256, uint256));
            d.open += deposit;
            disputed.push(sequence);
        } else if (t == IAppeals.DisputeResolved.selector) {
            _expect(!d.resolved, "a dispute resolved twice");
            (d.resolved, d.open) = (true, 0);
        } else if (t == IAppeals.MemberPenalised.selector) {
            _overturned(uint256(log.topics[3]), sequence);
        }
    }

    function _foldCanaries(Vm.Log memory log, uint256 sequence) private {
        GhostDispute storage d = ghostDisputes[sequence];
        bytes32 t = log.topics[0];
        if (t == ICanaries.CanaryOpened.selector) {
            (,, d.accused, d.canary) = abi.decode(log.data, (uint256, uint256, uint256[], uint256));
            opened.push(sequence);
        } else if (t == ICanaries.CanaryConcluded.selector) {
            (d.concluded, d.canary) = (true, 0);
        } else if (t == ICanaries.SeatSlashed.selector) {
            uint256 count = ++canarySlashes[(sequence >> 4) << 16 | uint256(log.topics[3])];
            if (count > mostCanarySlashes) mostCanarySlashes = count;
            _overturned(uint256(log.topics[3]), sequence);
        }
    }

    // What losses say about who lost

    function _absent(uint256 seat) internal virtual;
    function _memberPaid(uint256 seat, uint256 lane, uint256 round, uint256 penalty) internal virtual;
    function _overturned(uint256 seat, uint256 sequence) internal virtual;
    function _jurorPaid(uint256 seat, GhostTrial storage j) internal virtual;
}
