// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {FileRef} from "../src/libraries/Types.sol";
import {Network} from "./helpers/Network.sol";
import {Phase} from "./helpers/Phase.sol";
import {IPools} from "./interfaces/IPools.sol";

/// @notice The main story: submission, votes, outcome, pay.
contract FlowTest is Network {
    function test_acceptedWorkIsPaid() public {
        uint256 sequence = _submit();
        uint256 free = _pool(pool).free;
        assertEq(free, BUDGET - 1_000 * 1e6 - 2 * FEES);
        _voteAll(0, Codes.ACCEPT);
        assertEq(_pool(pool).free, free + FEES); // no second committee will judge it

        assertEq(_code(sequence), Codes.ACCEPT);
        vm.expectRevert(abi.encodeWithSelector(IPools.NotYet.selector, clock + 3600));
        this.claimOut(sequence);
        _passWindow();
        assertEq(_claim(sequence), 1_000 * 1e6);
        assertEq(token.balanceOf(operator), 1_000 * 1e6);
        _closeAll(0, 0);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(token.balanceOf(_seatOwner(_round(pool, 0, 0).seats[i])), FEE);
        }
        assertEq(token.balanceOf(address(pools)), free + FEES);
    }

    function claimOut(uint256 sequence) external {
        _claim(sequence);
    }

    function test_rejectedWorkIsSlashed() public {
        uint256 sequence = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        assertEq(_code(sequence), Codes.REJECT_WEIGHTS);
        assertEq(_account(pool, node).frozen, 1);
        FileRef memory file = _ref(sequence);
        vm.expectRevert(abi.encodeWithSelector(IPools.NotYet.selector, clock + 3600));
        pools.finalize(pool, sequence, file, _none());
        _passWindow();
        pools.finalize(pool, sequence, file, _none());
        assertEq(stakes.nodeOf(node).stake, 0);
        assertEq(stakes.nodeOf(node).pool, 0);
        assertTrue(_account(pool, node).slashed);
        uint256 share = (STAKE - FEES) / 20; // a twentieth for whoever collects it
        assertEq(token.balanceOf(address(this)), share);
        assertEq(_burnt(), STAKE - FEES - share);
        assertEq(_pool(pool).free, BUDGET);
        _closeAll(0, 0);
        assertEq(token.balanceOf(address(pools)), BUDGET);
    }

    function test_disputeWonByWrongedWorker() public {
        uint256 sequence = _submit();
        _voteAll(0, Codes.REJECT_SAMPLING);
        uint256 trial = _dispute(operator, sequence);
        uint256 before = token.balanceOf(operator);
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(sequence);
        assertEq(_code(sequence), Codes.ACCEPT);
        // its deposit, and as much again: a fifth of three overturned seats' penalties is more than that
        assertEq(token.balanceOf(operator) - before, 2 * juries.depositOf(pool, 1));
        assertEq(_account(pool, node).frozen, 0);
        assertEq(_account(pool, node).barrier, 0);
        _passWindow();
        assertEq(_claim(sequence), 1_000 * 1e6);
        for (uint256 i = 0; i < 5; ++i) {
            juries.closeJuror(trial, i);
        }
        _closeAll(0, 0);
        assertEq(token.balanceOf(address(juries)), 0);
        assertEq(token.balanceOf(address(appeals)), 0);
        assertEq(token.balanceOf(address(pools)), _pool(pool).free);
    }

    function test_redrawThenVoid() public {
        uint256 sequence = _submit();
        _vote(0, 0, _three(_all(1), _all(3), 0));
        assertEq(uint256(_submission(sequence).phase), uint256(Phase.Pending));
        _vote(0, 1, _three(_all(1), 0, 0));
        assertEq(_code(sequence), Codes.VOID);
        _passWindow();
        assertEq(_claim(sequence), 1_000 * 1e6);
        _closeAll(0, 0);
        _closeAll(0, 1);
        assertEq(_pool(pool).free, BUDGET - 1_000 * 1e6 - 2 * FEES);
        assertEq(token.balanceOf(address(pools)), _pool(pool).free);
    }
}
