// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {AccountSlot} from "../../src/libraries/AccountSlot.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, PoolTerms} from "../../src/libraries/Types.sol";
import {Network} from "../helpers/Network.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IPools} from "../interfaces/IPools.sol";
import {IStakes} from "../interfaces/IStakes.sol";

/// @notice Who pays for what: each rule fails for the attack and holds for the honest case beside it.
contract MoneyRulesTest is Network {
    /// A node whose whole stake goes with its first rejected file still pays the committees of all the others.
    function test_everyRejectedFileOfALaneIsPaidByTheNode() public {
        _submitLane(16);
        _submitLane(4);
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _voteAll(1, Codes.MALFORMED);
        _passWindow();
        for (uint256 i = 0; i < 20; ++i) {
            pools.finalize(pool, i, _ref(i), _none());
        }
        _closeAll(0, 0);
        _closeAll(1, 0);
        assertEq(_pool(pool).free, BUDGET);
        assertEq(token.balanceOf(address(pools)), BUDGET);
        assertEq(stakes.nodeOf(node).stake, 0);
        assertEq(_account(pool, node).unsettled, 0);
    }

    function test_acceptedFilesAreTheOwnersCost() public {
        _submitLane(16);
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(15), 16 * 1e9);
        _closeAll(0, 0);
        assertEq(token.balanceOf(address(pools)), BUDGET - 16 * (1e9 + FEES));
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(_account(pool, node).unsettled, 0);
    }

    function test_nodeBelowTheLeastStakeIsOutAtOnce() public {
        PoolTerms memory t = defaultTerms();
        t.minStake = uint56(STAKE);
        _moveTo(t);
        uint256 s = _submit();
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none()); // takes 1.03 of 1,000
        assertEq(stakes.nodeOf(node).stake, STAKE - 1e9 - FEES);
        _refused(_next(node, 1, 0), abi.encodePacked(IPools.NotMember.selector));
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeTooLow.selector, STAKE - 1e9 - FEES, STAKE));
        vm.prank(operator);
        pools.join(pool, node, type(uint256).max, "", "");
        _give(operator, address(stakes), 1e9 + FEES);
        vm.prank(operator);
        stakes.deposit(node, 1e9 + FEES);
        vm.prank(operator);
        pools.join(pool, node, type(uint256).max, "", "");
        _step();
        _submit();
    }

    function test_limitFollowsAStakeThatShrinks() public {
        uint256 s = _submit();
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        assertEq(_account(pool, node).limit, 4 * (STAKE - 1e9 - FEES) / 1e6);
        _submit(); // still above the least stake
    }

    function test_payOfALaneIsBoundedByTheBondsThatJudgeIt() public {
        PoolTerms memory t = defaultTerms();
        // sixteen files of 100,000 units: 1,600 tokens, as much as two bonds of 800 at least
        _createPool(t);
        t.maxUnits += 1;
        _give(owner, address(pools), 1);
        vm.expectRevert(abi.encodeWithSelector(ICourt.PayAboveBonds.selector, 16 * 100_001 * 1e6, 1_600e9));
        vm.prank(owner);
        pools.createPool(t, 0);
    }

    /// A captured majority that is overturned pays at least what the file would have earned.
    function test_overturnedMajorityPaysWhatTheFileWouldHaveEarned() public {
        IParams.Values memory v = defaultValues();
        v.overturnPenalty = 1e9;
        _redeploy(v);
        uint256 s = _submitFrom(node, 80_000); // 80 tokens
        _vote(0, 0, _three(_all(1), _all(1), _all(3)));
        _juryVotes(_dispute(stranger, s), Codes.REJECT_WEIGHTS);
        _conclude(s);
        uint256[] memory drawn = _round(pool, 0, 0).seats;
        assertEq(BOND - seats.seatOf(drawn[0]).bond, 40e9);
        assertEq(BOND - seats.seatOf(drawn[1]).bond, 40e9);
        assertEq(seats.seatOf(drawn[2]).bond, BOND);
    }

    /// A first jury's reject bars what had not vested by then, and the final slash later does not lift that.
    function test_payThatVestsAfterTheFirstVerdictIsBarred() public {
        _moveToTwoJuries();
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
        assertEq(stakes.nodeOf(node).stake, 0);
        assertEq(_account(pool, node).barrier, verdict);
        bytes32 inner = _inner(early);
        vm.expectRevert(abi.encodeWithSelector(IPools.IsFrozen.selector, verdict));
        pools.claim(pool, node, early, inner, new uint256[](0));
        pools.forfeit(pool, early, files[pool][early]);
        assertEq(_pool(pool).free, BUDGET - 1e9 - FEES); // the accepted file's pay is burnt, not the owner's again
    }

    function test_noMoreFilesUnderWayThanTheLeastStakeCovers() public {
        for (uint256 i = 0; i < 4; ++i) {
            _submitLaneFrom(node, 1, 16);
        }
        bytes memory reason = abi.encodeWithSelector(IPools.TooManyUnsettled.selector, 64);
        _refused(_next(node, 1, 0), reason);
        _voteAll(0, Codes.ACCEPT); // sixteen fewer
        _submitLaneFrom(node, 1, 15);
        FileData[] memory lane = new FileData[](2);
        (lane[0], lane[1]) = (_next(node, 1, 0), _next(node, 1, 1));
        _refusedLane(lane, 1, reason);
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

    /// What a seat has earned waits for its owner: while it is closed and opened again, and when its bond is gone.
    function test_feesWaitForTheSeatsOwner() public {
        _submit();
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        court.closeCommittee(pool, 0, 0);
        uint256 seat = _round(pool, 0, 0).seats[0];
        address seatOwner = _seatOwner(seat);
        vm.startPrank(seatOwner);
        seats.leaveSeat(seat);
        _blocks(4 * EPOCH);
        seats.unbondSeat(seat);
        _wait(30 days);
        seats.withdrawSeat(seat);
        vm.stopPrank();
        assertEq(pools.feesOf(seat), FEE);
        _give(seatOwner, address(seats), BOND);
        vm.prank(seatOwner);
        seats.openSeat(seat, _voter(seat), new uint256[](0));
        assertEq(pools.feesOf(seat), FEE);
        vm.startPrank(address(court));
        pools.payFees(seat, 2, 0); // another lane's
        seats.penalise(seat, BOND, SINK);
        vm.stopPrank();
        uint256 before = token.balanceOf(seatOwner);
        assertEq(pools.withdrawFees(seat), FEE + 2);
        assertEq(token.balanceOf(seatOwner), before + FEE + 2);
        assertEq(pools.withdrawFees(seat), 0);
    }

    /// The fields that add up work cannot overflow: who has earned 2^45 units submits no more, and what is under way are at
    /// most 64 files of less than 2^32 units. Nor is there a file after the 2^22 − 1 that are counted.
    function test_noFieldOfAnAccountCanOverflow() public {
        assertTrue(AccountSlot.ENOUGH + 64 * uint256(type(uint32).max) <= AccountSlot.MAX_46);
        bytes32 slot = keccak256(abi.encode((pool << 160) | uint160(node), uint256(4)));
        uint256 a = uint256(vm.load(address(pools), slot));
        vm.store(address(pools), slot, bytes32(a | (((uint256(1) << 22) - 2) << 160)));
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 1, 1);
        _relay(_one(_work(0, (1 << 22) - 2, w))); // the last one
        _refused(_work(0, (1 << 22) - 1, w), abi.encodePacked(IPools.AmountTooLarge.selector));
        uint256 earned = (1 << 45) - 1;
        vm.store(address(pools), slot, bytes32(a | earned | (earned << 46)));
        _relay(_one(_work(0, 0, w)));
        a = uint256(vm.load(address(pools), slot));
        vm.store(address(pools), slot, bytes32(a + 1));
        _refused(_work(0, 1, w), abi.encodePacked(IPools.AmountTooLarge.selector));
    }

    /// The largest file that 32 bits count comes in, is paid for all of its units, and its event says them.
    function test_unitsHave32Bits() public {
        PoolTerms memory t = defaultTerms();
        (t.maxUnits, t.rate, t.leverage) = (type(uint32).max, 1, 65_535);
        _moveTo(t);
        uint256 s = _submitFrom(node, type(uint32).max);
        assertEq(_account(pool, node).pending, type(uint32).max);
        _voteAll(s >> 4, Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(s), type(uint32).max);
    }
}
