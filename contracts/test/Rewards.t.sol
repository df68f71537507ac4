// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {Network} from "./helpers/Network.sol";

/// @notice What who wins a dispute earns: a fifth of the penalties, of what the jury leaves, and at most its own stake.
contract RewardsTest is Network {
    uint256 internal constant JURY = 5 * 5e8;
    uint56 internal overturnPenalty = 2e9;

    function _setting() internal view override returns (Setting memory c) {
        c = super._setting();
        c.values.overturnPenalty = overturnPenalty;
    }

    /// @dev A committee of three rejects an honest file and is overturned, where each member pays `penalty`; the grains
    /// that the operator has more than before, and that were burnt.
    function _overturned(uint56 penalty) private returns (uint256 reward, uint256 burnt) {
        overturnPenalty = penalty;
        Network.setUp();
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256 before = token.balanceOf(operator) + 10_000e9; // _dispute gives it that much
        _juryVotes(_dispute(operator, s), Codes.ACCEPT);
        _conclude(s);
        assertEq(token.balanceOf(address(appeals)), 0);
        return (token.balanceOf(operator) - before, token.balanceOf(SINK));
    }

    function test_winnerEarnsAFifthOfThePenalties() public {
        (uint256 reward, uint256 burnt) = _overturned(2e9);
        assertEq(reward, 6e9 / 5);
        assertEq(burnt, 6e9 - JURY - 6e9 / 5);
    }

    function test_winnerEarnsNoMoreThanTheJuryLeaves() public {
        (uint256 reward, uint256 burnt) = _overturned(1e9);
        assertEq(reward, 3e9 - JURY); // less than a fifth
        assertEq(burnt, 0);
    }

    function test_winnerEarnsNoMoreThanItStaked() public {
        (uint256 reward, uint256 burnt) = _overturned(50e9);
        assertEq(reward, appeals.depositOf(pool, 0)); // less than a fifth
        assertEq(burnt, 150e9 - JURY - reward);
    }
}
