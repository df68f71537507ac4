// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {PoolTerms} from "../../src/libraries/Types.sol";
import {Accusing} from "../helpers/Accusing.sol";
import {Outcome} from "../helpers/Outcome.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {INodeChallenges} from "../interfaces/INodeChallenges.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IPools} from "../interfaces/IPools.sol";
import {IStakes} from "../interfaces/IStakes.sol";

/// @notice How a cheat would escape a challenge, and how an accuser would earn by one.
contract ChallengeAttacksTest is Accusing {
    // The accused

    /// A cheat that leaves, and waits, takes nothing out while the challenge is open.
    function test_theStakeStays() public {
        uint256[] memory named = _history(node, 2);
        _leave();
        uint256 challenge = _accuse(node, named);
        _drawJury(_trial(challenge));
        _wait(30 days);
        bytes memory out = abi.encodeCall(stakes.withdraw, (node, 1));
        _no(operator, address(stakes), out, IStakes.StakeLocked.selector);
        assertEq(_withdrawable(node), 0);
        // nor does it go over to another pool
        uint256 second = _createPool(defaultTerms());
        _no(
            operator,
            address(pools),
            abi.encodeCall(pools.join, (second, node, type(uint256).max, "", "")),
            IStakes.StakeLocked.selector
        );
        nodeChallenges.conclude(challenge); // nobody voted: a second jury
        _juryVotes(_next(challenge), Codes.REJECT_WEIGHTS);
        nodeChallenges.conclude(challenge);
        assertEq(stakes.nodeOf(node).stake, 0);
    }

    /// A cheat that accuses itself over a file that proves nothing keeps nobody from the others.
    function test_noShieldBySelfAccusation() public {
        uint256[] memory named = _history(node, 3);
        _give(operator, address(nodeChallenges), 1_000e9);
        uint256 shield = _accuse(operator, node, _list(named[2]));
        uint256 challenge = _accuse(node, named); // beside the one that is open
        assertEq(stakes.nodeOf(node).frozen, 2);
        _judged(shield, Codes.ACCEPT);
        assertEq(stakes.nodeOf(node).frozen, 1);
        _judged(challenge, Codes.REJECT_WEIGHTS);
        assertEq(stakes.nodeOf(node).stake, 0);
    }

    /// An operator that convicts its own node, and collects, gets no more of the stake than its bond.
    function test_noProfitFromOnesOwnNode() public {
        uint256[] memory named = _history(node, 1);
        _claim(named[0]);
        _give(operator, address(nodeChallenges), CHALLENGE_BOND);
        uint256 before = token.balanceOf(operator);
        uint256 challenge = _accuse(operator, node, named);
        _judged(challenge, Codes.REJECT_SAMPLING);
        assertEq(token.balanceOf(operator) - before, CHALLENGE_BOND);
    }

    /// A refuted challenge that an operator brought against itself costs it the jury, and pays at most what it put in.
    function test_noProfitFromRefutedChallenges() public {
        uint256[] memory named = _history(node, 1);
        _give(operator, address(nodeChallenges), CHALLENGE_BOND);
        uint256 before = token.balanceOf(operator);
        _judged(_accuse(operator, node, named), Codes.ACCEPT);
        assertEq(before - token.balanceOf(operator), JURY);
    }

    /// A stake that rejected files took meanwhile pays no jury: the bond does, and the contract owes nothing.
    function test_theStakeIsGoneMeanwhile() public {
        uint256[] memory named = _history(node, 1);
        uint256 challenge = _accuse(node, named);
        uint256 s = _decided(node, Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        assertEq(stakes.nodeOf(node).frozen, 1);
        _lapses(challenge);
        assertEq(stakes.nodeOf(node).frozen, 0);

        Accusing.setUp();
        named = _history(node, 1);
        s = _decided(node, Codes.REJECT_WEIGHTS);
        challenge = _accuse(node, named);
        _juryVotes(_trial(challenge), Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        assertEq(stakes.nodeOf(node).stake, 0);
        _ends(challenge, 0);
        _is(challenge, Outcome.Upheld);
        assertEq(token.balanceOf(accuser), 1_000e9 - JURY);
        _empty(_trial(challenge));
    }

    /// What a slashed node stakes anew, and binds to the pool that it was in before, is not taken for its old one.
    function test_aNewStakeStandsForItsOwnPool() public {
        uint256 old = pool;
        _moveTo(defaultTerms());
        uint256[] memory named = _history(node, 1);
        uint256 s = _decided(node, Codes.REJECT_WEIGHTS);
        uint256 challenge = _accuse(node, named);
        _juryVotes(_trial(challenge), Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        _give(operator, address(stakes), STAKE);
        vm.prank(operator);
        stakes.deposit(node, STAKE);
        vm.prank(operator);
        pools.join(old, node, type(uint256).max, "", ""); // its exit from there is the last that was written
        _ends(challenge, 0);
        _is(challenge, Outcome.Upheld);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(stakes.nodeOf(node).pool, old);
        assertEq(stakes.nodeOf(node).frozen, 0);
        assertTrue(_account(old, node).limit != 0);
        assertEq(token.balanceOf(accuser), 1_000e9 - JURY);
    }

    /// Files under way keep what they may cost: the slash takes the rest, and their committees are paid.
    function test_openFilesKeepTheirCosts() public {
        uint256[] memory named = _history(node, 1);
        uint256 challenge = _accuse(node, named);
        _juryVotes(_trial(challenge), Codes.REJECT_WEIGHTS);
        uint256 s = _submit();
        _ends(challenge, 0);
        assertEq(stakes.nodeOf(node).stake, FEES);
        _voteAll(s >> 4, Codes.MALFORMED);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        assertEq(stakes.nodeOf(node).stake, 0);
        assertEq(stakes.nodeOf(node).frozen, 0);
    }

    /// An ejected node hands in nothing more, joins no more, and is not accused again.
    function test_ejectedForGood() public {
        uint256[] memory named = _history(node, 2);
        _judged(_accuse(node, _list(named[0])), Codes.REJECT_WEIGHTS);
        _give(operator, address(stakes), STAKE);
        vm.prank(operator);
        stakes.deposit(node, STAKE);
        _no(
            operator,
            address(pools),
            abi.encodeCall(pools.join, (pool, node, type(uint256).max, "", "")),
            IPools.Removed.selector
        );
        bytes memory refresh = abi.encodeCall(pools.refresh, (pool, node));
        _no(operator, address(pools), refresh, IPools.NotMember.selector);
        bytes memory again = _opening(node, _list(named[1]));
        _no(accuser, address(nodeChallenges), again, INodeChallenges.AlreadyEjected.selector);
    }

    // The accuser

    /// A node that was acquitted is not tried again, by any files, until one challenge window is over. Self-accusation is
    /// no shield: what was opened before goes on, and nobody, so not its operator either, accuses it meanwhile.
    function test_anAcquittalProtectsForAWindow() public {
        uint256[] memory named = _history(node, 2);
        uint256 other = _accuse(node, _list(named[1]));
        _judged(_accuse(node, _list(named[0])), Codes.ACCEPT);
        uint256 until = clock + defaultTerms().challengeWindow;
        assertEq(nodeChallenges.acquittedUntil(pool, node), until);
        _no(
            accuser,
            address(nodeChallenges),
            _opening(node, named),
            abi.encodeWithSelector(INodeChallenges.Acquitted.selector, until)
        );
        _wait(defaultTerms().challengeWindow);
        _accuse(node, named);
        _judged(other, Codes.REJECT_WEIGHTS);
        assertEq(stakes.nodeOf(node).stake, 0);
    }

    /// Two accusers: who convicts second gets a share of what is left, which may be nothing, and pays its jury.
    function test_twoAccusers() public {
        uint256[] memory named = _history(node, 2);
        _give(stranger, address(nodeChallenges), 1_000e9);
        uint256 one = _accuse(accuser, node, named);
        uint256 two = _accuse(stranger, node, _list(named[0]));
        _juryVotes(_trial(one), Codes.REJECT_WEIGHTS);
        _juryVotes(_trial(two), Codes.REJECT_WEIGHTS);
        _ends(one, 0);
        _ends(two, 0);
        assertEq(token.balanceOf(accuser), 1_000e9 + _bondFor(2));
        assertEq(token.balanceOf(stranger), 1_000e9 - JURY);
        assertEq(stakes.nodeOf(node).frozen, 0);
        assertEq(token.balanceOf(address(nodeChallenges)), 0);
    }

    /// A verdict is executed once.
    function test_noSecondConclusion() public {
        uint256 challenge = _accuse(node, _history(node, 1));
        _judged(challenge, Codes.ACCEPT);
        uint256 before = token.balanceOf(operator);
        bytes memory again = abi.encodeCall(nodeChallenges.conclude, (challenge));
        _no(accuser, address(nodeChallenges), again, INodeChallenges.AlreadyConcluded.selector);
        assertEq(token.balanceOf(operator), before);
    }

    /// The jury of a file's dispute decides no challenge, and a challenge's decides no dispute.
    function test_everyBenchItsOwnJuries() public {
        uint256[] memory named = _history(node, 1);
        uint256 s = _accepted(node);
        uint256 dispute = _dispute(stranger, s);
        uint256 challenge = _accuse(node, named);
        uint256 trial = _trial(challenge);
        bytes4 no = bytes4(keccak256("NotPermitted()"));
        _no(address(nodeChallenges), address(juries), abi.encodeCall(juries.judge, (dispute, 3)), no);
        _no(address(nodeChallenges), address(juries), abi.encodeCall(juries.proceed, (dispute)), no);
        _no(address(appeals), address(juries), abi.encodeCall(juries.judge, (trial, 3)), no);
        _no(accuser, address(juries), abi.encodeCall(juries.judge, (trial, 3)), no);
        _juryVotes(dispute, Codes.REJECT_WEIGHTS);
        bytes memory early = abi.encodeCall(nodeChallenges.conclude, (challenge));
        _no(accuser, address(nodeChallenges), early, IJuries.Undecided.selector);
        _conclude(s);
        assertEq(stakes.nodeOf(node).stake, 0);
        _judged(challenge, Codes.ACCEPT);
        assertEq(stakes.nodeOf(node).frozen, 0);
    }

    /// A false challenge does not keep a node from working, nor from its pay.
    function test_theAccusedWorksOn() public {
        uint256[] memory named = _history(node, 2);
        uint256 challenge = _accuse(node, named);
        uint256 s = _accepted(node);
        assertEq(_claim(named[1]), 2 * PAY);
        _passWindow();
        assertEq(_claim(s), PAY);
        _is(challenge, Outcome.Open);
    }

    /// A pool that is closed, and whose owner took what was left, changes nothing.
    function test_inAClosedPool() public {
        PoolTerms memory terms = defaultTerms();
        uint256[] memory named = _history(node, 1);
        uint256 challenge = _accuse(node, named);
        vm.prank(owner);
        pools.closePool(pool);
        _drawJury(_trial(challenge));
        _wait(terms.juryCommitWindow);
        nodeChallenges.conclude(challenge);
        _juryVotes(_next(challenge), Codes.REJECT_WEIGHTS);
        nodeChallenges.conclude(challenge);
        assertEq(stakes.nodeOf(node).stake, 0);
    }
}
