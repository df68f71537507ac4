// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IOneJury} from "../../src/interfaces/IOneJury.sol";
import {ISiteRuns} from "../../src/interfaces/ISiteRuns.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {Campaign} from "../helpers/Campaign.sol";
import {SiteRunning} from "../helpers/SiteRunning.sol";
import {SiteCrowd} from "./SiteCrowd.sol";

/// @notice Random campaigns of sites, keeper, disputers and juries: every grain is somebody's, no stake pays for another,
/// none is taken twice for one thing, and none stays for ever.
contract SiteInvariants is Campaign {
    SiteCrowd internal crowd;

    function setUp() public {
        crowd = new SiteCrowd();
        crowd.start();
    }

    function _crowd() internal view override returns (address) {
        return address(crowd);
    }

    function _actions() internal view override returns (bytes4[] memory list) {
        list = new bytes4[](12);
        (list[0], list[1], list[2]) = (crowd.join.selector, crowd.leaveRun.selector, crowd.takeOut.selector);
        (list[3], list[4], list[5]) = (crowd.endRun.selector, crowd.work.selector, crowd.contradict.selector);
        (list[6], list[7], list[8]) = (crowd.contradictKeeper.selector, crowd.challenge.selector, crowd.judge.selector);
        (list[9], list[10], list[11]) = (crowd.later.selector, crowd.challenge.selector, crowd.judge.selector);
    }

    function invariant_everythingHolds() public view {
        crowd.everythingHolds();
    }

    /// The campaigns do reach every end; and no action is refused that the rules allow.
    function test_reach() public {
        vm.pauseGasMetering();
        for (uint256 i = 0; i < 800; ++i) {
            _act(uint256(keccak256(abi.encode("site reach", i))), 1_000_000);
            crowd.everythingHolds();
        }
        require(crowd.upheld() > 1 && crowd.refuted() > 1 && crowd.lapsed() > 1, "not every end");
        require(crowd.ejections() > 1 && crowd.withdrawals() > 1, "nobody found out, or nobody free");
        crowd.everybodyLeaves();
    }
}

/// @notice Whatever five jurors say, the outcome is their majority's, and every grain is somebody's.
contract SiteFuzzTest is SiteRunning {
    function testFuzz_verdicts(uint256 votes, uint256 stake) public {
        ISiteRuns.Terms memory terms = _terms(pool);
        terms.keeperStake = 1 + stake % (1_000_000e9);
        _give(keeper, address(siteRuns), terms.keeperStake);
        vm.prank(keeper);
        run = siteRuns.open(terms, 0, "");
        ISiteRuns.Contribution[] memory nobody = new ISiteRuns.Contribution[](0);
        vm.prank(keeper);
        siteRuns.record(run, 0, keccak256("state"), 10, _entry(0), nobody);
        uint256 held = token.balanceOf(address(siteRuns)) - terms.keeperStake;
        uint256 number = _disputeStep(0);
        uint256 trial = siteRuns.disputeOf(number).trial;
        uint256[] memory kinds = _juryVotesAnything(trial, votes);
        siteRuns.conclude(number);
        IOneJury.Outcome outcome = siteRuns.disputeOf(number).outcome;
        assertEq(outcome == IOneJury.Outcome.Upheld, kinds[Codes.KIND_REJECT] >= 3);
        bool open_ = outcome == IOneJury.Outcome.Open;
        assertEq(siteRuns.runOf(run).stake, kinds[Codes.KIND_REJECT] >= 3 ? 0 : terms.keeperStake);
        uint256 left = siteRuns.runOf(run).stake + (open_ ? STEP_BOND : 0);
        assertEq(token.balanceOf(address(siteRuns)), held + left);
        if (!open_) {
            _closeJurors(trial);
            assertEq(token.balanceOf(address(juries)), 0);
        }
    }

    /// Whatever is recorded, the weights are at most one, and each site is there once.
    function testFuzz_records(uint32[3] memory weights, bool[3] memory named) public {
        ISiteRuns.Contribution[] memory all = _contributions();
        uint256 count;
        uint256 sum;
        for (uint256 i = 0; i < 3; ++i) {
            if (!named[i]) continue;
            all[count] = ISiteRuns.Contribution(all[i].site, weights[i], all[i].document);
            sum += weights[i];
            ++count;
        }
        ISiteRuns.Contribution[] memory list = new ISiteRuns.Contribution[](count);
        for (uint256 i = 0; i < count; ++i) {
            list[i] = all[i];
        }
        bytes memory data = abi.encodeCall(siteRuns.record, (run, 0, keccak256("state"), 1, _entry(0), list));
        vm.prank(keeper);
        (bool ok,) = address(siteRuns).call(data);
        assertEq(ok, sum <= 1e9);
    }
}
