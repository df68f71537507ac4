// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IAppeals} from "../src/interfaces/IAppeals.sol";
import {ICanaries} from "../src/interfaces/ICanaries.sol";
import {ICourt} from "../src/interfaces/ICourt.sol";
import {IJuries} from "../src/interfaces/IJuries.sol";
import {IParams} from "../src/interfaces/IParams.sol";
import {IPools} from "../src/interfaces/IPools.sol";
import {ISeats} from "../src/interfaces/ISeats.sol";
import {IStakes} from "../src/interfaces/IStakes.sol";
import {IVoting} from "../src/interfaces/IVoting.sol";
import {Codes} from "../src/libraries/Codes.sol";
import {SuiteLib} from "../src/libraries/SuiteLib.sol";
import {FileData, FileRef, PoolTerms, Suite, Work} from "../src/libraries/Types.sol";
import {Planting} from "./helpers/Planting.sol";
import {IERC20Metadata} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Metadata.sol";

/// @notice Every call says no, with the right error, to who may not make it or at the wrong time.
contract RefusalsTest is Planting {
    /// @dev `who` calls and is refused with `selector`.
    function _no(address who, address target, bytes memory data, bytes4 selector) internal {
        vm.prank(who);
        (bool ok, bytes memory answer) = target.call(data);
        assertFalse(ok);
        assertEq(bytes32(bytes4(answer)), bytes32(selector));
    }

    /// @dev The same with the error's arguments.
    function _no(address who, address target, bytes memory data, bytes memory reason) internal {
        vm.prank(who);
        (bool ok, bytes memory answer) = target.call(data);
        assertFalse(ok);
        assertEq(keccak256(answer), keccak256(reason));
    }

    function _yes(address who, address target, bytes memory data) internal {
        vm.prank(who);
        (bool ok,) = target.call(data);
        assertTrue(ok);
    }

    // ---- Token, Params

    function test_token() public {
        assertEq(IERC20Metadata(address(token)).decimals(), 9);
        assertEq(token.nonces(owner), 0);
        _no(stranger, address(token), abi.encodeCall(token.mint, (stranger, 1)), 0x118cdaa7);
        _yes(address(this), address(token), abi.encodeCall(token.mint, (stranger, 1)));
        assertEq(token.balanceOf(stranger), 1);
    }

    function test_params() public {
        IParams.Values memory v = defaultValues();
        _no(stranger, address(params), abi.encodeCall(params.set, (v)), 0x118cdaa7);
        _no(stranger, address(params), abi.encodeCall(params.setPaused, (true)), 0x118cdaa7);
        v.slashBps = 4_999;
        _no(address(this), address(params), abi.encodeCall(params.set, (v)), _bounds("slashBps"));
        v.slashBps = 10_001;
        _no(address(this), address(params), abi.encodeCall(params.set, (v)), _bounds("slashBps"));
        v = defaultValues();
        v.rewardBps = 2_001;
        _no(address(this), address(params), abi.encodeCall(params.set, (v)), _bounds("rewardBps"));
        v = defaultValues();
        v.malformedPenalty = 10_001e9;
        _no(address(this), address(params), abi.encodeCall(params.set, (v)), _bounds("malformedPenalty"));
        v.malformedPenalty = 0; // being late must cost something
        _no(address(this), address(params), abi.encodeCall(params.set, (v)), _bounds("malformedPenalty"));
        v = defaultValues();
        v.minorityPenalty = 0;
        _no(address(this), address(params), abi.encodeCall(params.set, (v)), _bounds("minorityPenalty"));
        v = defaultValues();
        v.withheldPenalty = v.minorityPenalty;
        _no(address(this), address(params), abi.encodeCall(params.set, (v)), _bounds("withheldPenalty"));
        v = defaultValues();
        v.overturnPenalty = 0;
        _no(address(this), address(params), abi.encodeCall(params.set, (v)), _bounds("overturnPenalty"));
        v = defaultValues();
        v.canarySlash = 0;
        _no(address(this), address(params), abi.encodeCall(params.set, (v)), _bounds("canarySlash"));
        v = defaultValues();
        v.delayCompensation = 10e9 + 1;
        _no(address(this), address(params), abi.encodeCall(params.set, (v)), _bounds("delayCompensation"));
        v = defaultValues();
        v.withheldPenalty = 100 * uint56(type(uint32).max) + 1; // no pool could promise a hundredth of it as its fee
        _no(address(this), address(params), abi.encodeCall(params.set, (v)), _bounds("withheldPenalty"));
        v = defaultValues();
        v.overturnPenalty = 10_000e9 + 1;
        _no(address(this), address(params), abi.encodeCall(params.set, (v)), _bounds("overturnPenalty"));
        v = defaultValues();
        v.canarySlash = 10_000e9 + 1;
        _no(address(this), address(params), abi.encodeCall(params.set, (v)), _bounds("canarySlash"));
        // every bound itself is allowed
        v = IParams.Values(10_000, 2_000, 10_000e9, 1, 100 * uint56(type(uint32).max), 10_000e9, 10_000e9, 10e9);
        _yes(address(this), address(params), abi.encodeCall(params.set, (v)));
        assertEq(params.valuesAt(clock + params.unbonding()).canarySlash, 10_000e9);
        assertEq(params.values().canarySlash, 200e9);
    }

    function _bounds(string memory name) internal pure returns (bytes memory) {
        return abi.encodeWithSelector(IParams.OutOfBounds.selector, name);
    }

    function makeParams(uint256 window, uint256 seconds_, uint256 unbonding) external {
        _new("Params", abi.encode(address(this), window, seconds_, unbonding, defaultValues()));
    }

    function makeSeats(uint256 bond, uint256 minBond, uint256 epoch) external {
        Suite memory s;
        s.seats = _at(vm.getNonce(address(this)));
        _new("Seats", abi.encode(s, bond, minBond, epoch));
    }

    function makeMisplaced(string memory name) external {
        Suite memory s;
        _new(name, abi.encode(s));
    }

    function makeMisplacedSeats() external {
        Suite memory s;
        _new("Seats", abi.encode(s, 10, 5, 100));
    }

    function test_constructors() public {
        address me = address(this);
        _no(me, me, abi.encodeCall(this.makeParams, (0, 1, 1 days)), _bounds("minWindow"));
        _no(me, me, abi.encodeCall(this.makeParams, (2 days, 1, 3 days)), _bounds("minWindow"));
        _no(me, me, abi.encodeCall(this.makeParams, (1, 0, 1 days)), _bounds("blockSeconds"));
        _no(me, me, abi.encodeCall(this.makeParams, (1, 61, 1 days)), _bounds("blockSeconds"));
        _no(me, me, abi.encodeCall(this.makeParams, (10, 1, 1)), _bounds("unbonding"));
        _no(me, me, abi.encodeCall(this.makeParams, (10, 1, 91 days)), _bounds("unbonding"));
        _no(me, me, abi.encodeCall(this.makeSeats, (0, 1, 100)), _bounds("bond"));
        _no(me, me, abi.encodeCall(this.makeSeats, (1 << 60, 1, 100)), _bounds("bond"));
        _no(me, me, abi.encodeCall(this.makeSeats, (10, 0, 100)), _bounds("minBond"));
        _no(me, me, abi.encodeCall(this.makeSeats, (10, 11, 100)), _bounds("minBond"));
        _no(me, me, abi.encodeCall(this.makeSeats, (10, 5, 1)), _bounds("epochBlocks"));
        _no(me, me, abi.encodeCall(this.makeSeats, (10, 5, 2001)), _bounds("epochBlocks"));
        string[6] memory names = ["Stakes", "Pools", "Court", "Juries", "Appeals", "Canaries"];
        for (uint256 i = 0; i < 6; ++i) {
            _no(me, me, abi.encodeCall(this.makeMisplaced, (names[i])), SuiteLib.WrongAddress.selector);
        }
        _no(me, me, abi.encodeCall(this.makeMisplacedSeats, ()), SuiteLib.WrongAddress.selector);
    }

    function test_everyBoundOfAConstructorIsAllowed() public {
        this.makeParams(1, 1, 1);
        this.makeParams(1 days, 60, 90 days);
        this.makeSeats(1, 1, 2);
        this.makeSeats(type(uint56).max, type(uint56).max, 2000);
    }

    function _badTerms(PoolTerms memory t, string memory field) internal {
        bytes memory reason = abi.encodeWithSelector(IParams.BadTerms.selector, field);
        _no(owner, address(params), abi.encodeCall(params.checkTerms, (t)), reason);
    }

    function test_terms() public {
        PoolTerms memory t;
        t = defaultTerms();
        t.rate = 0;
        _badTerms(t, "rate");
        t = defaultTerms();
        t.fee = 0;
        _badTerms(t, "fee");
        t = defaultTerms();
        t.juryFee = 1;
        _badTerms(t, "juryFee");
        t = defaultTerms();
        t.leverage = 0;
        _badTerms(t, "leverage");
        t = defaultTerms();
        t.minStake = 0;
        _badTerms(t, "juryFee");
        t = defaultTerms();
        t.maxUnits = 0;
        _badTerms(t, "maxUnits");
        t = defaultTerms();
        t.committee = 4;
        _badTerms(t, "committee");
        t = defaultTerms();
        t.jury = 3;
        _badTerms(t, "jury");
        t.jury = 17;
        _badTerms(t, "jury");
        t.jury = 6;
        _badTerms(t, "jury");
        t = defaultTerms();
        t.appealJury = 5;
        _badTerms(t, "appealJury");
        t.appealJury = 17;
        _badTerms(t, "appealJury");
        t.appealJury = 8;
        _badTerms(t, "appealJury");
        t = defaultTerms();
        t.laneBlocks = 0;
        _badTerms(t, "laneBlocks");
        t = defaultTerms();
        t.attestBlocks = 1;
        _badTerms(t, "attestBlocks");
        t = defaultTerms();
        t.maxLag = 16;
        _badTerms(t, "maxLag");
        t = defaultTerms();
        t.auditRate = 0;
        _badTerms(t, "auditRate");
        t.auditRate = 65537;
        _badTerms(t, "auditRate");
        t = defaultTerms();
        t.drawBlocks = 7;
        _badTerms(t, "drawBlocks");
        t = defaultTerms();
        t.commitWindow = 0;
        _badTerms(t, "commitWindow");
        t = defaultTerms();
        t.receiptWindow = 31 days;
        _badTerms(t, "receiptWindow");
        t = defaultTerms();
        t.challengeWindow = 29 days;
        _badTerms(t, "unbonding"); // longer than validators' bonds stay
        // nine eighths of: blocks of the lane, its attestation and four draws, two rounds, the challenge, a receipt's life,
        // two juries
        uint256 sum = (2 + 1 + 32 + 4 * 64) + 2 * 120 + 3600 + 600 + 2 * (600 + 120);
        assertEq(params.checkTerms(defaultTerms()), sum + sum / 8);
    }

    // ---- Stakes

    function test_stakes() public {
        address s = address(stakes);
        IStakes.Slash memory none;
        address unknown = account("unknown");
        _no(owner, s, abi.encodeCall(stakes.deposit, (unknown, 1)), IStakes.UnknownNode.selector);
        _no(owner, s, abi.encodeCall(stakes.deposit, (node, 1 << 56)), IStakes.AmountTooLarge.selector);
        _give(stranger, s, 5e9);
        _yes(stranger, s, abi.encodeCall(stakes.deposit, (node, 5e9)));
        assertEq(stakes.stakeOf(node), STAKE + 5e9);
        _no(stranger, s, abi.encodeCall(stakes.withdraw, (node, 1)), IStakes.NotOperator.selector);
        bytes memory inPool = abi.encodeWithSelector(IStakes.InPool.selector, pool);
        _no(operator, s, abi.encodeCall(stakes.withdraw, (node, 1)), inPool);
        assertEq(stakes.withdrawable(node), 0);
        _no(stranger, s, abi.encodeCall(stakes.bind, (node, 1, 1)), IStakes.NotPools.selector);
        _no(stranger, s, abi.encodeCall(stakes.unbind, (node, 1)), IStakes.NotPools.selector);
        _no(stranger, s, abi.encodeCall(stakes.freeze, (node)), IStakes.NotPools.selector);
        _no(stranger, s, abi.encodeCall(stakes.release, (node)), IStakes.NotPools.selector);
        _no(stranger, s, abi.encodeCall(stakes.slash, (node, none)), IStakes.NotPools.selector);
        _yes(operator, address(pools), abi.encodeCall(pools.leavePool, (pool, node)));
        _no(operator, s, abi.encodeCall(stakes.withdraw, (node, 1)), IStakes.StakeLocked.selector);
        // it may come back to the same pool, but not take its stake to another one
        uint256 other = _createPool(defaultTerms());
        _no(operator, address(pools), abi.encodeCall(pools.join, (other, node)), IStakes.StakeLocked.selector);
        _wait(30_000);
        _no(operator, s, abi.encodeCall(stakes.withdraw, (node, STAKE * 2)), IStakes.StakeTooLow.selector);
        assertEq(stakes.withdrawable(node), STAKE + 5e9);
        _yes(operator, s, abi.encodeCall(stakes.withdraw, (node, STAKE)));
        assertEq(token.balanceOf(operator), STAKE);
        _no(operator, address(pools), abi.encodeCall(pools.join, (pool, node)), IStakes.StakeTooLow.selector);
        _no(stranger, address(pools), abi.encodeCall(pools.join, (pool, unknown)), IStakes.UnknownNode.selector);
        IStakes.Node memory n = stakes.nodeOf(node);
        assertEq(n.operator, operator);
        assertEq(n.lastPool, pool);

        bytes memory consent = _sign(key("unknown"), stakes.consentDigest(unknown, stranger, clock));
        bytes memory call = abi.encodeCall(stakes.registerNode, (unknown, 1 << 56, clock, consent));
        _no(stranger, s, call, IStakes.AmountTooLarge.selector);
        call = abi.encodeCall(stakes.registerNode, (unknown, 1, clock - 1, consent));
        _no(stranger, s, call, IStakes.ConsentExpired.selector);
        params.setPaused(true);
        call = abi.encodeCall(stakes.registerNode, (unknown, 1, clock, consent));
        _no(stranger, s, call, IStakes.Paused.selector);
        params.setPaused(false);
        // a permit that fails (here: used up, or never valid) is no matter when the allowance is there
        IStakes.Permit memory permit;
        _give(stranger, s, 1e9);
        call = abi.encodeCall(stakes.registerNodeWithPermit, (unknown, 1e9, clock, consent, permit));
        _yes(stranger, s, call);
    }

    // ---- Seats

    function test_seats() public {
        address s = address(seats);
        _no(stranger, s, abi.encodeCall(seats.openSeat, (address(0), _classes(FAMILY))), ISeats.ZeroVoter.selector);
        params.setPaused(true);
        _no(stranger, s, abi.encodeCall(seats.openSeat, (stranger, _classes(FAMILY))), ISeats.Paused.selector);
        params.setPaused(false);
        _no(stranger, s, abi.encodeCall(seats.setVoter, (1, stranger)), ISeats.NotSeatOwner.selector);
        _no(_seatOwner(1), s, abi.encodeCall(seats.setVoter, (1, address(0))), ISeats.ZeroVoter.selector);
        _yes(_seatOwner(1), s, abi.encodeCall(seats.setVoter, (1, stranger)));
        assertEq(seats.voterOf(1), stranger);
        _no(stranger, s, abi.encodeCall(seats.penalise, (1, 1, stranger)), ISeats.NotCourt.selector);
        _no(stranger, s, abi.encodeCall(seats.freeze, (1)), ISeats.NotCourt.selector);
        _no(stranger, s, abi.encodeCall(seats.release, (1)), ISeats.NotCourt.selector);
        _no(_seatOwner(1), s, abi.encodeCall(seats.unbondSeat, (1)), ISeats.SeatActive.selector);
        _no(_seatOwner(1), s, abi.encodeCall(seats.withdrawSeat, (1)), ISeats.SeatActive.selector);
        _no(stranger, s, abi.encodeCall(seats.leaveSeat, (1)), ISeats.NotSeatOwner.selector);
        uint256 epoch = seats.currentEpoch();
        _no(stranger, s, abi.encodeCall(seats.countAt, (FAMILY, epoch + 2)), ISeats.UnknownEpoch.selector);
        _no(stranger, s, abi.encodeCall(seats.seatAt, (FAMILY, 0, epoch - 4)), ISeats.UnknownEpoch.selector);

        // a bond that falls below the least is evicted; before that it can be topped up
        vm.prank(address(court));
        seats.penalise(1, 100e9, SINK);
        _give(stranger, s, BOND);
        _yes(stranger, s, abi.encodeCall(seats.topUp, (1)));
        assertEq(seats.seatOf(1).bond, BOND);
        vm.prank(address(court));
        assertEq(seats.penalise(1, BOND * 2, SINK), BOND);
        assertEq(seats.seatOf(1).leftEpoch, epoch);
        _no(stranger, s, abi.encodeCall(seats.topUp, (1)), ISeats.SeatInactive.selector);
        _no(_seatOwner(1), s, abi.encodeCall(seats.leaveSeat, (1)), ISeats.SeatInactive.selector);

        // leaving: drawable until the epoch's end, then two epochs, then the unbonding period
        _yes(_seatOwner(8), s, abi.encodeCall(seats.leaveSeat, (8)));
        _yes(_seatOwner(3), s, abi.encodeCall(seats.leaveSeat, (3)));
        assertEq(seats.countAt(FAMILY, epoch), SEATS);
        assertEq(seats.countAt(FAMILY, epoch + 1), SEATS - 3);
        assertEq(seats.seatAt(FAMILY, 7, epoch), 8);
        _no(_seatOwner(3), s, abi.encodeCall(seats.unbondSeat, (3)), ISeats.TooEarly.selector);
        _nextEpoch();
        assertEq(seats.countAt(FAMILY, epoch), SEATS);
        assertEq(seats.countAt(FAMILY, epoch + 1), SEATS - 3);
        _openSeats(1);
        assertEq(seats.countAt(FAMILY, epoch + 2), SEATS - 2);
        _nextEpoch();
        _nextEpoch();
        _no(_seatOwner(3), s, abi.encodeCall(seats.unbondSeat, (3)), ISeats.TooEarly.selector);
        _nextEpoch();
        _yes(_seatOwner(3), s, abi.encodeCall(seats.unbondSeat, (3)));
        _no(_seatOwner(3), s, abi.encodeCall(seats.unbondSeat, (3)), ISeats.SeatLocked.selector);
        _no(_seatOwner(3), s, abi.encodeCall(seats.withdrawSeat, (3)), ISeats.SeatLocked.selector);
        vm.prank(address(canaries));
        seats.freeze(3);
        _wait(30 days);
        _no(_seatOwner(3), s, abi.encodeCall(seats.withdrawSeat, (3)), ISeats.SeatLocked.selector);
        vm.prank(address(canaries));
        seats.release(3);
        _yes(_seatOwner(3), s, abi.encodeCall(seats.withdrawSeat, (3)));
        _no(_seatOwner(3), s, abi.encodeCall(seats.withdrawSeat, (3)), ISeats.SeatActive.selector);
        assertEq(seats.effectiveSeedBlock(height), 0);
        assertEq(seats.effectiveSeedBlock(height - 1), height - 1);
        assertEq(seats.effectiveSeedBlock(height - 300), height - 300);
        assertEq(seats.effectiveSeedBlock(height - 900) / EPOCH, height / EPOCH - 3);
        // seat ids end
        vm.store(s, bytes32(uint256(3)), bytes32(uint256(65535)));
        assertEq(seats.opened(), 65535);
        _no(stranger, s, abi.encodeCall(seats.openSeat, (stranger, _classes(FAMILY))), ISeats.TooManySeats.selector);
    }

    // ---- Pools

    function test_poolOwner() public {
        address p = address(pools);
        PoolTerms memory t = defaultTerms();
        params.setPaused(true);
        _no(owner, p, abi.encodeCall(pools.createPool, (t, 0)), IPools.Paused.selector);
        _no(stranger, p, abi.encodeCall(pools.join, (pool, account("x"))), IPools.Paused.selector);
        params.setPaused(false);
        t.jury = 7;
        assertEq(uint256(pools.poolOf(_createPool(t)).status), uint256(IPools.Status.Understaffed));
        t = defaultTerms();
        _no(owner, p, abi.encodeCall(pools.createPool, (t, 1 << 64)), IPools.AmountTooLarge.selector);
        _no(owner, p, abi.encodeCall(pools.fund, (99, 1)), IPools.NoSuchPool.selector);
        _no(owner, p, abi.encodeCall(pools.fund, (pool, type(uint64).max)), IPools.AmountTooLarge.selector);
        _give(stranger, p, 7e9);
        _yes(stranger, p, abi.encodeCall(pools.fund, (pool, 7e9)));
        assertEq(pools.poolOf(pool).free, BUDGET + 7e9);
        _no(stranger, p, abi.encodeCall(pools.publishStep, (pool, 1, 0, 0)), IPools.NotOwner.selector);
        _no(owner, p, abi.encodeCall(pools.publishStep, (pool, 2, 0, 0)), IPools.StepMismatch.selector);
        _no(owner, p, abi.encodeCall(pools.resumePool, (pool)), IPools.WrongStatus.selector);
        _yes(owner, p, abi.encodeCall(pools.pausePool, (pool)));
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 1, 1);
        _no(node, p, abi.encodeCall(pools.submit, (_work(0, 0, w))), IPools.WrongStatus.selector);
        _no(stranger, p, abi.encodeCall(pools.join, (pool, stranger)), IPools.WrongStatus.selector);
        _yes(owner, p, abi.encodeCall(pools.publishStep, (pool, 1, 0, 0)));
        _yes(owner, p, abi.encodeCall(pools.resumePool, (pool)));
        _no(owner, p, abi.encodeCall(pools.settlePool, (pool)), IPools.WrongStatus.selector);
        _yes(owner, p, abi.encodeCall(pools.closePool, (pool)));
        _no(owner, p, abi.encodeCall(pools.closePool, (pool)), IPools.WrongStatus.selector);
        _no(owner, p, abi.encodeCall(pools.publishStep, (pool, 2, 0, 0)), IPools.WrongStatus.selector);
        _no(owner, p, abi.encodeCall(pools.settlePool, (pool)), IPools.NotYet.selector);
        _wait(30 days);
        _yes(owner, p, abi.encodeCall(pools.settlePool, (pool)));
        assertEq(token.balanceOf(owner), BUDGET + 7e9);
        _yes(owner, p, abi.encodeCall(pools.settlePool, (pool))); // nothing left, no harm
        assertEq(uint256(pools.poolOf(pool).status), uint256(IPools.Status.Settled));
        assertEq(pools.ownerOf(pool), owner);
    }

    function test_poolMembers() public {
        address p = address(pools);
        _no(node, p, abi.encodeCall(pools.join, (pool, node)), IPools.AlreadyMember.selector);
        _no(stranger, p, abi.encodeCall(pools.leavePool, (pool, node)), IPools.NotOperatorOrNode.selector);
        _no(stranger, p, abi.encodeCall(pools.leavePool, (pool, stranger)), IPools.NotMember.selector);
        _no(stranger, p, abi.encodeCall(pools.refresh, (pool, stranger)), IPools.NotMember.selector);
        _give(stranger, address(stakes), STAKE);
        _yes(stranger, address(stakes), abi.encodeCall(stakes.deposit, (node, STAKE)));
        _yes(stranger, p, abi.encodeCall(pools.refresh, (pool, node)));
        assertEq(pools.accountOf(pool, node).limit, 8 * STAKE / 1e6);
        _no(stranger, p, abi.encodeCall(pools.removeNode, (pool, node)), IPools.NotOwner.selector);
        _yes(owner, p, abi.encodeCall(pools.removeNode, (pool, node)));
        _no(owner, p, abi.encodeCall(pools.removeNode, (pool, node)), IPools.Removed.selector);
        _no(node, p, abi.encodeCall(pools.join, (pool, node)), IPools.Removed.selector);
        address unborn = account("unborn");
        _yes(owner, p, abi.encodeCall(pools.removeNode, (pool, unborn)));
        address other = _register(stranger, "other", STAKE);
        _no(owner, p, abi.encodeCall(pools.join, (pool, other)), IPools.NotOperatorOrNode.selector);
        PoolTerms memory t = defaultTerms();
        (t.rate, t.minStake, t.leverage, t.maxUnits) = (type(uint32).max, 4e9, 1, 1);
        // a member's stake always allows a unit
        bytes memory reason = abi.encodeWithSelector(IParams.BadTerms.selector, "minStake");
        _no(owner, p, abi.encodeCall(pools.createPool, (t, 0)), reason);
        (t.rate, t.leverage) = (1, 10_000);
        uint256 cheap = _createPool(t);
        address rich = _register(stranger, "rich", 2_000_000e9);
        _yes(rich, p, abi.encodeCall(pools.join, (cheap, rich)));
        assertEq(pools.accountOf(cheap, rich).limit, (uint256(1) << 34) - 1);
        // a join between publication and seed block counts for that step
        vm.prank(owner);
        pools.publishStep(pool, 1, 0, 0);
        vm.prank(other);
        pools.join(pool, other);
        assertEq(pools.accountOf(pool, other).joinedStep, 1);
    }

    function test_poolWork() public {
        address p = address(pools);
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 1, 1);
        _no(stranger, p, abi.encodeCall(pools.submit, (_work(0, 0, w))), IPools.NotMember.selector);
        bytes memory reason = abi.encodeWithSelector(IPools.CounterMismatch.selector, 1, 0);
        _no(node, p, abi.encodeCall(pools.submit, (_work(0, 1, w))), reason);
        reason = abi.encodeWithSelector(IPools.StepOutOfRange.selector, 1, 0, 1);
        _no(node, p, abi.encodeCall(pools.submit, (_work(1, 0, w))), reason);
        w.units = 0;
        reason = abi.encodeWithSelector(IPools.BadUnits.selector, 0, 100_000);
        _no(node, p, abi.encodeCall(pools.submit, (_work(0, 0, w))), reason);
        w.units = 100_001;
        reason = abi.encodeWithSelector(IPools.BadUnits.selector, 100_001, 100_000);
        _no(node, p, abi.encodeCall(pools.submit, (_work(0, 0, w))), reason);
        w.units = 1;
        w.rows = 0;
        _no(node, p, abi.encodeCall(pools.submit, (_work(0, 0, w))), IPools.BadRows.selector);
        _no(node, p, abi.encodeCall(pools.submitMany, (new Work[](0))), IPools.BadCount.selector);
        _no(node, p, abi.encodeCall(pools.submitMany, (new Work[](17))), IPools.BadCount.selector);
        w.rows = 1;
        Work[] memory many = new Work[](3);
        (many[0], many[1], many[2]) = (_work(0, 0, w), _work(0, 1, w), _work(0, 2, w));
        _yes(node, p, abi.encodeCall(pools.submitMany, (many)));
        assertEq(pools.accountOf(pool, node).counter, 3);
        (uint256 start, uint256 end, uint256 count) = pools.laneOf(pool, 0);
        assertEq(end, height + 2);
        assertEq(start, height);
        assertEq(count, 3);
        _blocks(3); // the lane is closed by now: the next file opens another
        vm.prank(node);
        assertEq(pools.submit(_work(0, 3, w)), 16);
        for (uint256 i = 0; i < 4; ++i) {
            _step();
        }
        _no(node, p, abi.encodeCall(pools.submit, (_work(1, 4, w))), IPools.StepOutOfRange.selector);
        uint256 far = type(uint64).max; // the most that its word holds
        _no(node, p, abi.encodeCall(pools.submit, (_work(far, 4, w))), IPools.StepOutOfRange.selector);
        _yes(node, p, abi.encodeCall(pools.submit, (_work(2, 4, w))));
        _yes(node, p, abi.encodeCall(pools.announceMirror, (pool, 17, "https://mirror")));
        assertEq(court.termsOf(pool).rate, 1e6);
        assertEq(pools.canaryRootOf(pool, 0), bytes32(0));
    }

    function test_poolVerdicts() public {
        address p = address(pools);
        uint256 s = _submit();
        FileData memory f = files[pool][s];
        FileRef memory ref = _ref(s);
        _no(stranger, p, abi.encodeCall(pools.settleLane, (pool, 0, 0, 1, 3600, _refs(0))), IPools.NotCourt.selector);
        _no(stranger, p, abi.encodeCall(pools.payFees, (pool, stranger, 1, 1)), IPools.NotCourt.selector);
        _no(stranger, p, abi.encodeCall(pools.hold, (pool, s, f)), IPools.NotCourt.selector);
        _no(stranger, p, abi.encodeCall(pools.freezeHeld, (pool, s, f)), IPools.NotCourt.selector);
        _no(stranger, p, abi.encodeCall(pools.resolve, (pool, s, f, 1, 0)), IPools.NotCourt.selector);
        address b = address(appeals);
        _no(b, p, abi.encodeCall(pools.hold, (pool, s, f)), IPools.WrongPhase.selector);
        _no(b, p, abi.encodeCall(pools.freezeHeld, (pool, s, f)), IPools.WrongPhase.selector);
        _no(b, p, abi.encodeCall(pools.resolve, (pool, s, f, 1, 0)), IPools.WrongPhase.selector);
        _no(stranger, p, abi.encodeCall(pools.finalize, (pool, s, ref)), IPools.WrongPhase.selector);
        _no(stranger, p, abi.encodeCall(pools.forfeit, (pool, s, f)), IPools.WrongPhase.selector);
        _no(stranger, p, abi.encodeCall(pools.claim, (pool, node, s, ref.inner)), IPools.NothingToClaim.selector);
        _no(stranger, p, abi.encodeCall(pools.claim, (pool, node, 99, ref.inner)), IPools.WrongFile.selector);
        _vote0();
        (uint256 units,) = pools.claimable(pool, node, s);
        assertEq(units, 0);
        _no(stranger, p, abi.encodeCall(pools.finalize, (pool, s, ref)), IPools.WrongPhase.selector);
        _passWindow();
        (units,) = pools.claimable(pool, node, s);
        assertEq(units, 1_000);
        _no(b, p, abi.encodeCall(pools.hold, (pool, s, f)), IPools.WindowOver.selector);
        _claim(s);
        _no(stranger, p, abi.encodeCall(pools.claim, (pool, node, s, ref.inner)), IPools.NothingToClaim.selector);
        address c = address(court);
        _no(c, p, abi.encodeCall(pools.settleLane, (pool, 0, 0, 1, 3600, _refs(0))), IPools.WrongPhase.selector);
        _no(c, p, abi.encodeCall(pools.settleLane, (pool, 0, 0, 1, 3600, new FileRef[](0))), IPools.BadCount.selector);
    }

    function _vote0() internal {
        _voteAll(0, Codes.ACCEPT);
    }

    function test_frozenNodeWaits() public {
        uint256 s = _submit();
        _voteAll(0, 3);
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 1, 1);
        _no(node, address(pools), abi.encodeCall(pools.submit, (_work(0, 1, w))), IPools.NodeIsFrozen.selector);
        FileRef memory ref = _ref(s);
        _no(stranger, address(pools), abi.encodeCall(pools.finalize, (pool, s, ref)), IPools.NotYet.selector);
    }

    function test_fullLaneAndWrongCount() public {
        for (uint256 i = 0; i < 17; ++i) {
            _submit();
        }
        _draw(0, 0);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 0, i, _all(1));
        }
        for (uint256 i = 0; i < 3; ++i) {
            _reveal(0, 0, i, _all(1));
        }
        FileRef[] memory refs = _refs(0);
        assertEq(refs.length, 16);
        FileRef[] memory fewer = new FileRef[](15);
        for (uint256 i = 0; i < 15; ++i) {
            fewer[i] = refs[i];
        }
        address c = address(court);
        _no(stranger, c, abi.encodeCall(court.settle, (pool, 0, 0, fewer)), IPools.BadCount.selector);
        _no(stranger, c, abi.encodeCall(court.settle, (pool, 0, 0, new FileRef[](17))), IPools.BadCount.selector);
        (fewer[0], refs[0]) = (refs[0], refs[1]);
        _no(stranger, c, abi.encodeCall(court.settle, (pool, 0, 0, refs)), IPools.WrongFile.selector);
        refs[0] = fewer[0];
        _yes(stranger, c, abi.encodeCall(court.settle, (pool, 0, 0, refs)));
    }

    // ---- Court

    function test_courtBeforeADraw() public {
        address c = address(court);
        PoolTerms memory t = defaultTerms();
        _no(stranger, c, abi.encodeCall(court.registerPool, (1, t)), ICourt.NotPools.selector);
        _no(stranger, c, abi.encodeCall(court.setOutcome, (1, 0, 1)), ICourt.NotAppeals.selector);
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 0, 0)), ICourt.NoSuchLane.selector);
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 0, 2)), ICourt.NoSuchLane.selector);
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 0, 1)), ICourt.NoSuchLane.selector);
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 1 << 31, 0)), ICourt.NoSuchLane.selector);
        assertEq(court.roundOf(pool, 0, 0).seedBlock, 0);
        assertEq(court.roundOf(pool, 0, 1).seedBlock, 0);
        _submit();
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 0, 0)), ICourt.NoSuchLane.selector); // nothing attested
        assertEq(court.roundOf(pool, 0, 0).seedBlock, 0);
        _attest(0);
        assertEq(court.roundOf(pool, 0, 0).seedBlock, height + 1);
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 0, 0)), IVoting.SeedNotMined.selector);
        FileRef[] memory refs = _refs(0);
        _no(stranger, c, abi.encodeCall(court.settle, (pool, 0, 0, refs)), ICourt.NotSettleable.selector);
        _no(stranger, c, abi.encodeCall(court.reveal, (pool, 0, 0, 0, 0, 0, 0)), IVoting.NotDrawn.selector);
        _no(stranger, c, abi.encodeCall(court.decisionOf, (pool, 0)), ICourt.NotSettled.selector);
        _no(stranger, c, abi.encodeCall(court.closeMember, (pool, 0, 0, 0)), ICourt.NotSettled.selector);
    }

    function _drawnAsForeseen(uint256[] memory members, bytes32 seed) private {
        (uint256[] memory drawn,, bytes32 drawnSeed, bool now_) = court.committeeOf(pool, 0, 0);
        assertTrue(now_);
        assertEq(seed, drawnSeed);
        assertEq(members, drawn);
    }

    function _showsItsVote(uint256 cast) private {
        (, uint256 codes, bool open) = court.ballotOf(pool, 0, 0, 0);
        assertTrue(open);
        assertEq(codes, cast);
    }

    function test_courtVotes() public {
        address c = address(court);
        _submit();
        _attest(0);
        _blocks(4);
        (uint256[] memory members, address[] memory voters, bytes32 seed, bool drawn) = court.committeeOf(pool, 0, 0);
        assertFalse(drawn);
        bytes32 hash = court.ballotHash(pool, 0, 0, voters[0], _all(1), keccak256("verdict"), keccak256("salt"));
        _no(stranger, c, abi.encodeCall(court.commit, (pool, 0, 0, 0, hash)), IVoting.NotVoter.selector);
        _no(stranger, c, abi.encodeCall(court.commit, (pool, 0, 0, 7, hash)), IVoting.NotVoter.selector);
        _no(voters[0], c, abi.encodeCall(court.commit, (pool, 0, 0, 4, hash)), IVoting.NotVoter.selector);
        _no(voters[0], c, abi.encodeCall(court.commit, (pool, 0, 0, 0, 0)), IVoting.EmptyCommitment.selector);
        _yes(voters[0], c, abi.encodeCall(court.commit, (pool, 0, 0, 0, hash))); // draws, too
        _drawnAsForeseen(members, seed);
        (bytes32 stored,, bool revealed) = court.ballotOf(pool, 0, 0, 0);
        assertEq(stored, hash);
        assertFalse(revealed);
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 0, 0)), IVoting.AlreadyDrawn.selector);
        _no(voters[0], c, abi.encodeCall(court.commit, (pool, 0, 0, 0, hash)), IVoting.AlreadyCommitted.selector);
        bytes memory reveal =
            abi.encodeCall(court.reveal, (pool, 0, 0, 0, _all(1), keccak256("verdict"), keccak256("salt")));
        _no(voters[0], c, reveal, IVoting.RevealNotOpen.selector);
        bytes memory early =
            abi.encodeCall(court.reveal, (pool, 0, 0, 1, _all(1), keccak256("verdict"), keccak256("salt")));
        _no(voters[1], c, early, IVoting.NotCommitted.selector);
        _no(voters[1], c, abi.encodeCall(court.reveal, (pool, 0, 0, 9, 0, 0, 0)), IVoting.NotCommitted.selector);
        _wait(60);
        _no(voters[1], c, abi.encodeCall(court.commit, (pool, 0, 0, 1, hash)), IVoting.CommitOver.selector);
        _yes(voters[0], c, reveal);
        _no(voters[0], c, reveal, IVoting.AlreadyRevealed.selector);
        _showsItsVote(_all(1));
        FileRef[] memory refs = _refs(0);
        court.settle(pool, 0, 0, refs); // one vote of three decides nothing
        _no(stranger, c, abi.encodeCall(court.settle, (pool, 0, 0, refs)), ICourt.AlreadySettled.selector);
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 0, 0)), ICourt.AlreadySettled.selector);
        _no(voters[1], c, abi.encodeCall(court.commit, (pool, 0, 0, 1, hash)), ICourt.AlreadySettled.selector);
        _no(voters[1], c, reveal, ICourt.AlreadySettled.selector);
        _no(stranger, c, abi.encodeCall(court.closeMember, (pool, 0, 0, 0)), ICourt.NotFinal.selector);
        assertEq(court.roundOf(pool, 0, 1).seedBlock, height + 2);
        assertTrue(court.roundOf(pool, 0, 0).settled);
        _passWindow();
        _no(stranger, c, abi.encodeCall(court.closeMember, (pool, 0, 0, 3)), IVoting.NotDrawn.selector);
        court.closeMember(pool, 0, 0, 0);
        _no(stranger, c, abi.encodeCall(court.closeMember, (pool, 0, 0, 0)), IVoting.AlreadyClosed.selector);
        _blocks(70); // round 1 is never drawn
        court.settle(pool, 0, 1, refs);
        assertEq(_code(0), Codes.VOID);
        assertEq(court.roundOf(pool, 0, 1).settledAt, clock);
    }

    function test_courtLateReveal() public {
        _submit();
        _draw(0, 0);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 0, i, _all(1));
        }
        (, address[] memory voters,,) = court.committeeOf(pool, 0, 0);
        _wait(120);
        bytes memory reveal =
            abi.encodeCall(court.reveal, (pool, 0, 0, 0, _all(1), keccak256("verdict"), keccak256("salt")));
        _no(voters[0], address(court), reveal, abi.encodeWithSelector(IVoting.RevealOver.selector, clock));
    }

    function test_silentCommitteesPayAndTheFileIsVoid() public {
        uint256 s = _submit();
        _draw(0, 0);
        FileRef[] memory refs = _refs(0);
        _no(stranger, address(court), abi.encodeCall(court.settle, (pool, 0, 0, refs)), ICourt.NotSettleable.selector);
        _wait(60);
        court.settle(pool, 0, 0, refs);
        assertEq(uint256(pools.submissionOf(pool, s).phase), uint256(IPools.Phase.Pending));
        _draw(0, 1);
        _wait(60);
        court.settle(pool, 0, 1, refs);
        assertEq(_code(s), Codes.VOID);
        assertEq(pools.poolOf(pool).free, BUDGET);
        _passWindow();
        _closeAll(0, 0);
        _closeAll(0, 1);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(seats.seatOf(court.roundOf(pool, 0, 0).seats[i]).bond, BOND - 2e9);
            assertEq(seats.seatOf(court.roundOf(pool, 0, 1).seats[i]).bond, BOND - 2e9);
        }
    }

    function test_drawNeedsEnoughSeats() public {
        _submit();
        _attest(0);
        uint256 lastDraw = court.roundOf(pool, 0, 0).seedBlock + 64;
        for (uint256 i = 1; i <= SEATS - 2; ++i) {
            vm.prank(_seatOwner(i));
            seats.leaveSeat(i);
        }
        _nextEpoch();
        _blocks(1);
        bytes memory over = abi.encodeWithSelector(ICourt.DrawOver.selector, lastDraw);
        _no(stranger, address(court), abi.encodeCall(court.draw, (pool, 0, 0)), over);
        uint256 next = _submit();
        _attest(next / 16);
        _blocks(2);
        bytes memory few = abi.encodeWithSelector(IVoting.TooFewSeats.selector, 2);
        _no(stranger, address(court), abi.encodeCall(court.draw, (pool, next / 16, 0)), few);
    }

    function test_redrawWithFewSeatsReusesThem() public {
        for (uint256 i = 1; i <= SEATS - 4; ++i) {
            vm.prank(_seatOwner(i));
            seats.leaveSeat(i);
        }
        _nextEpoch(); // four are left: three judge, and one alone is no fresh committee
        uint256 s = _submit();
        _vote(0, 0, _three(_all(1), _all(3), 0));
        _vote(0, 1, _three(_all(1), _all(1), _all(1)));
        assertEq(_code(s), Codes.ACCEPT);
        uint256[] memory again = court.roundOf(pool, 0, 1).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertTrue(again[i] > SEATS - 4);
            assertTrue(again[i] != again[(i + 1) % 3]);
        }
        _openSeats(5); // who dispute it later find a jury
        _nextEpoch();
        (uint256 round,,,,) = court.decisionOf(pool, s);
        assertEq(round, 1);
        uint256 trial = _dispute(stranger, s); // an outcome of round 1 can be disputed
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
    }

    // ---- Juries, Appeals

    function test_appeals() public {
        address a = address(appeals);
        uint256 s = _submit();
        FileData memory f = files[pool][s];
        _no(stranger, a, abi.encodeCall(appeals.conclude, (pool, s, f)), IAppeals.NoDispute.selector);
        _no(stranger, a, abi.encodeCall(appeals.dispute, (pool, s, f)), IPools.WrongPhase.selector);
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        FileData memory g = files[pool][s];
        _no(stranger, a, abi.encodeCall(appeals.dispute, (pool, s, g)), IPools.WrongPhase.selector);
        _no(stranger, a, abi.encodeCall(appeals.appeal, (pool, s)), IAppeals.NoAppeal.selector);
        _no(stranger, a, abi.encodeCall(appeals.conclude, (pool, s, f)), IAppeals.NotYet.selector);
        _passWindow();
        _no(stranger, address(court), abi.encodeCall(court.closeMember, (pool, 0, 0, 0)), ICourt.NotFinal.selector);
        uint256 before = token.balanceOf(operator);
        _juryVotes(trial, Codes.UNSURE);
        _conclude(s);
        assertEq(token.balanceOf(operator) - before, 5e9); // compensation for the delay
        _no(stranger, a, abi.encodeCall(appeals.conclude, (pool, s, f)), IAppeals.AlreadyResolved.selector);
        _claim(s);
    }

    function test_juries() public {
        address j = address(juries);
        uint256[] memory none;
        _no(stranger, j, abi.encodeCall(juries.summon, (1, 1, 5, none, stranger)), IJuries.NotBench.selector);
        _no(stranger, j, abi.encodeCall(juries.draw, (9)), IJuries.NoSuchTrial.selector);
        uint256 s = _submit();
        _voteAll(0, 3);
        uint256 trial = _dispute(operator, s);
        _no(stranger, j, abi.encodeCall(juries.draw, (trial)), IVoting.SeedNotMined.selector);
        _no(stranger, j, abi.encodeCall(juries.conclude, (trial, 1, 1)), IJuries.NotBench.selector);
        _no(stranger, j, abi.encodeCall(juries.closeJuror, (trial, 0)), IJuries.NotConcluded.selector);
        _no(stranger, j, abi.encodeCall(juries.reveal, (trial, 0, 1, 0, 0)), IVoting.NotDrawn.selector);
        (bool done,) = juries.verdictOf(trial);
        assertFalse(done);
        assertEq(juries.caseOf(trial).seedBlock, height + 2);
        _blocks(3);
        (, address[] memory voters,, bool drawn) = juries.juryOf(trial);
        assertFalse(drawn);
        bytes32 hash = juries.ballotHash(trial, voters[0], 1, keccak256("verdict"), keccak256("salt"));
        _no(stranger, j, abi.encodeCall(juries.commit, (trial, 0, hash)), IVoting.NotVoter.selector);
        _no(stranger, j, abi.encodeCall(juries.commit, (trial, 5, hash)), IVoting.NotVoter.selector);
        _no(voters[0], j, abi.encodeCall(juries.commit, (trial, 0, 0)), IVoting.EmptyCommitment.selector);
        _yes(voters[0], j, abi.encodeCall(juries.commit, (trial, 0, hash)));
        _no(voters[0], j, abi.encodeCall(juries.commit, (trial, 0, hash)), IVoting.AlreadyCommitted.selector);
        _no(stranger, j, abi.encodeCall(juries.draw, (trial)), IVoting.AlreadyDrawn.selector);
        bytes memory reveal = abi.encodeCall(juries.reveal, (trial, 0, 1, keccak256("verdict"), keccak256("salt")));
        _no(voters[0], j, reveal, IVoting.RevealNotOpen.selector);
        _no(voters[1], j, abi.encodeCall(juries.reveal, (trial, 1, 1, 0, 0)), IVoting.NotCommitted.selector);
        (bytes32 stored,,) = juries.ballotOf(trial, 0);
        assertEq(stored, hash);
        bytes32 odd = juries.ballotHash(trial, voters[1], 12, 0, 0);
        _yes(voters[1], j, abi.encodeCall(juries.commit, (trial, 1, odd)));
        _wait(60);
        _no(voters[2], j, abi.encodeCall(juries.commit, (trial, 2, hash)), IVoting.CommitOver.selector);
        _no(voters[1], j, abi.encodeCall(juries.reveal, (trial, 1, 12, 0, 0)), IJuries.BadCode.selector);
        _no(voters[1], j, abi.encodeCall(juries.reveal, (trial, 1, 1, 0, 0)), IVoting.WrongReveal.selector);
        _yes(voters[0], j, reveal);
        _no(voters[0], j, reveal, IVoting.AlreadyRevealed.selector);
        (, uint256 code, bool open) = juries.ballotOf(trial, 0);
        assertTrue(open);
        assertEq(code, 1);
        assertEq(juries.costOf(trial, 1), 5e8);
        _wait(60);
        _no(voters[1], j, abi.encodeCall(juries.reveal, (trial, 1, 1, 0, 0)), IVoting.RevealOver.selector);
        _conclude(s); // one vote of five: no majority, another jury is drawn
        assertEq(_code(s), 3);
        assertEq(appeals.disputeOf(pool, s).trial, trial + 1);
        _no(voters[1], j, abi.encodeCall(juries.reveal, (trial, 1, 1, 0, 0)), IJuries.AlreadyConcluded.selector);
        _no(voters[2], j, abi.encodeCall(juries.commit, (trial, 2, hash)), IJuries.AlreadyConcluded.selector);
        _no(a(), j, abi.encodeCall(juries.conclude, (trial, 1, 1)), IJuries.AlreadyConcluded.selector);
        juries.closeJuror(trial, 0);
        juries.closeJuror(trial, 2);
        _no(stranger, j, abi.encodeCall(juries.closeJuror, (trial, 0)), IVoting.AlreadyClosed.selector);
        _no(stranger, j, abi.encodeCall(juries.closeJuror, (trial, 5)), IVoting.AlreadyClosed.selector);
        assertEq(seats.seatOf(juries.seatsOf(trial)[0]).bond, BOND);
        assertEq(seats.seatOf(juries.seatsOf(trial)[2]).bond, BOND - 2e9);
        assertEq(juries.caseOf(trial).code, 0);
    }

    function a() internal view returns (address) {
        return address(appeals);
    }

    function _twoRounds() internal returns (uint256 s, uint256 trial) {
        PoolTerms memory t = defaultTerms();
        t.appealJury = 7;
        _openSeats(10);
        _nextEpoch();
        _moveTo(t);
        s = _submit();
        _voteAll(0, Codes.ACCEPT);
        trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.REJECT_SAMPLING);
    }

    function test_appealRestoresAcceptance() public {
        (uint256 s,) = _twoRounds();
        FileData memory f = files[pool][s];
        _conclude(s);
        assertEq(pools.accountOf(pool, node).frozen, 1); // a first jury's reject freezes
        vm.prank(address(appeals));
        pools.freezeHeld(pool, s, f); // once
        assertEq(pools.accountOf(pool, node).frozen, 1);
        _no(stranger, a(), abi.encodeCall(appeals.conclude, (pool, s, f)), IAppeals.NotYet.selector);
        _give(operator, a(), 10_000e9);
        uint256 before = token.balanceOf(operator);
        _yes(operator, a(), abi.encodeCall(appeals.appeal, (pool, s)));
        _no(operator, a(), abi.encodeCall(appeals.appeal, (pool, s)), IAppeals.AlreadyAppealed.selector);
        _no(operator, a(), abi.encodeCall(appeals.conclude, (pool, s, f)), IAppeals.NotYet.selector);
        _juryVotes(appeals.disputeOf(pool, s).appealTrial, Codes.ACCEPT);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(pools.accountOf(pool, node).frozen, 0);
        // its deposit back and as much again, which is less than a fifth of three jurors' penalties; the committee was
        // right, so the delay is compensated besides
        assertEq(token.balanceOf(operator) - before, appeals.depositOf(pool, 1) + 5e9);
        assertEq(token.balanceOf(a()), 0);
        _passWindow();
        _claim(s);
    }

    function test_verdictStandsWithoutAppeal() public {
        (uint256 s,) = _twoRounds();
        _conclude(s);
        _wait(600);
        _no(stranger, a(), abi.encodeCall(appeals.appeal, (pool, s)), IAppeals.AppealOver.selector);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_SAMPLING);
        assertEq(stakes.stakeOf(node), 0);
        _no(stranger, a(), abi.encodeCall(appeals.appeal, (pool, s)), IAppeals.NoAppeal.selector);
    }

    function test_wrongAppealPays() public {
        (uint256 s,) = _twoRounds();
        _conclude(s);
        _give(operator, a(), 10_000e9);
        uint256 before = token.balanceOf(operator);
        _yes(operator, a(), abi.encodeCall(appeals.appeal, (pool, s)));
        _juryVotes(appeals.disputeOf(pool, s).appealTrial, Codes.REJECT_WEIGHTS);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_SAMPLING);
        assertEq(before - token.balanceOf(operator), appeals.depositOf(pool, 1));
        assertEq(token.balanceOf(a()), 0);
    }

    // ---- Canaries

    function test_canaries() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        address c = address(canaries);
        uint256 s = _submit();
        FileData memory f = files[pool][s];
        ICanaries.Planted memory p = _openingAt(f, 0);
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        _no(stranger, c, abi.encodeCall(canaries.open, (pool, s, f, p, r, 3)), ICanaries.NotPoolOwner.selector);
        _no(owner, c, abi.encodeCall(canaries.open, (pool, s, f, p, r, 1)), ICanaries.BadReason.selector);
        _no(owner, c, abi.encodeCall(canaries.open, (pool, s, f, p, r, 3)), ICourt.NotSettled.selector);
        _no(stranger, c, abi.encodeCall(canaries.conclude, (pool, s, f)), ICanaries.NotOpened.selector);
        _vote(s / 16, 0, _three(_all(1), _all(2), _all(3)));
        r.row = 8;
        _no(owner, c, abi.encodeCall(canaries.open, (pool, s, f, p, r, 3)), ICanaries.NotInSample.selector);
        r.row = 0;
        r.rowHash = 0;
        _no(owner, c, abi.encodeCall(canaries.open, (pool, s, f, p, r, 3)), ICanaries.NotInFile.selector);
        p.proof = new bytes32[](3);
        _no(owner, c, abi.encodeCall(canaries.open, (pool, s, f, p, r, 3)), ICanaries.NotPlanted.selector);
        _openCanary(s);
        assertEq(canaries.canaryOf(pool, s).accused.length, 2);
        uint256 accused = canaries.canaryOf(pool, s).accused[0];
        assertEq(seats.seatOf(accused).frozen, 2); // by the canary, and by its lane until it is closed
        bytes memory notYet = abi.encodeWithSelector(ICanaries.NotYet.selector, 0); // nobody can say when
        _no(stranger, c, abi.encodeCall(canaries.conclude, (pool, s, f)), notYet);
        uint256 trial = canaries.canaryOf(pool, s).trial;
        _juryVotes(trial, 3);
        canaries.conclude(pool, s, f);
        _no(stranger, c, abi.encodeCall(canaries.conclude, (pool, s, f)), ICanaries.AlreadyConcluded.selector);
        assertEq(_code(s), Codes.CANARY);
        assertEq(seats.seatOf(accused).bond, BOND - 200e9);
        assertEq(seats.seatOf(accused).frozen, 1);
        assertEq(token.balanceOf(c), 0);
        for (uint256 i = 0; i < 5; ++i) {
            juries.closeJuror(trial, i);
        }
        assertEq(token.balanceOf(address(juries)), 0);
    }

    function test_canaryThatNobodyCanFetch() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 s = _submit();
        _voteAll(s / 16, 3); // the committee was right: a canary frees its carrier, and there is nothing to judge
        _openCanary(s);
        assertEq(canaries.canaryOf(pool, s).trial, 0);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.CANARY);
        assertEq(stakes.stakeOf(node), STAKE);
        assertEq(pools.accountOf(pool, node).frozen, 0);
        assertEq(stakes.nodeOf(node).frozen, 0);
        _blocks(4);

        uint256 second = _submit();
        _voteAll(second / 16, 1);
        uint256 before = token.balanceOf(owner) + 100_000e9; // _openCanary gives it that much
        _openCanary(second);
        _juryVotes(canaries.canaryOf(pool, second).trial, Codes.UNAVAILABLE);
        canaries.conclude(pool, second, files[pool][second]);
        assertEq(_code(second), Codes.ACCEPT); // cannot tell: the committee's outcome stays, nobody is slashed
        assertEq(token.balanceOf(owner), before - 5 * 5e8); // the owner had to show the file, and pays the jury
        _passWindow();
        assertEq(_claim(second), 1_000 * 1e6);
    }

    function test_oneCanarySlashPerLane() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 first = _submit();
        uint256 second = _submit();
        _voteAll(first / 16, 1);
        _openCanary(first);
        _openCanary(second);
        uint256 accused = canaries.canaryOf(pool, first).accused[0];
        assertEq(canaries.canaryOf(pool, second).accused.length, 3);
        assertEq(seats.seatOf(accused).frozen, 2 + 1); // two canaries, and the lane itself
        _juryVotes(canaries.canaryOf(pool, first).trial, 3);
        _juryVotes(canaries.canaryOf(pool, second).trial, 3);
        canaries.conclude(pool, first, files[pool][first]);
        canaries.conclude(pool, second, files[pool][second]);
        assertEq(seats.seatOf(accused).bond, BOND - 200e9);
        assertEq(seats.seatOf(accused).frozen, 1);
        assertEq(token.balanceOf(address(canaries)), 0);
    }

    function test_auditSample() public {
        uint256 inside;
        for (uint256 row = 0; row < 7; ++row) {
            if (canaries.inSample(keccak256("seed"), 5, 7, 1, row)) ++inside;
        }
        assertEq(inside, 1); // one row always
        assertTrue(canaries.inSample(keccak256("seed"), 5, 7, 65536, 6));
        assertFalse(canaries.inSample(keccak256("seed"), 5, 7, 65536, 7));
    }
}
