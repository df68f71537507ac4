// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {FileData, PoolTerms} from "../src/libraries/Types.sol";
import {Phase} from "./helpers/Phase.sol";
import {Planting} from "./helpers/Planting.sol";
import {ICanaries} from "./interfaces/ICanaries.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {IParams} from "./interfaces/IParams.sol";
import {IPools} from "./interfaces/IPools.sol";
import {IStakes} from "./interfaces/IStakes.sol";

/// @notice Attacks of coalitions: owners with their service key, workers, and seats.
contract AdversaryTest is Planting {
    uint256 internal constant PAY = 1_000 * 1e6;

    // Workers and seats

    /// One seat of three that says "unavailable" beside two that say "malformed" has nothing paid.
    function test_oneSeatCannotHaveMalformedWorkPaid() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(Codes.MALFORMED), _all(Codes.MALFORMED), _all(Codes.UNAVAILABLE)));
        assertEq(_code(s), Codes.MALFORMED);
        assertEq(_account(pool, node).earned, 0);
    }

    /// Nor one that says so beside one that found fraud and one that looked away: a fresh committee decides.
    function test_splitCommitteePaysNothing() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(Codes.ACCEPT), _all(Codes.REJECT_WEIGHTS), _all(Codes.UNAVAILABLE)));
        assertEq(_account(pool, node).earned, 0);
        assertEq(uint256(_submission(s).phase), uint256(Phase.Pending));
        uint256 unavailable = _all(Codes.UNAVAILABLE);
        _vote(0, 1, _three(_all(Codes.ACCEPT), unavailable, unavailable));
        assertEq(_code(s), Codes.UNAVAILABLE); // a majority that could not get it: the receipt pays
        assertEq(_account(pool, node).earned, 1_000);
    }

    // Owners with their service

    /// An owner that hides a worker's file from the committee cannot call it a canary to keep its pay.
    function test_hiddenFileIsNoCanaryWithoutItsNodesConsent() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 s = _submit();
        _voteAll(s / 16, Codes.UNAVAILABLE);
        uint256 snapshot = vm.snapshot();
        FileData memory f = files[pool][s];
        ICanaries.Planted memory p = _opening(f);
        p.consent = "";
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        vm.expectRevert(ICanaries.BadSignature.selector);
        vm.prank(owner);
        canaries.open(pool, s, f, p, r, 3);
        _passWindow();
        assertEq(_claim(s), PAY);
        vm.revertTo(snapshot); // a decoy node gives its pay up; the seats that could not get its file lose two fees
        uint256 before = token.balanceOf(owner) + 100_000e9;
        _openCanary(s);
        assertEq(canaries.canaryOf(pool, s).trial, 0);
        canaries.conclude(pool, s, f);
        assertEq(before, token.balanceOf(owner));
        assertEq(_code(s), Codes.CANARY);
        assertEq(_pool(pool).free, BUDGET - FEES);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        _passWindow();
        _closeAll(s / 16, 0);
        uint256[] memory drawn = _round(pool, s / 16, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(seats.seatOf(drawn[i]).bond, BOND - FEE);
            assertEq(token.balanceOf(seats.ownerOf(drawn[i])), 0);
        }
    }

    // Extreme parameters

    /// No pool's terms let a member keep a stake that allows no unit: the penalty that shrinks it could not be taken.
    function test_leastStakeAllowsAUnit() public {
        PoolTerms memory t = defaultTerms();
        (t.rate, t.minStake, t.leverage, t.maxUnits) = (4e9, 3.84e9, 1, 10);
        (t.juryFee, t.fee) = (5e8, 2e7);
        vm.expectRevert(abi.encodeWithSelector(IParams.BadTerms.selector, "minStake"));
        params.checkTerms(t);
        t.leverage = 2;
        params.checkTerms(t);
    }

    // Two pools of one node

    /// A node that moved on while its old pool owed it a verdict is out of its new pool too when that verdict takes its
    /// stake: no membership outlives the stake under it.
    function test_slashInTheOldPoolEndsTheNewMembership() public {
        (uint256 first, uint256 second, uint256 s) = _twoPools();
        pool = first;
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(first, s, _ref(s), _none());
        assertEq(stakes.nodeOf(node).stake, 0);
        assertEq(stakes.nodeOf(node).pool, 0);
        assertEq(_account(second, node).limit, 0);
    }

    /// Nor a penalty that leaves less than the new pool's least; while one that leaves enough keeps it there, also when it
    /// is less than the old one's.
    function test_penaltyInTheOldPoolKeepsTheNewOnesRules() public {
        (uint256 first, uint256 second, uint256 s) = _twoPools();
        pool = first;
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        pools.finalize(first, s, _ref(s), _none());
        assertEq(stakes.nodeOf(node).stake, STAKE - 1e9 - FEES);
        assertEq(stakes.nodeOf(node).pool, second);
        assertEq(_account(second, node).limit, (STAKE - 1e9 - FEES) * 4 / 1e6);
        vm.expectRevert(abi.encodeWithSelector(IStakes.InPool.selector, second));
        vm.prank(operator);
        stakes.withdraw(node, 1);
    }

    /// @dev `node` has a file in a pool that asks for its whole stake, leaves it, and is in a second one when nobody has
    /// judged that file yet.
    function _twoPools() internal returns (uint256 first, uint256 second, uint256 s) {
        second = pool;
        vm.prank(operator);
        pools.leavePool(second, node, type(uint256).max, "");
        _wait(30 days);
        PoolTerms memory t = defaultTerms();
        t.minStake = uint56(STAKE);
        first = _createPool(t);
        pool = first;
        vm.prank(operator);
        pools.join(first, node, type(uint256).max, "", "");
        _step();
        s = _submit();
        vm.prank(operator);
        pools.leavePool(first, node, type(uint256).max, "");
        _wait(_pool(first).unbonding);
        vm.prank(operator);
        pools.join(second, node, type(uint256).max, "", "");
    }

    // Time

    /// Seats cannot have their ballots deleted while a jury may still overturn them.
    function test_nobodyClosesACommitteeWhileItsOutcomeIsDisputed() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        _wait(3_500);
        uint256 trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.REJECT_WEIGHTS);
        _passWindow();
        uint256 until = _round(pool, 0, 0).time + 3_600;
        vm.expectRevert(abi.encodeWithSelector(ICourt.NotYet.selector, until));
        court.closeCommittee(pool, 0, 0);
        _conclude(s);
        _closeAll(0, 0);
        // the overturned majority's penalty, and the minority's
        assertEq(BOND - seats.seatOf(_round(pool, 0, 0).seats[0]).bond, 50e9 + 1e9);
    }

    /// What a slash forfeits stays open to disputes for as long as any other outcome: seats that accepted it still pay.
    function test_forfeitDoesNotCutShortTheWindow() public {
        uint256 bad = _submit();
        _blocks(4);
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _wait(1_800);
        _voteAll(1, Codes.ACCEPT);
        _wait(1_800);
        pools.finalize(pool, bad, _ref(bad), _none());
        uint256 until = _submission(s).finalAt;
        assertGt(until, clock);
        FileData memory f = files[pool][s];
        vm.expectRevert(abi.encodeWithSelector(IPools.NotYet.selector, until));
        pools.forfeit(pool, s, f);
        _juryVotes(_dispute(stranger, s), Codes.REJECT_WEIGHTS);
        _conclude(s);
        assertEq(BOND - seats.seatOf(_round(pool, 1, 0).seats[0]).bond, 50e9);
        pools.forfeit(pool, s, f);
        assertEq(_pool(pool).free, BUDGET - FEES); // the slash had paid for the first file only
    }
}
