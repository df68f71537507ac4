// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileSlot} from "../../src/libraries/FileSlot.sol";
import {Phase} from "../helpers/Phase.sol";
import {Planting} from "../helpers/Planting.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IPools} from "../interfaces/IPools.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {Vm} from "@prb/test/Vm.sol";

/// @notice Money and work as the events tell it: what an indexer would know, kept apart from the contracts' storage, and
/// what each event ought to have cost.
abstract contract Ledger is Planting {
    struct GhostFile {
        address node;
        uint256 units;
        uint256 code;
        Phase phase;
        /// When it is final, or vests.
        uint256 time;
        /// The node's earned units including this file; 0 unless it was to be paid once.
        uint256 upTo;
        bool frozen;
        bool forfeited;
        /// Committees drawn for it until it was settled.
        uint256 rounds;
    }

    struct GhostAccount {
        uint256 earned;
        uint256 spent;
        uint256 pending;
        uint256 counter;
        uint256 unsettled;
        uint256 frozen;
        uint256 barrier;
        bool slashed;
        /// Units that were paid.
        uint256 claimed;
        /// Base units that left its stake, and on how many files.
        uint256 lost;
        uint256 charges;
    }

    struct GhostSlash {
        uint256 before;
        uint256 taken;
        uint256 fees;
    }

    mapping(uint256 sequence => GhostFile) internal ghostFiles;
    uint256[] internal sequences;
    mapping(address node => GhostAccount) internal ghostAccounts;
    mapping(address node => uint256) internal ghostStake;
    mapping(address node => uint256) internal ghostStakeFrozen;
    address[] internal stakers;
    mapping(address holder => uint256) internal ghostBalance;
    mapping(address holder => bool) private _known;
    address[] internal holders;
    uint256 internal ghostFree;
    /// What the last file cost its node for its dispute's juries.
    uint256 internal juryCharged;
    /// Base units into and out of the escrow, but for the claims.
    uint256 internal escrowIn;
    uint256 internal escrowOut;
    uint256 internal claimedBaseUnits;
    /// Committee fees that seats' owners have not withdrawn, and their sum.
    mapping(uint256 seat => uint256) internal ghostFees;
    uint256 internal ghostFeesSum;
    GhostSlash internal lastSlash;
    /// Base units that Stakes took and nobody gets, until they are sent off.
    uint256 internal ghostUnburnt;
    /// The file that a NodeFrozen belongs to.
    uint256 internal lastJudged;
    /// How often each thing was done.
    mapping(string name => uint256) public reached;
    /// The first thing that an event said and the rules do not, empty as long as there is none.
    string public violation;

    /// @dev The thing itself was done, not only asked for.
    function _reach(string memory name) internal {
        ++reached[name];
    }

    function _expect(bool ok, string memory what) internal {
        if (!ok && bytes(violation).length == 0) violation = what;
    }

    // Token

    function _foldToken(Vm.Log memory log) internal {
        if (log.topics[0] != IERC20.Transfer.selector) return;
        address from = address(uint160(uint256(log.topics[1])));
        address to = address(uint160(uint256(log.topics[2])));
        uint256 amount = abi.decode(log.data, (uint256));
        if (from != address(0)) ghostBalance[from] -= amount;
        if (from == address(stakes) && to == SINK) ghostUnburnt -= amount;
        ghostBalance[to] += amount;
        if (!_known[to]) {
            _known[to] = true;
            holders.push(to);
        }
    }

    // Stakes

    function _foldStakes(Vm.Log memory log) internal {
        address n = address(uint160(uint256(log.topics[1])));
        bytes32 t = log.topics[0];
        if (t == IStakes.NodeRegistered.selector) {
            stakers.push(n);
            ghostStake[n] = abi.decode(log.data, (uint256));
        } else if (t == IStakes.StakeDeposited.selector) {
            (uint256 amount,) = abi.decode(log.data, (uint256, uint256));
            ghostStake[n] += amount;
        } else if (t == IStakes.StakeWithdrawn.selector) {
            (uint256 amount,) = abi.decode(log.data, (uint256, uint256));
            ghostStake[n] -= amount;
        } else if (t == IStakes.NodeFrozen.selector) {
            ++ghostStakeFrozen[n];
        } else if (t == IStakes.NodeReleased.selector) {
            --ghostStakeFrozen[n];
        } else if (t == IStakes.NodeSlashed.selector) {
            (uint256 taken, uint256 fees, uint256 reward,,) =
                abi.decode(log.data, (uint256, uint256, uint256, uint256, uint256));
            lastSlash = GhostSlash(ghostStake[n], taken, fees);
            ghostStake[n] -= taken;
            --ghostStakeFrozen[n];
            escrowIn += fees;
            ghostUnburnt += taken - fees - reward;
        } else if (t == IStakes.Collected.selector) {
            ghostUnburnt -= abi.decode(log.data, (uint256));
        }
    }

    // Pools

    function _foldPools(Vm.Log memory log) internal {
        bytes32 t = log.topics[0];
        if (t == IPools.JuryPaid.selector) {
            uint256 amount = abi.decode(log.data, (uint256));
            (escrowOut, ghostFree) = (escrowOut + amount, ghostFree - amount);
            _expect(juryCharged <= amount, "a stake paid more for juries than they got");
            juryCharged = 0;
        } else if (t == IPools.PoolFunded.selector) {
            uint256 amount = abi.decode(log.data, (uint256));
            escrowIn += amount;
            if (uint256(log.topics[1]) == pool) ghostFree += amount;
        } else if (t == IPools.LeftoverTaken.selector) {
            uint256 amount = abi.decode(log.data, (uint256));
            escrowOut += amount;
            ghostFree -= amount;
        } else if (t == IPools.Claimed.selector) {
            (, address n, uint256 units, uint256 amount) = abi.decode(log.data, (uint256, address, uint256, uint256));
            GhostAccount storage a = ghostAccounts[n];
            a.claimed += units;
            a.spent += units;
            claimedBaseUnits += amount;
            _expect(amount == units * _rate(), "paid at another rate");
        } else if (t == IPools.NodeFrozen.selector) {
            GhostFile storage f = ghostFiles[lastJudged];
            _expect(f.phase == Phase.Disputed, "frozen by a file that is not held");
            _expect(f.node == address(uint160(uint256(log.topics[2]))), "frozen for another file");
            _freeze(f, abi.decode(log.data, (uint256)));
        } else if (t == IPools.FeesWithdrawn.selector) {
            uint256 seat = uint256(log.topics[1]);
            uint256 amount = abi.decode(log.data, (uint256));
            _expect(amount == ghostFees[seat], "other fees than were earned");
            _expect(address(uint160(uint256(log.topics[2]))) == seats.ownerOf(seat), "fees of another seat");
            (escrowOut, ghostFeesSum, ghostFees[seat]) = (escrowOut + amount, ghostFeesSum - amount, 0);
        } else if (t == IPools.WorkSubmitted.selector) {
            (address n, uint256 placed,,) = abi.decode(log.data, (address, uint256, bytes32, bytes32));
            uint256 sequence = (placed >> 104) & type(uint32).max;
            _submitted(ghostFiles[sequence], sequence, n, placed & ((1 << 104) - 1));
        } else if (t == IPools.FilesSettled.selector) {
            (uint256 first, uint256[] memory words) = abi.decode(log.data, (uint256, uint256[]));
            for (uint256 i = 0; i < words.length; ++i) {
                if (words[i] != 0) _foldWord((first & type(uint32).max) + i, words[i]);
            }
        } else if (t == IPools.FileFinalized.selector) {
            _foldFile(log, t, uint256(bytes32(log.data)) & type(uint32).max);
        } else if (log.topics.length == 4) {
            _foldFile(log, t, uint256(log.topics[3]));
        }
    }

    /// @dev A dispute or canary holds the file.
    function _held(uint256 sequence) internal {
        GhostFile storage f = ghostFiles[sequence];
        f.phase = Phase.Disputed;
        if (!Codes.isPaid(f.code)) return;
        ghostAccounts[f.node].spent += f.units;
        ++ghostAccounts[f.node].unsettled;
    }

    function _foldFile(Vm.Log memory log, bytes32 t, uint256 sequence) private {
        GhostFile storage f = ghostFiles[sequence];
        if (t == IPools.FileResolved.selector) {
            (uint256 code, uint256 time) = abi.decode(log.data, (uint256, uint256));
            _resolved(f, code, time);
        } else if (t == IPools.FileFinalized.selector) {
            (, uint256 code, uint256 taken) = abi.decode(log.data, (uint256, uint256, uint256));
            _finalized(f, code, taken);
        } else if (t == IPools.FileForfeited.selector) {
            _forfeited(f, abi.decode(log.data, (uint256)));
        }
    }

    function _foldWord(uint256 sequence, uint256 word) private {
        GhostFile storage f = ghostFiles[sequence];
        f.rounds = _drawnFor(sequence);
        _settled(f, FileSlot.code(word), FileSlot.finalAt(word));
        _expect(FileSlot.amount(word) == (f.upTo == 0 ? f.units : f.upTo), "another amount in its word");
        if (Codes.isReject(f.code)) _freeze(f, clock);
    }

    function _submitted(GhostFile storage f, uint256 sequence, address n, uint256 packed) private {
        uint256 units = (packed >> 16) & type(uint32).max;
        GhostAccount storage a = ghostAccounts[n];
        _expect(f.phase == Phase.None, "a place taken twice");
        _expect((packed >> 48) & 0xffffff == a.counter, "counters have gaps");
        (f.node, f.units, f.phase) = (n, units, Phase.Pending);
        sequences.push(sequence);
        a.pending += units;
        ++a.counter;
        ++a.unsettled;
        ghostFree -= units * _rate() + 2 * _fees();
    }

    function _settled(GhostFile storage f, uint256 code, uint256 time) private {
        GhostAccount storage a = ghostAccounts[f.node];
        _expect(f.phase == Phase.Pending, "settled twice");
        (f.code, f.time, f.phase) = (code, time, Phase.Settled);
        a.pending -= f.units;
        if (Codes.isPaid(code)) {
            a.earned += f.units;
            f.upTo = a.earned;
            --a.unsettled;
        }
        _reach(string.concat("outcome ", _text(code)));
        ghostFree += (2 - f.rounds) * _fees();
    }

    function _resolved(GhostFile storage f, uint256 code, uint256 time) private {
        GhostAccount storage a = ghostAccounts[f.node];
        _expect(f.phase == Phase.Disputed, "resolved without a dispute");
        if (Codes.kind(code) != Codes.kind(f.code)) _reach(Codes.isPaid(code) ? "overturned to pay" : "overturned");
        f.phase = Phase.Final;
        if (!Codes.isPaid(code)) return; // FileFinalized says what it costs
        if (Codes.isPaid(f.code)) {
            a.spent -= f.units;
            _expect(time == f.time, "a held file vests when it would have");
        } else {
            a.earned += f.units;
            f.upTo = a.earned;
            _expect(time == clock + defaultTerms().challengeWindow, "vests as work settled now");
        }
        (f.code, f.time) = (code, time);
        --a.unsettled;
        if (f.frozen) _thaw(f, a);
    }

    function _finalized(GhostFile storage f, uint256 code, uint256 taken) private {
        GhostAccount storage a = ghostAccounts[f.node];
        bool was = Codes.isPaid(f.code);
        bool disputed = f.code != code || f.phase == Phase.Final;
        f.phase = Phase.Final;
        _expect(!Codes.isPaid(code), "a paid file was charged");
        uint256 settledAt = _settledAt(f.time);
        f.code = code;
        --a.unsettled;
        juryCharged = disputed && lastSlash.fees > _fees() ? lastSlash.fees - _fees() : 0;
        (uint256 cost, uint256 fees) = _cost(a, code);
        _expect(taken == cost, "another charge than the rules'");
        if (code == Codes.CANARY) _reach("outcome 12");
        if (taken != 0) ++a.charges;
        a.lost += taken;
        ghostFree += f.units * _rate() + fees;
        if (Codes.isReject(code)) {
            uint256 since = was && disputed ? clock : settledAt;
            if (a.barrier == 0 || since < a.barrier) a.barrier = since;
            a.slashed = true;
        }
        if (f.frozen) _thaw(f, a);
    }

    function _settledAt(uint256 time) internal pure returns (uint256) {
        return time - defaultTerms().challengeWindow;
    }

    /// @dev What a file that is finally not paid costs its node, and how much of it is the committee's fees.
    function _cost(GhostAccount storage a, uint256 code) private view returns (uint256, uint256) {
        if (code == Codes.CANARY) return (0, 0);
        IParams.Values memory v = params.values();
        uint256 stake = lastSlash.before;
        uint256 fees = _fees() + juryCharged;
        uint256 cost = Codes.isReject(code) ? stake * v.slashBps / 10_000 : v.malformedPenalty + fees;
        uint256 kept = a.unsettled * _fees();
        uint256 most = stake > kept ? stake - kept : 0;
        if (cost > most) cost = most;
        return (cost, fees < cost ? fees : cost);
    }

    function _forfeited(GhostFile storage f, uint256 amount) private {
        GhostAccount storage a = ghostAccounts[f.node];
        _expect(a.slashed && f.time > a.barrier && f.upTo != 0 && !f.forfeited, "vested pay was forfeited");
        a.earned -= f.units;
        bool paid = Codes.isPaid(f.code);
        if (!paid) a.spent -= f.units;
        _expect(amount == (paid ? f.units * _rate() : 0), "forfeited another amount");
        escrowOut += amount;
        (f.forfeited, f.upTo, f.phase) = (true, 0, Phase.Final);
    }

    function _freeze(GhostFile storage f, uint256 time) private {
        _expect(!f.frozen, "frozen twice");
        f.frozen = true;
        GhostAccount storage a = ghostAccounts[f.node];
        ++a.frozen;
        if (a.barrier == 0) a.barrier = time;
    }

    function _thaw(GhostFile storage f, GhostAccount storage a) private {
        f.frozen = false;
        if (--a.frozen == 0 && !a.slashed) a.barrier = 0;
    }

    function _rate() internal pure returns (uint256) {
        return defaultTerms().rate;
    }

    function _fees() internal pure returns (uint256) {
        return uint256(defaultTerms().committee) * defaultTerms().fee;
    }

    /// @dev Committees drawn for a file so far.
    function _drawnFor(uint256 sequence) internal view virtual returns (uint256);
}
