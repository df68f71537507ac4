// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileRef, PoolTerms} from "../../src/libraries/Types.sol";
import {Losses} from "../helpers/Losses.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IPools} from "../interfaces/IPools.sol";
import {ISeats} from "../interfaces/ISeats.sol";

/// @notice Lying, colluding, silent and numerous seats gain nothing.
contract CommitteeAttacksTest is Losses {
    function test_loneLyingValidator() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(Codes.REJECT_WEIGHTS), _all(1), _all(1)));
        assertEq(_code(s), Codes.ACCEPT);
        _passWindow();
        _closeAll(0, 0);
        assertEq(_bondOf(0, 0), BOND - 1e9); // the liar pays the minority penalty and earns nothing
        assertEq(token.balanceOf(_seatOwner(_round(pool, 0, 0).seats[0])), 0);
        for (uint256 i = 1; i < 3; ++i) {
            assertEq(_bondOf(0, i), BOND);
            assertEq(token.balanceOf(_seatOwner(_round(pool, 0, 0).seats[i])), FEE);
        }
        assertEq(_claim(s), PAY);
    }

    function test_collusiveMinorityCannotReject() public {
        // of five, two colluders cannot even stop a decision
        PoolTerms memory t = defaultTerms();
        (t.committee, t.jury) = (5, 7);
        _openSeats(8);
        _nextEpoch();
        _moveTo(t);
        uint256 s = _submit();
        uint256[] memory votes = new uint256[](5);
        (votes[0], votes[1]) = (_all(Codes.REJECT_REWARD), _all(Codes.REJECT_REWARD));
        (votes[2], votes[3], votes[4]) = (_all(1), _all(2), _all(1));
        _vote(0, 0, votes);
        assertEq(_code(s), Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(s), PAY);
        uint256[] memory drawn = _round(pool, 0, 0).seats;
        _closeAll(0, 0);
        for (uint256 i = 0; i < 5; ++i) {
            assertEq(BOND - seats.seatOf(drawn[i]).bond, i < 2 ? 1e9 : 0);
            assertEq(token.balanceOf(_seatOwner(drawn[i])), i < 2 ? 0 : FEE);
        }
    }

    function test_collusiveMajorityOverturned() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(3), _all(3), _all(1)));
        assertEq(_code(s), 3);
        uint256 stakeBefore = stakes.nodeOf(node).stake;
        uint256 trial = _dispute(operator, s);
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(stakes.nodeOf(node).stake, stakeBefore);
        assertEq(_bondOf(0, 0), BOND - 50e9);
        _passWindow();
        _closeAll(0, 0);
        assertEq(_bondOf(0, 0), BOND - 51e9);
        assertEq(_bondOf(0, 2), BOND); // the honest minority is paid
        assertEq(token.balanceOf(_seatOwner(_round(pool, 0, 0).seats[2])), FEE);
        assertEq(_claim(s), PAY);
    }

    function test_acceptedForgeryOverturned() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(1), _all(1), _all(4)));
        uint256 before = token.balanceOf(stranger);
        uint256 trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.REJECT_SAMPLING);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_SAMPLING);
        assertEq(stakes.nodeOf(node).stake, 0);
        uint256 deposit = juries.depositOf(pool, 1);
        assertEq(token.balanceOf(stranger) - before, 10_000e9 + deposit); // reward is capped by the deposit
        _passWindow();
        Account memory a = _account(pool, node);
        assertEq(a.earned - a.spent, 0);
        assertEq(_pool(pool).free, BUDGET);
    }

    /// A jury whose majority lies for a cheater costs its members more than the cheater can gain from one file, as soon
    /// as an appeal or (for the committee) a jury is honest: penalties are per seat and fixed, the gain is one file's pay.
    function test_juryCaptureUnprofitableBelowHalf() public {
        _moveToTwoJuries();
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS); // honest committee
        uint256 trial = _dispute(operator, s);
        _juryVotes(trial, Codes.ACCEPT, 3, Codes.REJECT_WEIGHTS); // captured jury, 3 of 5
        _conclude(s);
        _juryVotes(_appeal(stranger, s), Codes.REJECT_WEIGHTS);
        uint256[] memory jurors = juries.seatsOf(trial);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        uint256 lost;
        for (uint256 i = 0; i < 5; ++i) {
            lost += BOND - seats.seatOf(jurors[i]).bond;
        }
        assertEq(lost, 3 * 50e9);
        assertGt(lost, PAY);
        assertEq(stakes.nodeOf(node).stake, 0);
    }

    function test_withheldRevealCostsMoreThanMinority() public {
        _submitLane(2);
        _draw(0, 0);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 0, i, _all(i == 2 ? 3 : 1));
        }
        _reveal(0, 0, 0, _all(1));
        _reveal(0, 0, 1, _all(1)); // member 2 sees that it will lose, and keeps silent
        FileRef[] memory refs = _refs(0);
        vm.expectRevert(abi.encodeWithSelector(ICourt.NotSettleable.selector, clock + 120));
        court.settle(pool, 0, 0, refs);
        _wait(120);
        court.settle(pool, 0, 0, refs);
        _unpack(0);
        _passWindow();
        _closeAll(0, 0);
        uint256 silent = _round(pool, 0, 0).seats[2];
        assertEq(BOND - seats.seatOf(silent).bond, 2 * 2e9); // per file
    }

    /// The same vote, shown: half as dear.
    function test_revealedMinorityPaysPerFile() public {
        _submitLane(2);
        _vote(0, 0, _three(_all(1), _all(1), _all(3)));
        _passWindow();
        _closeAll(0, 0);
        assertEq(BOND - _bondOf(0, 2), 2 * 1e9);
        assertEq(BOND - _bondOf(0, 0), 0);
    }

    /// Splitting a bond over many owners gives no more draws: seats are drawn, and each costs a whole bond.
    function test_sybilSeats() public {
        uint256 hits;
        uint256 rounds = 300;
        uint256 epoch = seats.currentEpoch();
        for (uint256 i = 0; i < rounds; ++i) {
            uint256[] memory drawn =
                seats.draw(keccak256(abi.encode(i)), epoch, FAMILY, 3, new uint256[](0), address(0));
            for (uint256 j = 0; j < 3; ++j) {
                if (drawn[j] <= 2) ++hits; // two of eleven seats
            }
        }
        assertGt(hits, rounds * 3 * 14 / 100);
        assertLt(hits, rounds * 3 * 22 / 100);
    }

    function test_seatCannotLeaveBeforeItsVotesAreFinal() public {
        _submit();
        _draw(0, 0);
        uint256 seat = _round(pool, 0, 0).seats[0];
        address who = _seatOwner(seat);
        vm.prank(who);
        seats.leaveSeat(seat);
        vm.expectRevert(abi.encodeWithSelector(ISeats.SeatLocked.selector, 0, 0));
        vm.prank(who);
        seats.withdrawSeat(seat);
        _blocks(450);
        vm.prank(who);
        seats.unbondSeat(seat);
        uint256 releaseAt = clock + params.unbonding();
        vm.expectRevert(abi.encodeWithSelector(ISeats.SeatLocked.selector, releaseAt, 0));
        vm.prank(who);
        seats.withdrawSeat(seat);
        _wait(30 days);
        vm.prank(who);
        seats.withdrawSeat(seat);
        assertEq(token.balanceOf(who), BOND - BOND / 100); // an id is a scarce thing
    }
}
