// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData} from "../../src/libraries/Types.sol";
import {Planting} from "../helpers/Planting.sol";
import {IAppeals} from "../interfaces/IAppeals.sol";

/// @notice A dispute takes no owner's time to open a canary, also when its juries say nothing.
contract CanaryTimeTest is Planting {
    uint256 internal constant PAY = 1_000 * 1e6;
    uint256 internal constant CANARY_SLASH = 200e9;

    /// @dev A planted file that all of its committee accepted, and a dispute of it of which no jury found a majority.
    function _silentDispute() internal returns (uint256 s, uint256 until) {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        s = _submit();
        _voteAll(s / 16, Codes.ACCEPT);
        until = _submission(s).finalAt;
        _juryVotes(_dispute(stranger, s), 0);
        _wait(60);
        assertLt(clock, until);
        FileData memory f = files[pool][s];
        vm.expectRevert(abi.encodeWithSelector(IAppeals.NotYet.selector, until));
        appeals.conclude(pool, s, f);
    }

    /// Lazy seats, or a friend of theirs, cannot have the file out of the owner's reach before its window is over.
    function test_disputeWithoutAVerdictLeavesTheOwnerItsTime() public {
        (uint256 s,) = _silentDispute();
        _openCanary(s);
        assertEq(token.balanceOf(stranger), 10_000e9); // its deposit
        _juryVotes(canaries.canaryOf(pool, s).trial, Codes.REJECT_WEIGHTS);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.CANARY);
        uint256[] memory drawn = _round(pool, s / 16, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(seats.seatOf(drawn[i]).bond, BOND - CANARY_SLASH);
        }
        assertEq(stakes.nodeOf(node).stake, STAKE);
    }

    /// What nobody opens is as if nobody had disputed it.
    function test_disputeWithoutAVerdictEndsAfterTheWindow() public {
        (uint256 s, uint256 until) = _silentDispute();
        _wait(until - clock);
        _conclude(s);
        _juryVotes(_second(s), 0);
        _wait(60);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(token.balanceOf(stranger), 10_000e9);
        assertEq(_claim(s), PAY);
        assertEq(token.balanceOf(operator), PAY);
    }
}
