// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICourt} from "../src/interfaces/ICourt.sol";
import {IPools} from "../src/interfaces/IPools.sol";
import {Codes} from "../src/libraries/Codes.sol";
import {FileData, FileRef, PoolTerms} from "../src/libraries/Types.sol";
import {Network} from "./helpers/Network.sol";
import {Planting} from "./helpers/Planting.sol";

/// @notice Everybody at once: random actions of nodes, validators, owner, disputers and keepers on one suite.
contract Crowd is Planting {
    uint256 internal constant NODES = 4;
    address[] public nodes;
    uint256[] public sequences;
    mapping(uint256 sequence => uint256 units) public unitsOf;
    mapping(uint256 sequence => bool) public disputed;
    mapping(uint256 sequence => bool) public opened;
    mapping(address node => uint256 grains) public paid;
    uint256 public contributed;
    uint256 public poolId;
    bool public lossBeforeFinality;
    bool public stakeLeftEarly;
    bool public claimRefused;
    mapping(string => uint256) public calls;

    function start() external {
        setUp();
        PoolTerms memory t = defaultTerms();
        t.appealJury = 7;
        _openSeats(12);
        _nextEpoch();
        pool = _createPool(t);
        poolId = pool;
        for (uint256 i = 0; i < NODES; ++i) {
            string memory name = string.concat("crowd ", _text(i));
            address op = account(string.concat("op ", _text(i)));
            nodes.push(_register(op, name, STAKE));
            vm.prank(op);
            pools.join(pool, nodes[i]);
        }
        _plantStep(nodes);
    }

    modifier counted(string memory name) {
        ++calls[name];
        _;
    }

    /// @dev Stakes and bonds may shrink only in calls that need a final outcome.
    modifier harmless() {
        uint256 before = token.balanceOf(address(stakes)) + token.balanceOf(address(seats));
        _;
        if (token.balanceOf(address(stakes)) + token.balanceOf(address(seats)) < before) lossBeforeFinality = true;
    }

    // ---- Actions

    function submit(uint256 who, uint24 units) external counted("submit") harmless {
        address n = nodes[who % NODES];
        units = uint24(1 + units % 20_000);
        IPools.Account memory a = pools.accountOf(pool, n);
        if (a.limit == 0 || a.frozen != 0) return;
        if (a.earned - a.spent + a.pending + units > a.limit) return;
        uint256 sequence = _submitFrom(n, units);
        sequences.push(sequence);
        unitsOf[sequence] = units;
    }

    function blocks(uint8 n) external counted("blocks") {
        _blocks(1 + n % 8);
    }

    function pass(uint16 secs) external counted("pass") {
        _wait(secs % 2_000);
    }

    function step() external counted("step") harmless {
        if (pools.poolOf(pool).steps < 12) _plantStep(nodes);
    }

    /// @dev Absence is final at settlement: it alone may cost a bond before any outcome is.
    modifier harmlessToStakes() {
        uint256 before = token.balanceOf(address(stakes));
        _;
        if (token.balanceOf(address(stakes)) < before) lossBeforeFinality = true;
    }

    /// @dev The service attests what it has: mostly everything, sometimes only some.
    function attest(uint256 lane, uint256 seed) external counted("attest") harmless {
        lane %= pools.poolOf(pool).sequence / 16 + 1;
        if (_attestable(lane)) _attestSome(lane, seed % 4 == 0 ? seed >> 8 : type(uint256).max);
    }

    function _attestSome(uint256 lane, uint256 places) private {
        (,, uint256 n) = pools.laneOf(pool, lane);
        places &= (1 << n) - 1;
        if (places & ~Codes.gather(court.roundOf(pool, lane, 0).codes) == 0) return;
        _attestPlaces(lane, places);
        ++calls["attested"];
    }

    function _attestable(uint256 lane) private view returns (bool) {
        ICourt.Round memory r = court.roundOf(pool, lane, 0);
        (, uint256 end,) = pools.laneOf(pool, lane);
        return !r.settled && r.seed == 0 && end != 0 && height <= end + 32;
    }

    /// @dev Votes of a whole round; `votes` decides each member's codes, 0 is absence.
    function votes(uint256 lane, uint256 seed) external counted("votes") harmlessToStakes {
        lane %= pools.poolOf(pool).sequence / 16 + 1;
        for (uint256 round = 0; round < 2; ++round) {
            if (round == 0 && court.roundOf(pool, lane, 0).codes == 0 && _attestable(lane)) {
                _attestSome(lane, type(uint256).max);
            }
            ICourt.Round memory r = court.roundOf(pool, lane, round);
            if (r.settled || r.seed != 0) continue;
            if (r.seedBlock == 0) {
                if (round == 1 || _refs(lane).length == 0) return;
                court.settle(pool, lane, 0, _refs(lane)); // nothing of it was attested: all of it is late
                ++calls["late"];
                return;
            }
            if (height > r.seedBlock + 60) {
                _blocks(70);
                court.settle(pool, lane, round, _refs(lane));
                return;
            }
            uint256[] memory codes = new uint256[](3);
            for (uint256 i = 0; i < 3; ++i) {
                uint256 mood = uint256(keccak256(abi.encode(seed, i))) % 12;
                if (mood == 0) codes[i] = 0;
                else if (mood < 7) codes[i] = _all(Codes.ACCEPT);
                else codes[i] = _all(1 + uint256(keccak256(abi.encode(seed, i, "c"))) % 11);
            }
            _vote(lane, round, codes);
            return;
        }
    }

    function dispute(uint256 i) external counted("dispute") harmless {
        (bool any, uint256 sequence) = _pick(i);
        if (!any || disputed[sequence] || !_open(sequence)) return;
        disputed[sequence] = true;
        _give(stranger, address(appeals), 100_000e9);
        vm.prank(stranger);
        appeals.dispute(pool, sequence, files[pool][sequence]);
    }

    function openCanary(uint256 i) external counted("canary") harmless {
        (bool any, uint256 sequence) = _pick(i);
        if (!any || disputed[sequence] || opened[sequence] || !_open(sequence)) return;
        if (!_planted(files[pool][sequence])) return;
        opened[sequence] = true;
        _openCanary(sequence);
    }

    /// @dev Juries vote, and whoever can concludes.
    function judge(uint256 i, uint256 seed) external counted("judge") {
        (bool any, uint256 sequence) = _pick(i);
        if (!any) return;
        if (disputed[sequence]) {
            if (appeals.disputeOf(pool, sequence).resolved) return;
            uint256 trial = appeals.disputeOf(pool, sequence).appealTrial;
            if (trial == 0) trial = appeals.disputeOf(pool, sequence).trial;
            _jury(trial, seed);
            if (seed % 3 == 0 && appeals.disputeOf(pool, sequence).appellant == address(0)) {
                if (appeals.disputeOf(pool, sequence).appealUntil == 0) _conclude(sequence);
                if (clock >= appeals.disputeOf(pool, sequence).appealUntil) return;
                _give(stranger, address(appeals), 100_000e9);
                vm.prank(stranger);
                appeals.appeal(pool, sequence);
                return;
            }
            if (appeals.disputeOf(pool, sequence).appealUntil != 0 && trial == appeals.disputeOf(pool, sequence).trial)
            {
                _wait(600);
            }
            _conclude(sequence);
        } else if (opened[sequence] && !canaries.canaryOf(pool, sequence).concluded) {
            if (canaries.canaryOf(pool, sequence).trial != 0) _jury(canaries.canaryOf(pool, sequence).trial, seed);
            canaries.conclude(pool, sequence, files[pool][sequence]);
        }
    }

    function finalize(uint256 i) external counted("finalize") {
        (bool any, uint256 sequence) = _pick(i);
        if (any) pools.finalize(pool, sequence, _ref(sequence));
    }

    function forfeit(uint256 i) external counted("forfeit") harmless {
        (bool any, uint256 sequence) = _pick(i);
        if (any) pools.forfeit(pool, sequence, files[pool][sequence]);
    }

    function closeMember(uint256 lane, uint256 member) external counted("close") {
        lane %= pools.poolOf(pool).sequence / 16 + 1;
        try court.closeMember(pool, lane, 0, member % 3) {} catch {}
        try court.closeMember(pool, lane, 1, member % 3) {} catch {}
    }

    function closeJuror(uint256 trial, uint256 juror) external counted("closeJuror") {
        uint256 count = juries.trialCount();
        if (count == 0) return;
        juries.closeJuror(1 + trial % count, juror % 15);
    }

    function claim(uint256 i) external counted("claim") harmless {
        (bool any, uint256 sequence) = _pick(i);
        if (!any) return;
        address n = files[pool][sequence].node;
        (, uint256 amount) = pools.claimable(pool, n, sequence);
        if (amount == 0) return;
        paid[n] += _claim(sequence);
    }

    function leave(uint256 who) external counted("leave") harmless {
        if (who % 4 != 0) return;
        address n = nodes[who % NODES];
        vm.prank(n);
        pools.leavePool(pool, n);
    }

    function rejoin(uint256 who) external counted("rejoin") harmless {
        address n = nodes[who % NODES];
        vm.prank(n);
        pools.join(pool, n);
    }

    function withdraw(uint256 who) external counted("withdraw") {
        address n = nodes[who % NODES];
        address op = stakes.operatorOf(n);
        uint256 most = stakes.withdrawable(n);
        if (most == 0) return;
        for (uint256 i = 0; i < sequences.length; ++i) {
            if (files[pool][sequences[i]].node != n) continue;
            IPools.Submission memory f = pools.submissionOf(pool, sequences[i]);
            // a file that could still be rejected
            if (f.phase == IPools.Phase.Disputed) stakeLeftEarly = true;
            if (f.phase == IPools.Phase.Settled && (Codes.isReject(f.code) || clock < f.finalAt)) {
                stakeLeftEarly = true;
            }
        }
        vm.prank(op);
        stakes.withdraw(n, most / 2);
        token.transferFrom(op, op, 0);
    }

    function seatLeaves(uint256 seat) external counted("seatLeaves") harmless {
        if (seats.countAt(FAMILY, seats.currentEpoch() + 1) <= 18) return; // understaffed below
        seat = 1 + seat % seats.opened();
        vm.prank(_seatOwner(seat));
        seats.leaveSeat(seat);
    }

    function seatOpens() external counted("seatOpens") harmless {
        if (seats.opened() < 40) _openSeats(1);
    }

    // ---- Views for the invariants

    function count() external view returns (uint256) {
        return sequences.length;
    }

    function lanes() external view returns (uint256) {
        return pools.poolOf(pool).sequence / 16 + 1;
    }

    function nodeAt(uint256 i) external view returns (address, uint256) {
        return (nodes[i], NODES);
    }

    function fileAt(uint256 i) external view returns (uint256 sequence, address n, uint256 units) {
        sequence = sequences[i];
        return (sequence, files[pool][sequence].node, unitsOf[sequence]);
    }

    function innerAt(uint256 i) external view returns (bytes32) {
        return _inner(sequences[i]);
    }

    function time() external view returns (uint256) {
        return clock;
    }

    // ---- Helpers

    function _pick(uint256 i) private view returns (bool, uint256) {
        if (sequences.length == 0) return (false, 0);
        return (true, sequences[i % sequences.length]);
    }

    function _open(uint256 sequence) private view returns (bool) {
        IPools.Submission memory f = pools.submissionOf(pool, sequence);
        return f.phase == IPools.Phase.Settled && clock < f.finalAt;
    }

    function _jury(uint256 trial, uint256 seed) private {
        (bool done,) = juries.verdictOf(trial);
        if (done) return;
        uint256 mood = seed % 5;
        if (mood == 0) _juryVotes(trial, Codes.ACCEPT);
        else if (mood == 1) _juryVotes(trial, Codes.REJECT_WEIGHTS);
        else if (mood == 2) _juryVotes(trial, Codes.REJECT_REWARD, 3, Codes.ACCEPT);
        else if (mood == 3) _juryVotes(trial, Codes.UNAVAILABLE, 3, 0);
        else _juryVotes(trial, Codes.ACCEPT, 2, Codes.MALFORMED);
        (done,) = juries.verdictOf(trial);
        if (!done) _wait(60);
    }
}

contract InvariantTest is Network {
    Crowd internal crowd;

    struct Sums {
        uint256 pay;
        uint256 fees;
    }

    function setUp() public override {
        crowd = new Crowd();
        crowd.start();
        token = crowd.token();
        stakes = crowd.stakes();
        seats = crowd.seats();
        pools = crowd.pools();
        court = crowd.court();
        juries = crowd.juries();
        appeals = crowd.appeals();
        canaries = crowd.canaries();
        pool = crowd.poolId();
    }

    function targetContracts() public view returns (address[] memory list) {
        list = new address[](1);
        list[0] = address(crowd);
    }

    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    function targetSelectors() public view returns (FuzzSelector[] memory list) {
        list = new FuzzSelector[](1);
        bytes4[] memory s = new bytes4[](20);
        s[0] = Crowd.submit.selector;
        s[1] = Crowd.submit.selector;
        s[2] = Crowd.blocks.selector;
        s[3] = Crowd.pass.selector;
        s[4] = Crowd.step.selector;
        s[5] = Crowd.votes.selector;
        s[6] = Crowd.votes.selector;
        s[7] = Crowd.dispute.selector;
        s[8] = Crowd.openCanary.selector;
        s[10] = Crowd.judge.selector;
        s[11] = Crowd.finalize.selector;
        s[12] = Crowd.forfeit.selector;
        s[13] = Crowd.closeMember.selector;
        s[14] = Crowd.closeJuror.selector;
        s[15] = Crowd.claim.selector;
        s[16] = Crowd.leave.selector;
        s[17] = Crowd.rejoin.selector;
        s[18] = Crowd.withdraw.selector;
        s[9] = Crowd.seatLeaves.selector;
        s[19] = Crowd.attest.selector;
        list[0] = FuzzSelector(address(crowd), s);
    }

    /// @notice Every token in the suite is owed to somebody by name, to the last grain.
    function invariant_conservation() public view {
        _pools();
        _others();
    }

    function _pools() private view {
        uint256 owed;
        // the first pool of the set-up is untouched
        owed += pools.poolOf(1).free;
        owed += pools.poolOf(pool).free;
        for (uint256 i = 0; i < 4; ++i) {
            (address n,) = crowd.nodeAt(i);
            IPools.Account memory a = pools.accountOf(pool, n);
            owed += (a.earned - a.spent) * 1e6;
        }
        uint256 count = crowd.count();
        for (uint256 i = 0; i < count; ++i) {
            (uint256 sequence,, uint256 units) = crowd.fileAt(i);
            IPools.Submission memory f = pools.submissionOf(pool, sequence);
            bool reserved = f.phase == IPools.Phase.Pending || f.phase == IPools.Phase.Disputed
                || (f.phase == IPools.Phase.Settled && !Codes.isPaid(f.code) && f.code != Codes.LATE);
            if (reserved) owed += units * 1e6;
            owed += _fees(sequence, f);
        }
        require(token.balanceOf(address(pools)) == owed, "escrow");
    }

    function _fees(uint256 sequence, IPools.Submission memory f) private view returns (uint256 owed) {
        if (f.phase == IPools.Phase.Pending) return FEES;
        if (f.code == Codes.LATE) return 0;
        ICourt.Round memory r = court.roundOf(pool, sequence >> 4, 0);
        uint256 code = Codes.get(r.codes, sequence & 15);
        if (code == Codes.UNDECIDED) {
            r = court.roundOf(pool, sequence >> 4, 1);
            code = Codes.get(r.codes, sequence & 15);
        }
        if (code == Codes.VOID) return 0;
        uint256 share = code == Codes.UNAVAILABLE ? FEE / 4 : FEE;
        for (uint256 i = 0; i < 3; ++i) {
            if (r.closed & (1 << i) == 0) owed += share;
        }
        if (code == Codes.UNAVAILABLE && f.phase != IPools.Phase.Final) owed += 3 * (FEE - share);
    }

    function _others() private view {
        uint256 sum = stakes.stakeOf(node);
        for (uint256 i = 0; i < 4; ++i) {
            (address n,) = crowd.nodeAt(i);
            sum += stakes.stakeOf(n);
        }
        require(token.balanceOf(address(stakes)) == sum, "stakes");
        sum = 0;
        for (uint256 i = 1; i <= seats.opened(); ++i) {
            sum += seats.seatOf(i).bond;
        }
        require(token.balanceOf(address(seats)) == sum, "bonds");
        uint256 deposits;
        uint256 canaryDeposits;
        uint256 count = crowd.count();
        for (uint256 i = 0; i < count; ++i) {
            (uint256 sequence,,) = crowd.fileAt(i);
            if (!appeals.disputeOf(pool, sequence).resolved) {
                deposits += appeals.disputeOf(pool, sequence).deposit + appeals.disputeOf(pool, sequence).appealDeposit;
            }
            if (!canaries.canaryOf(pool, sequence).concluded) {
                canaryDeposits += canaries.canaryOf(pool, sequence).deposit;
            }
        }
        require(token.balanceOf(address(appeals)) == deposits, "appeals");
        require(token.balanceOf(address(canaries)) == canaryDeposits, "canaries");
        require(token.balanceOf(address(court)) == 0, "court");
    }

    /// @notice Rejected and late work never pays: what a node got is at most its accepted units and those that its receipts keep.
    function invariant_onlyAcceptedWorkPays() public view {
        for (uint256 i = 0; i < 4; ++i) {
            (address n,) = crowd.nodeAt(i);
            uint256 accepted;
            for (uint256 j = 0; j < crowd.count(); ++j) {
                (uint256 sequence, address who, uint256 units) = crowd.fileAt(j);
                if (who != n) continue;
                IPools.Submission memory f = pools.submissionOf(pool, sequence);
                if (Codes.isPaid(f.code) && f.phase != IPools.Phase.Pending) accepted += units;
            }
            require(crowd.paid(n) <= accepted * 1e6, "paid for rejected work");
        }
    }

    /// @notice Accepted, vested work can be claimed in full by naming the latest vested file.
    function invariant_acceptedWorkIsClaimable() public view {
        for (uint256 i = 0; i < 4; ++i) {
            (address n,) = crowd.nodeAt(i);
            _claimable(n, pools.accountOf(pool, n));
        }
    }

    function _claimable(address n, IPools.Account memory a) private view {
        uint256 vested;
        uint256 best;
        for (uint256 j = 0; j < crowd.count(); ++j) {
            (uint256 sequence, address who, uint256 units) = crowd.fileAt(j);
            if (who != n) continue;
            IPools.Submission memory f = pools.submissionOf(pool, sequence);
            if (f.earned == 0 || crowd.time() < f.finalAt || (a.barrier != 0 && f.finalAt > a.barrier)) continue;
            if (Codes.isPaid(f.code) && f.phase != IPools.Phase.Disputed) vested += units;
            (uint256 can,) = pools.claimable(pool, n, sequence);
            if (can > best) best = can;
        }
        // a file in dispute that vests later may hold back others for as long as its dispute lasts
        require(best * 1e6 + crowd.paid(n) + _heldLater(n, a) * 1e6 >= vested * 1e6, "accepted work is lost");
    }

    /// @dev Units of once accepted files that count as spent and lie behind what has vested.
    function _heldLater(address n, IPools.Account memory a) private view returns (uint256 held) {
        for (uint256 j = 0; j < crowd.count(); ++j) {
            (uint256 sequence, address who, uint256 units) = crowd.fileAt(j);
            if (who != n) continue;
            IPools.Submission memory f = pools.submissionOf(pool, sequence);
            if (f.earned == 0 || (Codes.isPaid(f.code) && f.phase != IPools.Phase.Disputed)) continue;
            if (crowd.time() < f.finalAt || (a.barrier != 0 && f.finalAt > a.barrier)) held += units;
        }
    }

    /// @notice Nobody's stake or bond shrinks before an outcome is final; stake stays while it may be needed.
    function invariant_noLossBeforeFinality() public view {
        require(!crowd.lossBeforeFinality(), "loss before finality");
        require(!crowd.stakeLeftEarly(), "stake left early");
    }

    /// @notice Counters of an account agree with its files.
    function invariant_accountsAddUp() public view {
        for (uint256 i = 0; i < 4; ++i) {
            (address n,) = crowd.nodeAt(i);
            IPools.Account memory a = pools.accountOf(pool, n);
            uint256 pending;
            uint256 frozen;
            uint256 counter;
            for (uint256 j = 0; j < crowd.count(); ++j) {
                (uint256 sequence, address who, uint256 units) = crowd.fileAt(j);
                if (who != n) continue;
                ++counter;
                IPools.Submission memory f = pools.submissionOf(pool, sequence);
                if (f.phase == IPools.Phase.Pending) pending += units;
                if (Codes.isReject(f.code) && f.phase == IPools.Phase.Settled) ++frozen;
            }
            require(a.pending == pending && a.counter == counter, "account");
            require(a.frozen >= frozen && a.spent <= a.earned, "frozen");
        }
    }
}
