// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {Network} from "./helpers/Network.sol";

/// @notice What who wins a dispute earns: a fifth of the penalties, of what the jury leaves, and at most its own stake.
contract RewardsTest is Network {
    uint256 internal constant JURY = 5 * 5e8;
    uint56 internal overturnPenalty = 2e9;

    function _setting() internal view override returns (Setting memory c) {
        c = super._setting();
        c.values.overturnPenalty = overturnPenalty;
    }

    /// @dev A committee of three rejects an honest file and is overturned, where each member pays `penalty`; the base units
    /// that the operator has more than before, and that were burnt.
    function _overturned(uint56 penalty) private returns (uint256 reward, uint256 burnt) {
        overturnPenalty = penalty;
        Network.setUp();
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256 before = token.balanceOf(operator) + 10_000e9; // _dispute gives it that much
        _juryVotes(_dispute(operator, s), Codes.ACCEPT);
        _conclude(s);
        assertEq(token.balanceOf(address(appeals)), 0);
        return (token.balanceOf(operator) - before, _burnt());
    }

    function test_winnerEarnsAFifthOfThePenalties() public {
        (uint256 reward, uint256 burnt) = _overturned(2e9);
        assertEq(reward, 6e9 / 5);
        assertEq(burnt, 6e9 - JURY - 6e9 / 5);
    }

    function test_winnerEarnsNoMoreThanTheJuryLeaves() public {
        (uint256 reward, uint256 burnt) = _overturned(1e9);
        assertEq(reward, 3e9 - JURY); // less than a fifth
        assertEq(burnt, 0);
    }

    function test_winnerEarnsNoMoreThanItStaked() public {
        (uint256 reward, uint256 burnt) = _overturned(50e9);
        assertEq(reward, juries.depositOf(pool, 1)); // less than a fifth
        assertEq(burnt, 150e9 - JURY - reward);
    }

    // Two juries

    /// @dev A pool with appeals, in which a first jury overturned an accepted file and its operator appealed.
    function _appealed() private returns (uint256 s, uint256 trial, uint256 appealTrial) {
        _moveToTwoJuries();
        s = _submit();
        _voteAll(0, Codes.ACCEPT);
        trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.REJECT_SAMPLING);
        _conclude(s);
        appealTrial = _appeal(operator, s);
    }

    /// The seven who were right are paid out of what the five and the disputer lose, and so is the delay.
    function test_wrongJurysPenaltiesPayTheRightOne() public {
        (uint256 s, uint256 trial, uint256 appealTrial) = _appealed();
        uint256 deposit = juries.depositOf(pool, 1);
        uint256 before = token.balanceOf(operator) + 2 * deposit;
        uint256 burnt = _burnt();
        _juryVotes(appealTrial, Codes.ACCEPT);
        _conclude(s);
        assertEq(token.balanceOf(address(juries)), 7 * 5e8);
        assertEq(token.balanceOf(operator) - before, 5e9);
        assertEq(token.balanceOf(stranger), 10_000e9 - deposit);
        assertEq(_burnt() - burnt, 5 * 2e9 + deposit - 7 * 5e8 - 5e9);
        assertEq(token.balanceOf(address(appeals)), 0);
        for (uint256 i = 0; i < 7; ++i) {
            uint256 seat = juries.seatsOf(appealTrial)[i];
            juries.closeJuror(appealTrial, i);
            assertEq(token.balanceOf(_seatOwner(seat)), 5e8);
        }
        for (uint256 i = 0; i < 5; ++i) {
            assertEq(seats.seatOf(juries.seatsOf(trial)[i]).bond, BOND - 2e9);
        }
    }

    function test_secondJuryHasNobodyOfTheFirstNorOfTheCommittee() public {
        (, uint256 trial, uint256 appealTrial) = _appealed();
        _juryVotes(appealTrial, Codes.ACCEPT);
        uint256[] memory members = _round(pool, 0, 0).seats;
        uint256[] memory jurors = juries.seatsOf(trial);
        uint256[] memory seconds_ = juries.seatsOf(appealTrial);
        uint256 met;
        for (uint256 i = 0; i < members.length; ++i) {
            met |= 1 << members[i];
        }
        for (uint256 i = 0; i < jurors.length; ++i) {
            met |= 1 << jurors[i];
        }
        for (uint256 i = 0; i < seconds_.length; ++i) {
            assertEq(met & (1 << seconds_[i]), 0);
            met |= 1 << seconds_[i];
        }
        assertEq(seconds_.length, 7);
    }

    /// Five who were right share what there is, and no base unit more.
    function test_juryIsPaidOutOfWhatThereIs() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.ACCEPT);
        vm.startPrank(address(appeals));
        juries.judge(trial, Codes.ACCEPT);
        assertEq(juries.pay(trial, 1e9 + 4), 1e9);
        vm.stopPrank();
        token.mint(address(juries), 1e9);
        for (uint256 i = 0; i < 5; ++i) {
            uint256 seat = juries.seatsOf(trial)[i];
            juries.closeJuror(trial, i);
            assertEq(token.balanceOf(_seatOwner(seat)), 2e8);
        }
    }
}
