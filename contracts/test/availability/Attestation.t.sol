// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICourt} from "../../src/interfaces/ICourt.sol";
import {IPools} from "../../src/interfaces/IPools.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {IVoting} from "../../src/interfaces/IVoting.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, FileRef, Receipt} from "../../src/libraries/Types.sol";
import {Receipting} from "../helpers/Receipting.sol";

/// @notice Bytes before randomness: only files whose bytes were attested before the draw are judged.
contract AttestationTest is Receipting {
    function test_lateFileIsVoidAndPaysAndTheSameFileInTimeIsPaid() public {
        uint256 late = _submit();
        uint256 fine = _submit();
        _attestPlaces(0, 2);
        _draw(0, 0);
        uint256 before = _burnt();
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 0, i, _all(Codes.ACCEPT)); // also for the place that is not in the vote
        }
        for (uint256 i = 0; i < 3; ++i) {
            _reveal(0, 0, i, _all(Codes.ACCEPT));
        }
        court.settle(pool, 0, 0, _refs(0));
        IPools.Submission memory s = pools.submissionOf(pool, late);
        assertEq(s.code, Codes.LATE);
        assertEq(s.finalAt, clock);
        assertEq(s.earned, 0);
        assertEq(court.roundOf(pool, 0, 0).codes, Codes.ACCEPT << 4);
        assertEq(pools.poolOf(pool).free, BUDGET - PAY - FEES); // only the other file is reserved
        assertEq(stakes.nodeOf(node).frozen, 1);
        _isChargedAtOnce(late, before);
        _passWindow();
        assertEq(_claim(fine), PAY);
        _closeAll(0, 0);
        uint256[] memory drawn = court.roundOf(pool, 0, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(token.balanceOf(_seatOwner(drawn[i])), FEES / 3); // of one file
            assertEq(_loss(drawn[i]), 0);
        }
        assertEq(token.balanceOf(address(pools)), BUDGET - PAY - FEES);
    }

    function _isChargedAtOnce(uint256 late, uint256 burnt) private {
        FileRef memory ref = _ref(late);
        vm.prank(stranger);
        pools.finalize(pool, late, ref);
        assertEq(stakes.stakeOf(node), STAKE - PENALTY);
        assertEq(token.balanceOf(stranger), PENALTY / 20);
        assertEq(_burnt() - burnt, PENALTY - PENALTY / 20);
        assertEq(pools.poolOf(pool).free, BUDGET - PAY - FEES);
        assertEq(stakes.nodeOf(node).frozen, 0);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, late, IPools.Phase.Final));
        pools.finalize(pool, late, ref);
    }

    function test_nothingCanBeUploadedOnceTheSeedIsKnown() public {
        uint256 s = _submit();
        _submit();
        _attestPlaces(0, 2); // the node watches what the draw will be before it uploads the other one
        (, uint256 end,) = pools.laneOf(pool, 0);
        assertEq(court.roundOf(pool, 0, 0).seedBlock, end + D + 1);
        _blocks(end + D + 1 - height); // the seed's block itself: its hash is known in the next one
        Receipt memory r = _receipt(s);
        FileData memory f = files[pool][s];
        vm.expectRevert(abi.encodeWithSelector(ICourt.AttestationOver.selector, end + D));
        vm.prank(account("service"));
        court.attest(pool, 0, 1);
        vm.expectRevert(abi.encodeWithSelector(ICourt.AttestationOver.selector, end + D));
        court.attestByReceipt(pool, s, f, r);
        _draw(0, 0);
    }

    function test_filesAreAttestedUntilTheLastBlock() public {
        uint256 s = _submit();
        (, uint256 end,) = pools.laneOf(pool, 0);
        _blocks(end + D - height);
        _attest(0);
        assertEq(court.roundOf(pool, 0, 0).seedBlock, end + D + 1);
        _isPaid(s);
    }

    /// Whoever burns counters until a lucky set of problems comes pays for each of them.
    function test_sixteenBurntCountersCostSixteenPenalties() public {
        for (uint256 i = 0; i < 16; ++i) {
            _submit();
        }
        FileRef[] memory refs = _refs(0);
        vm.expectRevert(abi.encodeWithSelector(ICourt.NotSettleable.selector, height + D + 1));
        court.settle(pool, 0, 0, refs);
        _blocks(D + 1);
        court.settle(pool, 0, 0, refs); // nobody is drawn for what nobody can get
        assertEq(pools.poolOf(pool).free, BUDGET);
        for (uint256 i = 0; i < 16; ++i) {
            assertEq(_code(i), Codes.LATE);
            vm.prank(stranger);
            pools.finalize(pool, i, refs[i]);
        }
        assertEq(STAKE - stakes.stakeOf(node), 16 * PENALTY);
        assertEq(token.balanceOf(stranger), 16 * PENALTY / 20);
        assertEq(pools.poolOf(pool).free, BUDGET);
        assertEq(token.balanceOf(address(pools)), BUDGET);
        IPools.Account memory a = pools.accountOf(pool, node);
        assertEq(a.counter, 16); // they are used
        assertEq(a.earned + a.pending + a.unsettled, 0);
        vm.expectRevert(ICourt.AlreadySettled.selector);
        court.settle(pool, 0, 0, refs);
        vm.expectRevert(ICourt.AlreadySettled.selector);
        court.draw(pool, 0, 0);
        assertEq(_submit(), 16); // who is late is not out
        _isPaid(16);
    }

    function test_nobodyDisputesOrOpensWhatIsLate() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 s = _submit();
        _blocks(2 + D + 1);
        court.settle(pool, s / 16, 0, _refs(s / 16));
        FileData memory f = files[pool][s];
        _give(stranger, address(appeals), DEPOSIT);
        vm.expectRevert(abi.encodeWithSelector(IPools.WindowOver.selector, clock));
        vm.prank(stranger);
        appeals.dispute(pool, s, f);
        vm.expectRevert(ICourt.NotSettled.selector);
        this.openOut(s);
        vm.expectRevert(IPools.NothingToClaim.selector);
        this.claimOut(s);
    }

    function openOut(uint256 s) external {
        _openCanary(s);
    }

    function test_stakeStaysUntilTheLatePaid() public {
        uint256 s = _submit();
        _blocks(2 + D + 1);
        court.settle(pool, 0, 0, _refs(0));
        vm.prank(operator);
        pools.leavePool(pool, node);
        _wait(30 days);
        uint256 releaseAt = stakes.nodeOf(node).releaseAt;
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeLocked.selector, releaseAt, 1));
        vm.prank(operator);
        stakes.withdraw(node, STAKE);
        pools.finalize(pool, s, _ref(s));
        vm.prank(operator);
        stakes.withdraw(node, STAKE - PENALTY);
        assertEq(token.balanceOf(operator), STAKE - PENALTY);
    }

    /// What is not in the vote costs nobody anything: a silent seat pays for the files it had to judge, no more.
    function test_whatIsNotAttestedIsNotInTheVote() public {
        for (uint256 i = 0; i < 4; ++i) {
            _submit();
        }
        _attestPlaces(0, 5); // places 0 and 2
        uint256 minority = Codes.set(Codes.set(_all(Codes.REJECT_WEIGHTS), 0, 1), 2, 1);
        _vote(0, 0, _three(_all(1), minority, 0));
        uint256[] memory drawn = court.roundOf(pool, 0, 0).seats;
        assertEq(_loss(drawn[2]), 2 * 2e9);
        for (uint256 i = 0; i < 4; ++i) {
            assertEq(_code(i), i % 2 == 0 ? Codes.ACCEPT : Codes.LATE);
        }
        _passWindow();
        _closeAll(0, 0);
        assertEq(_loss(drawn[0]) + _loss(drawn[1]), 0); // a vote on what is not in it is no vote
        assertEq(token.balanceOf(_seatOwner(drawn[1])), 2 * FEE);
        assertEq(pools.poolOf(pool).free, BUDGET - 2 * (PAY + FEES));
    }

    function test_secondRoundJudgesWhatTheFirstLeftUndecidedOnly() public {
        for (uint256 i = 0; i < 3; ++i) {
            _submit();
        }
        _attestPlaces(0, 3);
        uint256 split = Codes.set(_all(1), 1, Codes.REJECT_WEIGHTS);
        _vote(0, 0, _three(_all(1), split, 0)); // place 0 is accepted, place 1 undecided, place 2 late
        assertEq(court.roundOf(pool, 0, 1).codes, Codes.UNDECIDED << 4);
        assertEq(court.roundOf(pool, 0, 0).codes, Codes.ACCEPT | (Codes.UNDECIDED << 4));
        uint256 free = pools.poolOf(pool).free;
        _vote(0, 1, _three(_all(3), _all(3), _all(3)));
        assertEq(court.roundOf(pool, 0, 1).codes, Codes.REJECT_WEIGHTS << 4);
        assertEq(_code(0), Codes.ACCEPT);
        assertEq(_code(1), Codes.REJECT_WEIGHTS);
        assertEq(_code(2), Codes.LATE);
        assertEq(pools.poolOf(pool).free, free);
    }

    /// Attesting twice, attesting what does not exist, attesting after the end: nothing moves the seed's block once a
    /// hash may be known.
    function test_serviceCannotRollTheSeedAgain() public {
        for (uint256 i = 0; i < 3; ++i) {
            _submit();
        }
        (, uint256 end,) = pools.laneOf(pool, 0);
        _attestPlaces(0, 3);
        assertEq(court.roundOf(pool, 0, 0).seedBlock, end + D + 1);
        _attestReverts(0, 3, ICourt.NothingNew.selector);
        _attestReverts(0, 0, ICourt.NothingNew.selector);
        _attestReverts(0, 8, ICourt.NoSuchFile.selector); // the fourth place holds nothing
        _attestReverts(0, 4 | (1 << 15), ICourt.NoSuchFile.selector);
        _attestReverts(0, 1 << 16, ICourt.NoSuchFile.selector);
        _attestReverts(1, 1, ICourt.NoSuchLane.selector);
        _blocks(5);
        _attestPlaces(0, 7);
        uint256 seedBlock = height + 1;
        assertEq(court.roundOf(pool, 0, 0).seedBlock, seedBlock);
        _blocks(3);
        _attestReverts(0, 7, ICourt.NothingNew.selector);
        _attestReverts(0, 8, ICourt.NoSuchFile.selector);
        assertEq(court.roundOf(pool, 0, 0).seedBlock, seedBlock);
        _draw(0, 0);
        _attestReverts(0, 7, IVoting.AlreadyDrawn.selector);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 0, i, _all(1));
        }
        for (uint256 i = 0; i < 3; ++i) {
            _reveal(0, 0, i, _all(1));
        }
        court.settle(pool, 0, 0, _refs(0));
        uint256 codes = court.roundOf(pool, 0, 0).codes;
        _attestReverts(0, 7, ICourt.AlreadySettled.selector);
        assertEq(codes, 0x111);
    }

    function _attestReverts(uint256 lane, uint256 places, bytes4 reason) internal {
        vm.expectRevert(reason);
        vm.prank(account("service"));
        court.attest(pool, lane, places);
    }

    function testFuzz_seedBlockIsAlwaysAhead(uint8 count, uint16 places, uint8 wait) public {
        uint256 n = 1 + count % 16;
        for (uint256 i = 0; i < n; ++i) {
            _submit();
        }
        (, uint256 end,) = pools.laneOf(pool, 0);
        uint256 from = n == 16 ? end : end + 1;
        _blocks(from + wait % (end + D + 1 - from) - height);
        uint256 first = uint256(places) & ((1 << n) - 1);
        if (first == 0) first = 1;
        _attestPlaces(0, first);
        bool complete = first == (1 << n) - 1;
        assertEq(court.roundOf(pool, 0, 0).seedBlock, complete ? height + 1 : end + D + 1);
        assertEq(Codes.gather(court.roundOf(pool, 0, 0).codes), first);
        if (complete) return;
        _attestPlaces(0, (1 << n) - 1);
        assertEq(court.roundOf(pool, 0, 0).seedBlock, height + 1);
        assertEq(court.roundOf(pool, 0, 0).codes, _all(Codes.UNDECIDED) >> (64 - 4 * n));
    }

    function test_onlyTheServiceAttests() public {
        _submit();
        _blocks(3);
        vm.expectRevert(ICourt.NotService.selector);
        vm.prank(owner);
        court.attest(pool, 0, 1);
        uint256 other = _createPool(defaultTerms());
        vm.prank(owner);
        court.setService(other, account("other service"));
        vm.expectRevert(ICourt.NotService.selector);
        vm.prank(account("other service"));
        court.attest(pool, 0, 1);
        _attest(0);
    }
}
