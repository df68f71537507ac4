// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, PoolTerms} from "../../src/libraries/Types.sol";
import {Losses} from "../helpers/Losses.sol";
import {Phase} from "../helpers/Phase.sol";
import {IPools} from "../interfaces/IPools.sol";
import {IStakes} from "../interfaces/IStakes.sol";

/// @notice Stakes and escrow go to whom they are due, whoever cheats.
contract MoneyAttacksTest is Losses {
    function test_workerUnbondsAfterCheating() public {
        uint256 s = _submit();
        vm.prank(operator);
        pools.leavePool(pool, node, type(uint256).max, "");
        uint256 releaseAt = clock + _pool(pool).unbonding;
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeLocked.selector, releaseAt, 0));
        vm.prank(operator);
        stakes.withdraw(node, 1);
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _wait(90 days); // even if nobody finalises for long, the freeze holds the stake
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeLocked.selector, releaseAt, 1));
        vm.prank(operator);
        stakes.withdraw(node, 1);
        pools.finalize(pool, s, _ref(s), _none());
        assertEq(stakes.nodeOf(node).stake, 0);
    }

    /// Owner, worker and validators in one hand: everything they pay one another comes out of the owner's own budget.
    function test_selfDealing() public {
        uint256 others = token.balanceOf(address(stakes)) + token.balanceOf(address(seats));
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        uint256 got = _claim(s);
        _closeAll(0, 0);
        assertEq(token.balanceOf(address(pools)), BUDGET - got - FEES);
        assertEq(token.balanceOf(address(stakes)) + token.balanceOf(address(seats)), others);
    }

    function test_escrowExhaustion() public {
        PoolTerms memory t = defaultTerms();
        _give(owner, address(pools), 1e9 + 2 * FEES);
        vm.prank(owner);
        uint256 poor = pools.createPool(t, 1e9 + 2 * FEES);
        _serve(poor);
        vm.prank(operator);
        pools.leavePool(pool, node, type(uint256).max, "");
        _wait(20_000);
        vm.prank(operator);
        pools.join(poor, node, type(uint256).max, "", "");
        pool = poor;
        _step();
        uint256 s = _submit(); // takes all of it
        _refused(_next(node, 1, 0), abi.encodeWithSelector(IPools.EscrowExhausted.selector, 1e6 + 2 * FEES, 0));
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(s), PAY); // what was accepted for checking is paid
    }

    /// Fees of rejected and malformed dust come from the submitter's stake.
    function test_dustDoesNotDrainTheEscrow() public {
        uint256 first = _submitLaneFrom(node, 1, 16);
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        for (uint256 i = 0; i < 16; ++i) {
            pools.finalize(pool, first + i, _ref(first + i), _none());
        }
        _closeAll(0, 0);
        assertEq(_pool(pool).free, BUDGET);
        assertEq(token.balanceOf(address(pools)), BUDGET);
        assertEq(STAKE - stakes.nodeOf(node).stake, 16 * (FEES + 1e9));
    }

    function test_leverageLimit() public {
        // limit = 4 * 1000e9 / 1e6 = 4,000,000 units; a file has at most 100,000
        for (uint256 i = 0; i < 40; ++i) {
            _submitFrom(node, 100_000);
        }
        _refused(_next(node, 1, 0), abi.encodeWithSelector(IPools.OverLimit.selector, 4_000_001, 4_000_000));
    }

    function test_nodeCheatsItsSiblingsDoNotSuffer() public {
        address good = _register(operator, "sibling", STAKE);
        vm.prank(operator);
        pools.join(pool, good, type(uint256).max, "", "");
        _step();
        FileData[] memory lane = new FileData[](2);
        (lane[0], lane[1]) = (_next(node, 1_000, 0), _next(good, 1_000, 0));
        uint256 bad = _relay(lane);
        uint256 fine = bad + 1;
        uint256 codes = Codes.set(_all(1), bad & 15, Codes.REJECT_DUPLICATE);
        _vote(bad / 16, 0, _three(codes, codes, codes));
        _passWindow();
        pools.finalize(pool, bad, _ref(bad), _none());
        assertEq(stakes.nodeOf(node).stake, 0);
        assertEq(stakes.nodeOf(good).stake, STAKE);
        assertEq(_claim(fine), PAY);
        vm.prank(node);
        vm.expectRevert(IPools.Removed.selector);
        pools.join(pool, node, type(uint256).max, "", "");
    }

    function test_slashForfeitsOnlyUnvestedPay() public {
        uint256 a = _submit();
        _voteAll(0, Codes.ACCEPT);
        _passWindow(); // a has vested
        _blocks(4);
        uint256 b = _submit();
        _voteAll(1, Codes.ACCEPT);
        _blocks(4);
        uint256 c = _submit();
        _voteAll(2, Codes.REJECT_WEIGHTS);
        uint256 since = clock;
        _passWindow();
        pools.finalize(pool, c, _ref(c), _none());
        bytes32 inner = _inner(b);
        vm.expectRevert(abi.encodeWithSelector(IPools.IsFrozen.selector, since));
        pools.claim(pool, node, b, inner, new uint256[](0));
        assertEq(_claim(a), PAY);
        uint256 burnt = _burnt();
        pools.forfeit(pool, b, files[pool][b]);
        assertEq(_burnt() - burnt, PAY);
        assertEq(_pool(pool).free, BUDGET - 2 * PAY - 2 * FEES); // the owner has none of it back
        Account memory acc = _account(pool, node);
        assertEq(acc.earned, acc.spent);
        FileData memory data = files[pool][a];
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, a, Phase.Settled));
        pools.forfeit(pool, a, data); // vested pay is untouchable
        data = files[pool][b];
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, b, Phase.Final));
        pools.forfeit(pool, b, data); // and nothing is forfeited twice
    }
}
