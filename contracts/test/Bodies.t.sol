// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IAppeals} from "../src/interfaces/IAppeals.sol";
import {ICanaries} from "../src/interfaces/ICanaries.sol";
import {ICourt} from "../src/interfaces/ICourt.sol";
import {IJuries} from "../src/interfaces/IJuries.sol";
import {IParams} from "../src/interfaces/IParams.sol";
import {IPools} from "../src/interfaces/IPools.sol";
import {IVoting} from "../src/interfaces/IVoting.sol";
import {Codes} from "../src/libraries/Codes.sol";
import {FileData, FileRef, PoolTerms} from "../src/libraries/Types.sol";
import {Planting} from "./helpers/Planting.sol";

/// @notice A node's account with code that acknowledges every signature.
contract Agreeable {
    function isValidSignature(bytes32, bytes calldata) external pure returns (bytes4) {
        return Agreeable.isValidSignature.selector;
    }
}

/// @notice Committees and juries have the size they were promised with, silence is replaced, missing files blame
/// nobody who is not to blame, and canaries come first.
contract BodiesTest is Planting {
    uint256 internal constant PAY = 1_000 * 1e6;
    uint256 internal constant DEPOSIT = 5 * 5e8 + 5e9;

    function _loss(uint256 seat) internal view returns (uint256) {
        return BOND - seats.seatOf(seat).bond;
    }

    function _committee() internal view returns (uint256[] memory) {
        return court.roundOf(pool, 0, 0).seats;
    }

    // ---- Juries

    /// Fewer votes than half of the promised jury overturn nothing: a fresh jury is drawn, once, and then the outcome
    /// stands and the deposits go back.
    function test_juryWithoutQuorumIsReplacedOnceThenDismissed() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.REJECT_WEIGHTS, 2, 0); // two of five, and three absent
        _wait(60);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertFalse(appeals.disputeOf(pool, s).resolved);
        uint256 next = appeals.disputeOf(pool, s).trial;
        assertEq(next, trial + 1);
        assertEq(juries.caseOf(next).size, 5);
        _juryVotes(next, Codes.REJECT_WEIGHTS, 2, 0);
        _wait(60);
        _conclude(s);
        assertTrue(appeals.disputeOf(pool, s).resolved);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(token.balanceOf(stranger), 10_000e9);
        assertEq(stakes.stakeOf(node), STAKE);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(_committee()[i]), 0);
        }
        uint256[] memory jurors = juries.seatsOf(next);
        for (uint256 i = 0; i < 5; ++i) {
            _closes(trial, i, i < 2 ? 0 : 2e9); // silence costs, in each jury
            _closes(next, i, i < 2 ? 0 : 2e9);
        }
        assertEq(jurors.length, 5);
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    function _closes(uint256 trial, uint256 juror, uint256 penalty) private {
        uint256 seat = juries.seatsOf(trial)[juror];
        uint256 before = _loss(seat);
        juries.closeJuror(trial, juror);
        assertEq(_loss(seat) - before, penalty);
    }

    function test_replacedJuryCanDecide() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _draw_(trial);
        _wait(60); // nobody commits
        _conclude(s);
        _juryVotes(trial + 1, Codes.REJECT_WEIGHTS);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(stakes.stakeOf(node), 0);
        uint256[] memory silent = juries.seatsOf(trial);
        for (uint256 i = 0; i < 5; ++i) {
            uint256 before = seats.seatOf(silent[i]).bond;
            juries.closeJuror(trial, i);
            assertEq(before - seats.seatOf(silent[i]).bond, 2e9);
        }
    }

    function _draw_(uint256 trial) internal {
        _blocks(juries.caseOf(trial).seedBlock + 1 - height);
        juries.draw(trial);
    }

    function test_juryIsNeverSmallerThanPromised() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        // only four of the seats beside the committee have not left before the dispute
        uint256[] memory c = _committee();
        uint256 others = SEATS - 3;
        for (uint256 seat = 1; others > 4; ++seat) {
            if (seat == c[0] || seat == c[1] || seat == c[2]) continue;
            vm.prank(_seatOwner(seat));
            seats.leaveSeat(seat);
            --others;
        }
        _nextEpoch();
        uint256 trial = _dispute(stranger, s);
        _blocks(3);
        vm.expectRevert(abi.encodeWithSelector(IVoting.TooFewSeats.selector, 4));
        juries.draw(trial);
        FileData memory f = files[pool][s];
        vm.expectRevert(abi.encodeWithSelector(IAppeals.NotYet.selector, 0));
        appeals.conclude(pool, s, f);
        _blocks(4 * EPOCH);
        _conclude(s); // it lapsed: the outcome stands, the deposit goes back
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(token.balanceOf(stranger), 10_000e9);
    }

    /// Waiting gives no other jury: there is one seed, and after three epochs none.
    function test_undrawnJuryLapses() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _blocks(3);
        (uint256[] memory first,, bytes32 seed,) = juries.juryOf(trial);
        _nextEpoch();
        _nextEpoch();
        (uint256[] memory later,, bytes32 same,) = juries.juryOf(trial);
        assertEq(first, later);
        assertEq(seed, same);
        _nextEpoch();
        _nextEpoch();
        vm.expectRevert(IJuries.Lapsed.selector);
        juries.draw(trial);
        _conclude(s);
        assertEq(appeals.disputeOf(pool, s).trial, trial); // no second try for who did not draw
        assertTrue(appeals.disputeOf(pool, s).resolved);
        assertEq(token.balanceOf(stranger), 10_000e9);
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    function test_rotatedKeyLosesNoBallot() public {
        uint256 s = _submit();
        _draw(0, 0);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 0, i, _all(1));
        }
        (uint256[] memory members, address[] memory voters,,) = court.committeeOf(pool, 0, 0);
        vm.prank(_seatOwner(members[0]));
        seats.setVoter(members[0], stranger);
        vm.prank(voters[0]);
        court.reveal(pool, 0, 0, 0, _all(1), keccak256("verdict"), keccak256("salt"));
        _reveal(0, 0, 1, _all(1));
        _reveal(0, 0, 2, _all(1));
        court.settle(pool, 0, 0, _refs(0));
        uint256 trial = _dispute(stranger, s);
        _draw_(trial);
        (members, voters,,) = juries.juryOf(trial);
        bytes32 hash = juries.ballotHash(trial, voters[0], 1, keccak256("verdict"), keccak256("salt"));
        vm.prank(voters[0]);
        juries.commit(trial, 0, hash);
        vm.prank(_seatOwner(members[0]));
        seats.setVoter(members[0], account("new key"));
        _wait(60);
        vm.expectRevert(IVoting.WrongReveal.selector);
        vm.prank(account("new key"));
        juries.reveal(trial, 0, 1, keccak256("verdict"), keccak256("salt"));
        vm.prank(voters[0]);
        juries.reveal(trial, 0, 1, keccak256("verdict"), keccak256("salt"));
        assertEq(juries.votesOf(trial)[0], 1);
    }

    // ---- Missing files

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
        uint256 attempts = 3 * (FEE / 4); // one is paid, two are burnt
        assertEq(token.balanceOf(address(pools)), BUDGET - PAY - attempts);
        assertEq(pools.poolOf(pool).free, BUDGET - PAY - attempts);
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
            assertEq(_loss(_committee()[i]), 0); // serving a file to two of three costs the third its fee only
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
        for (uint256 seat = 1; seat <= SEATS; ++seat) {
            assertEq(_loss(seat), 0);
        }
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

    // ---- Committees

    function test_silentCommitteeIsFinedAndReplaced() public {
        uint256 s = _submit();
        _draw(0, 0);
        _wait(60);
        court.settle(pool, 0, 0, _refs(0));
        uint256[] memory first = _committee();
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(first[i]), 2e9);
        }
        _vote(0, 1, _three(_all(1), _all(1), _all(1)));
        assertEq(_code(s), Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(s), PAY);
        uint256[] memory second = court.roundOf(pool, 0, 1).seats;
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
    function test_secondCommitteeSharesNoSeatWithTheFirst() public {
        for (uint256 lane = 0; lane < 8; ++lane) {
            _submit();
            _vote(lane, 0, _three(_all(1), _all(3), 0));
            _blocks(3);
            uint256[] memory first = court.roundOf(pool, lane, 0).seats;
            (uint256[] memory second,,,) = court.committeeOf(pool, lane, 1);
            assertEq(second.length, 3);
            for (uint256 i = 0; i < 9; ++i) {
                assertTrue(first[i / 3] != second[i % 3]);
            }
        }
    }

    function test_seatWithoutBondIsNeverDrawn() public {
        _submit();
        _attest(0);
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

    function test_fullLaneClosesAtOnce() public {
        for (uint256 i = 0; i < 15; ++i) {
            _submit();
        }
        vm.expectRevert(abi.encodeWithSelector(ICourt.LaneOpen.selector, height + 2));
        vm.prank(account("service"));
        court.attest(pool, 0, 1); // two blocks may bring more files
        _submit();
        _attest(0);
        assertEq(court.roundOf(pool, 0, 0).seedBlock, height + 1);
        _blocks(2);
        court.draw(pool, 0, 0);
        uint256 next = _submit();
        assertEq(next, 16);
        (, uint256 end,) = pools.laneOf(pool, 1);
        assertEq(end, height + 2);
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
        PoolTerms memory t = defaultTerms();
        t.appealJury = 7;
        _openSeats(18 - seats.opened());
        _nextEpoch();
        _moveTo(t);
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

    // ---- Canaries

    function _plant() internal returns (uint256 s) {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        s = _submit();
    }

    /// A seat that accepts blindly pays for it also where the others looked; they are paid for their votes.
    function test_lazySeatPaysAlsoInTheMinority() public {
        uint256 s = _plant();
        uint256 reject = _all(Codes.REJECT_WEIGHTS);
        _vote(s / 16, 0, _three(_all(Codes.ACCEPT), reject, reject));
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        _openCanary(s);
        assertEq(canaries.canaryOf(pool, s).accused.length, 1);
        _juryVotes(canaries.canaryOf(pool, s).trial, Codes.REJECT_WEIGHTS);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.CANARY);
        uint256[] memory drawn = court.roundOf(pool, s / 16, 0).seats;
        assertEq(_loss(drawn[0]), 200e9);
        _passWindow();
        _closeAll(s / 16, 0);
        assertEq(_loss(drawn[0]), 200e9); // and no minority penalty beside it
        assertEq(_loss(drawn[1]) + _loss(drawn[2]), 0);
        assertEq(stakes.stakeOf(node), STAKE); // the carrier is free
    }

    /// The owner and two seats that reject a good file they planted cannot take the third seat's bond.
    function test_ownerAndAMajorityCannotFrameAnHonestMinority() public {
        uint256 s = _plant();
        uint256 reject = _all(Codes.REJECT_WEIGHTS);
        _vote(s / 16, 0, _three(_all(Codes.ACCEPT), reject, reject));
        uint256 before = token.balanceOf(owner) + 100_000e9; // _openCanary gives it that much
        _openCanary(s);
        _juryVotes(canaries.canaryOf(pool, s).trial, Codes.ACCEPT);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(_loss(court.roundOf(pool, s / 16, 0).seats[0]), 0);
        assertEq(before - token.balanceOf(owner), 200e9 + 5 * 5e8); // what it put at stake, and the jury's fees
    }

    /// Opening comes first: whoever disputes a planted file neither burns its carrier nor earns, and the lazy majority
    /// pays as if nobody had.
    function test_canaryComesBeforeADispute() public {
        uint256 s = _plant();
        _voteAll(s / 16, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.REJECT_WEIGHTS);
        FileData memory f = files[pool][s];
        uint256 until = pools.submissionOf(pool, s).finalAt;
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
        assertEq(stakes.stakeOf(node), STAKE);
        assertEq(stakes.nodeOf(node).frozen, 0);
        uint256[] memory drawn = court.roundOf(pool, s / 16, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(drawn[i]), 200e9);
        }
        assertEq(before - token.balanceOf(owner), 5 * 5e8);
        assertEq(token.balanceOf(address(canaries)), 0);
        assertEq(token.balanceOf(address(appeals)), 0);
    }

    function test_disputeOfAnOrdinaryFileEndsAfterTheWindow() public {
        uint256 s = _plant();
        _voteAll(s / 16, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.REJECT_WEIGHTS);
        _passWindow();
        FileData memory f = files[pool][s];
        ICanaries.Planted memory p = _opening(f);
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        uint256 until = pools.submissionOf(pool, s).finalAt;
        vm.expectRevert(abi.encodeWithSelector(ICanaries.WindowOver.selector, until));
        vm.prank(owner);
        canaries.open(pool, s, f, p, r, 3);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(stakes.stakeOf(node), 0);
    }

    /// One true canary in a lane gives the owner no way to take the other files' pay.
    function test_falseCanariesBesideATrueOneDenyNobodysPay() public {
        uint256 first = _plant();
        uint256 second = _submit();
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
            seats.openSeat(_voter(seat), _classes(FAMILY));
        }
        _nextEpoch();
        uint256 s = _plant();
        for (uint256 i = 0; i < 3; ++i) {
            _submit();
        }
        _voteAll(s / 16, Codes.ACCEPT);
        uint256[] memory drawn = court.roundOf(pool, s / 16, 0).seats;
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
        uint256 s = _plant();
        _voteAll(s / 16, Codes.ACCEPT);
        uint256 before = token.balanceOf(owner) + 100_000e9;
        _openCanary(s);
        FileData memory f = files[pool][s];
        for (uint256 i = 0; i < 2; ++i) {
            _draw_(canaries.canaryOf(pool, s).trial);
            _wait(60);
            canaries.conclude(pool, s, f);
        }
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(token.balanceOf(owner), before);
        assertEq(_loss(court.roundOf(pool, s / 16, 0).seats[0]), 0);
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    function test_onlyCanariesCancelDisputes() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        _dispute(stranger, s);
        vm.expectRevert(IAppeals.NotCanaries.selector);
        appeals.cancel(pool, s);
        vm.expectRevert(IAppeals.NoDispute.selector);
        vm.prank(address(canaries));
        appeals.cancel(pool, 5);
        vm.expectRevert(IJuries.NotBench.selector);
        juries.discharge(1);
        vm.expectRevert(IJuries.NotBench.selector);
        juries.replace(1);
    }

    /// A captured committee rejects honest work; its worker disputes; no canary that the owner opens ends the dispute.
    function test_canaryDoesNotTakeAWrongedWorkersJury() public {
        uint256 sequence = _plant();
        _voteAll(sequence / 16, Codes.REJECT_WEIGHTS);
        uint256 trial = _dispute(stranger, sequence);
        uint256 free = pools.poolOf(pool).free;
        _refusesToOpen(sequence, "");
        assertEq(pools.poolOf(pool).free, free); // the pay stays reserved for the worker
        _juryVotes(trial, Codes.ACCEPT);
        _passWindow();
        _conclude(sequence);
        assertEq(_code(sequence), Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(sequence), PAY);
    }

    /// Only the key of the file's own node makes it a canary, for this file, on this chain, to this contract.
    function test_nobodysWorkIsACanaryWithoutItsNodesConsent() public {
        uint256 s = _plant();
        uint256 other = _submit(); // planted as well
        _voteAll(s / 16, Codes.ACCEPT);
        FileData memory f = files[pool][s];
        bytes32 leaf = canaries.leafOf(_opening(f).salt, pool, f.step, node, f.counter);
        bytes32 digest = canaries.consentDigest(leaf);
        _refusesToOpen(s, "");
        _refusesToOpen(s, _sign(key("owner"), digest));
        _refusesToOpen(s, _sign(key("operator"), digest));
        _refusesToOpen(s, _opening(files[pool][other]).consent);
        _refusesToOpen(s, _sign(key("node"), leaf));
        _refusesToOpen(s, _sign(key("node"), _digestAt(leaf, block.chainid + 1, address(canaries))));
        _refusesToOpen(s, _sign(key("node"), _digestAt(leaf, block.chainid, address(appeals))));
        assertEq(digest, _digestAt(leaf, block.chainid, address(canaries)));
        _openCanary(s);
        assertEq(canaries.canaryOf(pool, s).accused.length, 3);
    }

    /// A contract is not asked: one that acknowledges every signature would give its operator's work away.
    function test_aContractsConsentIsNone() public {
        vm.etch(node, type(Agreeable).runtimeCode);
        uint256 s = _plant();
        _voteAll(s / 16, Codes.ACCEPT);
        _refusesToOpen(s, "");
        _openCanary(s); // its key's is, whatever code the account has
        assertEq(canaries.canaryOf(pool, s).accused.length, 3);
    }

    /// The consent is to one file of the node's, wherever a reorganisation puts it, and also once the node has left.
    function test_aCarriersConsentOutlastsItsMembershipAndAReorganisation() public {
        address early = _register(operator, "early", STAKE);
        vm.prank(operator);
        pools.join(pool, early);
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 snapshot = vm.snapshot();
        uint256 s = _submit();
        ICanaries.Planted memory p = _opening(files[pool][s]);
        vm.revertTo(snapshot);
        _submitFrom(early, 1_000);
        assertEq(_submit(), s + 1);
        vm.prank(operator);
        pools.leavePool(pool, node);
        _voteAll(s / 16, Codes.ACCEPT);
        FileData memory f = files[pool][s + 1];
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        _give(owner, address(canaries), 100_000e9);
        vm.prank(owner);
        canaries.open(pool, s + 1, f, p, r, 3);
        assertEq(canaries.canaryOf(pool, s + 1).accused.length, 3);
    }

    /// Nobody's bond and nobody else's pay depend on a canary that no seat accepted: no jury judges it.
    function test_canaryThatNobodyAcceptedNeedsNoJury() public {
        uint256 s = _plant();
        _voteAll(s / 16, Codes.REJECT_WEIGHTS);
        uint256 trial = _dispute(stranger, s);
        uint256 before = token.balanceOf(owner) + 100_000e9;
        _openCanary(s);
        assertEq(canaries.canaryOf(pool, s).trial, 0);
        assertEq(token.balanceOf(stranger), 10_000e9);
        assertTrue(juries.caseOf(trial).concluded);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.CANARY);
        assertEq(token.balanceOf(owner), before);
        assertEq(stakes.stakeOf(node), STAKE);
        uint256[] memory drawn = court.roundOf(pool, s / 16, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(drawn[i]), 0);
        }
    }

    function _refusesToOpen(uint256 s, bytes memory consent) private {
        FileData memory f = files[pool][s];
        ICanaries.Planted memory p = _opening(f);
        p.consent = consent;
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        vm.expectRevert(ICanaries.NoConsent.selector);
        vm.prank(owner);
        canaries.open(pool, s, f, p, r, 3);
    }

    function _digestAt(bytes32 leaf, uint256 chain, address place) private pure returns (bytes32) {
        bytes32 domain = keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
        domain = keccak256(abi.encode(domain, keccak256("muster-canaries"), keccak256("1"), chain, place));
        bytes32 consent = keccak256(abi.encode(keccak256("CarrierConsent(bytes32 leaf)"), leaf));
        return keccak256(abi.encodePacked(bytes2(0x1901), domain, consent));
    }

    /// Who rejects honest work pays, when a jury says so, what the work would have earned: an owner whose seats take it
    /// for nothing gains nothing on average, however dear it is.
    function test_wrongRejectionCostsWhatTheWorkEarns() public {
        IParams.Values memory v = defaultValues();
        v.overturnPenalty = 10e9;
        _govern(v);
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
