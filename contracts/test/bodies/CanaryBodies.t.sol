// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData} from "../../src/libraries/Types.sol";
import {Losses} from "../helpers/Losses.sol";
import {IAppeals} from "../interfaces/IAppeals.sol";
import {ICanaries} from "../interfaces/ICanaries.sol";
import {IJuries} from "../interfaces/IJuries.sol";

/// @notice Canaries come first, and judge only who accepted them.
contract CanaryBodiesTest is Losses {
    /// A seat that accepts blindly pays for it also where the others looked; they are paid for their votes.
    function test_lazySeatPaysAlsoInTheMinority() public {
        uint256 s = _submitPlanted();
        uint256 reject = _all(Codes.REJECT_WEIGHTS);
        _vote(s / 16, 0, _three(_all(Codes.ACCEPT), reject, reject));
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        _openCanary(s);
        assertEq(canaries.canaryOf(pool, s).accused.length, 1);
        _juryVotes(canaries.canaryOf(pool, s).trial, Codes.REJECT_WEIGHTS);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.CANARY);
        uint256[] memory drawn = _round(pool, s / 16, 0).seats;
        assertEq(_loss(drawn[0]), 200e9);
        _passWindow();
        _closeAll(s / 16, 0);
        assertEq(_loss(drawn[0]), 200e9); // and no minority penalty beside it
        assertEq(_loss(drawn[1]) + _loss(drawn[2]), 0);
        assertEq(stakes.nodeOf(node).stake, STAKE); // the decoy node is free
    }

    /// A second committee that nobody draws has no sample: the first one's is what a seat had to look at.
    function test_sampleIsTheFirstCommitteesWhereNobodyDrawsTheSecond() public {
        uint256 s = _submitPlanted();
        uint256 lane = s / 16;
        _vote(lane, 0, _three(_all(Codes.ACCEPT), _all(Codes.REJECT_WEIGHTS), 0));
        _blocks(_round(pool, lane, 1).time + defaultTerms().drawBlocks + 1 - height);
        court.settle(pool, lane, 1, _refs(lane));
        _unpack(lane);
        assertEq(_code(s), Codes.VOID);
        (,,, bytes32 seed,) = court.decisionOf(pool, s);
        assertEq(seed, _round(pool, lane, 0).seed);
        _openCanary(s);
        assertEq(canaries.canaryOf(pool, s).accused.length, 1);
    }

    /// The owner and two seats that reject a good file they planted cannot take the third seat's bond.
    function test_ownerAndAMajorityCannotFrameAnHonestMinority() public {
        uint256 s = _submitPlanted();
        uint256 reject = _all(Codes.REJECT_WEIGHTS);
        _vote(s / 16, 0, _three(_all(Codes.ACCEPT), reject, reject));
        uint256 before = token.balanceOf(owner) + 100_000e9; // _openCanary gives it that much
        _openCanary(s);
        _juryVotes(canaries.canaryOf(pool, s).trial, Codes.ACCEPT);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(_loss(_round(pool, s / 16, 0).seats[0]), 0);
        assertEq(before - token.balanceOf(owner), 200e9 + 5 * 5e8); // what it put at stake, and the jury's fees
    }

    /// Opening comes first: whoever disputes a planted file neither burns its decoy node nor earns, and the lazy majority
    /// pays as if nobody had.
    function test_canaryComesBeforeADispute() public {
        uint256 s = _submitPlanted();
        _voteAll(s / 16, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.REJECT_WEIGHTS);
        FileData memory f = files[pool][s];
        uint256 until = _submission(s).finalAt;
        vm.expectRevert(abi.encodeWithSelector(IAppeals.NotYet.selector, until));
        appeals.conclude(pool, s, f); // not while the owner may still open it
        uint256 before = token.balanceOf(owner) + 100_000e9;
        _openCanary(s);
        assertTrue(appeals.disputeOf(pool, s).resolved);
        assertEq(token.balanceOf(stranger), 10_000e9);
        for (uint256 i = 0; i < 5; ++i) {
            juries.closeJuror(trial, i); // the owner pays the jurors whose case went away
        }
        assertEq(token.balanceOf(address(juries)), 0);
        uint256 second = canaries.canaryOf(pool, s).trial;
        _juryVotes(second, Codes.REJECT_WEIGHTS);
        canaries.conclude(pool, s, f);
        assertEq(_code(s), Codes.CANARY);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(stakes.nodeOf(node).frozen, 0);
        uint256[] memory drawn = _round(pool, s / 16, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(drawn[i]), 200e9);
        }
        assertEq(before - token.balanceOf(owner), 5 * 5e8);
        assertEq(token.balanceOf(address(canaries)), 0);
        assertEq(token.balanceOf(address(appeals)), 0);
    }

    function test_disputeOfAnOrdinaryFileEndsAfterTheWindow() public {
        uint256 s = _submitPlanted();
        _voteAll(s / 16, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.REJECT_WEIGHTS);
        _passWindow();
        FileData memory f = files[pool][s];
        ICanaries.Planted memory p = _opening(f);
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        uint256 until = _submission(s).finalAt;
        vm.expectRevert(abi.encodeWithSelector(ICanaries.WindowOver.selector, until));
        vm.prank(owner);
        canaries.open(pool, s, f, p, r, 3);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(stakes.nodeOf(node).stake, 0);
    }

    /// One true canary in a lane gives the owner no way to take the other files' pay.
    function test_falseCanariesBesideATrueOneDenyNobodysPay() public {
        uint256 first = _submitPlanted(2);
        uint256 second = first + 1;
        _voteAll(first / 16, Codes.ACCEPT);
        _openCanary(first);
        uint256 back = canaries.canaryOf(pool, first).deposit;
        uint256 before = token.balanceOf(owner) + back + 100_000e9;
        _openCanary(second);
        _juryVotes(canaries.canaryOf(pool, first).trial, Codes.REJECT_WEIGHTS);
        canaries.conclude(pool, first, files[pool][first]);
        _juryVotes(canaries.canaryOf(pool, second).trial, Codes.ACCEPT);
        canaries.conclude(pool, second, files[pool][second]);
        assertEq(_code(second), Codes.ACCEPT);
        assertEq(before - token.balanceOf(owner), 3 * 200e9 + 5 * 5e8);
        _passWindow();
        assertEq(_claim(second), PAY);
    }

    /// Whoever opens a canary has no seat in the jury that judges it: where too few others are left, nobody judges.
    function test_canaryJuryHasNoneOfTheOwnersSeats() public {
        for (uint256 i = 0; i < 8; ++i) {
            uint256 seat = seats.opened() + 1;
            _give(owner, address(seats), BOND);
            vm.prank(owner);
            seats.openSeat(0, _voter(seat), _classes(FAMILY));
        }
        _nextEpoch();
        uint256 s = _submitPlanted(4);
        _voteAll(s / 16, Codes.ACCEPT);
        uint256[] memory drawn = _round(pool, s / 16, 0).seats;
        for (uint256 i = 0; i < 4; ++i) {
            _openCanary(s + i);
            _blocks(3);
            (uint256[] memory jurors,,,) = juries.juryOf(canaries.canaryOf(pool, s + i).trial);
            assertEq(jurors.length, 5);
            for (uint256 j = 0; j < 5; ++j) {
                assertTrue(seats.ownerOf(jurors[j]) != owner);
                assertTrue(jurors[j] != drawn[0] && jurors[j] != drawn[1] && jurors[j] != drawn[2]);
            }
        }
    }

    function test_canaryThatNoJuryJudgesHurtsNobody() public {
        uint256 s = _submitPlanted();
        _voteAll(s / 16, Codes.ACCEPT);
        uint256 before = token.balanceOf(owner) + 100_000e9;
        _openCanary(s);
        FileData memory f = files[pool][s];
        for (uint256 i = 0; i < 2; ++i) {
            _drawJury(canaries.canaryOf(pool, s).trial + i);
            _wait(60);
            canaries.conclude(pool, s, f);
        }
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(token.balanceOf(owner), before);
        assertEq(_loss(_round(pool, s / 16, 0).seats[0]), 0);
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    function test_onlyCanariesCancelDisputes() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        _dispute(stranger, s);
        vm.expectRevert(IAppeals.NotPermitted.selector);
        appeals.cancel(pool, s);
        vm.expectRevert(IAppeals.NoDispute.selector);
        vm.prank(address(canaries));
        appeals.cancel(pool, 5);
        vm.expectRevert(IJuries.NotPermitted.selector);
        juries.discharge(1);
        vm.expectRevert(IJuries.NotPermitted.selector);
        juries.proceed(1);
    }

    /// Nobody's bond and nobody else's pay depend on a canary that no seat accepted: no jury judges it.
    function test_canaryThatNobodyAcceptedNeedsNoJury() public {
        uint256 s = _submitPlanted();
        _voteAll(s / 16, Codes.REJECT_WEIGHTS);
        uint256 trial = _dispute(stranger, s);
        uint256 before = token.balanceOf(owner) + 100_000e9;
        _openCanary(s);
        assertEq(canaries.canaryOf(pool, s).trial, 0);
        assertEq(token.balanceOf(stranger), 10_000e9);
        assertTrue(juries.caseOf(trial).concluded);
        vm.roll(juries.caseOf(trial).seedBlock + EPOCH + 1);
        vm.expectRevert(IJuries.AlreadyConcluded.selector); // whom it would freeze
        juries.draw(trial);
        vm.roll(height);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.CANARY);
        assertEq(token.balanceOf(owner), before);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        uint256[] memory drawn = _round(pool, s / 16, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(drawn[i]), 0);
        }
    }
}
