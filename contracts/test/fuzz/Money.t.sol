// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "../../src/interfaces/IParams.sol";
import {IPools} from "../../src/interfaces/IPools.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {PoolTerms, Receipt, Work} from "../../src/libraries/Types.sol";
import {Planting} from "../helpers/Planting.sol";

/// @notice Amounts, limits and windows of whole calls, with random sizes, orders and times.
contract MoneyTest is Planting {
    /// @dev Puts values in force: announced, and a delay later.
    function _govern(IParams.Values memory v) private {
        params.set(v);
        _wait(params.unbonding());
        _nextEpoch();
    }

    // ---- Pay

    /// Whatever order claims come in, each accepted file is paid once, and not before it vests.
    function testFuzz_claimsInAnyOrderPayEachFileOnce(uint24[6] memory units, uint256 order) public {
        uint256 sum;
        for (uint256 i = 0; i < 6; ++i) {
            units[i] = 1 + units[i] % 50_000;
            _submitFrom(node, units[i]);
            sum += units[i];
        }
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        uint256 paid;
        for (uint256 i = 0; i < 20; ++i) {
            uint256 sequence = uint256(keccak256(abi.encode(order, i))) % 6;
            (uint256 due, uint256 amount) = pools.claimable(pool, node, sequence);
            if (due == 0) {
                bytes32 inner = _inner(sequence);
                vm.expectRevert(IPools.NothingToClaim.selector);
                pools.claim(pool, node, sequence, inner);
                continue;
            }
            assertEq(_claim(sequence), amount);
            paid += due;
        }
        (uint256 rest,) = pools.claimable(pool, node, 5);
        assertEq(paid + rest, sum);
        if (rest != 0) _claim(5);
        assertEq(token.balanceOf(operator), sum * 1e6);
        assertEq(pools.accountOf(pool, node).spent, sum);
    }

    function testFuzz_nothingVestsBeforeItsTime(uint24 units, uint16 early) public {
        units = 1 + units % 100_000;
        uint256 s = _submitFrom(node, units);
        _voteAll(0, Codes.ACCEPT);
        uint256 finalAt = clock + 3_600;
        uint256 wait = early % 3_600;
        _wait(wait);
        bytes32 inner = _inner(s);
        vm.expectRevert(abi.encodeWithSelector(IPools.NotYet.selector, finalAt));
        pools.claim(pool, node, s, inner);
        _wait(3_600 - wait);
        assertEq(_claim(s), uint256(units) * 1e6);
    }

    /// A file under way takes its pay and fees out of the free budget; void, all of it comes back.
    function testFuzz_reservationComesBack(uint24 units) public {
        units = 1 + units % 100_000;
        uint256 s = _submitFrom(node, units);
        assertEq(pools.poolOf(pool).free, BUDGET - uint256(units) * 1e6 - FEES);
        _vote(0, 0, _three(_all(1), _all(3), 0));
        assertEq(pools.poolOf(pool).free, BUDGET - uint256(units) * 1e6 - FEES);
        _vote(0, 1, _three(_all(1), _all(10), 0));
        assertEq(_code(s), Codes.VOID);
        assertEq(pools.poolOf(pool).free, BUDGET);
        assertEq(token.balanceOf(address(pools)), BUDGET);
    }

    function testFuzz_limitIsLeverageTimesStake(uint56 more, uint24 units) public {
        more = more % (1_000_000e9);
        units = 1 + units % 100_000;
        _give(operator, address(stakes), more);
        vm.prank(operator);
        stakes.deposit(node, more);
        pools.refresh(pool, node);
        uint256 limit = 4 * (STAKE + more) / 1e6;
        assertEq(pools.accountOf(pool, node).limit, limit);
        uint256 open;
        for (uint256 i = 0; i < 64 && open + units <= limit; ++i) {
            _submitFrom(node, units);
            open += units;
        }
        if (open + units <= limit) return; // sixty-four files are under way: another bound
        bytes memory reason = abi.encodeWithSelector(IPools.OverLimit.selector, open + units, limit);
        if (open / units == 64) reason = abi.encodeWithSelector(IPools.TooManyUnsettled.selector, 64);
        uint256 counter = pools.accountOf(pool, node).counter;
        vm.expectRevert(reason);
        vm.prank(node);
        pools.submit(pool, 0, counter, Work(keccak256("r"), keccak256("f"), units, 1));
    }

    // ---- Penalties

    function testFuzz_rejectTakesItsShareOfTheStake(uint16 bps, uint8 others) public {
        IParams.Values memory v = defaultValues();
        v.slashBps = 5_000 + bps % 5_001;
        _govern(v);
        uint256 n = others % 15;
        for (uint256 i = 0; i <= n; ++i) {
            _submit();
        }
        uint256 codes = Codes.set(_all(Codes.MALFORMED), 0, Codes.REJECT_WEIGHTS);
        _vote(0, 0, _three(codes, codes, codes));
        _passWindow();
        pools.finalize(pool, 0, _ref(0));
        uint256 taken = STAKE * v.slashBps / 10_000;
        uint256 most = STAKE - n * FEES; // what the others may cost their committees stays
        if (taken > most) taken = most;
        assertEq(STAKE - stakes.stakeOf(node), taken);
        uint256 share = (taken - FEES) / 20;
        assertEq(token.balanceOf(address(this)), share);
        assertEq(token.balanceOf(SINK), taken - FEES - share);
        assertEq(token.balanceOf(address(pools)), BUDGET + FEES);
    }

    function testFuzz_malformedCostsItsPenaltyAndFees(uint56 penalty, uint8 files_) public {
        IParams.Values memory v = defaultValues();
        v.malformedPenalty = uint56(1 + penalty % 500e9);
        _govern(v);
        uint256 n = 1 + files_ % 3;
        for (uint256 i = 0; i < n; ++i) {
            _submit();
        }
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        uint256 left = STAKE;
        for (uint256 i = 0; i < n; ++i) {
            pools.finalize(pool, i, _ref(i));
            uint256 kept = (n - 1 - i) * FEES;
            uint256 cost = v.malformedPenalty + FEES;
            left -= cost < left - kept ? cost : left - kept;
            assertEq(stakes.stakeOf(node), left);
        }
        assertEq(pools.poolOf(pool).free, BUDGET);
        assertEq(token.balanceOf(address(pools)), BUDGET + n * FEES); // the committees' fees, paid by the node
    }

    function testFuzz_lateFilesCostThePenaltyEach(uint16 attested, uint56 penalty) public {
        IParams.Values memory v = defaultValues();
        v.malformedPenalty = uint56(1 + penalty % 20e9);
        _govern(v);
        for (uint256 i = 0; i < 16; ++i) {
            _submit();
        }
        if (attested == 0) attested = 1;
        _attestPlaces(0, attested);
        _voteAll(0, Codes.ACCEPT);
        uint256 late;
        for (uint256 i = 0; i < 16; ++i) {
            bool in_ = attested >> i & 1 == 1;
            assertEq(_code(i), in_ ? Codes.ACCEPT : Codes.LATE);
            if (in_) continue;
            ++late;
            pools.finalize(pool, i, _ref(i)); // at once
        }
        assertEq(STAKE - stakes.stakeOf(node), late * v.malformedPenalty);
        assertEq(pools.poolOf(pool).free, BUDGET - (16 - late) * (1e9 + FEES));
    }

    /// Who accepted a forged file pays its pay together, and no less than the penalty each.
    function testFuzz_overturnedAcceptersPayTheFilesPay(uint24 units) public {
        units = 1 + units % 100_000;
        uint256 s = _submitFrom(node, units);
        _vote(0, 0, _three(_all(1), _all(2), _all(3)));
        _juryVotes(_dispute(stranger, s), Codes.REJECT_WEIGHTS);
        _conclude(s);
        uint256 each = (uint256(units) * 1e6 + 1) / 2;
        if (each < 50e9) each = 50e9;
        uint256[] memory drawn = court.roundOf(pool, 0, 0).seats;
        assertEq(BOND - seats.seatOf(drawn[0]).bond, each);
        assertEq(BOND - seats.seatOf(drawn[1]).bond, each);
        assertEq(BOND - seats.seatOf(drawn[2]).bond, 0);
    }

    // ---- Deposits

    function testFuzz_disputesDepositIsTheJurysFeesAndTheDelay(uint56 compensation, bool right) public {
        IParams.Values memory v = defaultValues();
        v.delayCompensation = uint56(compensation % (10e9 + 1));
        _govern(v);
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 deposit = 5 * 5e8 + v.delayCompensation;
        assertEq(appeals.depositOf(pool, 0), deposit);
        assertEq(appeals.depositOf(pool, 1), 2 * deposit);
        uint256 trial = _dispute(stranger, s);
        assertEq(token.balanceOf(address(appeals)), deposit);
        assertEq(token.balanceOf(stranger), 10_000e9 - deposit);
        _juryVotes(trial, right ? Codes.REJECT_WEIGHTS : Codes.ACCEPT);
        _conclude(s);
        assertEq(token.balanceOf(address(appeals)), 0);
        assertEq(token.balanceOf(address(juries)), 5 * 5e8);
        // right: the deposit and as much again; wrong: gone, to the jury and to whom it delayed
        assertEq(token.balanceOf(stranger), right ? 10_000e9 + deposit : 10_000e9 - deposit);
        assertEq(token.balanceOf(operator), right ? 0 : v.delayCompensation);
    }

    function testFuzz_canarysDepositIsWhatItPutsAtStake(uint8 votes, uint56 slash) public {
        IParams.Values memory v = defaultValues();
        v.canarySlash = uint56(v.withheldPenalty + slash % 400e9);
        _govern(v);
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 s = _submit();
        uint256[] memory codes = new uint256[](3);
        uint256 accused;
        for (uint256 i = 0; i < 3; ++i) {
            bool accepts = votes >> i & 1 == 1;
            codes[i] = _all(accepts ? Codes.ACCEPT : Codes.REJECT_WEIGHTS);
            if (accepts) ++accused;
        }
        _vote(s / 16, 0, codes);
        uint256 before = token.balanceOf(owner) + 100_000e9;
        _openCanary(s);
        uint256 deposit = accused * v.canarySlash + 5 * 5e8;
        assertEq(before - token.balanceOf(owner), deposit);
        assertEq(token.balanceOf(address(canaries)), deposit);
        if (accused != 0) _juryVotes(canaries.canaryOf(pool, s).trial, Codes.REJECT_WEIGHTS);
        canaries.conclude(pool, s, files[pool][s]);
        // a true one costs nothing where the slashed can pay the jury
        uint256 slashed = accused * v.canarySlash;
        uint256 cost = accused == 0 || slashed > 5 * 5e8 ? 0 : 5 * 5e8 - slashed;
        assertEq(before - token.balanceOf(owner), cost);
        uint256[] memory drawn = court.roundOf(pool, s / 16, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(BOND - seats.seatOf(drawn[i]).bond, votes >> i & 1 == 1 ? v.canarySlash : 0);
        }
    }

    // ---- Receipts

    /// With a receipt of the last window work is taken while the pool is paused; before or after it is not.
    function testFuzz_receiptsHaveTheirWindow(uint16 age, uint16 since, bool paused) public {
        uint256 issued = clock;
        _wait(since % 700);
        if (paused) {
            vm.prank(owner);
            pools.pausePool(pool);
        }
        uint256 pausedAt = clock;
        _wait(age % 700);
        Work memory w = Work(keccak256("r"), keccak256("f"), 10, 1);
        bytes32 digest = court.receiptDigest(pool, node, w.fileHash, 5, issued);
        Receipt memory receipt = Receipt(5, uint40(issued), _sign(key("service"), digest));
        uint256 last = paused ? pausedAt : clock;
        bool fresh = issued + 600 >= clock;
        if (!fresh) {
            vm.expectRevert(abi.encodeWithSelector(IPools.ReceiptOutOfTime.selector, clock - 600, last));
        }
        vm.prank(node);
        pools.submitWithReceipt(pool, 0, 0, w, receipt);
        assertEq(pools.accountOf(pool, node).counter, fresh ? 1 : 0);
    }

    // ---- Terms and parameters

    /// Terms are refused exactly when one of the written bounds does not hold.
    function testFuzz_termsBounds(uint256 seed) public view {
        PoolTerms memory t = defaultTerms();
        uint256 r = seed >> 16;
        uint256 field = seed % 16;
        if (field == 0) t.rate = uint32(r % 3);
        if (field == 1) t.fee = uint32(r % 4e7);
        if (field == 2) t.juryFee = uint32(r % 4e9);
        if (field == 3) t.minStake = uint56(r % 10e9);
        if (field == 4) t.leverage = uint16(r % 3);
        if (field == 5) t.maxUnits = uint24(r % 3);
        if (field == 6) t.committee = uint8(r % 8);
        if (field == 7) t.jury = uint8(r % 20);
        if (field == 8) t.appealJury = uint8(r % 20);
        if (field == 9) t.laneBlocks = uint8(r % 3);
        if (field == 10) t.attestBlocks = uint8(r % 5);
        if (field == 11) t.maxLag = uint8(r % 20);
        if (field == 12) t.auditRate = uint24(r % 70_000);
        if (field == 13) t.drawBlocks = uint16(r % 20);
        if (field == 14) t.challengeWindow = uint32(r % 33 days);
        if (field == 15) t.class = uint32(r % (1 << 26));
        (bool ok, bytes memory data) = address(params).staticcall(abi.encodeCall(params.checkTerms, (t)));
        uint256 unbonding = _unbonding(t);
        assert(ok == (_allowed(t) && unbonding <= 30 days));
        if (ok) assert(abi.decode(data, (uint256)) == unbonding);
        else assert(bytes4(data) == IParams.BadTerms.selector);
    }

    function _allowed(PoolTerms memory t) private pure returns (bool) {
        bool money = t.rate >= 1 && t.fee >= 2e7 && t.juryFee >= t.fee && t.leverage >= 1 && t.maxUnits >= 1;
        bool stake = t.minStake >= 64 * uint256(t.committee) * t.fee && t.minStake >= uint256(t.jury) * t.juryFee;
        bool first = t.jury > t.committee && t.jury <= 15 && t.jury % 2 == 1;
        bool second = t.appealJury == 0 || (t.appealJury > t.jury && t.appealJury <= 15 && t.appealJury % 2 == 1);
        bool bodies = (t.committee == 3 || t.committee == 5) && first && second;
        bool blocks = t.laneBlocks >= 1 && t.attestBlocks >= 2 && t.drawBlocks >= 8;
        bool rest = t.maxLag <= 15 && t.auditRate >= 1 && t.auditRate <= 65_536 && (t.class == 0 || t.class >= 1 << 24);
        return money && stake && bodies && blocks && rest && t.challengeWindow >= 1 && t.challengeWindow <= 30 days;
    }

    function _unbonding(PoolTerms memory t) private pure returns (uint256 sum) {
        sum = uint256(t.laneBlocks) + 1 + t.attestBlocks + 4 * uint256(t.drawBlocks) + 2 * (60 + 60)
            + t.challengeWindow + 600 + 2 * (600 + 60 + 60);
        sum += sum / 8;
    }

    function testFuzz_parametersBounds(uint256 seed) public {
        IParams.Values memory v = defaultValues();
        uint256 r = seed >> 16;
        uint256 field = seed % 8;
        if (field == 0) v.slashBps = uint16(r % 12_000);
        if (field == 1) v.rewardBps = uint16(r % 4_000);
        if (field == 2) v.malformedPenalty = uint56(r % 20_000e9);
        if (field == 3) v.minorityPenalty = uint56(r % 4e9);
        if (field == 4) v.withheldPenalty = uint56(r % 20_000e9);
        if (field == 5) v.overturnPenalty = uint56(r % 20_000e9);
        if (field == 6) v.canarySlash = uint56(r % 20_000e9);
        if (field == 7) v.delayCompensation = uint56(r % 20e9);
        bool ok = v.slashBps >= 5_000 && v.slashBps <= 10_000 && v.rewardBps <= 2_000 && v.malformedPenalty > 0
            && v.malformedPenalty <= 10_000e9 && v.minorityPenalty > 0 && v.withheldPenalty > v.minorityPenalty
            && v.withheldPenalty <= 10_000e9 && v.overturnPenalty >= v.minorityPenalty && v.overturnPenalty <= 10_000e9
            && v.canarySlash >= v.withheldPenalty && v.canarySlash <= 10_000e9 && v.delayCompensation <= 10e9;
        (bool done, bytes memory data) = address(params).call(abi.encodeCall(params.set, (v)));
        assertEq(done, ok);
        if (!ok) {
            assertEq(bytes32(bytes4(data)), bytes32(IParams.OutOfBounds.selector));
            return;
        }
        assertEq(keccak256(abi.encode(params.valuesAt(clock + 30 days))), keccak256(abi.encode(v)));
        assertEq(keccak256(abi.encode(params.valuesAt(clock + 30 days - 1))), keccak256(abi.encode(defaultValues())));
    }

    // ---- Seats

    /// A draw has seats of its class only, none excluded, none twice, none of the excluded owner; and all it asks for
    /// where there are enough.
    function testFuzz_drawsAreOfTheClassAndNobodyExcluded(bytes32 seed, uint8 out, uint8 size, uint16 others) public {
        uint256 other = 1 << 25;
        uint256 inside;
        for (uint256 seat = 1; seat <= seats.opened(); ++seat) {
            if (others >> seat & 1 == 0) continue;
            ++inside;
            vm.prank(_seatOwner(seat));
            seats.optIn(seat, other);
        }
        _nextEpoch();
        uint256[] memory excluded = new uint256[](1);
        excluded[0] = 1 + out % seats.opened();
        uint256 wanted = 1 + size % 8;
        address without = _seatOwner(1 + uint256(seed) % seats.opened());
        uint256[] memory drawn = seats.draw(seed, seats.currentEpoch(), other, wanted, excluded, without);
        uint256 seen;
        for (uint256 i = 0; i < drawn.length; ++i) {
            assertTrue(others >> drawn[i] & 1 == 1 && drawn[i] != excluded[0]);
            assertTrue(seats.ownerOf(drawn[i]) != without && seen & (1 << drawn[i]) == 0);
            seen |= 1 << drawn[i];
        }
        uint256 barred = 1 + uint256(seed) % seats.opened();
        uint256 gone = (others >> excluded[0] & 1) + (barred != excluded[0] ? others >> barred & 1 : 0);
        assertEq(drawn.length, wanted < inside - gone ? wanted : inside - gone);
    }

    /// Bonds: what is penalised, topped up and withdrawn is what moves, to the grain.
    function testFuzz_bondsMoveToTheGrain(uint56 first, uint56 second) public {
        uint256 a = first % (BOND / 2 + 1);
        vm.prank(address(court));
        assertEq(seats.penalise(1, a, SINK), a);
        assertEq(seats.seatOf(1).bond, BOND - a);
        _give(stranger, address(seats), BOND);
        vm.prank(stranger);
        seats.topUp(1);
        assertEq(token.balanceOf(stranger), BOND - a);
        vm.prank(address(juries));
        uint256 taken = seats.collect(1, second, address(this));
        assertEq(taken, second < BOND ? second : BOND);
        assertEq(token.balanceOf(address(this)), taken / 20);
        assertEq(token.balanceOf(SINK), a + taken - taken / 20);
        bool live = BOND - taken >= BOND / 2;
        assertEq(seats.seatOf(1).activeFrom != 0, live);
        if (!live) return;
        vm.prank(_seatOwner(1));
        seats.leaveSeat(1);
        _blocks(450);
        vm.prank(_seatOwner(1));
        seats.unbondSeat(1);
        _wait(30 days);
        vm.prank(_seatOwner(1));
        seats.withdrawSeat(1);
        assertEq(token.balanceOf(_seatOwner(1)), BOND - taken - BOND / 100);
    }
}
