// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, FileRef} from "../../src/libraries/Types.sol";
import {Losses} from "../helpers/Losses.sol";
import {Phase} from "../helpers/Phase.sol";
import {IPools} from "../interfaces/IPools.sol";

/// @notice A file that the service took and that nobody gets later: who pays, and whom nobody can blame.
contract UnavailableTest is Losses {
    /// A worker (with the service) hides its files from the committee and shows them to the jury: honest seats lose
    /// nothing, who disputes gains nothing, the pay was due anyway.
    function test_hiddenFromTheCommitteeShownToTheJury() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE);
        assertEq(_account(pool, node).earned, 1_000);
        uint256 trial = _dispute(stranger, s);
        (uint256 units,) = _claimable(s);
        assertEq(_account(pool, node).spent, 1_000); // held
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(token.balanceOf(stranger), 10_000e9 - 5 * 5e8);
        _passWindow();
        assertEq(units, 0);
        assertEq(_claim(s), PAY);
        _closeAll(0, 0);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_bondOf(0, i), BOND - FEE);
        }
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(_pool(pool).free, BUDGET - PAY - FEES);
        assertEq(token.balanceOf(address(pools)), BUDGET - PAY - FEES);
    }

    function test_unavailableThatTheJuryConfirms() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE);
        _juryVotes(_dispute(stranger, s), Codes.UNAVAILABLE);
        _conclude(s);
        _juryVotes(_second(s), Codes.UNAVAILABLE);
        _conclude(s);
        assertEq(_code(s), Codes.UNAVAILABLE);
        assertEq(token.balanceOf(stranger), 10_000e9 - 10 * 5e8 / 4); // an attempt of each juror
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(stakes.nodeOf(node).frozen, 0);
        _passWindow();
        assertEq(_claim(s), PAY);
        _closeAll(0, 0);
        assertEq(_pool(pool).free, BUDGET - PAY - FEES);
        assertEq(token.balanceOf(address(pools)), BUDGET - PAY - FEES);
    }

    /// A captured committee says "unavailable" to have forged work paid: whoever disputes it is paid out of the slash.
    function test_forgedWorkBehindUnavailableIsWorthDisputing() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE);
        uint256 before = _burnt();
        _juryVotes(_dispute(stranger, s), Codes.REJECT_WEIGHTS);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(stakes.nodeOf(node).stake, 0);
        // the slash pays the jury, and the reward, at most the deposit, which is back whole
        assertEq(token.balanceOf(stranger), 10_000e9 + DEPOSIT);
        assertEq(_burnt() - before, STAKE - FEES - DEPOSIT - 5 * 5e8);
        assertEq(token.balanceOf(address(appeals)), 0);
        uint256[] memory drawn = _round(pool, 0, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(drawn[i]), 0);
        }
        assertEq(_pool(pool).free, BUDGET);
        _passWindow();
        vm.expectRevert(abi.encodeWithSelector(IPools.IsFrozen.selector, _account(pool, node).barrier));
        this.claimOut(s);
    }

    function test_unavailableThatTheJuryFindsMalformed() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE);
        _juryVotes(_dispute(stranger, s), Codes.MALFORMED);
        _conclude(s);
        // whoever uncovers garbage that was paid loses nothing: its node pays the jury too
        assertEq(STAKE - stakes.nodeOf(node).stake, PENALTY + FEES + 5 * 5e8);
        assertEq(token.balanceOf(stranger), 10_000e9);
        assertEq(_pool(pool).free, BUDGET);
        _passWindow();
        vm.expectRevert(IPools.NothingToClaim.selector);
        this.claimOut(s);
    }

    /// Between accepting and not getting a file nobody is fined, and a silent minority of the storage harms nobody.
    function test_votingUnavailableCostsTwoFeesAndNoMore() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(1), _all(1), _all(Codes.UNAVAILABLE)));
        uint256[] memory drawn = _round(pool, 0, 0).seats;
        _passWindow();
        _closeAll(0, 0);
        assertEq(_loss(drawn[2]), FEE);
        assertEq(token.balanceOf(_seatOwner(drawn[2])), 0); // and its own fee
        assertEq(_claim(s), PAY);
    }

    function test_slashLeavesTheVestedPayOfWhatWasUnavailable() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE);
        _passWindow();
        _blocks(4);
        uint256 bad = _submit();
        _voteAll(1, Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, bad, _ref(bad), _none());
        FileData memory f = files[pool][s];
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, s, Phase.Settled));
        pools.forfeit(pool, s, f); // it vested before its node was found out
        assertEq(_claim(s), PAY);
    }

    function test_forfeitBurnsThePayOfWhatWasUnavailable() public {
        uint256 bad = _submit();
        _blocks(4);
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _voteAll(1, Codes.UNAVAILABLE); // vests after the reject
        _passWindow();
        pools.finalize(pool, bad, _ref(bad), _none());
        uint256 burnt = _burnt();
        pools.forfeit(pool, s, files[pool][s]);
        assertEq(_burnt() - burnt, PAY);
        _closeAll(0, 0);
        _closeAll(1, 0);
        assertEq(_pool(pool).free, BUDGET - PAY - FEES);
        assertEq(token.balanceOf(address(pools)), BUDGET - PAY - FEES);
    }

    /// A file that the storage took and then loses is the owner's cost: its node and the seats have done their work.
    function test_unavailableFromTheStorage() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE);
        _passWindow();
        assertEq(_claim(s), PAY);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(_account(pool, node).slashed, false);
        assertEq(_account(pool, node).unsettled, 0);
        _closeAll(0, 0);
        uint256[] memory drawn = _round(pool, 0, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(token.balanceOf(_seatOwner(drawn[i])), FEE / 4);
        }
        assertEq(_burnt(), 3 * (FEE - FEE / 4)); // its owner saves nothing by it
        assertEq(_pool(pool).free, BUDGET - PAY - FEES);
        assertEq(token.balanceOf(address(pools)), BUDGET - PAY - FEES);
        FileRef memory ref = _ref(s);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, s, Phase.Settled));
        pools.finalize(pool, s, ref, _none());
    }

    function test_unavailableClaimedByValidators() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE); // they lie: the file is there
        uint256 trial = _dispute(operator, s);
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(_bondOf(0, 0), BOND); // nobody can tell whether it was there: no seat loses anything
        assertEq(token.balanceOf(operator), 10_000e9 - 5 * 5e8); // who has it overturned pays the jury, and earns nothing
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    function test_unavailableToTheJury() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256 trial = _dispute(operator, s); // and then hides the file
        _juryVotes(trial, Codes.UNAVAILABLE);
        _conclude(s);
        _juryVotes(_second(s), Codes.UNAVAILABLE);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS); // dismissed
        assertEq(_bondOf(0, 0), BOND);
        assertEq(stakes.nodeOf(node).stake, 0);
        juries.closeJuror(trial, 0);
        assertEq(seats.seatOf(juries.seatsOf(trial)[0]).bond, BOND);
    }
}
