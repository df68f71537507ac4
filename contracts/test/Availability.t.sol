// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICourt} from "../src/interfaces/ICourt.sol";
import {IPools} from "../src/interfaces/IPools.sol";
import {IStakes} from "../src/interfaces/IStakes.sol";
import {IVoting} from "../src/interfaces/IVoting.sol";
import {Codes} from "../src/libraries/Codes.sol";
import {FileData, FileRef, PoolTerms, Receipt} from "../src/libraries/Types.sol";
import {Planting} from "./helpers/Planting.sol";

/// @notice Bytes before randomness: only files whose bytes were attested before the draw are judged; receipts keep what
/// was uploaded in time, whoever is silent, and whatever the owner does afterwards.
contract AvailabilityTest is Planting {
    uint256 internal constant PAY = 1_000 * 1e6;
    uint256 internal constant PENALTY = 1e9;
    uint256 internal constant DEPOSIT = 5 * 5e8 + 5e9;
    uint256 internal constant D = 32;
    uint256 internal constant WINDOW = 600;

    function _signed(string memory signer, uint256 p, address n, bytes32 fileHash, uint256 time)
        internal
        view
        returns (Receipt memory)
    {
        bytes32 digest = court.receiptDigest(p, n, fileHash, 1_234, time);
        return Receipt({size: 1_234, time: uint40(time), signature: _sign(key(signer), digest)});
    }

    function _receipt(uint256 sequence) internal view returns (Receipt memory) {
        FileData memory f = files[pool][sequence];
        return _signed("service", pool, f.node, f.fileHash, clock);
    }

    /// @dev A node's next file, and a receipt of `time` for it.
    function _next(address n, uint256 time) internal view returns (Draft memory w, Receipt memory r) {
        bytes32 salt = keccak256(abi.encode(n, pools.accountOf(pool, n).counter));
        w = Draft({root: keccak256(abi.encode(salt)), fileHash: salt, units: 1_000, rows: 8});
        r = _signed("service", pool, n, salt, time);
    }

    function _record(uint256 sequence, address n, uint256 step, uint256 counter, Draft memory w) internal {
        files[pool][sequence] = FileData(n, uint24(step), uint24(counter), w.units, w.rows, w.root, w.fileHash);
    }

    /// @dev `node` submits for `step` with a receipt of `time`.
    function _late(uint256 step, uint256 time) internal returns (uint256 sequence) {
        (Draft memory w, Receipt memory r) = _next(node, time);
        uint256 counter = pools.accountOf(pool, node).counter;
        vm.prank(node);
        sequence = pools.submitWithReceipt(_work(step, counter, w), r);
        _record(sequence, node, step, counter, w);
    }

    function _lateReverts(uint256 step, uint256 time, bytes memory reason) internal {
        (Draft memory w, Receipt memory r) = _next(node, time);
        uint256 counter = pools.accountOf(pool, node).counter;
        vm.expectRevert(reason);
        vm.prank(node);
        pools.submitWithReceipt(_work(step, counter, w), r);
    }

    function _outOfTime(uint256 first, uint256 last) internal pure returns (bytes memory) {
        return abi.encodeWithSelector(IPools.ReceiptOutOfTime.selector, first, last);
    }

    /// @dev A lane is judged and its last file paid.
    function _isPaid(uint256 sequence) internal {
        _voteAll(sequence / 16, Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(sequence), PAY);
    }

    function _loss(uint256 seat) internal view returns (uint256) {
        return BOND - seats.seatOf(seat).bond;
    }

    // ---- Rule 0: bytes before randomness

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
        _blocks(1);
        court.draw(pool, 0, 0);
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

    function claimOut(uint256 s) external {
        _claim(s);
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

    // ---- Receipts

    /// The service is silent: the node, or whoever, presents the receipt, and the file is judged and paid.
    function test_receiptAttestsWhenTheServiceIsSilent() public {
        uint256 s = _submit();
        _submit();
        _blocks(3);
        Receipt memory r = _receipt(s);
        FileData memory f = files[pool][s];
        vm.prank(stranger);
        court.attestByReceipt(pool, s, f, r);
        assertEq(Codes.gather(court.roundOf(pool, 0, 0).codes), 1);
        vm.expectRevert(ICourt.NothingNew.selector);
        court.attestByReceipt(pool, s, f, r);
        _vote(0, 0, _three(_all(1), _all(1), _all(1)));
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(_code(s + 1), Codes.LATE); // its node had none
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    function test_lastReceiptFixesTheSeed() public {
        uint256 s = _submit();
        _blocks(3);
        court.attestByReceipt(pool, s, files[pool][s], _receipt(s));
        assertEq(court.roundOf(pool, 0, 0).seedBlock, height + 1);
        _isPaid(s);
    }

    function test_receiptOfAnotherThingDoesNotCount() public {
        uint256 s = _submit();
        _submit();
        _blocks(3);
        FileData memory f = files[pool][s];
        _refuses(s, _signed("stranger", pool, node, f.fileHash, clock)); // another key
        _refuses(s, _signed("service", pool + 1, node, f.fileHash, clock)); // another pool
        _refuses(s, _signed("service", pool, stranger, f.fileHash, clock)); // another node
        _refuses(s, _signed("service", pool, node, keccak256("other"), clock)); // another file
        _refuses(s, _signed("service", pool, node, f.fileHash, clock + 1)); // from the future
        Receipt memory r = _receipt(s);
        r.size += 1;
        _refuses(s, r);
        r.size -= 1;
        r.time -= 1;
        _refuses(s, r);
        r.time += 1;
        r.signature = "";
        _refuses(s, r);
        vm.chainId(999);
        r = _receipt(s);
        vm.chainId(31337);
        _refuses(s, r); // another chain
        r = _receipt(s);
        f.fileHash = files[pool][s + 1].fileHash;
        Receipt memory others = _receipt(s + 1);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, s));
        court.attestByReceipt(pool, s, f, others); // a receipt for another submission
        court.attestByReceipt(pool, s, files[pool][s], r);
    }

    function _refuses(uint256 s, Receipt memory r) internal {
        FileData memory f = files[pool][s];
        vm.expectRevert(ICourt.BadReceipt.selector);
        court.attestByReceipt(pool, s, f, r);
    }

    /// The digest is EIP-712's, of Pools' domain, spelled out.
    function test_receiptDigestIsEip712() public view {
        bytes32 domain = keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("muster-receipts"),
                keccak256("1"),
                block.chainid,
                address(pools)
            )
        );
        bytes32 content = keccak256(
            abi.encode(
                keccak256("UploadReceipt(uint256 pool,address node,bytes32 sha256,uint256 size,uint256 time)"),
                pool,
                node,
                keccak256("file"),
                uint256(77),
                uint256(88)
            )
        );
        bytes32 digest = keccak256(abi.encodePacked("\x19\x01", domain, content));
        require(court.receiptDigest(pool, node, keccak256("file"), 77, 88) == digest, "digest");
    }

    function test_previousKeyCountsForAWhile() public {
        uint256 s = _submit();
        Receipt memory r = _receipt(s);
        FileData memory f = files[pool][s];
        _blocks(3);
        vm.expectRevert(IPools.NotOwner.selector);
        court.setService(pool, stranger);
        vm.prank(owner);
        court.setService(pool, account("second"));
        (address current, address previous, uint256 until) = court.serviceOf(pool);
        assertEq(current, account("second"));
        assertEq(previous, account("service"));
        assertEq(until, clock + WINDOW + 2 + D + 1); // and a lane's time to be attested
        vm.expectRevert(abi.encodeWithSelector(ICourt.TooSoon.selector, until));
        vm.prank(owner);
        court.setService(pool, account("third"));
        _wait(until - clock - 1);
        court.checkReceipt(pool, node, f.fileHash, r);
        uint256 snapshot = vm.snapshot();
        _attest(0); // by the previous key
        vm.revertTo(snapshot);
        _wait(1);
        vm.expectRevert(ICourt.BadReceipt.selector);
        court.attestByReceipt(pool, s, f, r);
        vm.expectRevert(ICourt.NotService.selector);
        vm.prank(account("service"));
        court.attest(pool, 0, 1);
        vm.prank(owner);
        court.setService(pool, account("third")); // the next rotation
        court.checkReceipt(pool, node, f.fileHash, _signed("second", pool, node, f.fileHash, clock));
        court.attestByReceipt(pool, s, f, _signed("third", pool, node, f.fileHash, clock));
    }

    // ---- Rules 1 and 2: unavailable

    /// A worker (with the service) hides its files from the committee and shows them to the jury: honest seats lose
    /// nothing, who disputes gains nothing, the pay was due anyway.
    function test_hiddenFromTheCommitteeShownToTheJury() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE);
        assertEq(pools.accountOf(pool, node).earned, 1_000);
        uint256 trial = _dispute(stranger, s);
        (uint256 units,) = pools.claimable(pool, node, s);
        assertEq(pools.accountOf(pool, node).spent, 1_000); // held
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(token.balanceOf(stranger), 10_000e9 - 5 * 5e8);
        _passWindow();
        assertEq(units, 0);
        assertEq(_claim(s), PAY);
        _closeAll(0, 0);
        for (uint256 seat = 1; seat <= 8; ++seat) {
            assertEq(_loss(seat), 0);
        }
        assertEq(stakes.stakeOf(node), STAKE);
        assertEq(pools.poolOf(pool).free, BUDGET - PAY - FEES);
        assertEq(token.balanceOf(address(pools)), BUDGET - PAY - FEES);
    }

    function test_unavailableThatTheJuryConfirms() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE);
        _juryVotes(_dispute(stranger, s), Codes.UNAVAILABLE);
        _conclude(s);
        assertEq(_code(s), Codes.UNAVAILABLE);
        assertEq(token.balanceOf(stranger), 10_000e9 - DEPOSIT); // the jury, and nobody to compensate
        assertEq(stakes.stakeOf(node), STAKE);
        assertEq(stakes.nodeOf(node).frozen, 0);
        _passWindow();
        assertEq(_claim(s), PAY);
        _closeAll(0, 0);
        assertEq(pools.poolOf(pool).free, BUDGET - PAY - 3 * (FEE / 4));
        assertEq(token.balanceOf(address(pools)), BUDGET - PAY - 3 * (FEE / 4));
    }

    /// A captured committee says "unavailable" to have forged work paid: whoever disputes it is paid out of the slash.
    function test_forgedWorkBehindUnavailableIsWorthDisputing() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE);
        uint256 before = _burnt();
        _juryVotes(_dispute(stranger, s), Codes.REJECT_WEIGHTS);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(stakes.stakeOf(node), 0);
        // the deposit pays the jury; the reward, at most the deposit, comes from the slash
        assertEq(token.balanceOf(stranger), 10_000e9 - 5 * 5e8 + DEPOSIT);
        assertEq(_burnt() - before, STAKE - FEES - DEPOSIT);
        assertEq(token.balanceOf(address(appeals)), 0);
        uint256[] memory drawn = court.roundOf(pool, 0, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(drawn[i]), 0);
        }
        assertEq(pools.poolOf(pool).free, BUDGET);
        _passWindow();
        vm.expectRevert(abi.encodeWithSelector(IPools.IsFrozen.selector, pools.accountOf(pool, node).barrier));
        this.claimOut(s);
    }

    function test_unavailableThatTheJuryFindsMalformed() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE);
        _juryVotes(_dispute(stranger, s), Codes.MALFORMED);
        _conclude(s);
        assertEq(STAKE - stakes.stakeOf(node), PENALTY + FEES);
        assertEq(token.balanceOf(stranger), 10_000e9 - 5 * 5e8); // no slash: nothing is earned
        assertEq(pools.poolOf(pool).free, BUDGET);
        _passWindow();
        vm.expectRevert(IPools.NothingToClaim.selector);
        this.claimOut(s);
    }

    /// Between accepting and not getting a file nobody is fined, and a silent minority of the storage harms nobody.
    function test_votingUnavailableIsNeverFined() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(1), _all(1), _all(Codes.UNAVAILABLE)));
        uint256[] memory drawn = court.roundOf(pool, 0, 0).seats;
        _passWindow();
        _closeAll(0, 0);
        assertEq(_loss(drawn[2]), 0);
        assertEq(token.balanceOf(_seatOwner(drawn[2])), 0); // its fee only
        assertEq(_claim(s), PAY);
    }

    function test_slashLeavesTheVestedPayOfWhatWasUnavailable() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE);
        _passWindow();
        _blocks(4);
        uint256 bad = _submit();
        _voteAll(1, Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, bad, _ref(bad));
        uint256 free = pools.poolOf(pool).free;
        FileData memory f = files[pool][s];
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, s, IPools.Phase.Settled));
        pools.forfeit(pool, s, f); // it vested before its node was found out
        pools.finalize(pool, s, _ref(s));
        assertEq(pools.poolOf(pool).free, free + 3 * (FEE - FEE / 4));
        assertEq(_claim(s), PAY);
    }

    function test_forfeitBurnsThePayAndReturnsTheFeesOfWhatWasUnavailable() public {
        uint256 bad = _submit();
        _blocks(4);
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _voteAll(1, Codes.UNAVAILABLE); // vests after the reject
        _passWindow();
        pools.finalize(pool, bad, _ref(bad));
        uint256 burnt = _burnt();
        pools.forfeit(pool, s, files[pool][s]);
        assertEq(_burnt() - burnt, PAY);
        _closeAll(0, 0);
        _closeAll(1, 0);
        assertEq(pools.poolOf(pool).free, BUDGET - PAY - 3 * (FEE / 4));
        assertEq(token.balanceOf(address(pools)), BUDGET - PAY - 3 * (FEE / 4));
    }

    // ---- Rule 3: receipts outlast what the owner does

    function test_receiptOlderThanAPauseCounts() public {
        uint256 uploaded = clock;
        _wait(100);
        vm.prank(owner);
        pools.pausePool(pool);
        _wait(100);
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 1, 1);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongStatus.selector, IPools.Status.Paused));
        vm.prank(node);
        pools.submit(_work(0, 0, w));
        _lateReverts(0, clock - 99, _outOfTime(clock - WINDOW, clock - 100)); // made in the pause
        uint256 s = _late(0, uploaded);
        assertEq(pools.poolOf(pool).free, BUDGET - PAY - FEES);
        _late(0, clock - 100); // in the very second
        _isPaid(s);
    }

    function test_receiptCountsAsLongAsPromised() public {
        vm.prank(owner);
        pools.pausePool(pool);
        uint256 paused = clock;
        _wait(WINDOW);
        uint256 snapshot = vm.snapshot();
        _late(0, paused);
        vm.revertTo(snapshot);
        _lateReverts(0, paused - 1, _outOfTime(clock - WINDOW, paused));
        clock += 1;
        vm.warp(clock);
        _lateReverts(0, paused, _outOfTime(clock - WINDOW, paused));
    }

    function test_receiptOlderThanAClosingCountsUntilTheLeftoversAreTaken() public {
        uint256 uploaded = clock;
        vm.prank(owner);
        pools.closePool(pool);
        uint256 settleAt = clock + pools.poolOf(pool).unbonding;
        assertEq(pools.poolOf(pool).settleAt, settleAt);
        vm.expectRevert(abi.encodeWithSelector(IPools.NotYet.selector, settleAt));
        vm.prank(owner);
        pools.settlePool(pool);
        _wait(WINDOW); // the last moment
        uint256 s = _late(0, uploaded);
        _lateReverts(0, uploaded + 1, _outOfTime(clock - WINDOW, uploaded));
        // and everything that may happen to it happens before the owner can take what is left
        PoolTerms memory t = defaultTerms();
        uint256 life =
            (t.laneBlocks + 1 + t.attestBlocks + 4 * uint256(t.drawBlocks)) + 2 * uint256(120) + 3600 + 2 * 720;
        assertGt(settleAt, clock + life);
        _isPaid(s);
        _blocks(settleAt - clock);
        vm.prank(owner);
        assertEq(pools.settlePool(pool), BUDGET - PAY - FEES);
        _lateReverts(0, clock, abi.encodeWithSelector(IPools.WrongStatus.selector, IPools.Status.Settled));
    }

    function test_receiptOlderThanARemovalCounts() public {
        uint256 uploaded = clock;
        _wait(50);
        vm.prank(owner);
        pools.removeNode(pool, node);
        _wait(50);
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 1, 1);
        vm.expectRevert(IPools.NotMember.selector);
        vm.prank(node);
        pools.submit(_work(0, 0, w));
        _lateReverts(0, clock, _outOfTime(clock - WINDOW, clock - 50));
        uint256 s = _late(0, uploaded);
        assertEq(pools.accountOf(pool, node).limit, 0); // it is no member again
        _isPaid(s);
    }

    /// The stake of a node that left answers for what it then submits.
    function test_workOfANodeThatLeftIsJudgedLikeAnyOther() public {
        uint256 uploaded = clock;
        vm.prank(operator);
        pools.leavePool(pool, node);
        _wait(WINDOW);
        uint256 s = _late(0, uploaded);
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _passWindow();
        assertEq(stakes.withdrawable(node), 0);
        pools.finalize(pool, s, _ref(s));
        assertEq(stakes.stakeOf(node), 0);
        assertEq(pools.poolOf(pool).free, BUDGET);
    }

    function test_whoLeftHasTheLimitOfItsLockedStake() public {
        vm.prank(operator);
        pools.leavePool(pool, node);
        (Draft memory w,) = _next(node, clock);
        w.units = 100_000;
        for (uint256 i = 0; i < 40; ++i) {
            Receipt memory r = _signed("service", pool, node, w.fileHash, clock);
            vm.prank(node);
            pools.submitWithReceipt(_work(0, i, w), r);
        }
        w.units = 1;
        Receipt memory last = _signed("service", pool, node, w.fileHash, clock);
        vm.expectRevert(abi.encodeWithSelector(IPools.OverLimit.selector, 4_000_001, 4_000_000));
        vm.prank(node);
        pools.submitWithReceipt(_work(0, 40, w), last);
    }

    function test_strangersFrozenAndSlashedNodesStayRefused() public {
        (Draft memory w, Receipt memory r) = _next(stranger, clock);
        vm.expectRevert(IPools.NotMember.selector);
        vm.prank(stranger);
        pools.submitWithReceipt(_work(0, 0, w), r);
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _lateReverts(0, clock, abi.encodeWithSelector(IPools.NodeIsFrozen.selector));
        _passWindow();
        pools.finalize(pool, s, _ref(s));
        _lateReverts(0, clock, abi.encodeWithSelector(IPools.NotMember.selector));
        _give(stranger, address(stakes), STAKE);
        vm.prank(stranger);
        stakes.deposit(node, STAKE);
        _lateReverts(0, clock, abi.encodeWithSelector(IPools.NotMember.selector));
    }

    function test_whoHasLessThanTheLeastStakeIsRefused() public {
        PoolTerms memory t = defaultTerms();
        t.minStake = uint56(STAKE);
        _moveTo(t);
        uint256 uploaded = clock;
        uint256 s = _submit();
        _blocks(2 + D + 1);
        court.settle(pool, 0, 0, _refs(0));
        pools.finalize(pool, s, _ref(s)); // a penalty, and it is out
        _lateReverts(0, uploaded, abi.encodeWithSelector(IPools.NotMember.selector));
    }

    function test_whoJoinedAnotherPoolIsRefused() public {
        vm.prank(operator);
        pools.leavePool(pool, node);
        _wait(30 days);
        uint256 other = _createPool(defaultTerms());
        vm.prank(operator);
        pools.join(other, node);
        _lateReverts(0, clock, abi.encodeWithSelector(IPools.NotMember.selector));
    }

    function test_receiptOlderThanANewerStepCounts() public {
        uint256 uploaded = clock;
        for (uint256 i = 0; i < 2; ++i) {
            _step();
        }
        _wait(10);
        uint256 newer = clock; // the third step after this one puts it out of the lag of two
        _step();
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 1, 1);
        vm.expectRevert(abi.encodeWithSelector(IPools.StepOutOfRange.selector, 0, 0, 4));
        vm.prank(node);
        pools.submit(_work(0, 0, w));
        _lateReverts(0, newer + 1, _outOfTime(clock - WINDOW, newer));
        uint256 s = _late(0, uploaded);
        _late(0, newer);
        _late(1, clock); // still within the lag
        _isPaid(s);
    }

    function test_receiptChangesNothingElse() public {
        (Draft memory w, Receipt memory r) = _next(node, clock);
        vm.startPrank(node);
        vm.expectRevert(abi.encodeWithSelector(IPools.CounterMismatch.selector, 1, 0));
        pools.submitWithReceipt(_work(0, 1, w), r);
        vm.expectRevert(abi.encodeWithSelector(IPools.StepOutOfRange.selector, 1, 0, 1));
        pools.submitWithReceipt(_work(1, 0, w), r);
        w.units = 100_001;
        vm.expectRevert(abi.encodeWithSelector(IPools.BadUnits.selector, 100_001, 100_000));
        pools.submitWithReceipt(_work(0, 0, w), r);
        (w.units, w.rows) = (1_000, 0);
        vm.expectRevert(IPools.BadRows.selector);
        pools.submitWithReceipt(_work(0, 0, w), r);
        w.rows = 8;
        w.fileHash = keccak256("another");
        vm.expectRevert(ICourt.BadReceipt.selector);
        pools.submitWithReceipt(_work(0, 0, w), r);
        vm.stopPrank();
        _lateReverts(0, clock + 1, abi.encodeWithSelector(ICourt.BadReceipt.selector)); // from the future
        _isPaid(_late(0, clock));
    }

    function test_lateJoinerCannotPickAnEarlierStep() public {
        address late = _register(stranger, "late", STAKE);
        vm.prank(stranger);
        pools.join(pool, late);
        (Draft memory w, Receipt memory r) = _next(late, clock);
        vm.expectRevert(abi.encodeWithSelector(IPools.StepOutOfRange.selector, 0, 1, 1));
        vm.prank(late);
        pools.submitWithReceipt(_work(0, 0, w), r);
    }
}
