// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Voting} from "../../src/libraries/Voting.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {WorkHandler} from "./WorkHandler.sol";

/// @notice What committees and the keepers of lanes do. Honest members vote in time once their committee is
/// drawn; whether it is, and when it is counted, is chance.
abstract contract CommitteeHandler is WorkHandler {
    function blocks(uint256 n) external acts {
        _blocks(1 + n % 8);
        _reach("blocks");
    }

    function pass(uint256 secs) external acts {
        _wait(secs % 4_000);
        _reach("pass");
    }

    function judge(uint256 i, uint256 settles) external acts {
        (bool any, uint256 lane, uint256 round) = _pickLane(i);
        if (!any) return;
        if (!_drawLane(lane, round)) return;
        _voteLane(lane, round);
        if (settles % 4 != 0 && _settleLane(lane, round)) _reach(round == 0 ? "judge" : "judge again");
    }

    /// @dev Nobody draws in time, or nobody counts: whoever comes later settles it.
    function settle(uint256 i) external acts {
        (bool any, uint256 lane, uint256 round) = _pickLane(i);
        if (any && _settleLane(lane, round)) _reach("settle");
    }

    /// @dev Nobody does anything about a lane for as long as that is possible: the next committee judges it, or none.
    function neglect(uint256 i) external acts {
        (bool any, uint256 lane, uint256 round) = _pickLane(i);
        if (!any) return;
        _pastLane();
        bool done = _settleLane(lane, round);
        _expect(done, "a lane stays unsettled");
        if (done) _reach("neglect");
    }

    /// @dev Past the last block in which a lane can be drawn, and the windows of a committee.
    function _pastLane() internal {
        _blocks(uint256(defaultTerms().drawBlocks) + 3);
        _wait(uint256(defaultTerms().commitWindow) + defaultTerms().revealWindow);
    }

    function closeCommittee(uint256 i) external acts {
        for (uint256 k = 0; k < rounds.length; ++k) {
            uint256 key = rounds[(i % rounds.length + k) % rounds.length];
            if (!_closable(key)) continue;
            court.closeCommittee(pool, key >> 1, key & 1);
            return _reach("close committee");
        }
    }

    function withdrawFees(uint256 i) external acts {
        if (pools.withdrawFees(1 + i % (seats.opened() + 1)) != 0) _reach("withdraw fees");
    }

    // Steps

    function _drawLane(uint256 lane, uint256 round) internal returns (bool) {
        Round memory r = _round(pool, lane, round);
        if (r.seed != 0 || r.settled) return false; // drawn before: who votes has voted
        uint256 seedBlock = r.time;
        if (seedBlock == 0) return false;
        if (height <= seedBlock + defaultTerms().drawBlocks / 2) {
            _blocks(seedBlock + defaultTerms().drawBlocks / 2 + 1 - height);
        }
        try court.draw(pool, lane, round) {
            return true;
        } catch (bytes memory reason) {
            bytes4 why = bytes4(reason);
            bool few = why == Voting.TooFewSeats.selector && _drawable() < 6;
            _expect(why == ICourt.DrawOver.selector || few, "a draw was refused");
            return false;
        }
    }

    function _drawable() private view returns (uint256 count) {
        uint256 epoch = seats.currentEpoch();
        for (uint256 i = 0; i < stays[FAMILY].length; ++i) {
            Stay storage s = stays[FAMILY][i];
            bool inside = s.first <= epoch && (s.last == 0 || epoch <= s.last);
            if (inside && ghostSeats[s.seat].bond >= BOND / 2) ++count;
        }
    }

    function _voteLane(uint256 lane, uint256 round) internal {
        (uint256[] memory members,,,) = court.committeeOf(pool, lane, round);
        uint256[] memory codes = new uint256[](3);
        bool silent;
        for (uint256 i = 0; i < 3; ++i) {
            codes[i] = _votes(members[i], lane);
            if (codes[i] == 0) silent = true;
            else _commit(lane, round, i, codes[i]);
        }
        if (silent) _wait(60);
        for (uint256 i = 0; i < 3; ++i) {
            if (codes[i] != 0) _reveal(lane, round, i, codes[i]);
        }
    }

    /// @dev Settles a lane if that is due now; it must succeed whenever the round says so.
    function _settleLane(uint256 lane, uint256 round) internal returns (bool) {
        try court.settle(pool, lane, round, _refs(lane)) {
            _noteWords(lane); // its files have words of their own once a call needs them
            return true;
        } catch (bytes memory reason) {
            _expect(bytes4(reason) == ICourt.NotSettleable.selector, "a lane could not be settled");
            return false;
        }
    }

    /// @dev What round 0 left undecided is decided by round 1.
    function _closable(uint256 key) internal view returns (bool) {
        GhostRound storage r = ghostRounds[key];
        if (!r.settled || r.closed != 0) return false;
        uint256 last = key;
        for (uint256 place = 0; place < 16; ++place) {
            if (Codes.get(r.codes, place) == Codes.UNDECIDED) last = key | 1;
        }
        GhostRound storage second = ghostRounds[last];
        if (!second.settled) return false;
        for (uint256 place = 0; place < 16; ++place) {
            if (Codes.get(r.codes, place) == Codes.DISPUTED) return false;
            if (Codes.get(second.codes, place) == Codes.DISPUTED) return false;
        }
        return clock >= _round(pool, last >> 1, last & 1).time + defaultTerms().challengeWindow;
    }
}
