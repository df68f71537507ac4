// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Losses} from "../helpers/Losses.sol";
import {IParams} from "../interfaces/IParams.sol";

/// @notice Silent committees are fined and replaced, by seats that have a bond; a wrong rejection costs what the work
/// earns.
contract CommitteeBodiesTest is Losses {
    function test_silentCommitteeIsFinedAndReplaced() public {
        uint256 s = _submit();
        _draw(0, 0);
        _wait(60);
        court.settle(pool, 0, 0, _refs(0));
        _unpack(0);
        uint256[] memory first = _committee();
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(first[i]), 2e9);
        }
        _vote(0, 1, _three(_all(1), _all(1), _all(1)));
        assertEq(_code(s), Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(s), PAY);
        uint256[] memory second = _round(pool, 0, 1).seats;
        for (uint256 i = 0; i < 3; ++i) {
            for (uint256 j = 0; j < 3; ++j) {
                assertTrue(first[i] != second[j]);
            }
        }
        _closeAll(0, 0);
        _closeAll(0, 1);
        assertEq(_loss(first[0]), 2e9);
        assertEq(_loss(second[0]), 0);
    }

    /// A fresh committee is fresh: over many seeds none of the first one's seats sits in the second.
    /// A lane that nobody settles for weeks holds the seats that voted in it, also one that closed and opened again.
    function test_reopenedSeatIsHeldByALaneSettledLate() public {
        uint256 s = _submit();
        _draw(0, 0);
        uint256[3] memory votes = [_all(Codes.ACCEPT), _all(Codes.REJECT_WEIGHTS), _all(Codes.REJECT_WEIGHTS)];
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 0, i, votes[i]);
        }
        for (uint256 i = 0; i < 3; ++i) {
            _reveal(0, 0, i, votes[i]);
        }
        uint256 seat = _round(pool, 0, 0).seats[0];
        token.mint(_seatOwner(seat), BOND);
        vm.startPrank(_seatOwner(seat));
        seats.leaveSeat(seat);
        _blocks(4 * EPOCH);
        seats.unbondSeat(seat);
        _wait(30 days);
        seats.withdrawSeat(seat);
        court.settle(pool, 0, 0, _refs(0));
        _unpack(0);
        token.approve(address(seats), BOND);
        seats.openSeat(seat, _voter(seat), new uint256[](0));
        vm.stopPrank();
        assertEq(seats.seatOf(seat).frozen, 1);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        _closeAll(0, 0);
        assertEq(seats.seatOf(seat).frozen, 0);
        assertEq(_loss(seat), 1e9);
    }

    function test_secondCommitteeSharesNoSeatWithTheFirst() public {
        for (uint256 lane = 0; lane < 8; ++lane) {
            _submit();
            _vote(lane, 0, _three(_all(1), _all(3), 0));
            _blocks(3);
            uint256[] memory first = _round(pool, lane, 0).seats;
            (uint256[] memory second,,,) = court.committeeOf(pool, lane, 1);
            assertEq(second.length, 3);
            for (uint256 i = 0; i < 9; ++i) {
                assertTrue(first[i / 3] != second[i % 3]);
            }
        }
    }

    function test_seatWithoutBondIsNeverDrawn() public {
        _submit();
        _blocks(2);
        (uint256[] memory before,,,) = court.committeeOf(pool, 0, 0);
        uint256 spare = BOND - seats.minBond();
        vm.prank(address(court));
        seats.penalise(before[1], spare + 1, SINK); // still in this epoch's set
        assertEq(seats.countAt(FAMILY, seats.currentEpoch()), SEATS);
        (uint256[] memory after_,,,) = court.committeeOf(pool, 0, 0);
        assertEq(after_.length, 3);
        assertEq(after_[0], before[0]);
        for (uint256 i = 0; i < 3; ++i) {
            assertTrue(after_[i] != before[1]);
        }
        vm.prank(address(court));
        seats.penalise(before[0], spare, SINK); // what is left is still enough
        (uint256[] memory same,,,) = court.committeeOf(pool, 0, 0);
        assertEq(same, after_);
    }

    /// Who rejects honest work pays, when a jury says so, what the work would have earned: an owner whose seats take it
    /// for nothing gains nothing on average, however dear it is.
    function test_wrongRejectionCostsWhatTheWorkEarns() public {
        IParams.Values memory v = defaultValues();
        v.overturnPenalty = 10e9;
        _redeploy(v);
        uint256 sequence = _submitFrom(node, 99_999);
        uint256 pay = 99_999 * 1e6;
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256[] memory members = _committee();
        uint256 trial = _dispute(operator, sequence);
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(sequence);
        assertEq(_code(sequence), Codes.ACCEPT);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(members[i]), pay / 3);
        }
    }
}
