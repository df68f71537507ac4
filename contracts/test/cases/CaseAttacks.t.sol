// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {INodeCases} from "../../src/interfaces/INodeCases.sol";
import {IOneJury} from "../../src/interfaces/IOneJury.sol";
import {IParams} from "../../src/interfaces/IParams.sol";
import {IPools} from "../../src/interfaces/IPools.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {PoolTerms} from "../../src/libraries/Types.sol";
import {Accusing} from "../helpers/Accusing.sol";

/// @notice How a cheat would escape a case, and how an accuser would earn by one.
contract CaseAttacksTest is Accusing {
    // ---- The accused

    /// A cheat that leaves, and waits, takes nothing out while the case is open.
    function test_theStakeStays() public {
        uint256[] memory named = _history(node, 2);
        _leave();
        uint256 nodeCase = _accuse(node, named);
        _drawJury(_trial(nodeCase));
        _wait(30 days);
        bytes memory out = abi.encodeCall(stakes.withdraw, (node, 1));
        _no(operator, address(stakes), out, IStakes.StakeLocked.selector);
        assertEq(stakes.withdrawable(node), 0);
        // nor does it go over to another pool
        uint256 second = _createPool(defaultTerms());
        _no(operator, address(pools), abi.encodeCall(pools.join, (second, node)), IStakes.StakeLocked.selector);
        nodeCases.conclude(nodeCase); // nobody voted: a fresh jury
        _judged(nodeCase, Codes.REJECT_WEIGHTS);
        assertEq(stakes.stakeOf(node), 0);
    }

    /// A cheat that accuses itself over a file that proves nothing keeps nobody from the others.
    function test_noShieldBySelfAccusation() public {
        uint256[] memory named = _history(node, 3);
        _give(operator, address(nodeCases), 1_000e9);
        uint256 shield = _accuse(operator, node, _list(named[2]));
        uint256 nodeCase = _accuse(node, named); // beside the one that is open
        assertEq(stakes.nodeOf(node).frozen, 2);
        _judged(shield, Codes.ACCEPT);
        assertEq(stakes.nodeOf(node).frozen, 1);
        _judged(nodeCase, Codes.REJECT_WEIGHTS);
        assertEq(stakes.stakeOf(node), 0);
    }

    /// An operator that convicts its own node, and collects, loses nineteen twentieths all the same.
    function test_noProfitFromOnesOwnNode() public {
        uint256[] memory named = _history(node, 1);
        _claim(named[0]);
        _give(operator, address(nodeCases), CASE_BOND);
        uint256 before = token.balanceOf(operator);
        uint256 nodeCase = _accuse(operator, node, named);
        _judged(nodeCase, Codes.REJECT_SAMPLING);
        assertEq(token.balanceOf(operator) - before, (STAKE - JURY) / 20);
    }

    /// A refuted case that an operator brought against itself costs it the jury, and pays it no more than it put in.
    function test_noProfitFromRefutedCases() public {
        uint256[] memory named = _history(node, 1);
        _give(operator, address(nodeCases), CASE_BOND);
        uint256 before = token.balanceOf(operator);
        _judged(_accuse(operator, node, named), Codes.ACCEPT);
        assertEq(before - token.balanceOf(operator), JURY);
    }

    /// A stake that rejected files took meanwhile pays no jury: the bond does, and the contract owes nothing.
    function test_theStakeIsGoneMeanwhile() public {
        uint256[] memory named = _history(node, 1);
        uint256 nodeCase = _accuse(node, named);
        uint256 s = _decided(node, Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, s, _ref(s));
        assertEq(stakes.nodeOf(node).frozen, 1);
        _blocks(5 * EPOCH);
        nodeCases.conclude(nodeCase); // nobody drew the jury in time: it lapses
        assertEq(stakes.nodeOf(node).frozen, 0);

        Accusing.setUp();
        named = _history(node, 1);
        s = _decided(node, Codes.REJECT_WEIGHTS);
        nodeCase = _accuse(node, named);
        _juryVotes(_trial(nodeCase), Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, s, _ref(s));
        assertEq(stakes.stakeOf(node), 0);
        nodeCases.conclude(nodeCase);
        _is(nodeCase, IOneJury.Outcome.Upheld);
        assertEq(token.balanceOf(accuser), 1_000e9 - JURY);
        _empty(_trial(nodeCase));
    }

    /// What a slashed node stakes anew, and binds to the pool that it was in before, is not taken for its old one.
    function test_aNewStakeStandsForItsOwnPool() public {
        uint256 old = pool;
        _moveTo(defaultTerms());
        uint256[] memory named = _history(node, 1);
        uint256 s = _decided(node, Codes.REJECT_WEIGHTS);
        uint256 nodeCase = _accuse(node, named);
        _juryVotes(_trial(nodeCase), Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, s, _ref(s));
        _give(operator, address(stakes), STAKE);
        vm.prank(operator);
        stakes.deposit(node, STAKE);
        vm.prank(operator);
        pools.join(old, node); // its exit from there is the last that was written
        nodeCases.conclude(nodeCase);
        _is(nodeCase, IOneJury.Outcome.Upheld);
        assertEq(stakes.stakeOf(node), STAKE);
        assertEq(stakes.nodeOf(node).pool, old);
        assertEq(stakes.nodeOf(node).frozen, 0);
        assertTrue(pools.accountOf(old, node).limit != 0);
        assertEq(token.balanceOf(accuser), 1_000e9 - JURY);
    }

    /// Files under way keep what they may cost: the slash takes the rest, and their committees are paid.
    function test_openFilesKeepTheirCosts() public {
        uint256[] memory named = _history(node, 1);
        uint256 nodeCase = _accuse(node, named);
        _juryVotes(_trial(nodeCase), Codes.REJECT_WEIGHTS);
        uint256 s = _submit();
        nodeCases.conclude(nodeCase);
        assertEq(stakes.stakeOf(node), FEES);
        _voteAll(s >> 4, Codes.MALFORMED);
        _passWindow();
        pools.finalize(pool, s, _ref(s));
        assertEq(stakes.stakeOf(node), 0);
        assertEq(stakes.nodeOf(node).frozen, 0);
    }

    /// An ejected node hands in nothing more, joins no more, and is not accused again.
    function test_ejectedForGood() public {
        uint256[] memory named = _history(node, 2);
        _judged(_accuse(node, _list(named[0])), Codes.REJECT_WEIGHTS);
        _give(operator, address(stakes), STAKE);
        vm.prank(operator);
        stakes.deposit(node, STAKE);
        _no(operator, address(pools), abi.encodeCall(pools.join, (pool, node)), IPools.Removed.selector);
        bytes memory refresh = abi.encodeCall(pools.refresh, (pool, node));
        _no(operator, address(pools), refresh, IPools.NotMember.selector);
        bytes memory again = _opening(node, _list(named[1]));
        _no(accuser, address(nodeCases), again, INodeCases.AlreadyEjected.selector);
    }

    // ---- The accuser

    /// The same files cannot be tried until a jury is found that says so.
    function test_noSecondTry() public {
        uint256[] memory named = _history(node, 2);
        uint256 nodeCase = _accuse(node, named);
        bytes memory reason = abi.encodeWithSelector(INodeCases.AlreadyTried.selector, nodeCase);
        _no(accuser, address(nodeCases), _opening(node, named), reason);
        _judged(nodeCase, Codes.ACCEPT);
        _no(accuser, address(nodeCases), _opening(node, named), reason);
        assertEq(nodeCases.triedIn(pool, named), nodeCase);
        _give(stranger, address(nodeCases), 1_000e9);
        _no(stranger, address(nodeCases), _opening(node, named), reason);
    }

    /// Two accusers: who convicts second gets a share of what is left, which may be nothing, and pays its jury.
    function test_twoAccusers() public {
        uint256[] memory named = _history(node, 2);
        _give(stranger, address(nodeCases), 1_000e9);
        uint256 one = _accuse(accuser, node, named);
        uint256 two = _accuse(stranger, node, _list(named[0]));
        _juryVotes(_trial(one), Codes.REJECT_WEIGHTS);
        _juryVotes(_trial(two), Codes.REJECT_WEIGHTS);
        nodeCases.conclude(one);
        nodeCases.conclude(two);
        assertEq(token.balanceOf(accuser), 1_000e9 + (STAKE - _juryFor(2)) / 20);
        assertEq(token.balanceOf(stranger), 1_000e9 - JURY);
        assertEq(stakes.nodeOf(node).frozen, 0);
        assertEq(token.balanceOf(address(nodeCases)), 0);
    }

    /// A verdict is executed once.
    function test_noSecondConclusion() public {
        uint256 nodeCase = _accuse(node, _history(node, 1));
        _judged(nodeCase, Codes.ACCEPT);
        uint256 before = token.balanceOf(operator);
        bytes memory again = abi.encodeCall(nodeCases.conclude, (nodeCase));
        _no(accuser, address(nodeCases), again, IOneJury.AlreadyConcluded.selector);
        assertEq(token.balanceOf(operator), before);
    }

    /// Penalties that governance announced while the case was open are those of later cases.
    function test_penaltiesOfItsTime() public {
        uint256[] memory named = _history(node, 2);
        IParams.Values memory v = defaultValues();
        (v.slashBps, v.delayCompensation) = (5_000, 1e9);
        params.set(v);
        _wait(params.unbonding() - 10);
        uint256 nodeCase = _accuse(node, _list(named[0]));
        uint256 refuted = _accuse(node, _list(named[1]));
        _wait(20);
        assertEq(params.values().slashBps, 5_000);
        assertEq(nodeCases.bondOf(pool, 1), JURY + 1e9);
        uint256 before = token.balanceOf(operator);
        _judged(refuted, Codes.ACCEPT);
        assertEq(token.balanceOf(operator) - before, 5e9);
        _judged(nodeCase, Codes.REJECT_WEIGHTS);
        assertEq(stakes.stakeOf(node), 0);
    }

    /// The jury of a file's dispute decides no case, and a case's decides no dispute.
    function test_everyBenchItsOwnJuries() public {
        uint256[] memory named = _history(node, 1);
        uint256 s = _accepted(node);
        uint256 dispute = _dispute(stranger, s);
        uint256 nodeCase = _accuse(node, named);
        uint256 trial = _trial(nodeCase);
        bytes4 no = bytes4(keccak256("NotBench()"));
        _no(address(nodeCases), address(juries), abi.encodeCall(juries.conclude, (dispute, 3, 0)), no);
        _no(address(nodeCases), address(juries), abi.encodeCall(juries.replace, (dispute)), no);
        _no(address(appeals), address(juries), abi.encodeCall(juries.conclude, (trial, 3, 0)), no);
        _no(accuser, address(juries), abi.encodeCall(juries.conclude, (trial, 3, 0)), no);
        _juryVotes(dispute, Codes.REJECT_WEIGHTS);
        bytes memory early = abi.encodeCall(nodeCases.conclude, (nodeCase));
        _no(accuser, address(nodeCases), early, IOneJury.Undecided.selector);
        _conclude(s);
        assertEq(stakes.stakeOf(node), 0);
        _judged(nodeCase, Codes.ACCEPT);
        assertEq(stakes.nodeOf(node).frozen, 0);
    }

    /// A false case does not keep a node from working, nor from its pay.
    function test_theAccusedWorksOn() public {
        uint256[] memory named = _history(node, 2);
        uint256 nodeCase = _accuse(node, named);
        uint256 s = _accepted(node);
        assertEq(_claim(named[1]), 2 * PAY);
        _passWindow();
        assertEq(_claim(s), PAY);
        _is(nodeCase, IOneJury.Outcome.Open);
    }

    /// A pool that is closed, and whose owner took what was left, changes nothing.
    function test_inAClosedPool() public {
        PoolTerms memory terms = defaultTerms();
        uint256[] memory named = _history(node, 1);
        uint256 nodeCase = _accuse(node, named);
        vm.prank(owner);
        pools.closePool(pool);
        _drawJury(_trial(nodeCase));
        _wait(terms.juryCommitWindow);
        nodeCases.conclude(nodeCase);
        _judged(nodeCase, Codes.REJECT_WEIGHTS);
        assertEq(stakes.stakeOf(node), 0);
    }
}
