// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "../../src/interfaces/IParams.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {PoolTerms} from "../../src/libraries/Types.sol";
import {Network} from "../helpers/Network.sol";

/// @notice What governance can change, and from when on.
contract ChangeRulesTest is Network {
    function _raised() internal pure returns (IParams.Values memory v) {
        v = defaultValues();
        (v.minorityPenalty, v.withheldPenalty, v.malformedPenalty) = (40e9, 45e9, 500e9);
    }

    function test_changesDoNotReachWhatExists() public {
        uint256 minority = _submit();
        uint256 delay = params.unbonding();
        assertGt(delay, defaultTerms().challengeWindow);
        params.set(_raised());
        vm.expectRevert(abi.encodeWithSelector(IParams.TooSoon.selector, clock + delay));
        params.set(defaultValues());
        assertEq(params.values().minorityPenalty, 1e9);
        _vote(0, 0, _three(_all(Codes.MALFORMED), _all(1), _all(1)));
        _blocks(4);
        uint256 malformed = _submit();
        _voteAll(1, Codes.MALFORMED);
        _wait(delay); // everything is collected late, after the change took effect
        assertEq(params.values().minorityPenalty, 40e9);
        _closeAll(0, 0);
        pools.finalize(pool, malformed, _ref(malformed));
        assertEq(BOND - seats.seatOf(court.roundOf(pool, 0, 0).seats[0]).bond, 1e9);
        assertEq(STAKE - stakes.stakeOf(node), 1e9 + FEES);
        assertEq(_claim(minority), 1e9);
    }

    function test_changesHoldForWhatBeginsAfterwards() public {
        params.set(_raised());
        _wait(params.unbonding());
        _nextEpoch();
        _submit();
        _vote(0, 0, _three(_all(Codes.MALFORMED), _all(1), 0));
        uint256[] memory drawn = court.roundOf(pool, 0, 0).seats;
        assertEq(BOND - seats.seatOf(drawn[2]).bond, 45e9);
        params.set(defaultValues()); // the next change may be announced now
    }

    function test_nobodyIsPricedOutOfADispute() public {
        IParams.Values memory v = defaultValues();
        v.delayCompensation = 10e9 + 1;
        vm.expectRevert(abi.encodeWithSelector(IParams.OutOfBounds.selector, "delayCompensation"));
        params.set(v);
        v.delayCompensation = 10e9;
        params.set(v);
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
