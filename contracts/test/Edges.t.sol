// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJuries} from "../src/interfaces/IJuries.sol";
import {IStakes} from "../src/interfaces/IStakes.sol";
import {Codes} from "../src/libraries/Codes.sol";
import {PoolTerms} from "../src/libraries/Types.sol";
import {Network} from "./helpers/Network.sol";

/// @notice The last second, the last grain, and what a view says of a thing half done.
contract EdgesTest is Network {
    function test_caseNamesItsFileAndItsWindows() public {
        uint256 s = _submit();
        _blocks(4);
        s = _submit();
        _voteAll(1, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        IJuries.Case memory c = juries.caseOf(trial);
        assertEq(c.pool, pool);
        assertEq(c.sequence, 16);
        assertEq(c.size, 5);
        assertEq(c.fee, 5e8);
        assertEq(c.commitUntil, 0);
        _blocks(3);
        juries.draw(trial);
        c = juries.caseOf(trial);
        assertEq(c.time, clock);
        assertEq(c.commitUntil, clock + 60);
        assertEq(c.revealUntil, clock + 120);
        assertEq(c.seedBlock, 0);
    }

    function test_commitmentIsNoVote() public {
        uint256 s = _submit();
        _draw(0, 0);
        _commit(0, 0, 0, _all(1));
        _commit(0, 0, 1, _all(1));
        _commit(0, 0, 2, _all(3)); // and is never revealed
        _reveal(0, 0, 0, _all(1));
        _reveal(0, 0, 1, _all(1));
        _wait(120);
        court.settle(pool, 0, 0, _refs(0));
        (,, uint256[] memory votes,, uint256 code) = court.decisionOf(pool, s);
        assertEq(code, Codes.ACCEPT);
        assertEq(votes[0], Codes.ACCEPT);
        assertEq(votes[2], Codes.NONE);
        (bytes32 commitment, uint256 codes, bool revealed) = court.ballotOf(pool, 0, 0, 2);
        assertTrue(commitment != 0);
        assertEq(codes, 0);
        assertFalse(revealed);
    }

    function test_ballotOfAClosedMemberIsForgotten() public {
        _submit();
        _voteAll(0, Codes.ACCEPT);
        (, uint256 codes,) = court.ballotOf(pool, 0, 0, 1);
        assertEq(codes, _all(1));
        _passWindow();
        court.closeMember(pool, 0, 0, 1);
        (, codes,) = court.ballotOf(pool, 0, 0, 1);
        assertEq(codes, 0);
    }

    /// Reopening costs a hundredth of a bond, or what a seat has left of it.
    function test_seatWithAlmostNoBondCanBeClosed() public {
        vm.prank(address(court));
        seats.penalise(1, BOND - 1e9, SINK);
        address who = _seatOwner(1);
        _blocks(450);
        vm.prank(who);
        seats.unbondSeat(1);
        _wait(30 days);
        uint256 burnt = token.balanceOf(SINK);
        vm.prank(who);
        seats.withdrawSeat(1);
        assertEq(token.balanceOf(SINK) - burnt, 1e9);
        assertEq(token.balanceOf(who), 0);
        assertEq(seats.seatOf(1).bond, 0);
    }

    function test_stakeIsFreeForAnotherPoolWhenItsTimeIsOver() public {
        vm.prank(operator);
        pools.leavePool(pool, node);
        uint256 releaseAt = stakes.nodeOf(node).releaseAt;
        uint256 other = _createPool(defaultTerms());
        _wait(releaseAt - 1 - clock);
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeLocked.selector, releaseAt, 0));
        vm.prank(operator);
        pools.join(other, node);
        _wait(1);
        vm.prank(operator);
        pools.join(other, node);
        assertEq(stakes.nodeOf(node).pool, other);
    }

    /// A node whose penalty leaves exactly the least stake is still a member.
    function test_nodeAtTheLeastStakeStays() public {
        PoolTerms memory t = defaultTerms();
        address poor = _register(operator, "poor", t.minStake + 1e9 + FEES);
        vm.prank(operator);
        pools.join(pool, poor);
        _step();
        uint256 s = _submitFrom(poor, 1_000);
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        pools.finalize(pool, s, _ref(s));
        assertEq(stakes.stakeOf(poor), t.minStake);
        assertEq(stakes.nodeOf(poor).pool, pool);
        assertEq(pools.accountOf(pool, poor).limit, uint256(t.minStake) * t.leverage / t.rate);
    }

    function test_submissionSaysItsUnitsOrWhatWasEarned() public {
        uint256 s = _submit();
        assertEq(pools.submissionOf(pool, s).units, 1_000);
        assertEq(pools.submissionOf(pool, s).earned, 0);
        assertEq(pools.submissionOf(pool, s).submittedAt, height);
        assertEq(pools.submissionOf(pool, s).finalAt, 0);
        _voteAll(0, Codes.ACCEPT);
        assertEq(pools.submissionOf(pool, s).units, 0);
        assertEq(pools.submissionOf(pool, s).earned, 1_000);
        assertEq(pools.submissionOf(pool, s).submittedAt, 0);
        assertEq(pools.submissionOf(pool, s).finalAt, clock + 3600);
    }
}
