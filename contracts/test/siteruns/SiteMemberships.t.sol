// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISiteRuns} from "../../src/interfaces/ISiteRuns.sol";
import {SiteRunning} from "../helpers/SiteRunning.sol";

/// @notice Opening, joining, leaving, closing, and when stakes come back.
contract SiteMembershipsTest is SiteRunning {
    function test_opened() public {
        ISiteRuns.Run memory view_ = siteRuns.runOf(run);
        assertEq(view_.document, DOCUMENT);
        assertEq(view_.start, keccak256("start"));
        assertEq(view_.keeper, keeper);
        assertEq(view_.owner, keeperOwner);
        assertEq(view_.stake, KEEPER_STAKE);
        assertEq(token.balanceOf(address(siteRuns)), KEEPER_STAKE + 3 * SITE_STAKE);
        assertTrue(siteRuns.isSite(run, account("site a")));
        assertFalse(siteRuns.isSite(run, stranger));
    }

    function test_terms() public {
        for (uint256 i = 0; i < 8; ++i) {
            ISiteRuns.Terms memory terms = _terms(pool);
            if (i == 0) terms.document = 0;
            if (i == 1) terms.start = 0;
            if (i == 2) terms.siteStake = 0;
            if (i == 3) terms.siteStake = 1 << 56;
            if (i == 4) terms.keeperStake = 0;
            if (i == 5) terms.keeperStake = 1 << 56;
            if (i == 6) terms.delay = 0;
            if (i == 7) terms.delay = 365 days + 1;
            _no(
                keeper, address(siteRuns), abi.encodeCall(siteRuns.open, (terms, 0, "")), ISiteRuns.BadRunTerms.selector
            );
        }
        // a jury of no seats would never be done
        bytes memory nowhere = abi.encodeCall(siteRuns.open, (_terms(pool + 1), 0, ""));
        _no(keeper, address(siteRuns), nowhere, ISiteRuns.BadRunTerms.selector);
        bytes memory far = abi.encodeCall(siteRuns.open, (_terms((1 << 32) | pool), 0, ""));
        _no(keeper, address(siteRuns), far, ISiteRuns.BadRunTerms.selector);
    }

    function test_consents() public {
        _give(stranger, address(siteRuns), 1_000e9);
        bytes memory consent = _consent("keeper", keeperOwner);
        bytes memory opening = abi.encodeCall(siteRuns.open, (_terms(pool), clock + 60, consent));
        _no(stranger, address(siteRuns), opening, ISiteRuns.WrongConsent.selector);
        address d = account("site d");
        consent = _consent("site d", stranger);
        bytes memory joining = abi.encodeCall(siteRuns.join, (run, d, clock + 60, consent));
        _no(owner, address(siteRuns), joining, ISiteRuns.WrongConsent.selector);
        bytes memory later = abi.encodeCall(siteRuns.join, (run, d, clock + 61, consent));
        _no(stranger, address(siteRuns), later, ISiteRuns.WrongConsent.selector);
        uint256 before = vm.snapshot();
        _wait(61);
        _no(stranger, address(siteRuns), joining, ISiteRuns.ExpiredConsent.selector);
        vm.revertTo(before);
        _yes(stranger, address(siteRuns), joining);
        assertEq(siteRuns.siteOf(run, d).owner, stranger);
        _no(stranger, address(siteRuns), joining, ISiteRuns.AlreadyJoined.selector);
    }

    function test_noSuchRun() public {
        bytes4 none = ISiteRuns.NoSuchRun.selector;
        _no(stranger, address(siteRuns), abi.encodeCall(siteRuns.join, (9, stranger, 0, "")), none);
        _no(stranger, address(siteRuns), abi.encodeCall(siteRuns.close, (9)), none);
        _no(stranger, address(siteRuns), abi.encodeCall(siteRuns.withdrawKeeper, (9)), none);
        _no(stranger, address(siteRuns), abi.encodeCall(siteRuns.dispute, (9, 0)), none);
        bytes memory leaving = abi.encodeCall(siteRuns.leave, (run, stranger));
        _no(stranger, address(siteRuns), leaving, abi.encodeWithSelector(ISiteRuns.NoSuchSite.selector, stranger));
    }

    function test_leavingTakesTheDelay() public {
        address a = account("site a");
        bytes memory out = abi.encodeCall(siteRuns.withdraw, (run, a));
        _no(a, address(siteRuns), out, abi.encodeWithSelector(ISiteRuns.StakeHeld.selector, 0));
        _no(stranger, address(siteRuns), abi.encodeCall(siteRuns.leave, (run, a)), ISiteRuns.NotStakeOwner.selector);
        _leave(a);
        assertFalse(siteRuns.isSite(run, a));
        _no(a, address(siteRuns), abi.encodeCall(siteRuns.leave, (run, a)), ISiteRuns.AlreadyLeft.selector);
        _no(a, address(siteRuns), abi.encodeCall(siteRuns.join, (run, a, 0, "")), ISiteRuns.AlreadyJoined.selector);
        uint256 release = clock + DELAY;
        _wait(DELAY - 1);
        _no(a, address(siteRuns), out, abi.encodeWithSelector(ISiteRuns.StakeHeld.selector, release));
        _wait(1);
        _yes(a, address(siteRuns), out);
        assertEq(token.balanceOf(a), SITE_STAKE);
        _no(a, address(siteRuns), out, ISiteRuns.NothingAtStake.selector);
    }

    function test_closingEndsTheRunAndNoSite() public {
        bytes memory out = abi.encodeCall(siteRuns.withdrawKeeper, (run));
        _no(keeperOwner, address(siteRuns), out, abi.encodeWithSelector(ISiteRuns.StakeHeld.selector, 0));
        _no(keeper, address(siteRuns), abi.encodeCall(siteRuns.close, (run)), ISiteRuns.NotStakeOwner.selector);
        _close();
        _no(keeperOwner, address(siteRuns), abi.encodeCall(siteRuns.close, (run)), ISiteRuns.RunOver.selector);
        _no(keeper, address(siteRuns), _recording(0), ISiteRuns.RunOver.selector);
        _no(
            stranger,
            address(siteRuns),
            abi.encodeCall(siteRuns.join, (run, stranger, 0, "")),
            ISiteRuns.RunOver.selector
        );
        uint256 release = clock + DELAY;
        _wait(DELAY - 1);
        _no(keeperOwner, address(siteRuns), out, abi.encodeWithSelector(ISiteRuns.StakeHeld.selector, release));
        _wait(1);
        _no(keeper, address(siteRuns), out, ISiteRuns.NotStakeOwner.selector);
        _yes(keeperOwner, address(siteRuns), out);
        assertEq(token.balanceOf(keeperOwner), KEEPER_STAKE);
        assertEq(token.balanceOf(address(siteRuns)), 3 * SITE_STAKE);
        _no(keeperOwner, address(siteRuns), out, ISiteRuns.NothingAtStake.selector);
        _leave(account("site b"));
        _wait(DELAY);
        _yes(account("site b"), address(siteRuns), abi.encodeCall(siteRuns.withdraw, (run, account("site b"))));
    }

    function test_pausedToNewcomersOnly() public {
        params.setPaused(true);
        _give(stranger, address(siteRuns), 1_000e9);
        bytes memory opening = abi.encodeCall(siteRuns.open, (_terms(pool), 0, ""));
        _no(keeper, address(siteRuns), opening, ISiteRuns.Paused.selector);
        bytes memory joining = abi.encodeCall(siteRuns.join, (run, stranger, 0, ""));
        _no(stranger, address(siteRuns), joining, ISiteRuns.Paused.selector);
        uint256 step = _record();
        _disputeStep(step);
        _leave(account("site a"));
        _accuseSite("site b");
    }
}
