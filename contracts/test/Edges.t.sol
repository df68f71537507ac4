// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {PoolTerms} from "../src/libraries/Types.sol";
import {Network} from "./helpers/Network.sol";
import {IJuries} from "./interfaces/IJuries.sol";
import {IParams} from "./interfaces/IParams.sol";
import {IPools} from "./interfaces/IPools.sol";
import {ISeats} from "./interfaces/ISeats.sol";
import {IStakes} from "./interfaces/IStakes.sol";

/// @notice The last second, the last base unit, and what a view says of a thing half done.
contract EdgesTest is Network {
    function test_caseNamesItsFileAndItsWindows() public {
        uint256 s = _submit();
        _blocks(4);
        s = _submit();
        _voteAll(1, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        IJuries.Trial memory c = juries.caseOf(trial);
        assertEq(c.pool, pool);
        assertEq(c.sequence, 16);
        assertEq(c.size, 5);
        assertEq(c.fee, 5e8);
        assertEq(c.time, 0);
        _blocks(3);
        _drawTrial(trial);
        c = juries.caseOf(trial);
        assertEq(c.time, clock);
        assertEq(c.commitWindow, 60);
        assertEq(c.revealWindow, 60);
    }

    /// The dearest terms that a pool can have, at the most files of a challenge: nothing is cut off.
    function test_juryTermsAtTheirLimits() public {
        PoolTerms memory terms = defaultTerms();
        (terms.fee, terms.juryFee) = (type(uint32).max, type(uint32).max);
        (terms.commitWindow, terms.juryCommitWindow) = (30 days, 1 days);
        _isSummoned(terms, 1, 1, 1 days);
        _isSummoned(terms, 17, 17, 30 days);
        _isSummoned(terms, 256, 256, 30 days);
        (terms.commitWindow, terms.juryCommitWindow) = (1 days, 1 days);
        _isSummoned(terms, 17, 17, 2 days);
        _isSummoned(terms, 256, 256, 17 days);
    }

    function _isSummoned(PoolTerms memory terms, uint256 files_, uint256 fees, uint256 window) private {
        vm.mockCall(address(court), abi.encodeCall(court.termsOf, (pool)), abi.encode(terms));
        vm.prank(address(nodeChallenges));
        IJuries.Trial memory c = juries.caseOf(juries.summon(pool, 0, files_, new uint256[](0), address(0)));
        assertEq(c.fee, fees * type(uint32).max);
        assertEq(c.commitWindow, window);
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
        _unpack(0);
        (,, uint256[] memory votes,, uint256 code) = court.decisionOf(pool, s);
        assertEq(code, Codes.ACCEPT);
        assertEq(votes[0], Codes.ACCEPT);
        assertEq(votes[2], Codes.NONE);
        assertTrue(uint256(_ballot(0, 0, 2)) > type(uint64).max); // no codes
        assertFalse(_hasRevealed(0, 0, 2));
    }

    function test_ballotsOfAClosedCommitteeAreForgotten() public {
        _submit();
        _voteAll(0, Codes.ACCEPT);
        assertEq(uint256(_ballot(0, 0, 1)), _all(1));
        _passWindow();
        _closeAll(0, 0);
        assertEq(uint256(_ballot(0, 0, 1)), 0);
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
        uint256 burnt = _burnt();
        vm.prank(who);
        seats.withdrawSeat(1);
        assertEq(_burnt() - burnt, 1e9);
        assertEq(token.balanceOf(who), 0);
        assertEq(seats.seatOf(1).bond, 0);
    }

    function test_stakeIsFreeForAnotherPoolWhenItsTimeIsOver() public {
        vm.prank(operator);
        pools.leavePool(pool, node, type(uint256).max, "");
        uint256 releaseAt = stakes.nodeOf(node).releaseAt;
        uint256 other = _createPool(defaultTerms());
        _wait(releaseAt - 1 - clock);
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeLocked.selector, releaseAt, 0));
        vm.prank(operator);
        pools.join(other, node, type(uint256).max, "", "");
        _wait(1);
        vm.prank(operator);
        pools.join(other, node, type(uint256).max, "", "");
        assertEq(stakes.nodeOf(node).pool, other);
    }

    /// A node whose penalty leaves exactly the least stake is still a member.
    function test_nodeAtTheLeastStakeStays() public {
        PoolTerms memory t = defaultTerms();
        address poor = _register(operator, "poor", t.minStake + 1e9 + FEES);
        vm.prank(operator);
        pools.join(pool, poor, type(uint256).max, "", "");
        _step();
        uint256 s = _submitFrom(poor, 1_000);
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        assertEq(stakes.nodeOf(poor).stake, t.minStake);
        assertEq(stakes.nodeOf(poor).pool, pool);
        assertEq(_account(pool, poor).limit, uint256(t.minStake) * t.leverage / t.rate);
    }

    function test_submissionSaysItsUnitsOrWhatWasEarned() public {
        uint256 s = _submit();
        assertEq(_submission(s).units, 1_000);
        assertEq(_submission(s).earned, 0);
        assertEq(_submission(s).finalAt, 0);
        _voteAll(0, Codes.ACCEPT);
        assertEq(_submission(s).units, 0);
        assertEq(_submission(s).earned, 1_000);
        assertEq(_submission(s).finalAt, clock + 3600);
    }

    function test_nobodyElseRunsAPool() public {
        bytes[] memory calls = new bytes[](6);
        calls[0] = abi.encodeCall(pools.publishStep, (pool, 1, keccak256("manifest"), bytes32(0)));
        calls[1] = abi.encodeCall(pools.pausePool, (pool));
        calls[2] = abi.encodeCall(pools.removeNode, (pool, node));
        calls[3] = abi.encodeCall(pools.resumePool, (pool));
        calls[4] = abi.encodeCall(pools.closePool, (pool));
        calls[5] = abi.encodeCall(pools.settlePool, (pool));
        for (uint256 i = 0; i < calls.length; ++i) {
            if (i == 5) _wait(30 days);
            vm.prank(operator);
            (bool ok, bytes memory answer) = address(pools).call(calls[i]);
            assertFalse(ok);
            assertEq(bytes32(bytes4(answer)), bytes32(IPools.NotOwner.selector));
            vm.prank(owner); // the same call, a moment later
            (ok,) = address(pools).call(calls[i]);
            assertTrue(ok);
        }
    }

    /// Problems follow from the hash of the block after a step's, so who joins before that block can still know none.
    function test_stepsSeedIsTheNextBlocks() public {
        vm.prank(owner);
        pools.publishStep(pool, 1, keccak256("manifest"), bytes32(0));
        assertEq(_pool(pool).seedBlock, height + 1);
        assertEq(_joinAs("early"), 1);
        _blocks(1);
        assertEq(_joinAs("late"), 2);
    }

    /// @dev Joins as a new node; the first step that it may work for.
    function _joinAs(string memory name) private returns (uint256) {
        address made = _register(operator, name, STAKE);
        vm.prank(operator);
        pools.join(pool, made, type(uint256).max, "", "");
        return _account(pool, made).joinedStep;
    }

    function _checkTerms(PoolTerms memory t, string memory field) private {
        vm.expectRevert(abi.encodeWithSelector(IParams.BadTerms.selector, field));
        params.checkTerms(t);
    }

    function test_everyWindowHasItsBounds() public {
        string[7] memory names = [
            "commitWindow",
            "revealWindow",
            "challengeWindow",
            "appealWindow",
            "juryCommitWindow",
            "juryRevealWindow",
            "receiptWindow"
        ];
        uint32[2] memory out = [uint32(0), 30 days + 1];
        for (uint256 i = 0; i < 14; ++i) {
            PoolTerms memory t = defaultTerms();
            uint32 window = out[i % 2];
            if (i / 2 == 0) t.commitWindow = window;
            else if (i / 2 == 1) t.revealWindow = window;
            else if (i / 2 == 2) t.challengeWindow = window;
            else if (i / 2 == 3) t.appealWindow = window;
            else if (i / 2 == 4) t.juryCommitWindow = window;
            else if (i / 2 == 5) t.juryRevealWindow = window;
            else t.receiptWindow = window;
            _checkTerms(t, names[i / 2]);
        }
    }

    function test_caseKeepsItsVerdict() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256 trial = _dispute(operator, s);
        _juryVotes(trial, Codes.MALFORMED);
        assertEq(juries.caseOf(trial).code, Codes.NONE);
        _conclude(s);
        assertEq(juries.caseOf(trial).code, Codes.MALFORMED);
        assertTrue(juries.caseOf(trial).concluded);
    }

    /// What a node may do follows from events alone, also when a penalty lowered its limit.
    function test_lowerLimitIsAnnounced() public {
        uint256 s = _submit();
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        uint256 limit = (STAKE - FEES - 1e9) * 4 / 1e6;
        vm.expectEmit(true, true, true, true, address(pools));
        emit IPools.LimitSet(pool, node, limit);
        pools.finalize(pool, s, _ref(s), _none());
        assertEq(_account(pool, node).limit, limit);
    }

    /// One before the end of what its field holds, everything still goes on (Corners has the end itself).
    function test_lastIdsAndCountsAreUsable() public {
        bytes32 account_ = keccak256(abi.encode((pool << 160) | uint160(node), uint256(4)));
        bytes32 pool_ = keccak256(abi.encode(pool, uint256(1)));
        uint256 a = uint256(vm.load(address(pools), account_));
        uint256 p = uint256(vm.load(address(pools), pool_));
        vm.store(address(pools), account_, bytes32(a | (((1 << 22) - 2) << 160)));
        vm.store(address(pools), pool_, bytes32(p | (((uint256(1) << 24) - 2) << 136)));
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 1, 1);
        assertEq(_relay(_one(_work(0, (1 << 22) - 2, w))), ((1 << 24) - 2) << 4);
        vm.store(address(pools), pool_, bytes32(p & ~(uint256(1) << 192) | (((uint256(1) << 20) - 2) << 192)));
        vm.prank(owner);
        pools.publishStep(pool, (1 << 20) - 2, 0, 0);
        assertEq(_pool(pool).steps, (1 << 20) - 1);
        vm.store(address(pools), bytes32(uint256(0)), bytes32(uint256(type(uint24).max - 1)));
        assertEq(_createPool(defaultTerms()), type(uint24).max);
        vm.store(address(seats), bytes32(uint256(0)), bytes32(uint256(65534)));
        _openSeats(1);
        assertEq(seats.opened(), 65535);
    }

    function test_onlyTheSuiteMovesBonds() public {
        bytes[] memory calls = new bytes[](4);
        calls[0] = abi.encodeCall(seats.freeze, (1));
        calls[1] = abi.encodeCall(seats.release, (1));
        calls[2] = abi.encodeCall(seats.collect, (1, 2e9, stranger));
        calls[3] = abi.encodeCall(seats.penalise, (1, 2e9, stranger));
        address[4] memory suite = [address(court), address(juries), address(appeals), address(canaries)];
        for (uint256 i = 0; i < calls.length; ++i) {
            vm.prank(_seatOwner(1));
            (bool ok, bytes memory answer) = address(seats).call(calls[i]);
            assertFalse(ok);
            assertEq(bytes32(bytes4(answer)), bytes32(ISeats.NotPermitted.selector));
            vm.prank(suite[i]);
            (ok,) = address(seats).call(calls[i]);
            assertTrue(ok);
        }
        assertEq(seats.seatOf(1).bond, BOND - 4e9);
        assertEq(token.balanceOf(stranger), 2e9 / 20 + 2e9);
    }

    /// One outcome judges the votes of both committees, so both saw the same sample.
    function test_secondRoundsDecisionJudgesBothCommittees() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(1), _all(3), _all(11)));
        _vote(0, 1, _three(_all(4), _all(4), _all(1)));
        (uint256 round, uint256[] memory members, uint256[] memory votes, bytes32 seed, uint256 code) =
            court.decisionOf(pool, s);
        assertEq(round, 1);
        assertEq(code, Codes.REJECT_SAMPLING);
        assertEq(uint256(seed), uint256(_round(pool, 0, 0).seed));
        assertEq(uint256(seed), uint256(_round(pool, 0, 1).seed));
        uint8[6] memory cast = [1, 3, 11, 4, 4, 1];
        for (uint256 i = 0; i < 6; ++i) {
            assertEq(members[i], _round(pool, 0, i / 3).seats[i % 3]);
            assertEq(votes[i], cast[i]);
        }
        assertEq(_round(pool, 0, 0).codes, Codes.UNDECIDED); // the first round's outcome stays what it was
    }

    function test_newPoolIsEmpty() public {
        Pool memory p = _pool(_createPool(defaultTerms()));
        assertEq(p.owner, owner);
        assertEq(p.free, BUDGET);
        assertEq(p.steps, 0);
        assertEq(p.lanes, 0);
        assertEq(p.seedBlock, 0);
        assertEq(p.settleAt, 0);
    }

    /// The first file of each of two pools: another node's, with another outcome and another dispute.
    function test_poolsSideBySideShareNothing() public {
        uint256 one = pool;
        _submit();
        _voteAll(0, Codes.ACCEPT);
        address second = _register(operator, "second", STAKE);
        pool = _createPool(defaultTerms());
        vm.prank(operator);
        pools.join(pool, second, type(uint256).max, "", "");
        _step();
        assertEq(_submitFrom(second, 500), 0);
        assertEq(_submission(0).units, 500);
        _voteAll(0, Codes.REJECT_WEIGHTS);
        assertEq(_code(0), Codes.REJECT_WEIGHTS);
        _dispute(operator, 0);
        assertEq(appeals.disputeOf(one, 0).disputer, address(0));
        assertEq(_round(one, 0, 0).codes, Codes.ACCEPT);
        assertEq(_round(pool, 0, 0).codes, Codes.DISPUTED);
        pool = one;
        assertEq(_code(0), Codes.ACCEPT);
        assertEq(_submission(0).earned, 1_000);
        assertEq(_account(one, second).counter, 0);
        _passWindow();
        assertEq(_claim(0), 1e9);
    }
}
