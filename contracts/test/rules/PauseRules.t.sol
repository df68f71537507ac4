// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {PoolTerms} from "../../src/libraries/Types.sol";
import {Network} from "../helpers/Network.sol";
import {IParams} from "../interfaces/IParams.sol";

/// @notice What no deployment can ask of a disputer, and the pause, all that governance can do.
contract PauseRulesTest is Network {
    function test_nobodyIsPricedOutOfADispute() public {
        IParams.Values memory v = defaultValues();
        v.delayCompensation = 10e9; // and no more: Refusals
        _redeploy(v);
        PoolTerms memory t = defaultTerms();
        t.juryFee = 4e9;
        t.minStake = 20e9;
        params.checkTerms(t); // five jurors' fees are no more than what a node has at stake
        t.juryFee += 1;
        vm.expectRevert(abi.encodeWithSelector(IParams.BadTerms.selector, "juryFee"));
        params.checkTerms(t);
    }

    function test_pauseEndsByItself() public {
        params.setPaused(true);
        assertTrue(params.paused());
        vm.expectRevert(abi.encodeWithSelector(IParams.TooSoon.selector, clock + 14 days));
        params.setPaused(true);
        uint256 s = _submit(); // who is in goes on
        _wait(7 days - 1);
        assertTrue(params.paused());
        _wait(1);
        assertFalse(params.paused());
        _openSeats(1);
        vm.expectRevert(abi.encodeWithSelector(IParams.TooSoon.selector, clock + 7 days));
        params.setPaused(true); // not at once again
        _wait(7 days);
        params.setPaused(true);
        params.setPaused(false);
        assertFalse(params.paused());
        assertEq(params.pausedUntil(), clock);
        assertEq(s, 0);
    }
}
