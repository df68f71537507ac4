// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {FileData, FileRef, PoolTerms} from "../src/libraries/Types.sol";
import {Planting} from "./helpers/Planting.sol";
import {IAppeals} from "./interfaces/IAppeals.sol";
import {ICanaries} from "./interfaces/ICanaries.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {IJuries} from "./interfaces/IJuries.sol";
import {IPools} from "./interfaces/IPools.sol";
import {ISeats} from "./interfaces/ISeats.sol";
import {IStakes} from "./interfaces/IStakes.sol";
import {Vm} from "@prb/test/Vm.sol";

/// @notice What daemons learn from events alone: each is there, once, with its figures.
contract EventsTest is Planting {
    function test_settlementNamesEachFilesOutcome() public {
        uint256 s = _submit();
        _draw(0, 0);
        _acceptAll();
        FileRef[] memory refs = _refs(0);
        vm.expectEmit(address(court));
        emit ICourt.LaneSettled(pool << 64, Codes.ACCEPT);
        uint256[] memory words = new uint256[](1);
        uint256 digest = uint256(keccak256(abi.encode(_inner(s), node))) >> 96;
        words[0] = digest | (1_000 << 160) | ((clock + 3600) << 208) | (Codes.ACCEPT << 240) | (2 << 248) | (1 << 252);
        vm.expectEmit(address(pools));
        emit IPools.FilesSettled((pool << 32) | s, words);
        court.settle(pool, 0, 0, refs);
        _unpack(0);
    }

    function test_poolsAreAnnouncedWithTheirTerms() public {
        PoolTerms memory terms = defaultTerms();
        uint256 next = pools.poolCount() + 1;
        uint256 unbonding = params.checkTerms(terms);
        _give(owner, address(pools), 5);
        vm.expectEmit(address(pools));
        emit IPools.PoolCreated(next, owner, terms.configHash, terms, unbonding);
        vm.expectEmit(address(pools));
        emit IPools.PoolFunded(next, owner, 5);
        vm.prank(owner);
        pools.createPool(terms, 5);
    }

    function test_jurorsVotesAreAnnounced() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _blocks(3);
        _drawTrial(trial);
        (uint256[] memory jurors, address[] memory voters,,) = juries.juryOf(trial);
        bytes32 hash = juries.ballotHash(trial, voters[2], 3, keccak256("verdict"), keccak256("salt"));
        vm.expectEmit(address(juries));
        emit IJuries.JurorCommitted(trial, jurors[2], 2, hash);
        vm.prank(voters[2]);
        juries.commit(trial, 2, hash);
        _wait(60);
        vm.expectEmit(address(juries));
        emit IJuries.JurorRevealed(trial, jurors[2], 2, 3, keccak256("verdict"));
        vm.prank(voters[2]);
        juries.reveal(trial, 2, 3, keccak256("verdict"), keccak256("salt"));
    }

    function test_canarysEndIsAnnounced() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _openCanary(s);
        FileData memory f = files[pool][s];
        vm.expectEmit(address(canaries));
        emit ICanaries.CanaryConcluded(pool, s, true, Codes.CANARY);
        canaries.conclude(pool, s, f);
    }

    /// One of three is silent: one is named and fined, and nobody else.
    function test_onlyAbsentMembersAreFinedForSilence() public {
        _submit();
        _draw(0, 0);
        _commit(0, 0, 0, _all(1));
        _commit(0, 0, 1, _all(1));
        _wait(60);
        _reveal(0, 0, 0, _all(1));
        _reveal(0, 0, 1, _all(1));
        FileRef[] memory refs = _refs(0);
        uint256 silent = _round(pool, 0, 0).seats[2];
        vm.recordLogs();
        court.settle(pool, 0, 0, refs);
        _unpack(0);
        uint256 named;
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i = 0; i < logs.length; ++i) {
            if (logs[i].topics[0] != ICourt.MemberAbsent.selector) continue;
            ++named;
            assertEq((uint256(bytes32(logs[i].data)) >> 16) & 0xffff, silent);
        }
        assertEq(named, 1);
    }

    /// What a pool holds follows from what came in and went out.
    function test_budgetsComeAndGoWithEvents() public {
        _give(stranger, address(pools), 7e9);
        vm.expectEmit(address(pools));
        emit IPools.PoolFunded(pool, stranger, 7e9);
        vm.prank(stranger);
        pools.fund(pool, 7e9);
        vm.expectEmit(address(pools));
        emit IPools.StatusSet(pool, IPools.Status.Closing);
        vm.prank(owner);
        pools.closePool(pool);
        _wait(30 days);
        vm.expectEmit(address(pools));
        emit IPools.StatusSet(pool, IPools.Status.Settled);
        vm.expectEmit(address(pools));
        emit IPools.LeftoverTaken(pool, owner, BUDGET + 7e9);
        vm.prank(owner);
        pools.settlePool(pool);
        _give(owner, address(pools), 5e9);
        vm.expectEmit(address(pools));
        emit IPools.PoolFunded(pool + 1, owner, 5e9);
        vm.prank(owner);
        pools.createPool(defaultTerms(), 5e9);
    }

    /// Who votes in one call is announced once, with its seat.
    function test_votesInOneCallAreAnnouncedAsRevealed() public {
        _submit();
        _draw(0, 0);
        (uint256[] memory members, address[] memory voters,,) = court.committeeOf(pool, 0, 0);
        _commit(0, 0, 0, _all(1));
        bytes32 hash = _ballotHash(pool, 0, 0, voters[1], 1, keccak256("verdict"), keccak256("salt"));
        vm.expectEmit(address(court));
        emit ICourt.VoteCommitted((pool << 64) | (members[1] << 16) | 1, hash);
        vm.prank(voters[1]);
        court.commit(pool, 0, 0, 1, hash);
        vm.recordLogs();
        vm.prank(voters[2]);
        court.vote(pool, 0, 0, 2, 7, keccak256("verdict"));
        Vm.Log[] memory logs = vm.getRecordedLogs();
        assertEq(logs.length, 1);
        assertEq(logs[0].topics[0], ICourt.VoteRevealed.selector);
        assertEq(logs[0].data, abi.encode((pool << 64) | (members[2] << 16) | 2, 7, keccak256("verdict")));
    }

    /// Without a second jury there is no time for an appeal.
    function test_verdictSaysUntilWhenAnAppealMayCome() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        _juryVotes(_dispute(stranger, s), Codes.ACCEPT);
        FileData memory f = files[pool][s];
        vm.expectEmit(address(juries));
        emit IJuries.VerdictReached(appeals.disputeOf(pool, s).trial, Codes.ACCEPT, clock);
        appeals.conclude(pool, s, f);
    }

    /// A jury that finds a rejected file malformed frees its node.
    function test_aJuryFreesANode() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        assertEq(_account(pool, node).frozen, 1);
        _juryVotes(_dispute(operator, s), Codes.MALFORMED);
        FileData memory f = files[pool][s];
        appeals.conclude(pool, s, f);
        assertEq(_account(pool, node).frozen, 0);
    }

    /// A seat that has left does not leave again when a penalty takes its bond: it unbonds when it would have.
    function test_seatThatLeftLeavesOnce() public {
        _submit();
        _draw(0, 0);
        uint256 gone = _round(pool, 0, 0).seats[0];
        vm.prank(_seatOwner(gone));
        seats.leaveSeat(gone);
        uint256 left = seats.currentEpoch();
        _nextEpoch();
        vm.recordLogs();
        vm.prank(address(court));
        seats.penalise(gone, BOND, address(this));
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i = 0; i < logs.length; ++i) {
            assertTrue(logs[i].topics[0] != ISeats.SeatLeft.selector);
        }
        assertEq(seats.seatOf(gone).bond, 0);
        assertEq(seats.seatOf(gone).leftEpoch, left);
    }

    function test_membershipsAreAnnounced() public {
        address other = _register(operator, "other node", STAKE);
        uint256 limit = _account(pool, node).limit;
        vm.expectEmit(address(pools));
        emit IPools.NodeJoined(pool, other, operator, 1, limit);
        vm.prank(operator);
        pools.join(pool, other, type(uint256).max, "", "");
        vm.expectEmit(address(pools));
        emit IPools.NodeLeft(pool, other, false);
        vm.expectEmit(address(stakes));
        emit IStakes.NodeUnbound(other, pool, clock + _pool(pool).unbonding);
        vm.prank(operator);
        pools.leavePool(pool, other, type(uint256).max, "");
        vm.expectEmit(address(pools));
        emit IPools.NodeLeft(pool, node, true);
        vm.prank(owner);
        pools.removeNode(pool, node);
    }

    function test_disputesAreAnnouncedWithTheirEnd() public {
        _moveToTwoJuries();
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 finalAt = _submission(s).finalAt;
        FileData memory f = files[pool][s];
        _give(stranger, address(appeals), 10_000e9);
        uint256 trial = juries.trialCount() + 1;
        uint256 deposit = juries.depositOf(pool, 1);
        vm.expectEmit(address(appeals));
        emit IAppeals.Disputed(pool, s, stranger, trial, deposit);
        vm.prank(stranger);
        appeals.dispute(pool, s, f);
        _juryVotes(trial, Codes.REJECT_WEIGHTS);
        vm.expectEmit(address(pools));
        emit IPools.NodeFrozen(pool, node, clock);
        appeals.conclude(pool, s, f);
        _wait(defaultTerms().appealWindow);
        vm.expectEmit(address(pools));
        emit IPools.FileResolved(pool, node, s, Codes.REJECT_WEIGHTS, finalAt);
        appeals.conclude(pool, s, f);
    }

    /// A seat that has nothing left to take has nothing sent.
    function test_emptyBondIsNotSent() public {
        vm.startPrank(address(court));
        seats.penalise(1, BOND, address(this));
        vm.recordLogs();
        seats.penalise(1, 1, address(this));
        vm.stopPrank();
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i = 0; i < logs.length; ++i) {
            assertTrue(logs[i].emitter != address(token));
        }
    }

    /// A fresh committee's round is in its events.
    function test_secondRoundIsNamed() public {
        uint256 s = _submit();
        _draw(0, 0);
        _wait(120);
        court.settle(pool, 0, 0, _refs(0));
        _unpack(0);
        _draw(0, 1);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 1, i, _all(1));
        }
        for (uint256 i = 0; i < 3; ++i) {
            _reveal(0, 1, i, _all(1));
        }
        FileRef[] memory refs = _refs(0);
        vm.expectEmit(address(court));
        emit ICourt.LaneSettled((pool << 64) | (1 << 8), Codes.ACCEPT);
        court.settle(pool, 0, 1, refs);
        _unpack(0);
        assertEq(_code(s), Codes.ACCEPT);
    }

    function test_appealIsAnnounced() public {
        _moveToTwoJuries();
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(s);
        _give(stranger, address(juries), 10_000e9);
        uint256 deposit = juries.appealDepositOf(trial);
        vm.expectEmit(address(juries));
        emit IJuries.Appealed(trial, trial + 1, stranger, deposit);
        vm.prank(stranger);
        juries.appeal(trial);
    }

    function test_feesAreAnnouncedPaidAndBurnt() public {
        _submit();
        _vote(0, 0, _three(_all(1), _all(1), _all(3)));
        _passWindow();
        uint256[] memory members = _round(pool, 0, 0).seats;
        uint256 sunk = token.balanceOf(SINK);
        vm.expectEmit(address(court));
        emit ICourt.MemberClosed((pool << 64) | (members[0] << 16), FEE, 0, 0);
        vm.expectEmit(address(court));
        emit ICourt.MemberClosed((pool << 64) | (members[2] << 16) | 2, 0, FEE, penalties.minorityPenalty);
        court.closeCommittee(pool, 0, 0);
        assertEq(token.balanceOf(_seatOwner(members[0])), 0);
        assertEq(pools.feesOf(members[0]), FEE);
        vm.expectEmit(address(pools));
        emit IPools.FeesWithdrawn(members[0], _seatOwner(members[0]), FEE);
        vm.prank(stranger);
        assertEq(pools.withdrawFees(members[0]), FEE);
        assertEq(pools.withdrawFees(members[0]), 0); // once
        assertEq(pools.withdrawFees(members[2]), 0);
        assertEq(pools.withdrawFees(60_000), 0); // nobody's
        assertEq(token.balanceOf(_seatOwner(members[0])), FEE);
        uint256 share = penalties.minorityPenalty / 20;
        assertEq(token.balanceOf(SINK) - sunk, FEE + penalties.minorityPenalty - share);
    }

    function test_bodiesAreAnnouncedWithTheirSeeds() public {
        uint256 s = _submit();
        uint256 seedBlock = _round(pool, 0, 0).time;
        _blocks(seedBlock + 1 - height);
        (uint256[] memory members,, bytes32 seed,) = court.committeeOf(pool, 0, 0);
        uint256 drawn = uint256(seed) | (members[0] << 64) | (members[1] << 80) | (members[2] << 96);
        vm.expectEmit(address(court));
        emit ICourt.CommitteeDrawn(pool << 64, seedBlock, drawn);
        _acceptAll();
        court.settle(pool, 0, 0, _refs(0));
        _unpack(0);
        uint256 trial = _dispute(stranger, s);
        _blocks(3);
        (members,, seed,) = juries.juryOf(trial);
        seedBlock = height - 1;
        _blocks(EPOCH);
        vm.expectEmit(address(juries));
        emit IJuries.JuryDrawn(trial, seedBlock, seed, members);
        juries.draw(trial);
    }

    /// @dev All votes of lane 0's drawn committee.
    function _acceptAll() private {
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 0, i, _all(1));
        }
        for (uint256 i = 0; i < 3; ++i) {
            _reveal(0, 0, i, _all(1));
        }
    }
}
