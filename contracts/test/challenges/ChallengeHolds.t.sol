// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Accusing} from "../helpers/Accusing.sol";
import {Outcome} from "../helpers/Outcome.sol";
import {INodeChallenges} from "../interfaces/INodeChallenges.sol";
import {INodeChallenges} from "../interfaces/INodeChallenges.sol";
import {IParams} from "../interfaces/IParams.sol";

/// @notice How long challenges can hold a stake, and of how many: cheap ones must not lock an honest node's for good.
contract ChallengeHoldsTest is Accusing {
    /// Challenges that nobody draws a jury for cost nothing: one after another, each opened while the last one holds
    /// the stake, would keep it for ever. So none is opened after the time at which it was to be free.
    function test_noChainOfChallengesBeyondTheUnbonding() public {
        uint256[] memory named = _history(node, 2);
        _leave();
        _wait(_pool(pool).unbonding - 1);
        uint256 first = _accuse(node, _list(named[0]));
        _wait(1);
        bytes memory next = _opening(node, _list(named[1]));
        _no(accuser, address(nodeChallenges), next, INodeChallenges.NothingAtStake.selector);
        assertEq(_withdrawable(node), 0);
        _lapses(first);
        assertEq(token.balanceOf(accuser), 1_000e9);
        vm.prank(operator);
        stakes.withdraw(node, STAKE);
        assertEq(token.balanceOf(operator), STAKE);
    }

    /// The honest side of it: until then every challenge holds the stake, whatever came before it.
    function test_holdsUntilTheLastOne() public {
        uint256[] memory named = _history(node, 2);
        _leave();
        _wait(_pool(pool).unbonding - 1);
        uint256 first = _accuse(node, _list(named[0]));
        uint256 second = _accuse(node, _list(named[1]));
        _lapses(first);
        assertEq(_withdrawable(node), 0);
        _lapses(second);
        assertEq(_withdrawable(node), STAKE);
    }

    /// A count of holds that reaches its end sticks there: the stake would be locked for good.
    function test_theCountOfHoldsNeverReachesItsEnd() public {
        uint256[] memory named = _history(node, 2);
        bytes32 slot = keccak256(abi.encode(node, uint256(1)));
        uint256 word = uint256(vm.load(address(stakes), slot));
        vm.store(address(stakes), slot, bytes32(word | (32_767 << 240)));
        assertEq(stakes.nodeOf(node).frozen, 32_767);
        uint256 last = _accuse(node, _list(named[0]));
        bytes memory more = _opening(node, _list(named[1]));
        _no(accuser, address(nodeChallenges), more, bytes4(keccak256("TooManyChallenges()")));
        _judged(last, Codes.UNAVAILABLE);
        _accuse(node, _list(named[1]));
    }

    /// A guilty node whose stake fines took meanwhile, and that went to an older pool with a new one, is ejected too.
    function test_ejectedThoughItStandsElsewhere() public {
        IParams.Values memory v = defaultValues();
        v.malformedPenalty = uint56(STAKE);
        _redeploy(v);
        uint256 old = pool;
        _moveTo(defaultTerms());
        uint256[] memory named = _history(node, 1);
        uint256 s = _decided(node, Codes.MALFORMED);
        uint256 challenge = _accuse(node, named);
        _juryVotes(_trial(challenge), Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        assertEq(stakes.nodeOf(node).stake, 0);
        assertFalse(_account(pool, node).slashed);
        _give(operator, address(stakes), STAKE);
        vm.prank(operator);
        stakes.deposit(node, STAKE);
        vm.prank(operator);
        pools.join(old, node, type(uint256).max, "", "");
        _ends(challenge, 0);
        _is(challenge, Outcome.Upheld);
        assertTrue(_account(pool, node).slashed);
        assertEq(stakes.nodeOf(node).stake, STAKE);
    }
}
