// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISiteRuns} from "../../src/interfaces/ISiteRuns.sol";
import {SiteRunning} from "../helpers/SiteRunning.sol";

/// @notice What the keeper may record: each step once, in order, of sites that joined.
contract StepRecordsTest is SiteRunning {
    function _with(ISiteRuns.Contribution[] memory list) private view returns (bytes memory) {
        return abi.encodeCall(siteRuns.record, (run, 0, keccak256("state"), 10, _entry(0), list));
    }

    function _bad(ISiteRuns.Contribution[] memory list) private {
        _no(keeper, address(siteRuns), _with(list), ISiteRuns.BadContributions.selector);
    }

    function test_onceAndInOrder() public {
        bytes memory later = _recording(1);
        _no(keeper, address(siteRuns), later, abi.encodeWithSelector(ISiteRuns.WrongStep.selector, 0));
        _no(keeperOwner, address(siteRuns), _recording(0), ISiteRuns.NotRunKeeper.selector);
        assertEq(_record(), 0);
        bytes memory again = _recording(0);
        _no(keeper, address(siteRuns), again, abi.encodeWithSelector(ISiteRuns.WrongStep.selector, 1));
        assertEq(_record(), 1);
        ISiteRuns.Step memory step = siteRuns.stepOf(run, 1);
        assertEq(step.block, height);
        assertEq(step.time, clock);
        assertEq(bytes32(step.entry), bytes32(bytes20(siteRuns.entryDigest(run, 10, _entry(1)))));
        assertEq(siteRuns.stepOf(run, 2).time, 0);
    }

    function test_contributions() public {
        ISiteRuns.Contribution[] memory list = _contributions();
        (list[0], list[1]) = (list[1], list[0]);
        _bad(list);
        list = _contributions();
        list[1] = list[0];
        _bad(list);
        list = _contributions();
        list[2].document = 0;
        _bad(list);
        list = _contributions();
        list[2].weight = 333_333_335;
        _bad(list);
        list[2].weight = type(uint256).max;
        _bad(list);
        list[2].weight = 333_333_334;
        _yes(keeper, address(siteRuns), _with(list));
    }

    function test_atMost64() public {
        ISiteRuns.Contribution[] memory list = new ISiteRuns.Contribution[](65);
        _bad(list);
    }

    function test_ofSitesThatJoined() public {
        ISiteRuns.Contribution[] memory list = new ISiteRuns.Contribution[](1);
        list[0] = ISiteRuns.Contribution(stranger, 1e9, keccak256("document"));
        _no(keeper, address(siteRuns), _with(list), abi.encodeWithSelector(ISiteRuns.NoSuchSite.selector, stranger));
    }

    /// A site that left, or was found out, between a step and its record cannot stop the record.
    function test_ofSitesThatAreGone() public {
        _leave(account("site a"));
        _accuseSite("site b");
        _record();
    }

    /// A step of which nothing was left to train on is made of nothing.
    function test_ofNobody() public {
        _yes(keeper, address(siteRuns), _with(new ISiteRuns.Contribution[](0)));
        bytes memory nothing =
            abi.encodeCall(siteRuns.record, (run, 1, bytes32(0), 10, _entry(0), new ISiteRuns.Contribution[](0)));
        _no(keeper, address(siteRuns), nothing, ISiteRuns.BadContributions.selector);
    }
}
