// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Losses} from "../helpers/Losses.sol";

/// @notice Missing files blame nobody who is not to blame.
contract MissingFilesTest is Losses {
    /// A jury that cannot get an accepted file ends the acceptance, and fines the seats that had to keep its bytes. Its
    /// node keeps the pay: the file was attested, so it was there.
    function test_acceptedFileThatNobodyHasIsNotAccepted() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(1), _all(1), _all(Codes.UNAVAILABLE)));
        assertEq(_code(s), Codes.ACCEPT);
        _juryVotes(_dispute(stranger, s), Codes.UNAVAILABLE);
        _conclude(s);
        assertEq(_code(s), Codes.UNAVAILABLE);
        assertEq(_loss(_committee()[0]), 50e9);
        assertEq(_loss(_committee()[1]), 50e9);
        assertEq(_loss(_committee()[2]), 0);
        assertEq(stakes.stakeOf(node), STAKE); // not its fault
        assertEq(stakes.nodeOf(node).frozen, 0);
        assertEq(token.balanceOf(stranger), 10_000e9 + DEPOSIT); // a fifth of 100 is more than the deposit
        _passWindow();
        assertEq(_claim(s), PAY);
        _closeAll(0, 0);
        assertEq(_loss(_committee()[0]), 50e9); // and no minority penalty beside it
        assertEq(token.balanceOf(address(pools)), BUDGET - PAY - FEES); // an attempt is paid, the rest is burnt
        assertEq(pools.poolOf(pool).free, BUDGET - PAY - FEES);
    }

    function test_acceptedFileThatTheJuryHasIsPaid() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(1), _all(1), _all(Codes.UNAVAILABLE)));
        _juryVotes(_dispute(stranger, s), Codes.ACCEPT);
        _conclude(s);
        assertEq(token.balanceOf(stranger), 10_000e9 - DEPOSIT);
        assertEq(token.balanceOf(operator), 5e9); // for the delay
        _passWindow();
        assertEq(_claim(s), PAY);
        _closeAll(0, 0);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(_committee()[i]), i == 2 ? FEE : 0); // serving a file to two of three costs the third two fees
        }
        assertEq(token.balanceOf(_seatOwner(_committee()[2])), 0);
        assertEq(token.balanceOf(_seatOwner(_committee()[0])), FEE);
    }

    /// Sixteen files hidden from the committee and shown to the jury: no seat loses anything, the framer pays the juries.
    function test_hidingFilesFromTheCommitteeFramesNobody() public {
        for (uint256 i = 0; i < 16; ++i) {
            _submit();
        }
        _voteAll(0, Codes.UNAVAILABLE);
        uint256 spent;
        for (uint256 i = 0; i < 16; ++i) {
            uint256 before = token.balanceOf(stranger) + 10_000e9; // _dispute gives that much
            uint256 trial = _dispute(stranger, i);
            _juryVotes(trial, Codes.ACCEPT);
            _conclude(i);
            spent += before - token.balanceOf(stranger);
            for (uint256 j = 0; j < 5; ++j) {
                juries.closeJuror(trial, j);
            }
        }
        assertEq(spent, 16 * 5 * 5e8);
        _passWindow();
        _closeAll(0, 0);
        uint256 lost;
        for (uint256 seat = 1; seat <= SEATS; ++seat) {
            lost += _loss(seat);
        }
        assertEq(lost, 16 * FEES); // a fee per seat and file: far less than hiding them cost
    }

    function test_rejectionStandsWhenTheDisputerHidesTheFile() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _juryVotes(_dispute(operator, s), Codes.UNAVAILABLE);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(stakes.stakeOf(node), 0);
        assertEq(token.balanceOf(operator), 10_000e9 - DEPOSIT);
    }

    /// A second jury that says that it cannot get a file ends an acceptance, the first jury's too; it does not bring a
    /// captured committee's reject back: the work is paid by its receipt, and those who rejected it pay.
    function test_secondJuryThatCannotGetAFileRestoresNoReject() public {
        uint256 s = _twiceJudged(Codes.REJECT_WEIGHTS, Codes.ACCEPT, Codes.UNAVAILABLE);
        assertEq(_code(s), Codes.UNAVAILABLE);
        assertEq(stakes.stakeOf(node), STAKE);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(_committee()[i]), 50e9);
        }
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    /// Nor does it end a first jury's reject: whoever appealed it has to show the file.
    function test_secondJuryThatCannotGetAFileLeavesTheFirstOnesReject() public {
        uint256 s = _twiceJudged(Codes.ACCEPT, Codes.REJECT_WEIGHTS, Codes.UNAVAILABLE);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(stakes.stakeOf(node), 0);
        assertEq(pools.poolOf(pool).free, BUDGET);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(_committee()[i]), 50e9);
        }
    }

    /// @dev What a committee, a jury of five and one of seven say of one file, in a pool of its own.
    function _twiceJudged(uint256 committee, uint256 first, uint256 second) private returns (uint256 s) {
        _moveToTwoJuries();
        s = _submit();
        _voteAll(0, committee);
        _juryVotes(_dispute(stranger, s), first);
        _conclude(s);
        _give(operator, address(appeals), 10_000e9);
        vm.prank(operator);
        appeals.appeal(pool, s);
        _juryVotes(appeals.disputeOf(pool, s).appealTrial, second);
        _conclude(s);
    }
}
