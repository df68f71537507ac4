// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJuries} from "../../src/interfaces/IJuries.sol";
import {IOneJury} from "../../src/interfaces/IOneJury.sol";
import {ISiteRuns} from "../../src/interfaces/ISiteRuns.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {SiteRunning} from "../helpers/SiteRunning.sol";

/// @notice Disputes of recorded steps: every end, who pays, and what they cannot hold or touch.
contract StepDisputesTest is SiteRunning {
    function _had() private view returns (uint256) {
        return token.balanceOf(disputer);
    }

    function test_upheld() public {
        uint256 number = _disputeStep(_record());
        assertEq(token.balanceOf(address(siteRuns)), KEEPER_STAKE + 3 * SITE_STAKE + STEP_BOND);
        _judged(number, Codes.REJECT_COMMITMENT);
        _is(number, IOneJury.Outcome.Upheld);
        uint256 reward = (KEEPER_STAKE - JURY) / 10;
        assertEq(_had(), 1_000e9 + reward);
        assertEq(token.balanceOf(SINK), KEEPER_STAKE - JURY - reward);
        assertEq(siteRuns.runOf(run).stake, 0);
        assertEq(siteRuns.runOf(run).releaseAt, clock + DELAY);
        _no(keeper, address(siteRuns), _recording(1), ISiteRuns.RunOver.selector);
        // the sites' stakes are untouched
        assertEq(token.balanceOf(address(siteRuns)), 3 * SITE_STAKE);
        _closeJurors(siteRuns.disputeOf(number).trial);
        assertEq(token.balanceOf(address(juries)), 0);
        bytes memory again = abi.encodeCall(siteRuns.conclude, (number));
        _no(stranger, address(siteRuns), again, IOneJury.AlreadyConcluded.selector);
        bytes memory anew = abi.encodeCall(siteRuns.dispute, (run, 0));
        _no(disputer, address(siteRuns), anew, abi.encodeWithSelector(ISiteRuns.AlreadyDisputed.selector, number));
    }

    function test_refuted() public {
        uint256 number = _disputeStep(_record());
        _judged(number, Codes.ACCEPT);
        _is(number, IOneJury.Outcome.Refuted);
        assertEq(_had(), 1_000e9 - STEP_BOND);
        assertEq(token.balanceOf(keeperOwner), 5e9);
        assertEq(token.balanceOf(SINK), 0);
        assertEq(siteRuns.runOf(run).stake, KEEPER_STAKE);
        bytes memory anew = abi.encodeCall(siteRuns.dispute, (run, 0));
        _no(disputer, address(siteRuns), anew, abi.encodeWithSelector(ISiteRuns.AlreadyDisputed.selector, number));
        _record();
    }

    /// One juror of five was wrong: its fee is nobody's, and burnt.
    function test_refutedByFour() public {
        uint256 number = _disputeStep(_record());
        _juryVotes(siteRuns.disputeOf(number).trial, Codes.ACCEPT, 4, Codes.REJECT_WEIGHTS);
        siteRuns.conclude(number);
        assertEq(token.balanceOf(SINK), JURY / 5);
        assertEq(token.balanceOf(address(siteRuns)), KEEPER_STAKE + 3 * SITE_STAKE);
    }

    function test_dismissed() public {
        uint256 number = _disputeStep(_record());
        _judged(number, Codes.UNAVAILABLE);
        _is(number, IOneJury.Outcome.Dismissed);
        assertEq(_had(), 1_000e9 - JURY);
        assertEq(siteRuns.runOf(run).stake, KEEPER_STAKE);
        // somebody has what was published after all
        assertEq(_disputeStep(0), 2);
    }

    function test_lapsed() public {
        uint256 number = _disputeStep(_record());
        bytes memory ending = abi.encodeCall(siteRuns.conclude, (number));
        _no(stranger, address(siteRuns), ending, IOneJury.Undecided.selector);
        _blocks(5 * EPOCH); // nobody drew it
        siteRuns.conclude(number);
        _is(number, IOneJury.Outcome.Lapsed);
        assertEq(_had(), 1_000e9);
        assertEq(siteRuns.runOf(run).disputes, 0);
    }

    function test_replacedOnceThenLapsed() public {
        uint256 other = _disputeStep(_record());
        uint256 trial = siteRuns.disputeOf(other).trial;
        _juryVotes(trial, Codes.ACCEPT, 2, Codes.NONE);
        _wait(60);
        siteRuns.conclude(other);
        _is(other, IOneJury.Outcome.Open);
        assertTrue(siteRuns.disputeOf(other).trial != trial);
        _juryVotes(siteRuns.disputeOf(other).trial, Codes.ACCEPT, 2, Codes.NONE);
        _wait(60);
        siteRuns.conclude(other);
        _is(other, IOneJury.Outcome.Lapsed);
    }

    function test_window() public {
        uint256 step = _record();
        uint256 over = clock + DELAY;
        _wait(DELAY - 1);
        uint256 before = vm.snapshot();
        _wait(1);
        bytes memory late = abi.encodeCall(siteRuns.dispute, (run, step));
        _no(disputer, address(siteRuns), late, abi.encodeWithSelector(ISiteRuns.WindowOver.selector, over));
        vm.revertTo(before);
        _disputeStep(step);
        bytes memory unrecorded = abi.encodeCall(siteRuns.dispute, (run, 1));
        _no(disputer, address(siteRuns), unrecorded, abi.encodeWithSelector(ISiteRuns.NotRecorded.selector, 1));
    }

    /// The keeper's stake outlasts every window, and every dispute that was opened in one.
    function test_stakeOutlastsTheLastWindow() public {
        uint256 step = _record();
        _close();
        _wait(DELAY - 1);
        uint256 number = _disputeStep(step);
        _wait(1);
        bytes memory out = abi.encodeCall(siteRuns.withdrawKeeper, (run));
        _no(keeperOwner, address(siteRuns), out, IOneJury.Undecided.selector);
        _blocks(5 * EPOCH);
        siteRuns.conclude(number);
        // one that nobody draws a jury for costs nothing, but no other can follow it
        bytes memory next = abi.encodeCall(siteRuns.dispute, (run, step));
        vm.prank(disputer);
        (bool ok,) = address(siteRuns).call(next);
        assertFalse(ok);
        _yes(keeperOwner, address(siteRuns), out);
    }

    /// Two disputes are both right: the second jury's fees were kept for it when the first one took the rest.
    function test_theNextJuryIsPaidByTheKeeperToo() public {
        uint256 first = _disputeStep(_record());
        uint256 second = _disputeStep(_record());
        _judged(first, Codes.REJECT_WEIGHTS);
        assertEq(siteRuns.runOf(run).stake, JURY);
        uint256 had = _had();
        _judged(second, Codes.REJECT_WEIGHTS);
        assertEq(_had(), had + STEP_BOND);
        assertEq(siteRuns.runOf(run).stake, 0);
        assertEq(token.balanceOf(address(siteRuns)), 3 * SITE_STAKE);
        bytes memory out = abi.encodeCall(siteRuns.withdrawKeeper, (run));
        _wait(DELAY);
        _no(keeperOwner, address(siteRuns), out, ISiteRuns.NothingAtStake.selector);
    }

    function test_nothingAtStakeNoDispute() public {
        uint256 first = _disputeStep(_record());
        uint256 step = _record();
        _judged(first, Codes.REJECT_WEIGHTS);
        bytes memory data = abi.encodeCall(siteRuns.dispute, (run, step));
        _no(disputer, address(siteRuns), data, ISiteRuns.NothingAtStake.selector);
    }

    function test_aRunWithoutCourt() public {
        run = _openRun(0);
        ISiteRuns.Contribution[] memory nobody = new ISiteRuns.Contribution[](0);
        vm.prank(keeper);
        siteRuns.record(run, 0, keccak256("state"), 10, _entry(0), nobody);
        bytes4 none = ISiteRuns.NoCourt.selector;
        _no(disputer, address(siteRuns), abi.encodeCall(siteRuns.dispute, (run, 0)), none);
        _no(disputer, address(siteRuns), abi.encodeCall(siteRuns.bondOf, (run)), none);
        _accuseKeeper();
    }

    function test_onlyBenchesSummon() public {
        bytes memory data = abi.encodeCall(juries.summon, (pool, 0, 1, 5, new uint256[](0), address(0)));
        _no(stranger, address(juries), data, IJuries.NotBench.selector);
        bytes memory none = abi.encodeCall(siteRuns.conclude, (1));
        _no(stranger, address(siteRuns), none, ISiteRuns.NoSuchDispute.selector);
    }

    /// Another run of the same keeper does not pay.
    function test_stakesOfOneRunAlone() public {
        uint256 other = _openRun(pool);
        _judged(_disputeStep(_record()), Codes.REJECT_WEIGHTS);
        assertEq(siteRuns.runOf(other).stake, KEEPER_STAKE);
        assertEq(siteRuns.runOf(other).releaseAt, 0);
    }
}
