// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {Network} from "./helpers/Network.sol";
import {IStakes} from "./interfaces/IStakes.sol";

/// @notice What slashes take of stakes is nobody's, and leaves in bulk.
contract BurningTest is Network {
    /// What a slash takes and nobody gets waits in Stakes, out of everybody's reach, until anybody has it burnt.
    function test_whatSlashesTakeIsBurntInBulk() public {
        vm.expectRevert(IStakes.NothingToBurn.selector);
        stakes.burn();
        address second = _register(stranger, "second", STAKE);
        vm.prank(stranger);
        pools.join(pool, second, type(uint256).max, "", "");
        _step();
        uint256 malformed = _submitFrom(second, 1_000);
        _voteAll(0, Codes.MALFORMED);
        _blocks(4);
        uint256 rejected = _submit();
        _voteAll(rejected / 16, Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, malformed, _ref(malformed), _none());
        uint256 waiting = 1e9 - 1e9 / 20;
        assertEq(stakes.unburnt(), waiting);
        pools.finalize(pool, rejected, _ref(rejected), _none());
        waiting += STAKE - FEES - (STAKE - FEES) / 20;
        assertEq(stakes.unburnt(), waiting);
        assertEq(token.balanceOf(SINK), 0);
        assertEq(token.balanceOf(address(stakes)), stakes.nodeOf(second).stake + waiting);

        vm.prank(node);
        stakes.burn();
        assertEq(token.balanceOf(SINK), waiting - 1);
        assertEq(stakes.unburnt(), 1);
        vm.expectRevert(IStakes.NothingToBurn.selector);
        stakes.burn();
        vm.startPrank(stranger);
        pools.leavePool(pool, second, type(uint256).max, "");
        _wait(30 days);
        stakes.withdraw(second, stakes.nodeOf(second).stake); // the other's stake was never touched
        vm.stopPrank();
        assertEq(token.balanceOf(stranger), STAKE - FEES - 1e9);
        assertEq(token.balanceOf(address(stakes)), 1);
    }
}
