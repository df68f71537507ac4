// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISiteRuns} from "../../src/interfaces/ISiteRuns.sol";
import {SiteRunning} from "../helpers/SiteRunning.sol";

/// @notice Two signatures that cannot both be, and everything that looks like it and is honest.
contract ContradictionsTest is SiteRunning {
    function _refused(bytes memory data, bytes4 why) private {
        _no(stranger, address(siteRuns), data, why);
    }

    function test_twoContributionsToOneAttempt() public {
        address a = account("site a");
        _accuseSite("site a");
        ISiteRuns.Site memory site = siteRuns.siteOf(run, a);
        assertTrue(site.ejected);
        assertFalse(siteRuns.isSite(run, a));
        assertEq(site.stake, SITE_STAKE / 2);
        assertEq(token.balanceOf(stranger), SITE_STAKE / 20);
        assertEq(token.balanceOf(SINK), SITE_STAKE / 2 - SITE_STAKE / 20);
        assertEq(token.balanceOf(address(siteRuns)), KEEPER_STAKE + 3 * SITE_STAKE - SITE_STAKE / 2);
        _refused(_accusing("site a", _note(3, "x"), _note(4, "y")), ISiteRuns.AlreadyEjected.selector);
        bytes memory out = abi.encodeCall(siteRuns.withdraw, (run, a));
        _no(a, address(siteRuns), out, abi.encodeWithSelector(ISiteRuns.StakeHeld.selector, clock + DELAY));
        _wait(DELAY);
        _yes(a, address(siteRuns), out);
        assertEq(token.balanceOf(a), SITE_STAKE / 2);
        assertEq(siteRuns.siteOf(run, account("site b")).stake, SITE_STAKE);
    }

    /// Said again under another number, in another attempt or step, a note without a contribution: no breach.
    function test_honestNotes() public {
        bytes4 none = ISiteRuns.NoContradiction.selector;
        _refused(_accusing("site a", _note(1, "one"), _note(2, "one")), none);
        ISiteRuns.Note memory leaving = _note(2, "leave");
        leaving.document = 0;
        _refused(_accusing("site a", _note(1, "one"), leaving), none);
        _refused(_accusing("site a", leaving, _note(1, "one")), none);
        ISiteRuns.Note memory a = _note(1, "one");
        ISiteRuns.Note memory b = _note(2, "other");
        bytes memory signedA = _signedNote("site a", 3, 1, a);
        bytes4 wrong = ISiteRuns.BadSignature.selector;
        bytes[4] memory others = [
            _signedNote("site a", 3, 2, b),
            _signedNote("site a", 4, 1, b),
            _signedNote("site b", 3, 1, b),
            _signedNote("site a", 3, 1, a)
        ];
        for (uint256 i = 0; i < 4; ++i) {
            address site = account("site a");
            _refused(abi.encodeCall(siteRuns.accuseSite, (run, site, 3, 1, a, signedA, b, others[i])), wrong);
            _refused(abi.encodeCall(siteRuns.accuseSite, (run, site, 3, 1, b, others[i], a, signedA)), wrong);
        }
    }

    /// What a site signed in another run, of the same document even, is of another number there.
    function test_nobodyThere() public {
        bytes memory data = _accusing("site z", _note(1, "one"), _note(2, "other"));
        _no(stranger, address(siteRuns), data, abi.encodeWithSelector(ISiteRuns.NoSuchSite.selector, account("site z")));
        _leave(account("site a"));
        _wait(DELAY);
        vm.prank(account("site a"));
        siteRuns.withdraw(run, account("site a"));
        _refused(_accusing("site a", _note(1, "one"), _note(2, "other")), ISiteRuns.NothingAtStake.selector);
    }

    /// Leaving frees no stake earlier: while it is locked a breach can be shown, and its release does not move.
    function test_afterLeaving() public {
        _leave(account("site a"));
        uint256 release = clock + DELAY;
        _wait(DELAY - 1);
        _accuseSite("site a");
        assertEq(siteRuns.siteOf(run, account("site a")).releaseAt, release);
    }

    function test_twoEntriesAtOnePlace() public {
        _record();
        _accuseKeeper();
        ISiteRuns.Run memory view_ = siteRuns.runOf(run);
        assertTrue(view_.ejected);
        assertEq(view_.stake, KEEPER_STAKE / 2);
        assertEq(view_.releaseAt, clock + DELAY);
        assertEq(token.balanceOf(stranger), KEEPER_STAKE / 20);
        _no(keeper, address(siteRuns), _recording(1), ISiteRuns.RunOver.selector);
        _refused(_accusingKeeper(8, _entry(1), _entry(2)), ISiteRuns.AlreadyEjected.selector);
        _wait(DELAY);
        vm.prank(keeperOwner);
        siteRuns.withdrawKeeper(run);
        assertEq(token.balanceOf(keeperOwner), KEEPER_STAKE / 2);
    }

    function test_honestEntries() public {
        _refused(_accusingKeeper(7, _entry(1), _entry(1)), ISiteRuns.NoContradiction.selector);
        bytes memory signed7 = _signedEntry(7, _entry(1));
        bytes memory signed8 = _signedEntry(8, _entry(2));
        bytes4 wrong = ISiteRuns.BadSignature.selector;
        _refused(abi.encodeCall(siteRuns.accuseKeeper, (run, 7, _entry(1), signed7, _entry(2), signed8)), wrong);
        _refused(abi.encodeCall(siteRuns.accuseKeeper, (run, 7, _entry(2), signed8, _entry(1), signed7)), wrong);
    }

    /// The log says something else at the place that was recorded.
    function test_recordedAndWrittenOtherwise() public {
        uint256 step = _record();
        bytes memory other = _signedEntry(0, _entry(9));
        bytes memory data = abi.encodeCall(siteRuns.accuseRecord, (run, step, 0, _entry(0), _entry(9), other));
        bytes memory wrongRecord = abi.encodeCall(siteRuns.accuseRecord, (run, step, 0, _entry(8), _entry(9), other));
        _refused(wrongRecord, ISiteRuns.WrongEntry.selector);
        bytes memory unrecorded = abi.encodeCall(siteRuns.accuseRecord, (run, 5, 0, _entry(0), _entry(9), other));
        _refused(unrecorded, ISiteRuns.WrongEntry.selector);
        bytes memory same = _signedEntry(0, _entry(0));
        bytes memory asWritten = abi.encodeCall(siteRuns.accuseRecord, (run, step, 0, _entry(0), _entry(0), same));
        _refused(asWritten, ISiteRuns.NoContradiction.selector);
        bytes memory elsewhere = _signedEntry(1, _entry(9));
        bytes memory moved = abi.encodeCall(siteRuns.accuseRecord, (run, step, 0, _entry(0), _entry(9), elsewhere));
        _refused(moved, ISiteRuns.BadSignature.selector);
        _yes(stranger, address(siteRuns), data);
        assertEq(siteRuns.runOf(run).stake, KEEPER_STAKE / 2);
    }

    /// A keeper that confesses to a contradiction does not escape the jury: what is left stays, and its fees are kept.
    function test_confessingIsNoWayOutOfADispute() public {
        uint256 step = _record();
        uint256 first = _disputeStep(step);
        _accuseKeeper();
        assertEq(siteRuns.runOf(run).stake, KEEPER_STAKE - (KEEPER_STAKE - JURY) / 2);
        _judged(first, 9);
        assertEq(siteRuns.runOf(run).stake, 0);
    }
}
