// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileRef, PoolTerms} from "../../src/libraries/Types.sol";
import {Voting} from "../../src/libraries/Voting.sol";
import {Phase} from "../helpers/Phase.sol";
import {Refusing} from "../helpers/Refusing.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IPools} from "../interfaces/IPools.sol";

/// @notice Court says no, with the right error, to who may not make a call or at the wrong time.
contract CourtRefusalsTest is Refusing {
    function test_courtBeforeADraw() public {
        address c = address(court);
        PoolTerms memory t = defaultTerms();
        _no(stranger, c, abi.encodeCall(court.registerPool, (1, t)), ICourt.NotPermitted.selector);
        _no(stranger, c, abi.encodeCall(court.openLane, (pool, 0, 1)), ICourt.NotPermitted.selector);
        _no(stranger, c, abi.encodeCall(court.setOutcome, (1, 0, 1)), ICourt.NotPermitted.selector);
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 0, 0)), ICourt.NoSuchLane.selector);
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 0, 2)), ICourt.NoSuchLane.selector);
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 0, 1)), ICourt.NoSuchLane.selector);
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 1 << 31, 0)), ICourt.NoSuchLane.selector);
        assertEq(_round(pool, 0, 0).time, 0);
        assertEq(_round(pool, 0, 1).time, 0);
        _submit();
        assertEq(_round(pool, 0, 0).time, height + 1);
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 0, 0)), Voting.DrawNotOpen.selector);
        FileRef[] memory refs = _refs(0);
        _no(stranger, c, abi.encodeCall(court.settle, (pool, 0, 0, refs)), ICourt.NotSettleable.selector);
        _no(stranger, c, abi.encodeCall(court.reveal, (pool, 0, 0, 0, 0, 0, 0)), Voting.NotDrawn.selector);
        _no(stranger, c, abi.encodeCall(court.decisionOf, (pool, 0)), ICourt.NotSettled.selector);
        _no(stranger, c, abi.encodeCall(court.closeCommittee, (pool, 0, 0)), ICourt.NotSettled.selector);
    }

    function _drawnAsForeseen(uint256[] memory members, bytes32 seed) private {
        (uint256[] memory drawn,, bytes32 drawnSeed, bool now_) = court.committeeOf(pool, 0, 0);
        assertTrue(now_);
        assertEq(seed, drawnSeed);
        assertEq(members, drawn);
    }

    function _showsItsVote(uint256 cast) private {
        assertTrue(_hasRevealed(0, 0, 0));
        assertEq(uint256(_ballot(0, 0, 0)), cast);
    }

    function test_courtVotes() public {
        address c = address(court);
        _submit();
        _blocks(4);
        (uint256[] memory members, address[] memory voters, bytes32 seed, bool drawn) = court.committeeOf(pool, 0, 0);
        assertFalse(drawn);
        bytes32 hash = _ballotHash(pool, 0, 0, voters[0], _all(1), keccak256("verdict"), keccak256("salt"));
        _no(stranger, c, abi.encodeCall(court.commit, (pool, 0, 0, 0, hash)), Voting.NotVoter.selector);
        _no(stranger, c, abi.encodeCall(court.commit, (pool, 0, 0, 7, hash)), Voting.NotVoter.selector);
        _no(voters[0], c, abi.encodeCall(court.commit, (pool, 0, 0, 4, hash)), Voting.NotVoter.selector);
        _no(voters[0], c, abi.encodeCall(court.commit, (pool, 0, 0, 0, 0)), Voting.EmptyCommitment.selector);
        _yes(voters[0], c, abi.encodeCall(court.commit, (pool, 0, 0, 0, hash))); // draws, too
        _drawnAsForeseen(members, seed);
        assertEq(_ballot(0, 0, 0), hash);
        assertFalse(_hasRevealed(0, 0, 0));
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 0, 0)), Voting.AlreadyDrawn.selector);
        _no(voters[0], c, abi.encodeCall(court.commit, (pool, 0, 0, 0, hash)), Voting.AlreadyCommitted.selector);
        bytes memory reveal =
            abi.encodeCall(court.reveal, (pool, 0, 0, 0, _all(1), keccak256("verdict"), keccak256("salt")));
        _no(voters[0], c, reveal, Voting.RevealNotOpen.selector);
        bytes memory early =
            abi.encodeCall(court.reveal, (pool, 0, 0, 1, _all(1), keccak256("verdict"), keccak256("salt")));
        _no(voters[1], c, early, Voting.NotCommitted.selector);
        _no(voters[1], c, abi.encodeCall(court.reveal, (pool, 0, 0, 9, 0, 0, 0)), Voting.NotCommitted.selector);
        _wait(60);
        _no(voters[1], c, abi.encodeCall(court.commit, (pool, 0, 0, 1, hash)), Voting.CommitOver.selector);
        _yes(voters[0], c, reveal);
        _no(voters[0], c, reveal, Voting.AlreadyRevealed.selector);
        _showsItsVote(_all(1));
        FileRef[] memory refs = _refs(0);
        court.settle(pool, 0, 0, refs); // one vote of three decides nothing
        _unpack(0);
        _no(stranger, c, abi.encodeCall(court.settle, (pool, 0, 0, refs)), ICourt.AlreadySettled.selector);
        _no(stranger, c, abi.encodeCall(court.draw, (pool, 0, 0)), ICourt.AlreadySettled.selector);
        _no(voters[1], c, abi.encodeCall(court.commit, (pool, 0, 0, 1, hash)), ICourt.AlreadySettled.selector);
        _no(voters[1], c, reveal, ICourt.AlreadySettled.selector);
        _no(stranger, c, abi.encodeCall(court.closeCommittee, (pool, 0, 0)), ICourt.NotSettled.selector);
        assertEq(_round(pool, 0, 1).time, height + 2);
        assertTrue(_round(pool, 0, 0).settled);
        _passWindow();
        // its one vote is judged by round 1
        _no(stranger, c, abi.encodeCall(court.closeCommittee, (pool, 0, 0)), ICourt.NotSettled.selector);
        _blocks(70); // which is never drawn
        court.settle(pool, 0, 1, refs);
        _unpack(0);
        assertEq(_code(0), Codes.VOID);
        assertEq(_round(pool, 0, 1).time, clock);
        bytes memory open = abi.encodeWithSelector(ICourt.NotYet.selector, clock + 3600);
        _no(stranger, c, abi.encodeCall(court.closeCommittee, (pool, 0, 0)), open);
        _passWindow();
        court.closeCommittee(pool, 0, 0);
        _no(stranger, c, abi.encodeCall(court.closeCommittee, (pool, 0, 0)), Voting.AlreadyClosed.selector);
        _no(stranger, c, abi.encodeCall(court.closeCommittee, (pool, 0, 1)), Voting.NotDrawn.selector);
    }

    function test_courtLateReveal() public {
        _submit();
        _draw(0, 0);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 0, i, _all(1));
        }
        (, address[] memory voters,,) = court.committeeOf(pool, 0, 0);
        _wait(120);
        bytes memory reveal =
            abi.encodeCall(court.reveal, (pool, 0, 0, 0, _all(1), keccak256("verdict"), keccak256("salt")));
        _no(voters[0], address(court), reveal, abi.encodeWithSelector(Voting.RevealOver.selector, clock));
    }

    function test_silentCommitteesPayAndTheFileIsVoid() public {
        uint256 s = _submit();
        _draw(0, 0);
        FileRef[] memory refs = _refs(0);
        _no(stranger, address(court), abi.encodeCall(court.settle, (pool, 0, 0, refs)), ICourt.NotSettleable.selector);
        _wait(60);
        court.settle(pool, 0, 0, refs);
        _unpack(0);
        assertEq(uint256(_submission(s).phase), uint256(Phase.Pending));
        _draw(0, 1);
        _wait(60);
        court.settle(pool, 0, 1, refs);
        _unpack(0);
        assertEq(_code(s), Codes.VOID);
        assertEq(_pool(pool).free, BUDGET - 1_000 * 1e6 - 2 * FEES);
        _passWindow();
        _closeAll(0, 0);
        _closeAll(0, 1);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(seats.seatOf(_round(pool, 0, 0).seats[i]).bond, BOND - 2e9);
            assertEq(seats.seatOf(_round(pool, 0, 1).seats[i]).bond, BOND - 2e9);
        }
    }

    function test_drawNeedsEnoughSeats() public {
        _submit();
        uint256 lastDraw = _round(pool, 0, 0).time + 64;
        for (uint256 i = 1; i <= SEATS - 2; ++i) {
            vm.prank(_seatOwner(i));
            seats.leaveSeat(i);
        }
        _nextEpoch();
        _blocks(1);
        bytes memory over = abi.encodeWithSelector(ICourt.DrawOver.selector, lastDraw);
        _no(stranger, address(court), abi.encodeCall(court.draw, (pool, 0, 0)), over);
        uint256 next = _submit();
        _blocks(34);
        bytes memory few = abi.encodeWithSelector(Voting.TooFewSeats.selector, 2);
        _no(stranger, address(court), abi.encodeCall(court.draw, (pool, next / 16, 0)), few);
    }

    function test_redrawWithFewSeatsReusesThem() public {
        for (uint256 i = 1; i <= SEATS - 4; ++i) {
            vm.prank(_seatOwner(i));
            seats.leaveSeat(i);
        }
        _nextEpoch(); // four are left: three judge, and one alone is no fresh committee
        uint256 s = _submit();
        _vote(0, 0, _three(_all(1), _all(3), 0));
        _vote(0, 1, _three(_all(1), _all(1), _all(1)));
        assertEq(_code(s), Codes.ACCEPT);
        uint256[] memory again = _round(pool, 0, 1).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertTrue(again[i] > SEATS - 4);
            assertTrue(again[i] != again[(i + 1) % 3]);
        }
        _openSeats(5); // who dispute it later find a jury
        _nextEpoch();
        (uint256 round,,,,) = court.decisionOf(pool, s);
        assertEq(round, 1);
        uint256 trial = _dispute(stranger, s); // an outcome of round 1 can be disputed
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
    }
}
