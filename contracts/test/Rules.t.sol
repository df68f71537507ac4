// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "../src/interfaces/IParams.sol";
import {IPools} from "../src/interfaces/IPools.sol";
import {ISeats} from "../src/interfaces/ISeats.sol";
import {IStakes} from "../src/interfaces/IStakes.sol";
import {AccountSlot} from "../src/libraries/AccountSlot.sol";
import {Audit} from "../src/libraries/Audit.sol";
import {Codes} from "../src/libraries/Codes.sol";
import {FileRef, PoolTerms} from "../src/libraries/Types.sol";
import {Network} from "./helpers/Network.sol";

/// @notice Money and governance: who pays for what, and what can change. Each rule fails for the attack and holds for
/// the honest case beside it.
contract RulesTest is Network {
    // ---- Money

    /// A node whose whole stake goes with its first rejected file still pays the committees of all the others.
    function test_everyRejectedFileOfALaneIsPaidByTheNode() public {
        for (uint256 i = 0; i < 20; ++i) {
            _submit(); // a full lane, and four files in the next
        }
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _voteAll(1, Codes.MALFORMED);
        _passWindow();
        for (uint256 i = 0; i < 20; ++i) {
            pools.finalize(pool, i, _ref(i));
        }
        _closeAll(0, 0);
        _closeAll(1, 0);
        assertEq(pools.poolOf(pool).free, BUDGET);
        assertEq(token.balanceOf(address(pools)), BUDGET);
        assertEq(stakes.stakeOf(node), 0);
        assertEq(pools.accountOf(pool, node).unsettled, 0);
    }

    function test_acceptedFilesAreTheOwnersCost() public {
        for (uint256 i = 0; i < 16; ++i) {
            _submit();
        }
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(15), 16 * 1e9);
        _closeAll(0, 0);
        assertEq(token.balanceOf(address(pools)), BUDGET - 16 * (1e9 + FEES));
        assertEq(stakes.stakeOf(node), STAKE);
        assertEq(pools.accountOf(pool, node).unsettled, 0);
    }

    function test_nodeBelowTheLeastStakeIsOutAtOnce() public {
        PoolTerms memory t = defaultTerms();
        t.minStake = uint56(STAKE);
        _moveTo(t);
        uint256 s = _submit();
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        pools.finalize(pool, s, _ref(s)); // takes 1.03 of 1,000
        assertEq(stakes.stakeOf(node), STAKE - 1e9 - FEES);
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 1, 1);
        vm.expectRevert(IPools.NotMember.selector);
        vm.prank(node);
        pools.submit(_work(0, 1, w));
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeTooLow.selector, STAKE - 1e9 - FEES, STAKE));
        vm.prank(operator);
        pools.join(pool, node);
        _give(operator, address(stakes), 1e9 + FEES);
        vm.prank(operator);
        stakes.deposit(node, 1e9 + FEES);
        vm.prank(operator);
        pools.join(pool, node);
        _step();
        _submit();
    }

    function test_limitFollowsAStakeThatShrinks() public {
        uint256 s = _submit();
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        pools.finalize(pool, s, _ref(s));
        assertEq(pools.accountOf(pool, node).limit, 4 * (STAKE - 1e9 - FEES) / 1e6);
        _submit(); // still above the least stake
    }

    function test_payOfALaneIsBoundedByTheBondsThatJudgeIt() public {
        PoolTerms memory t = defaultTerms();
        // sixteen files of 100,000 units: 1,600 tokens, as much as two bonds of 800 at least
        _createPool(t);
        t.maxUnits += 1;
        _give(owner, address(pools), 1);
        vm.expectRevert(abi.encodeWithSelector(IPools.PayAboveBonds.selector, 16 * 100_001 * 1e6, 1_600e9));
        vm.prank(owner);
        pools.createPool(t, 0);
    }

    /// A captured majority that is overturned pays at least what the file would have earned.
    function test_overturnedMajorityPaysWhatTheFileWouldHaveEarned() public {
        IParams.Values memory v = defaultValues();
        v.overturnPenalty = 1e9;
        _govern(v);
        uint256 s = _submitFrom(node, 80_000); // 80 tokens
        _vote(0, 0, _three(_all(1), _all(1), _all(3)));
        _juryVotes(_dispute(stranger, s), Codes.REJECT_WEIGHTS);
        _conclude(s);
        uint256[] memory drawn = court.roundOf(pool, 0, 0).seats;
        assertEq(BOND - seats.seatOf(drawn[0]).bond, 40e9);
        assertEq(BOND - seats.seatOf(drawn[1]).bond, 40e9);
        assertEq(seats.seatOf(drawn[2]).bond, BOND);
    }

    /// A first jury's reject bars what had not vested by then, and the final slash later does not lift that.
    function test_payThatVestsAfterTheFirstVerdictIsBarred() public {
        PoolTerms memory t = defaultTerms();
        t.appealJury = 7;
        _openSeats(18 - seats.opened());
        _nextEpoch();
        _moveTo(t);
        uint256 early = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 vests = clock + 3_600;
        _blocks(4);
        uint256 forged = _submit();
        _voteAll(forged / 16, Codes.ACCEPT);
        _juryVotes(_dispute(stranger, forged), Codes.REJECT_WEIGHTS);
        uint256 verdict = clock;
        _conclude(forged);
        assertLt(verdict, vests);
        _wait(vests - clock);
        _conclude(forged); // nobody appealed
        assertEq(stakes.stakeOf(node), 0);
        assertEq(pools.accountOf(pool, node).barrier, verdict);
        bytes32 inner = _inner(early);
        vm.expectRevert(abi.encodeWithSelector(IPools.IsFrozen.selector, verdict));
        pools.claim(pool, node, early, inner);
        pools.forfeit(pool, early, files[pool][early]);
        assertEq(pools.poolOf(pool).free, BUDGET - 1e9 - FEES); // the accepted file's pay is burnt, not the owner's again
    }

    function test_noMoreFilesUnderWayThanTheLeastStakeCovers() public {
        for (uint256 i = 0; i < 64; ++i) {
            _submitFrom(node, 1);
        }
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 1, 1);
        vm.expectRevert(abi.encodeWithSelector(IPools.TooManyUnsettled.selector, 64));
        vm.prank(node);
        pools.submit(_work(0, 64, w));
        _voteAll(0, Codes.ACCEPT); // sixteen fewer
        for (uint256 i = 0; i < 16; ++i) {
            _submitFrom(node, 1);
        }
        vm.expectRevert(abi.encodeWithSelector(IPools.TooManyUnsettled.selector, 64));
        vm.prank(node);
        pools.submit(_work(0, 80, w));
        PoolTerms memory t = defaultTerms();
        (t.minStake, t.juryFee) = (uint56(64 * FEES) - 1, 1e9);
        vm.expectRevert(abi.encodeWithSelector(IParams.BadTerms.selector, "juryFee"));
        params.checkTerms(t);
        t.juryFee = t.fee;
        vm.expectRevert(abi.encodeWithSelector(IParams.BadTerms.selector, "minStake"));
        params.checkTerms(t);
        t.minStake += 1;
        params.checkTerms(t);
    }

    /// The fields that add up work cannot overflow: a node has at most 2^22 − 1 files of less than 2^24 units.
    function test_noFieldOfAnAccountCanOverflow() public {
        assertTrue((AccountSlot.MAX_COUNTER + 1) * type(uint24).max <= AccountSlot.MAX_46);
        bytes32 slot = keccak256(abi.encode((pool << 160) | uint160(node), uint256(4)));
        uint256 a = uint256(vm.load(address(pools), slot));
        vm.store(address(pools), slot, bytes32(a | (((uint256(1) << 22) - 2) << 160)));
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 1, 1);
        vm.prank(node);
        pools.submit(_work(0, (1 << 22) - 2, w)); // the last one
        vm.expectRevert(IPools.AmountTooLarge.selector);
        vm.prank(node);
        pools.submit(_work(0, (1 << 22) - 1, w));
    }

    // ---- Penalties are collected

    function test_minorityCannotLeaveBeforeItPaid() public {
        _submit();
        _vote(0, 0, _three(_all(Codes.REJECT_WEIGHTS), _all(1), _all(1)));
        uint256[] memory drawn = court.roundOf(pool, 0, 0).seats;
        for (uint256 i = 0; i < 2; ++i) {
            vm.prank(_seatOwner(drawn[i]));
            seats.leaveSeat(drawn[i]);
        }
        _blocks(450);
        for (uint256 i = 0; i < 2; ++i) {
            vm.prank(_seatOwner(drawn[i]));
            seats.unbondSeat(drawn[i]);
        }
        _wait(30 days);
        // who agreed with the outcome may go, though nobody has closed it yet
        vm.prank(_seatOwner(drawn[1]));
        seats.withdrawSeat(drawn[1]);
        uint256 releaseAt = seats.seatOf(drawn[0]).releaseAt;
        vm.expectRevert(abi.encodeWithSelector(ISeats.SeatLocked.selector, releaseAt, 1));
        vm.prank(_seatOwner(drawn[0]));
        seats.withdrawSeat(drawn[0]);
        vm.prank(stranger);
        court.closeMember(pool, 0, 0, 0);
        assertEq(token.balanceOf(stranger), 1e9 / 20); // who collects is paid a share
        vm.prank(_seatOwner(drawn[0]));
        seats.withdrawSeat(drawn[0]);
        assertEq(token.balanceOf(_seatOwner(drawn[0])), BOND - 1e9 - BOND / 100);
    }

    function test_absenceIsPaidAtSettlement() public {
        _submit();
        _submit();
        _draw(0, 0);
        _commit(0, 0, 0, _all(1));
        _commit(0, 0, 1, _all(1));
        _wait(60);
        _reveal(0, 0, 0, _all(1));
        _reveal(0, 0, 1, _all(1));
        FileRef[] memory refs = _refs(0);
        vm.prank(stranger);
        court.settle(pool, 0, 0, refs);
        uint256[] memory drawn = court.roundOf(pool, 0, 0).seats;
        assertEq(seats.seatOf(drawn[2]).bond, BOND - 2 * 2e9);
        assertEq(seats.seatOf(drawn[1]).bond, BOND);
        assertEq(token.balanceOf(stranger), 4e9 / 20);
        _passWindow();
        _closeAll(0, 0);
        assertEq(seats.seatOf(drawn[2]).bond, BOND - 2 * 2e9); // once
    }

    function test_jurorsStayUntilTheirCaseIsClosed() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256 trial = _dispute(operator, s);
        _juryVotes(trial, Codes.ACCEPT, 4, 0);
        _wait(60);
        uint256[] memory jurors = juries.seatsOf(trial);
        assertEq(seats.seatOf(jurors[4]).frozen, 1);
        _conclude(s);
        assertEq(seats.seatOf(jurors[4]).frozen, 1);
        vm.prank(stranger);
        juries.closeJuror(trial, 4);
        assertEq(seats.seatOf(jurors[4]).frozen, 0);
        assertEq(seats.seatOf(jurors[4]).bond, BOND - 2e9);
        assertEq(token.balanceOf(stranger), 2e9 / 20);
    }

    function test_nodeCannotLeaveBeforeItPaid() public {
        uint256 s = _submit();
        _voteAll(0, Codes.MALFORMED);
        vm.prank(operator);
        pools.leavePool(pool, node);
        _wait(30 days);
        uint256 releaseAt = stakes.nodeOf(node).releaseAt;
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeLocked.selector, releaseAt, 1));
        vm.prank(operator);
        stakes.withdraw(node, STAKE);
        FileRef memory ref = _ref(s);
        vm.prank(stranger);
        pools.finalize(pool, s, ref);
        assertEq(token.balanceOf(stranger), 1e9 / 20); // of the penalty: the committee's fees are paid in full
        vm.prank(operator);
        stakes.withdraw(node, STAKE - 1e9 - FEES);
        assertEq(pools.poolOf(pool).free, BUDGET);
    }

    // ---- Seats' ids

    function test_oneBondCannotUseUpTheIds() public {
        address who = _seatOwner(1);
        for (uint256 i = 0; i < 3; ++i) {
            vm.prank(who);
            seats.leaveSeat(1);
            _blocks(450);
            vm.prank(who);
            seats.unbondSeat(1);
            _wait(30 days);
            vm.prank(who);
            seats.withdrawSeat(1);
            // its owner opens the same seat again; a new id would cost a hundredth of a bond each time
            _give(who, address(seats), BOND / 100);
            vm.prank(who);
            seats.reopenSeat(1, _voter(1), _classes(FAMILY));
        }
        assertEq(seats.opened(), SEATS);
        assertEq(_burnt(), 3 * BOND / 100);
        assertEq(seats.seatOf(1).bond, BOND);
        assertEq(seats.countAt(FAMILY, seats.currentEpoch() + 1), SEATS);
        vm.expectRevert(ISeats.NotSeatOwner.selector);
        seats.reopenSeat(1, stranger, _classes(FAMILY));
        vm.expectRevert(ISeats.SeatNotClosed.selector);
        vm.prank(who);
        seats.reopenSeat(1, who, _classes(FAMILY));
    }

    // ---- Governance

    function _raised() internal pure returns (IParams.Values memory v) {
        v = defaultValues();
        (v.minorityPenalty, v.withheldPenalty, v.malformedPenalty) = (40e9, 150e9, 500e9);
    }

    function test_changesDoNotReachWhatExists() public {
        uint256 minority = _submit();
        uint256 delay = params.unbonding();
        assertGt(delay, defaultTerms().challengeWindow);
        params.set(_raised());
        vm.expectRevert(abi.encodeWithSelector(IParams.TooSoon.selector, clock + delay));
        params.set(defaultValues());
        assertEq(params.values().minorityPenalty, 1e9);
        _vote(0, 0, _three(_all(Codes.MALFORMED), _all(1), _all(1)));
        _blocks(4);
        uint256 malformed = _submit();
        _voteAll(1, Codes.MALFORMED);
        _wait(delay); // everything is collected late, after the change took effect
        assertEq(params.values().minorityPenalty, 40e9);
        _closeAll(0, 0);
        pools.finalize(pool, malformed, _ref(malformed));
        assertEq(BOND - seats.seatOf(court.roundOf(pool, 0, 0).seats[0]).bond, 1e9);
        assertEq(STAKE - stakes.stakeOf(node), 1e9 + FEES);
        assertEq(_claim(minority), 1e9);
    }

    function test_changesHoldForWhatBeginsAfterwards() public {
        params.set(_raised());
        _wait(params.unbonding());
        _nextEpoch();
        _submit();
        _vote(0, 0, _three(_all(Codes.MALFORMED), _all(1), 0));
        uint256[] memory drawn = court.roundOf(pool, 0, 0).seats;
        assertEq(BOND - seats.seatOf(drawn[2]).bond, 150e9);
        params.set(defaultValues()); // the next change may be announced now
    }

    function test_nobodyIsPricedOutOfADispute() public {
        IParams.Values memory v = defaultValues();
        v.delayCompensation = 10e9 + 1;
        vm.expectRevert(abi.encodeWithSelector(IParams.OutOfBounds.selector, "delayCompensation"));
        params.set(v);
        v.delayCompensation = 10e9;
        params.set(v);
        PoolTerms memory t = defaultTerms();
        t.juryFee = 4e9;
        t.minStake = 20e9;
        params.checkTerms(t); // five jurors' fees are no more than what a node has at stake
        t.juryFee += 1;
        vm.expectRevert(abi.encodeWithSelector(IParams.BadTerms.selector, "juryFee"));
        params.checkTerms(t);
    }

    function test_pauseEndsByItself() public {
        params.setPaused(true);
        assertTrue(params.paused());
        vm.expectRevert(abi.encodeWithSelector(IParams.TooSoon.selector, clock + 14 days));
        params.setPaused(true);
        uint256 s = _submit(); // who is in goes on
        _wait(7 days - 1);
        assertTrue(params.paused());
        _wait(1);
        assertFalse(params.paused());
        _openSeats(1);
        vm.expectRevert(abi.encodeWithSelector(IParams.TooSoon.selector, clock + 7 days));
        params.setPaused(true); // not at once again
        _wait(7 days);
        params.setPaused(true);
        params.setPaused(false);
        assertFalse(params.paused());
        assertEq(params.pausedUntil(), clock);
        assertEq(s, 0);
    }

    // ---- The audit sample

    function sample(uint256 rows, uint256 rate, uint256 row) external pure returns (bool) {
        return Audit.sampled(keccak256("seed"), 7, rows, rate, row);
    }

    function test_largestFilesSampleFitsABlockTenTimes() public {
        uint256 before = gasleft();
        this.sample(type(uint16).max, 16384, type(uint16).max - 1);
        assertLt(before - gasleft(), 3_000_000 / 100);
    }

    /// Against the protocol's text, for every row: each by its own hash, and one row always.
    function testFuzz_sampleIsTheProtocols(bytes32 seed, uint256 sequence, uint16 rows, uint24 rate) public pure {
        rate = 1 + rate % 65536;
        if (rows == 0) rows = 1;
        uint256 always = uint256(keccak256(abi.encode(keccak256("muster/audit-one/1"), seed, sequence))) % rows;
        require(Audit.sampled(seed, sequence, rows, rate, always), "one row always");
        for (uint256 row = 0; row < rows && row < 40; ++row) {
            bytes32 hash = keccak256(abi.encode(keccak256("muster/audit/1"), seed, sequence, row));
            bool own = uint256(hash) % 65536 < rate;
            require(Audit.sampled(seed, sequence, rows, rate, row) == (own || row == always), "sample");
        }
        require(!Audit.sampled(seed, sequence, rows, rate, rows), "no such row");
    }

    function test_sampleHasTheRatesSize() public pure {
        uint256 inside;
        for (uint256 row = 0; row < 4_000; ++row) {
            if (Audit.sampled(keccak256("seed"), 5, 4_000, 16384, row)) ++inside;
        }
        require(inside > 890 && inside < 1_110, "a quarter"); // 1,000 expected, sigma 27
    }
}
