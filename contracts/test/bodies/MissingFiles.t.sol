// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Losses} from "../helpers/Losses.sol";

/// @notice Missing files blame nobody who is not to blame.
contract MissingFilesTest is Losses {
    /// Juries that cannot get an accepted file change nothing and fine nobody: the pool's service attested its bytes. The
    /// disputer, who had to show them, pays ten attempts.
    function test_acceptedFileThatNoJuryGetsStaysAccepted() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(1), _all(1), _all(Codes.UNAVAILABLE)));
        uint256 first = _dispute(stranger, s);
        _unavailableTwice(s);
        assertEq(_code(s), Codes.ACCEPT);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(_committee()[i]), 0);
        }
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(stakes.nodeOf(node).frozen, 0);
        assertEq(token.balanceOf(stranger), 10_000e9 - 10 * 5e8 / 4);
        for (uint256 i = 0; i < 5; ++i) {
            uint256 before = token.balanceOf(_seatOwner(juries.seatsOf(first)[i]));
            juries.closeJuror(first, i);
            assertEq(token.balanceOf(_seatOwner(juries.seatsOf(first)[i])) - before, 5e8 / 4);
            juries.closeJuror(first + 1, i);
        }
        assertEq(token.balanceOf(address(juries)), 0);
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    /// @dev Neither jury of a dispute in the default pool gets the bytes.
    function _unavailableTwice(uint256 s) private {
        _juryVotes(appeals.disputeOf(pool, s).trial, Codes.UNAVAILABLE);
        _conclude(s);
        _juryVotes(_second(s), Codes.UNAVAILABLE);
        _conclude(s);
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
        _submitLane(16);
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
        _dispute(operator, s);
        _unavailableTwice(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(stakes.nodeOf(node).stake, 0);
        assertEq(token.balanceOf(operator), 10_000e9 - 10 * 5e8 / 4);
    }

    /// A second jury that cannot get a file leaves what is better for the node: here the first jury's acceptance. Nobody
    /// is fined without a verdict.
    function test_secondJuryThatCannotGetAFileRestoresNoReject() public {
        uint256 s = _twiceJudged(Codes.REJECT_WEIGHTS, Codes.ACCEPT, Codes.UNAVAILABLE);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(_committee()[i]), 0);
        }
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    /// And here the committee's.
    function test_secondJuryThatCannotGetAFileLetsNoFirstJurySlash() public {
        uint256 s = _twiceJudged(Codes.ACCEPT, Codes.REJECT_WEIGHTS, Codes.UNAVAILABLE);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(_account(pool, node).frozen, 0);
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    /// Two bodies that both found fraud are enough: or a few seats that opt out would save every cheat.
    function test_rejectOfCommitteeAndFirstJuryStandsWithoutASecond() public {
        uint256 s = _twiceJudged(Codes.REJECT_WEIGHTS, Codes.REJECT_WEIGHTS, Codes.UNAVAILABLE);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(stakes.nodeOf(node).stake, 0);
    }

    /// @dev What a committee, a jury of five and one of seven say of one file, in a pool of its own.
    function _twiceJudged(uint256 committee, uint256 first, uint256 second) private returns (uint256 s) {
        _moveToTwoJuries();
        s = _submit();
        _voteAll(0, committee);
        _juryVotes(_dispute(stranger, s), first);
        _conclude(s);
        _juryVotes(_appeal(operator, s), second);
        _conclude(s);
    }
}
