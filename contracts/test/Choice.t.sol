// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "../src/interfaces/IParams.sol";
import {IPools} from "../src/interfaces/IPools.sol";
import {ISeats} from "../src/interfaces/ISeats.sol";
import {Codes} from "../src/libraries/Codes.sol";
import {PoolTerms, Receipt, Work} from "../src/libraries/Types.sol";
import {Planting} from "./helpers/Planting.sol";

/// @notice Seats judge what they chose, and only that; a pool that too few chose takes no work.
contract ChoiceTest is Planting {
    uint256 internal constant PAY = 1_000 * 1e6;
    /// A family whose seats the tests' pools have not.
    uint256 internal constant OTHER = uint32(uint256(keccak256("other family"))) | (1 << 31);

    function setUp() public override {
        super.setUp();
        _openSeatsIn(12, OTHER); // seats 12 to 23
        vm.prank(stranger);
        token.approve(address(seats), type(uint256).max);
        token.mint(stranger, BOND);
        vm.prank(stranger);
        seats.openSeat(stranger, new uint256[](0)); // seat 24 chose nothing
        _nextEpoch();
        _step();
    }

    function _in(uint256 seat, uint256 class) internal {
        vm.prank(_seatOwner(seat));
        seats.optIn(seat, class);
    }

    function _out(uint256 seat, uint256 class) internal {
        vm.prank(_seatOwner(seat));
        seats.optOut(seat, class);
    }

    function _status() internal view returns (IPools.Status) {
        return pools.poolOf(pool).status;
    }

    function _is(IPools.Status status) internal {
        assertEq(uint256(_status()), uint256(status));
    }

    /// @dev How often each seat is drawn in `rounds` draws of three.
    function _hits(uint256 class, uint256 rounds) internal view returns (uint256[] memory hits) {
        hits = new uint256[](seats.opened() + 1);
        uint256 epoch = seats.currentEpoch();
        for (uint256 i = 0; i < rounds; ++i) {
            bytes32 seed = keccak256(abi.encode("choice", i));
            uint256[] memory drawn = seats.draw(seed, epoch, class, 3, new uint256[](0), address(0));
            for (uint256 j = 0; j < drawn.length; ++j) {
                ++hits[drawn[j]];
            }
        }
    }

    // ---- Who is drawn

    function _chosen(uint256[] memory drawn, uint256 size) internal {
        assertEq(drawn.length, size);
        for (uint256 i = 0; i < size; ++i) {
            assertEq(seats.classesOf(drawn[i]), _classes(FAMILY));
        }
    }

    /// Committee, fresh committee, jury and second jury, over many seeds: none but seats of the pool's class.
    function test_whoDidNotOptInIsNeverDrawn() public {
        _openSeats(7);
        _nextEpoch();
        PoolTerms memory t = defaultTerms();
        t.appealJury = 7;
        _moveTo(t);
        for (uint256 i = 0; i < 6; ++i) {
            uint256 s = _submit();
            _vote(s / 16, 0, _three(_all(1), _all(3), 0));
            _vote(s / 16, 1, _three(_all(1), _all(1), _all(1)));
            _chosen(court.roundOf(pool, s / 16, 0).seats, 3);
            _chosen(court.roundOf(pool, s / 16, 1).seats, 3);
            uint256 trial = _dispute(stranger, s);
            _juryVotes(trial, Codes.REJECT_WEIGHTS);
            _chosen(juries.seatsOf(trial), 5);
            _conclude(s);
            _give(operator, address(appeals), 10_000e9);
            vm.prank(operator);
            appeals.appeal(pool, s);
            uint256 second = appeals.disputeOf(pool, s).appealTrial;
            _juryVotes(second, Codes.ACCEPT);
            _chosen(juries.seatsOf(second), 7);
            _conclude(s);
            _blocks(4);
        }
        for (uint256 seat = 12; seat <= 24; ++seat) {
            assertEq(seats.seatOf(seat).bond, BOND); // what is not chosen costs nothing
        }
    }

    function test_whoDidNotOptInJudgesNoCanary() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        for (uint256 i = 0; i < 4; ++i) {
            uint256 s = _submit();
            _voteAll(s / 16, Codes.ACCEPT);
            _openCanary(s);
            uint256 trial = canaries.canaryOf(pool, s).trial;
            _juryVotes(trial, Codes.ACCEPT);
            _chosen(juries.seatsOf(trial), 5);
            canaries.conclude(pool, s, files[pool][s]);
            _blocks(4);
        }
    }

    function test_whoOptsInIsDrawnFromTheNextEpochOn() public {
        vm.expectEmit(address(seats));
        emit ISeats.SeatOptedIn(12, FAMILY, seats.currentEpoch() + 1);
        _in(12, FAMILY);
        assertEq(seats.countAt(FAMILY, seats.currentEpoch()), SEATS);
        assertEq(_hits(FAMILY, 200)[12], 0);
        _nextEpoch();
        assertEq(seats.countAt(FAMILY, seats.currentEpoch()), SEATS + 1);
        assertGt(_hits(FAMILY, 200)[12], 30); // 50 expected, sigma 6
        assertGt(_hits(OTHER, 200)[12], 30); // and it still judges the other family
    }

    function test_whoOptsOutLeavesTheDrawAtTheNextEpoch() public {
        vm.expectEmit(address(seats));
        emit ISeats.SeatOptedOut(3, FAMILY, seats.currentEpoch());
        _out(3, FAMILY);
        assertGt(_hits(FAMILY, 200)[3], 35); // 55 expected, sigma 6
        _nextEpoch();
        assertEq(seats.countAt(FAMILY, seats.currentEpoch()), SEATS - 1);
        uint256[] memory hits = _hits(FAMILY, 200);
        assertEq(hits[3], 0);
        assertGt(hits[11], 35); // the last seat, which took its place
        _in(3, FAMILY);
        _nextEpoch();
        assertGt(_hits(FAMILY, 200)[3], 35);
    }

    /// A draw under way holds who opted out: silence costs it, a vote earns, and both are free of later lanes.
    function test_optingOutEscapesNoDuty() public {
        _openSeats(2); // enough without the two
        _nextEpoch();
        _blocks(80);
        uint256 s = _submit();
        uint256 lane = s / 16;
        _attest(lane);
        _blocks(2);
        (uint256[] memory members,,,) = court.committeeOf(pool, lane, 0);
        _out(members[0], FAMILY);
        _out(members[1], FAMILY);
        _nextEpoch();
        _vote(lane, 0, _three(0, _all(1), _all(1)));
        assertEq(court.roundOf(pool, lane, 0).seats, members);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(seats.seatOf(members[0]).bond, BOND - 2e9);
        _passWindow();
        _closeAll(lane, 0);
        assertEq(token.balanceOf(_seatOwner(members[0])), 0);
        assertEq(token.balanceOf(_seatOwner(members[1])), FEE);
        assertEq(token.balanceOf(_seatOwner(members[2])), FEE);
        uint256[] memory hits = _hits(FAMILY, 200);
        assertEq(hits[members[0]] + hits[members[1]], 0);
    }

    /// @dev Chi-square of `rounds` draws of three among the seats for which `hits` may be positive; all others have none.
    function _chiSquare(uint256[] memory hits, uint256 rounds, uint256 from, uint256 to)
        internal
        returns (uint256 chi)
    {
        uint256 n = to - from + 1;
        for (uint256 seat = 1; seat < hits.length; ++seat) {
            if (seat < from || seat > to) {
                assertEq(hits[seat], 0);
                continue;
            }
            int256 off = int256(hits[seat] * n) - int256(3 * rounds);
            chi += uint256(off * off);
        }
        chi /= n * 3 * rounds;
    }

    function test_drawIsUniformOverTheClass() public {
        assertLt(_chiSquare(_hits(FAMILY, 2_000), 2_000, 1, 11), 30); // ten degrees of freedom: one in a thousand
        assertLt(_chiSquare(_hits(OTHER, 2_000), 2_000, 12, 23), 32); // eleven
        for (uint256 seat = 1; seat <= 11; ++seat) {
            if (seat > 4) _in(seat, OTHER);
            if (seat < 5) _out(seat, FAMILY);
        }
        _nextEpoch();
        assertLt(_chiSquare(_hits(FAMILY, 2_000), 2_000, 5, 11), 23); // six
        assertLt(_chiSquare(_hits(OTHER, 2_000), 2_000, 5, 23), 43); // eighteen
    }

    // ---- Too few seats

    function _refused(IPools.Status status) internal {
        uint256 step = pools.poolOf(pool).steps - 1;
        uint256 counter = pools.accountOf(pool, node).counter;
        Work[] memory works = new Work[](1);
        works[0] = _work(step, counter, Draft(keccak256("root"), keccak256("file"), 1, 1));
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongStatus.selector, status));
        vm.prank(node);
        pools.submit(works[0]);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongStatus.selector, status));
        vm.prank(node);
        pools.submitMany(works);
    }

    function _review(IPools.Status expected) internal {
        vm.prank(stranger);
        pools.reviewSeats(pool);
        _is(expected);
    }

    function test_classTooSmallTakesNoWorkAndTakesItAgain() public {
        _out(1, FAMILY);
        _review(IPools.Status.Open); // this epoch still has eleven
        _nextEpoch();
        vm.expectEmit(address(pools));
        emit IPools.StatusSet(pool, IPools.Status.Understaffed);
        _review(IPools.Status.Understaffed);
        _refused(IPools.Status.Understaffed);

        // everything but work goes on
        address other = _register(stranger, "other", STAKE);
        vm.prank(stranger);
        pools.join(pool, other);
        _give(stranger, address(pools), 7e9);
        vm.prank(stranger);
        pools.fund(pool, 7e9);
        _step();
        _is(IPools.Status.Understaffed);

        _in(1, FAMILY);
        _review(IPools.Status.Understaffed); // not in this epoch
        _nextEpoch();
        _refused(IPools.Status.Understaffed);
        _review(IPools.Status.Open);
        uint256 s = _submit();
        _voteAll(s / 16, Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(s), PAY);
        assertEq(pools.poolOf(pool).free, BUDGET + 7e9 - PAY - FEES);
    }

    function test_everyStepReviewsTheSeats() public {
        _out(1, FAMILY);
        _nextEpoch();
        uint256 s = _submit(); // nobody looked yet
        _step();
        _is(IPools.Status.Understaffed);
        _voteAll(s / 16, Codes.ACCEPT); // what was taken before is judged and paid
        _passWindow();
        assertEq(_claim(s), PAY);
        _in(1, FAMILY);
        _nextEpoch();
        _step();
        _is(IPools.Status.Open);
        _submit();
    }

    function _receipt(bytes32 fileHash, uint40 time) internal view returns (Receipt memory r) {
        r.size = 1_234;
        r.time = time;
        r.signature = _sign(key("service"), court.receiptDigest(pool, node, fileHash, r.size, time));
    }

    /// Work whose receipt is older than the shortage is still taken, and paid.
    function test_receiptCountsInAnUnderstaffedPool() public {
        bytes32 fileHash = keccak256("uploaded before");
        Work memory w = _work(1, 0, Draft(keccak256("root"), fileHash, 1_000, 8));
        Receipt memory early = _receipt(fileHash, uint40(clock));
        _out(1, FAMILY);
        _nextEpoch();
        _review(IPools.Status.Understaffed);
        _wait(10);
        Receipt memory late = _receipt(fileHash, uint40(clock));
        vm.expectRevert(abi.encodeWithSelector(IPools.ReceiptOutOfTime.selector, clock - 600, clock - 10));
        vm.prank(node);
        pools.submitWithReceipt(w, late);
        uint256 free = pools.poolOf(pool).free;
        vm.prank(node);
        pools.submitWithReceipt(w, early);
        assertEq(free - pools.poolOf(pool).free, PAY + FEES);
    }

    /// A pool of its own class has no seats until some choose it: a stranger's pool costs nobody anything.
    function test_poolThatNobodyChoseTakesNoWork() public {
        PoolTerms memory t = defaultTerms();
        t.class = 0;
        _moveTo(t);
        assertEq(court.termsOf(pool).class, pool);
        _refused(IPools.Status.Understaffed);
        for (uint256 seat = 1; seat < SEATS; ++seat) {
            _in(seat, pool);
        }
        _nextEpoch();
        _step();
        _refused(IPools.Status.Understaffed); // ten
        _in(12, pool);
        _nextEpoch();
        _step();
        uint256 s = _submit();
        _voteAll(s / 16, Codes.ACCEPT);
        uint256[] memory drawn = court.roundOf(pool, s / 16, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertTrue(drawn[i] != 11 && drawn[i] < 13);
        }
        _passWindow();
        assertEq(_claim(s), PAY);
        for (uint256 seat = 1; seat <= seats.opened(); ++seat) {
            assertEq(seats.seatOf(seat).bond, BOND);
        }
    }

    /// A family's seats owe nothing to a pool whose model nobody can have: they say so, and are paid for the attempt.
    function test_familyPoolWithAModelNobodyCanHaveCostsNoSeatAnything() public {
        for (uint256 i = 0; i < 16; ++i) {
            _submit();
        }
        _voteAll(0, Codes.UNAVAILABLE);
        _passWindow();
        _closeAll(0, 0);
        uint256[] memory drawn = court.roundOf(pool, 0, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(seats.seatOf(drawn[i]).bond, BOND);
            assertEq(token.balanceOf(_seatOwner(drawn[i])), 16 * (FEE / 4));
        }
    }

    function test_understaffedPoolCanBePausedAndClosed() public {
        _out(1, FAMILY);
        _nextEpoch();
        _review(IPools.Status.Understaffed);
        vm.prank(owner);
        pools.pausePool(pool);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongStatus.selector, IPools.Status.Paused));
        pools.reviewSeats(pool); // a pause is the owner's
        _step();
        _is(IPools.Status.Paused);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongStatus.selector, IPools.Status.Paused));
        vm.prank(owner);
        pools.pausePool(pool);
        vm.prank(owner);
        pools.resumePool(pool);
        _is(IPools.Status.Understaffed);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongStatus.selector, IPools.Status.Understaffed));
        vm.prank(owner);
        pools.resumePool(pool);
        vm.prank(owner);
        pools.pausePool(pool);
        _in(1, FAMILY);
        _nextEpoch();
        vm.prank(owner);
        pools.resumePool(pool);
        _is(IPools.Status.Open);

        _out(1, FAMILY);
        _nextEpoch();
        _review(IPools.Status.Understaffed);
        vm.prank(owner);
        pools.closePool(pool);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongStatus.selector, IPools.Status.Closing));
        pools.reviewSeats(pool);
        _wait(pools.poolOf(pool).unbonding);
        vm.prank(owner);
        pools.settlePool(pool);
        assertEq(token.balanceOf(owner), BUDGET);
    }

    /// Two committees, a jury and a second jury, each of other seats.
    function test_poolNeedsSeatsForAllItsBodies() public {
        PoolTerms memory t = defaultTerms();
        (t.committee, t.jury, t.appealJury, t.class) = (5, 7, 9, uint32(OTHER));
        _openSeatsIn(13, OTHER); // 25 of the 26 that it needs
        _nextEpoch();
        pool = _createPool(t);
        _is(IPools.Status.Understaffed);
        _in(24, OTHER, stranger);
        _nextEpoch();
        _review(IPools.Status.Open);
        pool = _createPool(t);
        _is(IPools.Status.Open);
    }

    function _in(uint256 seat, uint256 class, address who) internal {
        vm.prank(who);
        seats.optIn(seat, class);
    }

    // ---- Terms

    function _badTerms(PoolTerms memory t, string memory field) internal {
        vm.expectRevert(abi.encodeWithSelector(IParams.BadTerms.selector, field));
        params.checkTerms(t);
        vm.expectRevert(abi.encodeWithSelector(IParams.BadTerms.selector, field));
        vm.prank(stranger);
        pools.createPool(t, 0);
    }

    /// A hundred lanes judged pay for one missed, whoever sets the terms.
    function test_feeFloor() public {
        PoolTerms memory t = defaultTerms();
        t.fee = 1;
        _badTerms(t, "fee");
        t.fee = 2e7 - 1;
        _badTerms(t, "fee");
        t.fee = 2e7;
        params.checkTerms(t);

        IParams.Values memory v = defaultValues();
        v.withheldPenalty = 3e9 + 1;
        params.set(v);
        _wait(params.unbonding());
        t.fee = 3e7;
        _badTerms(t, "fee");
        t.fee = 3e7 + 1;
        params.checkTerms(t);
        _submit(); // what exists goes on
    }

    function test_noPoolNamesTheClassOfAnother() public {
        PoolTerms memory t = defaultTerms();
        t.class = 1;
        _badTerms(t, "class");
        t.class = (1 << 24) - 1;
        _badTerms(t, "class");
        t.class = 1 << 24;
        params.checkTerms(t);
        t.class = type(uint32).max;
        params.checkTerms(t);
    }

    // ---- Opting in and out

    function test_atMostFiveClasses() public {
        for (uint256 class = 1; class <= 4; ++class) {
            _in(1, class);
        }
        vm.expectRevert(ISeats.TooManyClasses.selector);
        vm.prank(_seatOwner(1));
        seats.optIn(1, 5);
        _out(1, 2);
        _in(1, 5);
        uint256[] memory classes = seats.classesOf(1);
        assertEq(classes.length, 5);
        assertEq(classes[0], FAMILY);
        assertEq(classes[1], 1);
        assertEq(classes[2], 5);
        assertEq(classes[3], 3);
        assertEq(classes[4], 4);
        vm.expectRevert(ISeats.TooManyClasses.selector);
        vm.prank(_seatOwner(1));
        seats.optIn(1, 2);

        classes = new uint256[](6);
        for (uint256 i = 0; i < 6; ++i) {
            classes[i] = i + 1;
        }
        _give(stranger, address(seats), BOND);
        vm.expectRevert(ISeats.TooManyClasses.selector);
        vm.prank(stranger);
        seats.openSeat(stranger, classes);
    }

    function _choiceRefused(address who, bytes memory call, bytes memory refusal) internal {
        vm.expectRevert(refusal);
        vm.prank(who);
        (bool ok,) = address(seats).call(call);
        assertTrue(ok); // of expectRevert
    }

    function test_choicesAreRefused() public {
        address who = _seatOwner(1);
        bytes memory no = abi.encodeWithSelector(ISeats.NotSeatOwner.selector);
        _choiceRefused(stranger, abi.encodeCall(seats.optIn, (1, 7)), no);
        _choiceRefused(stranger, abi.encodeCall(seats.optOut, (1, FAMILY)), no);
        no = abi.encodeWithSelector(ISeats.AlreadyOptedIn.selector);
        _choiceRefused(who, abi.encodeCall(seats.optIn, (1, FAMILY)), no);
        uint256[] memory twice = new uint256[](2);
        (twice[0], twice[1]) = (7, 7);
        _choiceRefused(stranger, abi.encodeCall(seats.openSeat, (stranger, twice)), no);
        no = abi.encodeWithSelector(ISeats.NotOptedIn.selector);
        _choiceRefused(who, abi.encodeCall(seats.optOut, (1, 7)), no);
        _choiceRefused(who, abi.encodeCall(seats.optOut, (1, 0)), no);
        _choiceRefused(who, abi.encodeCall(seats.optOut, (1, FAMILY | (1 << 32))), no); // longer than a class
        no = abi.encodeWithSelector(ISeats.BadClass.selector, 0);
        _choiceRefused(who, abi.encodeCall(seats.optIn, (1, 0)), no);
        _choiceRefused(stranger, abi.encodeCall(seats.openSeat, (stranger, new uint256[](1))), no);
        no = abi.encodeWithSelector(ISeats.BadClass.selector, uint256(1) << 32);
        _choiceRefused(who, abi.encodeCall(seats.optIn, (1, 1 << 32)), no);
        vm.prank(who);
        seats.leaveSeat(1);
        no = abi.encodeWithSelector(ISeats.SeatInactive.selector);
        _choiceRefused(who, abi.encodeCall(seats.optIn, (1, 7)), no);
        _choiceRefused(who, abi.encodeCall(seats.optOut, (1, FAMILY)), no);
    }

    function _five(uint256 seat) internal {
        for (uint256 class = 1; class <= 4; ++class) {
            _in(seat, class);
            _in(seat + 1, class);
        }
    }

    function _goneFromAll(uint256 seat) internal {
        assertEq(seats.classesOf(seat).length, 0);
        _nextEpoch();
        uint256 epoch = seats.currentEpoch();
        for (uint256 class = 1; class <= 4; ++class) {
            assertEq(seats.countAt(class, epoch), 1);
            assertEq(seats.seatAt(class, 0, epoch), seat + 1);
        }
        assertEq(seats.countAt(FAMILY, epoch), SEATS - 1);
        uint256[] memory hits = _hits(FAMILY, 200);
        assertEq(hits[seat], 0);
        assertGt(hits[seat + 1], 35);
    }

    function _expectOut(uint256 seat) internal {
        uint256 epoch = seats.currentEpoch();
        vm.expectEmit(address(seats));
        emit ISeats.SeatOptedOut(seat, FAMILY, epoch);
        for (uint256 class = 1; class <= 4; ++class) {
            vm.expectEmit(address(seats));
            emit ISeats.SeatOptedOut(seat, class, epoch);
        }
    }

    function test_evictionLeavesAllClasses() public {
        _five(2);
        _nextEpoch();
        _expectOut(2);
        vm.prank(address(court));
        seats.penalise(2, BOND / 2 + 1, SINK);
        _goneFromAll(2);
    }

    function test_leavingLeavesAllClassesAndReopeningChoosesAgain() public {
        _five(2);
        _nextEpoch();
        address who = _seatOwner(2);
        _expectOut(2);
        vm.prank(who);
        seats.leaveSeat(2);
        _goneFromAll(2);
        _blocks(450);
        vm.prank(who);
        seats.unbondSeat(2);
        _wait(30 days);
        vm.prank(who);
        seats.withdrawSeat(2);
        _give(who, address(seats), BOND);
        uint256[] memory classes = new uint256[](2);
        (classes[0], classes[1]) = (9, FAMILY);
        vm.expectEmit(address(seats));
        emit ISeats.SeatReopened(2, _voter(2), BOND, seats.currentEpoch() + 1);
        vm.expectEmit(address(seats));
        emit ISeats.SeatOptedIn(2, 9, seats.currentEpoch() + 1);
        vm.prank(who);
        seats.reopenSeat(2, _voter(2), classes);
        assertEq(seats.classesOf(2), classes);
        _nextEpoch();
        assertEq(seats.countAt(9, seats.currentEpoch()), 1);
        assertGt(_hits(FAMILY, 200)[2], 35);
    }

    // ---- Sets by epoch, against plain ones

    uint256 internal constant MANY = 6;
    /// By class: seats of the next epoch, bit by bit.
    uint256[MANY + 1] internal latest;
    mapping(uint256 epoch => uint256[MANY + 1]) internal known;

    function _choose(uint256 r) internal {
        uint256 seat = 12 + r % 8;
        uint256 class = 1 + (r >> 8) % MANY;
        uint256 count;
        for (uint256 i = 1; i <= MANY; ++i) {
            if (latest[i] >> seat & 1 == 1) ++count;
        }
        bool inside = latest[class] >> seat & 1 == 1;
        bool enter = (r >> 16) % 3 != 0;
        if (enter && inside) vm.expectRevert(ISeats.AlreadyOptedIn.selector);
        else if (enter && count == 4) vm.expectRevert(ISeats.TooManyClasses.selector); // and the family
        else if (!enter && !inside) vm.expectRevert(ISeats.NotOptedIn.selector);
        else latest[class] ^= 1 << seat;
        if (enter) _in(seat, class);
        else _out(seat, class);
    }

    function _compare(uint256 first) internal view {
        uint256 now_ = seats.currentEpoch();
        uint256 from = now_ > first + 3 ? now_ - 3 : first;
        for (uint256 epoch = from; epoch <= now_ + 1; ++epoch) {
            for (uint256 class = 1; class <= MANY; ++class) {
                uint256 set = epoch > now_ ? latest[class] : known[epoch][class];
                uint256 count = seats.countAt(class, epoch);
                uint256 found;
                for (uint256 place = 0; place < count; ++place) {
                    uint256 bit = 1 << seats.seatAt(class, place, epoch);
                    require(found & bit == 0, "twice");
                    found |= bit;
                }
                require(found == set, "set");
            }
        }
    }

    function testFuzz_setsOfEveryEpoch(uint256 seed) public {
        uint256 first = seats.currentEpoch();
        for (uint256 i = 0; i < 8; ++i) {
            for (uint256 j = 0; j < 8; ++j) {
                _choose(uint256(keccak256(abi.encode(seed, i, j))));
            }
            _compare(first);
            _nextEpoch();
            known[seats.currentEpoch()] = latest;
        }
        _compare(first);
    }
}
