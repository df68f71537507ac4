// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISiteRuns} from "../../src/interfaces/ISiteRuns.sol";
import {CallingToken} from "../attacks/Reentrancy.t.sol";
import {SiteRunning} from "../helpers/SiteRunning.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @notice A token that calls back finds every guard closed.
contract SiteReentrancyTest is SiteRunning {
    CallingToken internal evil;

    function setUp() public override {
        evil = new CallingToken();
        _start(address(evil));
        address[3] memory payers = [keeper, account("site a"), account("site b")];
        for (uint256 i = 0; i < 3; ++i) {
            evil.mint(payers[i], KEEPER_STAKE);
            vm.prank(payers[i]);
            evil.approve(address(siteRuns), type(uint256).max);
        }
        _opens();
        run = 1;
        _joins(account("site a"));
    }

    function _opens() private {
        vm.prank(keeper);
        siteRuns.open(_terms(0), 0, "");
    }

    function _joins(address site) private {
        vm.prank(site);
        siteRuns.join(run, site, 0, "");
    }

    function test_everyCallThatMovesTokensIsGuarded() public {
        address a = account("site a");
        bytes[8] memory inside = [
            abi.encodeCall(siteRuns.open, (_terms(0), 0, "")),
            abi.encodeCall(siteRuns.join, (run, account("site b"), 0, "")),
            abi.encodeCall(siteRuns.withdraw, (run, a)),
            abi.encodeCall(siteRuns.withdrawKeeper, (run)),
            abi.encodeCall(siteRuns.dispute, (run, 0)),
            abi.encodeCall(siteRuns.conclude, (1)),
            _accusing("site a", _note(1, "one"), _note(2, "other")),
            _accusingKeeper(7, _entry(1), _entry(2))
        ];
        bytes memory site = inside[6];
        bytes memory ofKeeper = inside[7];
        uint256 before = vm.snapshot();
        for (uint256 i = 0; i < 8; ++i) {
            evil.arm(address(siteRuns), inside[i]);
            _joins(account("site b"));
            _refusedInside(before);
            evil.arm(address(siteRuns), inside[i]);
            _yes(stranger, address(siteRuns), site);
            _refusedInside(before);
            evil.arm(address(siteRuns), inside[i]);
            _yes(stranger, address(siteRuns), ofKeeper);
            _refusedInside(before);
            _leave(a);
            _wait(DELAY);
            evil.arm(address(siteRuns), inside[i]);
            vm.prank(a);
            siteRuns.withdraw(run, a);
            _refusedInside(before);
        }
    }

    function _refusedInside(uint256 before) private {
        assertTrue(evil.called());
        assertFalse(evil.succeeded());
        assertEq(bytes32(evil.answer()), bytes32(ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector));
        vm.revertTo(before);
    }
}
