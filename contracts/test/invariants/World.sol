// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {PoolTerms} from "../../src/libraries/Types.sol";
import {Phase} from "../helpers/Phase.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IPools} from "../interfaces/IPools.sol";
import {Register} from "./Register.sol";

/// @notice Who takes part, and what each of them is like. Four workers: one honest, one that forges, one whose files
/// nobody can read, one whose planted files are forged. Seats: honest ones (five of ten), lazy ones that accept everything, absent
/// ones, colluding ones that say the opposite. Besides them the owner, governance, a disputer and whoever calls.
abstract contract World is Register {
    enum Mood {
        Honest,
        Lazy,
        Absent,
        Colluding
    }

    uint256 internal constant HONEST = 0;
    uint256 internal constant FORGER = 1;
    uint256 internal constant SLOPPY = 2;
    uint256 internal constant DECOY = 3;
    uint256 internal constant SEATS_AT_START = 24;

    /// The four that work now, and all that ever did; whoever was ejected is followed by another of its kind.
    address[] internal nodes;
    address[] internal everyNode;
    mapping(address node => uint256 kind) internal kindOf;
    address internal watcher = account("watcher");

    function start() external {
        vm.recordLogs();
        penalties = IParams.Values(7_000, 1_500, 3e9, 1.1e9, 2e9, 50e9, 200e9, 5e9);
        super.setUp();
        PoolTerms memory t = defaultTerms();
        t.appealJury = 7;
        _openSeats(SEATS_AT_START - seats.opened());
        for (uint256 i = 0; i < 3; ++i) {
            uint256 seat = seats.opened() + 1;
            _give(owner, address(seats), BOND);
            vm.prank(owner);
            seats.openSeat(0, _voter(seat), _classes(FAMILY));
        }
        _nextEpoch();
        pool = _createPool(t);
        for (uint256 i = 0; i < 4; ++i) {
            nodes.push(_arrive(i));
        }
        _plant();
        _fold(vm.getRecordedLogs());
    }

    /// @dev One action: the clock set, its events folded into the ledger.
    modifier acts() {
        vm.warp(clock);
        vm.roll(height);
        vm.recordLogs();
        _;
        _fold(vm.getRecordedLogs());
    }

    /// @dev A new worker of a kind, in the pool.
    function _arrive(uint256 kind) internal returns (address n) {
        string memory name = _text(everyNode.length);
        address op = account(string.concat("operator ", name));
        n = _register(op, string.concat("worker ", name), STAKE);
        everyNode.push(n);
        kindOf[n] = kind;
        vm.prank(op);
        pools.join(pool, n, type(uint256).max, "", "");
    }

    // Moods

    function _mood(uint256 seat) internal pure returns (Mood) {
        uint256 kind = seat % 10;
        if (kind == 7) return Mood.Lazy;
        if (kind == 8) return Mood.Absent;
        return kind == 9 || kind == 4 || kind == 2 ? Mood.Colluding : Mood.Honest;
    }

    /// @dev What an honest check of the bytes finds.
    function _truth(uint256 sequence) internal view returns (uint256) {
        uint256 kind = kindOf[files[pool][sequence].node];
        if (kind == FORGER) return Codes.REJECT_SAMPLING;
        if (kind == SLOPPY && files[pool][sequence].counter % 2 == 0) return Codes.MALFORMED;
        if (kind == DECOY && _planted(files[pool][sequence])) return Codes.REJECT_WEIGHTS;
        return Codes.ACCEPT;
    }

    /// @dev A seat's vote on a file; NONE: no vote.
    function _opinion(uint256 seat, uint256 sequence) internal view returns (uint256) {
        Mood mood = _mood(seat);
        uint256 truth = _truth(sequence);
        if (mood == Mood.Absent) return Codes.NONE;
        if (mood == Mood.Lazy) return Codes.ACCEPT;
        if (mood == Mood.Honest) return truth;
        if (truth != Codes.ACCEPT) return Codes.ACCEPT;
        return sequence % 3 == 0 ? Codes.UNAVAILABLE : Codes.REJECT_WEIGHTS;
    }

    function _votes(uint256 seat, uint256 lane) internal view returns (uint256 codes) {
        for (uint256 place = 0; place < 16; ++place) {
            uint256 sequence = (lane << 4) | place;
            if (files[pool][sequence].node == address(0)) break;
            codes = Codes.set(codes, place, _opinion(seat, sequence));
        }
    }

    // Picks

    /// @dev The first file from `i` on that is settled and open to disputes, and decided wrongly if asked for that.
    function _pickOpen(uint256 i, bool wrongly) internal view returns (bool, uint256) {
        for (uint256 k = 0; k < sequences.length; ++k) {
            uint256 sequence = sequences[(i % sequences.length + k) % sequences.length];
            GhostFile storage f = ghostFiles[sequence];
            if (f.phase != Phase.Settled || clock >= f.time) continue;
            if (!wrongly || Codes.kind(_truth(sequence)) != Codes.kind(f.code)) return (true, sequence);
        }
        return (false, 0);
    }

    /// @dev The first unsettled lane, and its round.
    function _pickLane(uint256 i) internal view returns (bool, uint256 lane, uint256 round) {
        uint256 lanes = _pool(pool).lanes;
        for (uint256 k = 0; k < lanes; ++k) {
            lane = (i % lanes + k) % lanes;
            if (!ghostRounds[lane << 1].settled) return (true, lane, 0);
            if (ghostRounds[(lane << 1) | 1].codes != 0 && !ghostRounds[(lane << 1) | 1].settled) {
                return (true, lane, 1);
            }
        }
        return (false, 0, 0);
    }

    // Canaries

    /// @dev A step in which each worker's next counters are planted, every other one.
    function _plant() internal {
        uint256 step = _pool(pool).steps;
        for (uint256 i = 0; i < 16; ++i) {
            address n = nodes[i / 4];
            planted[step][i] = Slot(n, _account(pool, n).counter + 1 + 2 * (i % 4));
        }
        bytes32 root = _root(_leaves(step));
        vm.prank(owner);
        pools.publishStep(pool, step, keccak256("manifest"), root);
        _blocks(2);
    }

    // What losses say about who lost (see Register)

    function _absent(uint256 seat) internal override {
        _expect(_mood(seat) != Mood.Honest, "an honest seat was fined for silence");
    }

    /// @dev An honest member pays for the files of its lane alone whose outcome a captured body got wrong.
    function _memberPaid(uint256 seat, uint256 lane, uint256 round, uint256 penalty) internal override {
        if (_mood(seat) != Mood.Honest) return;
        uint256 each = params.values().minorityPenalty;
        uint256 most;
        uint256 codes = ghostRounds[(lane << 1) | round].codes;
        for (uint256 place = 0; place < 16; ++place) {
            uint256 code = Codes.get(codes, place);
            if (code == Codes.UNDECIDED) code = Codes.get(ghostRounds[(lane << 1) | 1].codes, place);
            if (code == Codes.NONE) continue;
            uint256 truth = _truth((lane << 4) | place);
            bool missing = truth == Codes.UNAVAILABLE;
            if (missing && Codes.kind(code) != Codes.KIND_UNAVAILABLE) most += FEE;
            if (code != Codes.CANARY && Codes.contradict(truth, code)) most += each;
        }
        uint256 bond = ghostSeats[seat].bond + penalty;
        _expect(penalty == (most < bond ? most : bond), "an honest member paid another amount");
    }

    function _overturned(uint256 seat, uint256 sequence) internal override {
        if (_mood(seat) == Mood.Honest) _expect(_captured(sequence), "an honest majority was overturned");
    }

    function _jurorPaid(uint256 seat, GhostTrial storage j) internal override {
        if (_mood(seat) != Mood.Honest) return;
        _expect(Codes.contradict(_truth(j.sequence), j.code), "an honest juror was fined");
    }

    /// @dev Whether some jury of this file had no honest majority.
    function _captured(uint256 sequence) internal view returns (bool) {
        uint256 count = juries.trialCount();
        for (uint256 trial = 1; trial <= count; ++trial) {
            GhostTrial storage j = ghostTrials[trial];
            if (j.sequence == sequence && j.jurors.length != 0 && !_honest(j.jurors, j.size)) return true;
        }
        return false;
    }

    /// @dev Whether honest seats are more than half of a body.
    function _honest(uint256[] storage body, uint256 size) internal view returns (bool) {
        uint256 count;
        for (uint256 i = 0; i < body.length; ++i) {
            if (_mood(body[i]) == Mood.Honest) ++count;
        }
        return count > size / 2;
    }
}
