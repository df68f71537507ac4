// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {World} from "./World.sol";

/// @notice Whom the rules may hurt: an honest majority is never wrong, and who is honest loses only where a body had
/// none. What each single loss may be is checked where its event is folded (see Ledger, World).
abstract contract ConductChecks is World {
    function eventsFollowTheRules() external view {
        require(bytes(violation).length == 0, violation);
    }

    function honestMajoritiesAreNeverWrong() external view {
        for (uint256 i = 0; i < rounds.length; ++i) {
            GhostRound storage r = ghostRounds[rounds[i]];
            if (!r.settled || !_honest(r.seats, 3)) continue;
            for (uint256 place = 0; place < 16; ++place) {
                uint256 code = Codes.get(r.first, place);
                if (code == Codes.NONE) continue;
                require(Codes.kind(code) == Codes.kind(_truth((rounds[i] >> 1 << 4) | place)), "a committee");
            }
        }
        uint256 count = juries.trialCount();
        for (uint256 trial = 1; trial <= count; ++trial) {
            GhostTrial storage j = ghostTrials[trial];
            (bool done, uint256 code) = juries.verdictOf(trial);
            if (!done || j.jurors.length == 0 || j.discharged || !_honest(j.jurors, j.size)) continue;
            require(Codes.kind(code) == Codes.kind(_truth(j.sequence)), "a jury");
        }
    }

    /// @notice An honest worker's stake pays only for files that a captured committee or jury rejected.
    function honestWorkersLoseOnlyToCapturedBodies() external view {
        for (uint256 i = 0; i < everyNode.length; ++i) {
            if (kindOf[everyNode[i]] != HONEST) continue;
            GhostAccount storage a = ghostAccounts[everyNode[i]];
            uint256 wronged;
            for (uint256 k = 0; k < sequences.length; ++k) {
                GhostFile storage f = ghostFiles[sequences[k]];
                if (f.node != everyNode[i] || f.code == Codes.CANARY) continue;
                uint256 kind = Codes.kind(f.code);
                if (kind != Codes.KIND_REJECT && kind != Codes.KIND_MALFORMED) continue;
                require(_committeeCaptured(sequences[k]) || _captured(sequences[k]), "an honest file was rejected");
                ++wronged;
            }
            require(a.charges <= wronged && (a.charges != 0 || a.lost == 0), "an honest worker paid");
        }
    }

    function canariesSlashOncePerSeatAndLane() external view {
        require(mostCanarySlashes <= 1, "slashed twice");
    }

    /// @notice Every freeze of a seat belongs to a duty that is open.
    function seatsAreFrozenForOpenDutiesOnly() external view {
        for (uint256 seat = 1; seat <= seats.opened(); ++seat) {
            if (ghostSeats[seat].frozen != 0) {
                require(ghostSeats[seat].frozen <= _duties(seat), "frozen without a duty");
            }
        }
    }

    /// @notice Bodies have their promised size, no seat twice; second committees and juries are fresh.
    function bodiesAreWholeAndFresh() external view {
        for (uint256 i = 0; i < rounds.length; ++i) {
            uint256 members = _set(ghostRounds[rounds[i]].seats, 3);
            if (rounds[i] & 1 == 0) continue;
            uint256[] storage first = ghostRounds[rounds[i] ^ 1].seats;
            if (first.length != 0) require(members & _set(first, 3) == 0, "the first committee again");
        }
        uint256 count = juries.trialCount();
        for (uint256 trial = 1; trial <= count; ++trial) {
            GhostTrial storage j = ghostTrials[trial];
            if (j.jurors.length == 0) continue;
            uint256 jurors = _set(j.jurors, j.size);
            uint256[] storage judges = _judges(j.sequence);
            if (judges.length != 0) require(jurors & _set(judges, 3) == 0, "the committee is its own jury");
            bool canary = juries.caseOf(trial).bench == address(canaries);
            for (uint256 i = 0; canary && i < j.jurors.length; ++i) {
                require(seats.ownerOf(j.jurors[i]) != owner, "the owner judges its canary");
            }
        }
    }

    function _set(uint256[] storage body, uint256 size) private view returns (uint256 set) {
        require(body.length == size, "a body's size");
        for (uint256 i = 0; i < size; ++i) {
            require(set & (1 << body[i]) == 0, "a seat twice");
            set |= 1 << body[i];
        }
    }

    /// @dev The committee that decided a file.
    function _judges(uint256 sequence) private view returns (uint256[] storage) {
        uint256 key = (sequence >> 4) << 1;
        bool second = Codes.get(ghostRounds[key].codes, sequence & 15) == Codes.UNDECIDED;
        return ghostRounds[second ? key | 1 : key].seats;
    }

    function _committeeCaptured(uint256 sequence) private view returns (bool) {
        return !_honest(_judges(sequence), 3);
    }

    function _duties(uint256 seat) private view returns (uint256 duties) {
        for (uint256 i = 0; i < rounds.length; ++i) {
            GhostRound storage r = ghostRounds[rounds[i]];
            for (uint256 k = 0; k < r.seats.length; ++k) {
                if (r.seats[k] == seat && r.closed & (1 << k) == 0) ++duties;
            }
        }
        uint256 count = juries.trialCount();
        for (uint256 trial = 1; trial <= count; ++trial) {
            GhostTrial storage j = ghostTrials[trial];
            for (uint256 k = 0; k < j.jurors.length; ++k) {
                if (j.jurors[k] == seat && j.closed & (1 << k) == 0) ++duties;
            }
        }
        for (uint256 i = 0; i < opened.length; ++i) {
            GhostDispute storage d = ghostDisputes[opened[i]];
            for (uint256 k = 0; !d.concluded && k < d.accused.length; ++k) {
                if (d.accused[k] == seat) ++duties;
            }
        }
    }
}
