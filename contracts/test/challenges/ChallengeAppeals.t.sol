// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Accusing} from "../helpers/Accusing.sol";
import {Outcome} from "../helpers/Outcome.sol";
import {INodeChallenges} from "../interfaces/INodeChallenges.sol";
import {IPools} from "../interfaces/IPools.sol";
import {IStakes} from "../interfaces/IStakes.sol";

/// @notice Appeals against a challenge's first jury, and what fine evidence costs a node.
contract ChallengeAppealsTest is Accusing {
    /// A pool owner challenges its own honest node. Jurors who convict without a look are overturned and pay.
    function test_blindConvictionIsOverturnedAndPays() public {
        uint256[] memory named = _history(node, 2);
        _give(owner, address(nodeChallenges), 1_000e9);
        uint256 challenge = _accuse(owner, node, named);
        uint256 trial = _trial(challenge);
        _juryVotes(trial, Codes.REJECT_WEIGHTS, 4, Codes.ACCEPT);
        nodeChallenges.conclude(challenge);
        _is(challenge, Outcome.Open);
        uint256 before = token.balanceOf(operator) + 10_000e9;
        uint256 next = _appealTrial(operator, trial);
        assertEq(juries.caseOf(next).size, 5);
        _juryVotes(next, Codes.ACCEPT);
        nodeChallenges.conclude(challenge);

        _is(challenge, Outcome.Refuted);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(token.balanceOf(operator), before + 5e9); // its deposit, and for the hold
        uint256[] memory jurors = juries.seatsOf(trial);
        _close(next);
        _empty(trial);
        uint256 scale = 5e8 + FEE; // two files: the fee, and the penalties with it
        for (uint256 i = 0; i < 4; ++i) {
            assertEq(_loss(jurors[i]), 51e9 * scale / 5e8);
        }
        assertEq(token.balanceOf(_seatOwner(jurors[4])), scale);
        assertEq(_loss(jurors[4]), 0);
    }

    /// The second jury has the pool's second size and nobody of the first.
    function test_theSecondJuryIsFresh() public {
        _moveToTwoJuries();
        uint256 challenge = _accuse(node, _history(node, 1));
        uint256 trial = _trial(challenge);
        assertEq(juries.caseOf(trial).size, 5);
        _juryVotes(trial, Codes.ACCEPT);
        nodeChallenges.conclude(challenge);
        uint256 next = _appealTrial(accuser, trial);
        _juryVotes(next, Codes.REJECT_WEIGHTS);
        uint256[] memory first = juries.seatsOf(trial);
        uint256[] memory second = juries.seatsOf(next);
        assertEq(second.length, 7);
        for (uint256 i = 0; i < 35; ++i) {
            assertTrue(first[i / 7] != second[i % 7]);
        }
        nodeChallenges.conclude(challenge);
        _is(challenge, Outcome.Upheld);
        assertEq(stakes.nodeOf(node).stake, 0);
    }

    /// A node that computes otherwise than calibrated leaves the pool with its stake and what has vested. The pool pays
    /// the jury, and the accuser has its bond back.
    function test_fineEvidenceEndsTheMembershipWithoutASlash() public {
        uint256[] memory named = _history(node, 2);
        uint256 open = _accepted(node); // its pay has not vested
        uint256 free = _pool(pool).free;
        uint256 challenge = _accuse(node, named);
        uint256 trial = _trial(challenge);
        _juryVotes(trial, Codes.REJECT_WEIGHTS, 2, Codes.DIFFERENT);
        _ends(challenge, 0);

        _is(challenge, Outcome.Different);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(token.balanceOf(accuser), 1_000e9);
        assertEq(free - _pool(pool).free, 3 * (5e8 + FEE)); // who said fraud did not say what most said
        IStakes.Node memory left = stakes.nodeOf(node);
        assertEq(left.pool + left.frozen, 0);
        assertEq(left.releaseAt, clock + _pool(pool).unbonding);
        assertEq(_account(pool, node).limit, 0);
        assertEq(_claim(named[1]), 2 * PAY);
        _passWindow();
        bytes memory late = abi.encodeCall(pools.claim, (pool, node, open, _inner(open), new uint256[](0)));
        _no(stranger, address(pools), late, IPools.IsFrozen.selector);
        _no(
            operator,
            address(pools),
            abi.encodeCall(pools.join, (pool, node, type(uint256).max, "", "")),
            IPools.Removed.selector
        );
        _empty(trial);
        _wait(_pool(pool).unbonding);
        vm.prank(operator);
        stakes.withdraw(node, STAKE);
    }

    /// The pool pays juries once for each node: challenges that were opened side by side do not drain it.
    function test_thePoolPaysOnceForANode() public {
        uint256[] memory named = _history(node, 2);
        uint256 one = _accuse(node, _list(named[0]));
        uint256 two = _accuse(node, _list(named[1]));
        uint256 free = _pool(pool).free;
        _judged(one, Codes.DIFFERENT);
        _judged(two, Codes.DIFFERENT);
        assertEq(free - _pool(pool).free, JURY);
        assertEq(token.balanceOf(accuser), 1_000e9 - JURY);
    }

    /// A prize is no more than the bond, whatever the stake is: an accuser that is wrong as often as right gains nothing.
    function test_thePrizeIsAtMostTheBond() public {
        uint256 before = token.balanceOf(accuser);
        _judged(_accuse(node, _history(node, 1)), Codes.REJECT_WEIGHTS);
        assertEq(token.balanceOf(accuser) - before, CHALLENGE_BOND);
        assertLt(CHALLENGE_BOND, STAKE / 20);
    }

    /// Without a verdict of the second jury nobody is convicted.
    function test_aSecondJuryThatFindsNothingConvictsNobody() public {
        uint256 challenge = _accuse(node, _history(node, 1));
        _juryVotes(_trial(challenge), Codes.REJECT_WEIGHTS);
        nodeChallenges.conclude(challenge);
        uint256 next = _appealTrial(operator, _trial(challenge));
        _juryVotes(next, Codes.UNAVAILABLE);
        nodeChallenges.conclude(challenge);
        _is(challenge, Outcome.Dismissed);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(token.balanceOf(operator), 10_000e9 - JURY / 4); // it asked for the jury, and pays its attempts
        assertEq(token.balanceOf(accuser), 1_000e9 - JURY);
        _close(next);
        _empty(_trial(challenge));
    }
}
