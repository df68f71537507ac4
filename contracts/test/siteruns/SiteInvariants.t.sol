// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISiteRuns} from "../../src/interfaces/ISiteRuns.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {SiteRunning} from "../helpers/SiteRunning.sol";
import {SiteCrowd} from "./SiteCrowd.sol";
import {PRBTest} from "@prb/test/PRBTest.sol";

/// @notice Random campaigns of sites, keeper, disputers and juries: every grain is somebody's, no stake pays for another,
/// none is taken twice for one thing, and none stays for ever.
contract SiteInvariants is PRBTest {
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    SiteCrowd internal crowd;

    function setUp() public {
        crowd = new SiteCrowd();
        crowd.start();
    }

    function targetContracts() public view returns (address[] memory list) {
        list = new address[](1);
        list[0] = address(crowd);
    }

    function targetSelectors() public view returns (FuzzSelector[] memory list) {
        list = new FuzzSelector[](1);
        list[0] = FuzzSelector(address(crowd), _actions());
    }

    function _actions() private view returns (bytes4[] memory list) {
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
        bytes4[] memory list = _actions();
        for (uint256 i = 0; i < 800; ++i) {
            uint256 r = uint256(keccak256(abi.encode("site reach", i)));
            bytes memory arguments = abi.encode((r >> 8) % 1_000, (r >> 64) % 1_000_000, (r >> 128) % 1_000);
            (bool ok, bytes memory why) = address(crowd).call(abi.encodePacked(list[r % 12], arguments));
            if (!ok) {
                assembly ("memory-safe") {
                    revert(add(why, 32), mload(why))
                }
            }
            crowd.everythingHolds();
        }
        require(crowd.upheld() > 1 && crowd.refuted() > 1 && crowd.lapsed() > 1, "not every end");
        require(crowd.ejections() > 1 && crowd.withdrawals() > 1, "nobody found out, or nobody free");
        crowd.everybodyLeaves();
    }
}

/// @notice Whatever five jurors say, the outcome is their majority's, and every grain is somebody's.
contract SiteFuzzTest is SiteRunning {
    function testFuzz_verdicts(uint256 votes, uint256 stake, uint256 fee) public {
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
        uint256 guilty = _ballots(trial, votes, fee);
        siteRuns.conclude(number);
        ISiteRuns.Outcome outcome = siteRuns.disputeOf(number).outcome;
        assertEq(outcome == ISiteRuns.Outcome.Upheld, guilty >= 3);
        bool open_ = outcome == ISiteRuns.Outcome.Open;
        assertEq(siteRuns.runOf(run).stake, guilty >= 3 ? 0 : terms.keeperStake);
        uint256 left = siteRuns.runOf(run).stake + (open_ ? STEP_BOND : 0);
        assertEq(token.balanceOf(address(siteRuns)), held + left);
        if (!open_) {
            _closeJurors(trial);
            assertEq(token.balanceOf(address(juries)), 0);
        }
    }

    function _ballots(uint256 trial, uint256 votes, uint256 salt) private returns (uint256 guilty) {
        _drawJury(trial);
        (, address[] memory voters,,) = juries.juryOf(trial);
        for (uint256 i = 0; i < 5; ++i) {
            uint256 code = 1 + (votes >> (8 * i)) % 11;
            if (Codes.isReject(code)) ++guilty;
            bytes32 hash = juries.ballotHash(trial, voters[i], code, bytes32(salt), keccak256("salt"));
            vm.prank(voters[i]);
            juries.commit(trial, i, hash);
        }
        for (uint256 i = 0; i < 5; ++i) {
            vm.prank(voters[i]);
            juries.reveal(trial, i, 1 + (votes >> (8 * i)) % 11, bytes32(salt), keccak256("salt"));
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
