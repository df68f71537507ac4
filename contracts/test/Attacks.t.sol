// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICanaries} from "../src/interfaces/ICanaries.sol";
import {ICourt} from "../src/interfaces/ICourt.sol";
import {IPools} from "../src/interfaces/IPools.sol";
import {ISeats} from "../src/interfaces/ISeats.sol";
import {IStakes} from "../src/interfaces/IStakes.sol";
import {IVoting} from "../src/interfaces/IVoting.sol";
import {Codes} from "../src/libraries/Codes.sol";
import {FileData, FileRef, PoolTerms} from "../src/libraries/Types.sol";
import {Planting} from "./helpers/Planting.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @notice A token that calls back into the suite on every transfer.
contract CallingToken is ERC20("Calling", "CALL") {
    address internal target;
    bytes internal data;
    bool public called;
    bool public succeeded;
    bytes4 public answer;

    function decimals() public pure override returns (uint8) {
        return 9;
    }

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function arm(address target_, bytes calldata data_) external {
        (target, data) = (target_, data_);
        (called, succeeded, answer) = (false, false, 0);
    }

    function _update(address from, address to, uint256 amount) internal override {
        super._update(from, to, amount);
        if (target != address(0)) {
            address t = target;
            target = address(0);
            called = true;
            bytes memory out;
            (succeeded, out) = t.call(data);
            answer = bytes4(out);
        }
    }
}

/// @notice One test for each way that somebody may try to cheat.
contract AttacksTest is Planting {
    uint256 internal constant UNITS = 1_000;
    uint256 internal constant PAY = UNITS * 1e6;

    function _bondOf(uint256 lane, uint256 member) internal view returns (uint256) {
        return seats.seatOf(court.roundOf(pool, lane, 0).seats[member]).bond;
    }

    function test_loneLyingValidator() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(Codes.REJECT_WEIGHTS), _all(1), _all(1)));
        assertEq(_code(s), Codes.ACCEPT);
        _passWindow();
        _closeAll(0, 0);
        assertEq(_bondOf(0, 0), BOND - 1e9); // the liar pays the minority penalty and earns nothing
        assertEq(token.balanceOf(_seatOwner(court.roundOf(pool, 0, 0).seats[0])), 0);
        for (uint256 i = 1; i < 3; ++i) {
            assertEq(_bondOf(0, i), BOND);
            assertEq(token.balanceOf(_seatOwner(court.roundOf(pool, 0, 0).seats[i])), FEE);
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
        uint256[] memory drawn = court.roundOf(pool, 0, 0).seats;
        for (uint256 i = 0; i < 5; ++i) {
            court.closeMember(pool, 0, 0, i);
            assertEq(BOND - seats.seatOf(drawn[i]).bond, i < 2 ? 1e9 : 0);
            assertEq(token.balanceOf(_seatOwner(drawn[i])), i < 2 ? 0 : FEE);
        }
    }

    function test_collusiveMajorityOverturned() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(3), _all(3), _all(1)));
        assertEq(_code(s), 3);
        uint256 stakeBefore = stakes.stakeOf(node);
        uint256 trial = _dispute(operator, s);
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(stakes.stakeOf(node), stakeBefore);
        assertEq(_bondOf(0, 0), BOND - 50e9);
        _passWindow();
        _closeAll(0, 0);
        assertEq(_bondOf(0, 0), BOND - 51e9);
        assertEq(_bondOf(0, 2), BOND); // the honest minority is paid
        assertEq(token.balanceOf(_seatOwner(court.roundOf(pool, 0, 0).seats[2])), FEE);
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
        assertEq(stakes.stakeOf(node), 0);
        uint256 deposit = appeals.depositOf(pool, 0);
        assertEq(token.balanceOf(stranger) - before, 10_000e9 + deposit); // reward is capped by the deposit
        _passWindow();
        IPools.Account memory a = pools.accountOf(pool, node);
        assertEq(a.earned - a.spent, 0);
        assertEq(pools.poolOf(pool).free, BUDGET);
    }

    /// A jury whose majority lies for a cheater costs its members more than the cheater can gain from one file, as soon
    /// as an appeal or (for the committee) a jury is honest: penalties are per seat and fixed, the gain is one file's pay.
    function test_juryCaptureUnprofitableBelowHalf() public {
        PoolTerms memory t = defaultTerms();
        t.appealJury = 7;
        _openSeats(10);
        _nextEpoch();
        _moveTo(t);
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS); // honest committee
        uint256 trial = _dispute(operator, s);
        _juryVotes(trial, Codes.ACCEPT, 3, Codes.REJECT_WEIGHTS); // captured jury, 3 of 5
        _conclude(s);
        assertEq(appeals.disputeOf(pool, s).verdict, Codes.ACCEPT);
        _give(stranger, address(appeals), 10_000e9);
        vm.prank(stranger);
        appeals.appeal(pool, s);
        _juryVotes(appeals.disputeOf(pool, s).appealTrial, Codes.REJECT_WEIGHTS);
        uint256[] memory jurors = juries.seatsOf(trial);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        uint256 lost;
        for (uint256 i = 0; i < 5; ++i) {
            lost += BOND - seats.seatOf(jurors[i]).bond;
        }
        assertEq(lost, 3 * 50e9);
        assertGt(lost, PAY);
        assertEq(stakes.stakeOf(node), 0);
    }

    function test_voteCopying() public {
        _submit();
        _draw(0, 0);
        (, address[] memory voters,,) = court.committeeOf(pool, 0, 0);
        bytes32 hash = court.ballotHash(pool, 0, 0, voters[0], _all(1), keccak256("verdict"), keccak256("salt"));
        vm.prank(voters[0]);
        court.commit(pool, 0, 0, 0, hash);
        vm.prank(voters[1]);
        court.commit(pool, 0, 0, 1, hash); // a copied commitment
        _commit(0, 0, 2, _all(1));
        _reveal(0, 0, 0, _all(1));
        vm.expectRevert(IVoting.WrongReveal.selector);
        vm.prank(voters[1]);
        court.reveal(pool, 0, 0, 1, _all(1), keccak256("verdict"), keccak256("salt"));
        // nor can a vote be revealed by somebody else
        vm.expectRevert(IVoting.WrongReveal.selector);
        court.reveal(pool, 0, 0, 2, _all(1), keccak256("verdict"), keccak256("salt"));
    }

    /// A ballot made for another chain, court, lane, round or member's key opens nothing here.
    function test_ballotsAreBoundToOneVote() public {
        _submit();
        _draw(0, 0);
        (, address[] memory voters,,) = court.committeeOf(pool, 0, 0);
        bytes32 v = keccak256("verdict");
        bytes32 salt = keccak256("salt");
        bytes32[6] memory foreign = [
            keccak256(abi.encode(uint256(999), address(court), pool, 0, 0, voters[0], _all(1), v, salt)),
            keccak256(abi.encode(block.chainid, address(juries), pool, 0, 0, voters[0], _all(1), v, salt)),
            keccak256(abi.encode(block.chainid, address(court), pool + 1, 0, 0, voters[0], _all(1), v, salt)),
            keccak256(abi.encode(block.chainid, address(court), pool, 1, 0, voters[0], _all(1), v, salt)),
            keccak256(abi.encode(block.chainid, address(court), pool, 0, 1, voters[0], _all(1), v, salt)),
            keccak256(abi.encode(block.chainid, address(court), pool, 0, 0, voters[1], _all(1), v, salt))
        ];
        for (uint256 i = 0; i < 6; ++i) {
            uint256 before = vm.snapshot();
            vm.prank(voters[0]);
            court.commit(pool, 0, 0, 0, foreign[i]);
            vm.warp(clock + 60);
            vm.expectRevert(IVoting.WrongReveal.selector);
            vm.prank(voters[0]);
            court.reveal(pool, 0, 0, 0, _all(1), v, salt);
            vm.revertTo(before);
        }
        vm.prank(voters[0]);
        court.commit(
            pool, 0, 0, 0, keccak256(abi.encode(block.chainid, address(court), pool, 0, 0, voters[0], _all(1), v, salt))
        );
        _wait(60);
        vm.prank(voters[0]);
        court.reveal(pool, 0, 0, 0, _all(1), v, salt);
        (, uint256 codes, bool revealed) = court.ballotOf(pool, 0, 0, 0);
        assertTrue(revealed);
        assertEq(codes, _all(1));
    }

    function test_jurorsBallotsAreBoundToOneVote() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _blocks(3);
        juries.draw(trial);
        (, address[] memory voters,,) = juries.juryOf(trial);
        bytes32 v = keccak256("verdict");
        bytes32 salt = keccak256("salt");
        bytes32[4] memory foreign = [
            keccak256(abi.encode(uint256(999), address(juries), trial, voters[0], 1, v, salt)),
            keccak256(abi.encode(block.chainid, address(court), trial, voters[0], 1, v, salt)),
            keccak256(abi.encode(block.chainid, address(juries), trial + 1, voters[0], 1, v, salt)),
            keccak256(abi.encode(block.chainid, address(juries), trial, voters[1], 1, v, salt))
        ];
        for (uint256 i = 0; i < 4; ++i) {
            uint256 before = vm.snapshot();
            vm.prank(voters[0]);
            juries.commit(trial, 0, foreign[i]);
            vm.warp(clock + 60);
            vm.expectRevert(IVoting.WrongReveal.selector);
            vm.prank(voters[0]);
            juries.reveal(trial, 0, 1, v, salt);
            vm.revertTo(before);
        }
        vm.prank(voters[0]);
        juries.commit(trial, 0, keccak256(abi.encode(block.chainid, address(juries), trial, voters[0], 1, v, salt)));
        _wait(60);
        vm.prank(voters[0]);
        juries.reveal(trial, 0, 1, v, salt);
        assertEq(juries.votesOf(trial)[0], 1);
    }

    function test_withheldRevealCostsMoreThanMinority() public {
        _submit();
        _submit();
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
        _passWindow();
        _closeAll(0, 0);
        uint256 silent = court.roundOf(pool, 0, 0).seats[2];
        assertEq(BOND - seats.seatOf(silent).bond, 2 * 2e9); // per file
    }

    /// The same vote, shown: half as dear.
    function test_revealedMinorityPaysPerFile() public {
        _submit();
        _submit();
        _vote(0, 0, _three(_all(1), _all(1), _all(3)));
        _passWindow();
        _closeAll(0, 0);
        assertEq(BOND - _bondOf(0, 2), 2 * 1e9);
        assertEq(BOND - _bondOf(0, 0), 0);
    }

    /// Expected value of accepting blindly at rate q of canaries: fee − q · slash < 0 above q = fee / slash.
    function test_lazyValidatorWithCanaries() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 s = _submit();
        _voteAll(s / 16, Codes.ACCEPT); // three lazy validators
        uint256 ownerBefore = token.balanceOf(owner) + 100_000e9; // _openCanary gives it that much
        _openCanary(s);
        _juryVotes(canaries.canaryOf(pool, s).trial, Codes.REJECT_WEIGHTS);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.CANARY);
        _passWindow();
        vm.expectRevert(IPools.NothingToClaim.selector);
        this.claimOut(s);
        _closeAll(s / 16, 0);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(BOND - _bondOf(s / 16, i), 200e9);
        }
        assertEq(pools.poolOf(pool).free, BUDGET - FEES); // no pay; the fees were the owner's cost, burnt here
        assertEq(_burnt(), 3 * 200e9 + FEES - 5 * 5e8); // the slashed pay the jury
        assertEq(token.balanceOf(owner), ownerBefore);
        assertEq(stakes.stakeOf(node), STAKE); // the carrier is free
        // at one canary in 5,000 files laziness loses twice what it earns: measured on an ordinary file
        uint256 lost = BOND - _bondOf(s / 16, 0);
        _blocks(4);
        vm.prank(owner);
        pools.publishStep(pool, 2, keccak256("manifest"), bytes32(0));
        _blocks(2);
        uint256 plain = _submit();
        _voteAll(plain / 16, Codes.ACCEPT);
        _passWindow();
        address paid = _seatOwner(court.roundOf(pool, plain / 16, 0).seats[0]);
        uint256 before = token.balanceOf(paid);
        court.closeMember(pool, plain / 16, 0, 0);
        assertEq(lost, 2 * 5_000 * (token.balanceOf(paid) - before));
    }

    function claimOut(uint256 s) external {
        _claim(s);
    }

    function test_ownerForgesCanary() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 s = _submit(); // honest work that the owner pretends to have planted
        _voteAll(s / 16, Codes.ACCEPT);
        uint256 before = token.balanceOf(owner) + 100_000e9;
        _openCanary(s);
        _juryVotes(canaries.canaryOf(pool, s).trial, Codes.ACCEPT);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.ACCEPT);
        // the framer loses what it put at stake, and the jury's fees; the framed lose nothing, though nobody watched
        assertEq(before - token.balanceOf(owner), 3 * 200e9 + 5 * 5e8);
        _passWindow();
        assertEq(_claim(s), PAY);
        _closeAll(s / 16, 0);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_bondOf(s / 16, i), BOND);
        }
    }

    function test_ownerOpensWhatWasNotPlanted() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        for (uint256 i = 0; i < 17; ++i) {
            _submit();
            if (i == 15) _blocks(4);
        }
        uint256 s = pools.poolOf(pool).sequence - 1; // counter 16: only 0 to 15 are planted
        _voteAll(s / 16, Codes.ACCEPT);
        FileData memory f = files[pool][s];
        ICanaries.Planted memory p = _openingAt(f, 0);
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        vm.expectRevert(ICanaries.NotPlanted.selector);
        vm.prank(owner);
        canaries.open(pool, s, f, p, r, 3);
        // the last of those that were planted can be
        assertEq(files[pool][s - 1].counter, 15);
        _voteAll((s - 1) / 16, Codes.ACCEPT);
        _openCanary(s - 1);
        assertEq(canaries.canaryOf(pool, s - 1).accused.length, 3);
    }

    /// A proof has the tree's depth: an inner node, or a lone leaf as the root, is no planted file.
    function test_canaryProofsHaveTheTreesDepth() public {
        bytes32 leaf = canaries.leafOf(_salt(1, 0), pool, 1, node, 0);
        bytes32 side = keccak256("side");
        bytes32 deep = _chain(canaries.leafOf(_salt(2, 0), pool, 2, node, 1), side, 5);
        bytes32 right = _chain(canaries.leafOf(_salt(3, 0), pool, 3, node, 2), side, 4);
        vm.startPrank(owner);
        pools.publishStep(pool, 1, keccak256("manifest"), leaf);
        pools.publishStep(pool, 2, keccak256("manifest"), deep);
        pools.publishStep(pool, 3, keccak256("manifest"), right);
        vm.stopPrank();
        _blocks(2);
        for (uint256 i = 0; i < 3; ++i) {
            _submitStep(uint24(1 + i));
        }
        _voteAll(0, Codes.ACCEPT);
        _refusesDepth(0, 0);
        _refusesDepth(1, 5);
        FileData memory f = files[pool][2];
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        ICanaries.Planted memory p = ICanaries.Planted(_salt(3, 0), _repeat(side, 4), _consent(f, _salt(3, 0)));
        _give(owner, address(canaries), 100_000e9);
        vm.prank(owner);
        canaries.open(pool, 2, f, p, r, 3);
        assertEq(canaries.canaryOf(pool, 2).accused.length, 3);
    }

    function _submitStep(uint24 step) private {
        uint24 counter = uint24(pools.accountOf(pool, node).counter);
        bytes32 salt = keccak256(abi.encode(node, uint256(counter)));
        Draft memory w = Draft(keccak256(abi.encode(salt)), keccak256(abi.encode(salt)), 1_000, 8);
        vm.prank(node);
        uint256 s = pools.submit(_work(step, counter, w));
        files[pool][s] = FileData(node, step, counter, 1_000, 8, w.root, w.fileHash);
    }

    function _refusesDepth(uint256 s, uint256 depth) private {
        FileData memory f = files[pool][s];
        bytes32 salt = _salt(f.step, 0);
        ICanaries.Planted memory p = ICanaries.Planted(salt, _repeat(keccak256("side"), depth), _consent(f, salt));
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        vm.expectRevert(ICanaries.NotPlanted.selector);
        vm.prank(owner);
        canaries.open(pool, s, f, p, r, 3);
    }

    function _repeat(bytes32 side, uint256 n) private pure returns (bytes32[] memory proof) {
        proof = new bytes32[](n);
        for (uint256 i = 0; i < n; ++i) {
            proof[i] = side;
        }
    }

    function _chain(bytes32 leaf, bytes32 side, uint256 depth) private pure returns (bytes32) {
        for (uint256 i = 0; i < depth; ++i) {
            leaf = _pair(leaf, side);
        }
        return leaf;
    }

    function test_workerUnbondsAfterCheating() public {
        uint256 s = _submit();
        vm.prank(operator);
        pools.leavePool(pool, node);
        uint256 releaseAt = clock + pools.poolOf(pool).unbonding;
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeLocked.selector, releaseAt, 0));
        vm.prank(operator);
        stakes.withdraw(node, 1);
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _wait(90 days); // even if nobody finalises for long, the freeze holds the stake
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeLocked.selector, releaseAt, 1));
        vm.prank(operator);
        stakes.withdraw(node, 1);
        pools.finalize(pool, s, _ref(s));
        assertEq(stakes.stakeOf(node), 0);
    }

    function test_frontRunCommitment() public {
        address thief = _register(stranger, "thief", STAKE);
        vm.prank(stranger);
        pools.join(pool, thief);
        _step();
        // the thief copies root and hash out of the mempool and gets in first
        Draft memory w = Draft(keccak256("root"), keccak256("file"), 1_000, 8);
        vm.prank(thief);
        uint256 stolen = pools.submit(_work(1, 0, w));
        vm.prank(node);
        uint256 own = pools.submit(_work(1, 0, w)); // it keeps nobody out
        // and binds its own address: the stored digests differ, the bytes' header and noise name the true author
        assertTrue(pools.submissionOf(pool, stolen).digest != pools.submissionOf(pool, own).digest);
        FileRef memory lie =
            FileRef(pools.innerHash(pool, stolen, FileData(node, 1, 0, 1_000, 8, w.root, w.fileHash)), node);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, stolen));
        pools.claim(pool, node, stolen, lie.inner);
        // each is paid for its own place, and only there
        files[pool][stolen] = FileData(thief, 1, 0, 1_000, 8, w.root, w.fileHash);
        files[pool][own] = FileData(node, 1, 0, 1_000, 8, w.root, w.fileHash);
        uint256 codes = Codes.set(_all(1), stolen & 15, Codes.REJECT_COMMITMENT);
        _vote(0, 0, _three(codes, codes, codes));
        _passWindow();
        assertEq(_claim(own), PAY);
        assertEq(token.balanceOf(operator), PAY);
    }

    function test_addressGrinding() public {
        // a node that joins after a step's seed is known cannot work for that step
        address late = _register(stranger, "late", STAKE);
        vm.prank(stranger);
        pools.join(pool, late);
        assertEq(pools.accountOf(pool, late).joinedStep, 1);
        vm.expectRevert(abi.encodeWithSelector(IPools.StepOutOfRange.selector, 0, 1, 1));
        vm.prank(late);
        pools.submit(_work(0, 0, Draft(keccak256("r"), keccak256("f"), 10, 1)));
        _step();
        assertEq(_submitFrom(late, 10), 0); // from the next step on it can
    }

    function test_seedCannotBeGroundByLatePinning() public {
        _submit();
        _attest(0);
        uint256 seedBlock = court.roundOf(pool, 0, 0).seedBlock;
        _blocks(seedBlock + 1 - height);
        (uint256[] memory early,, bytes32 seed,) = court.committeeOf(pool, 0, 0);
        _blocks(5);
        (uint256[] memory later,, bytes32 seedLater,) = court.committeeOf(pool, 0, 0);
        assertEq(seed, seedLater); // whoever pins, and whenever within the epoch: the same committee
        assertEq(early, later);
    }

    function test_missedWindowMovesTheSeedForEverybody() public {
        _submit();
        _attest(0);
        uint256 seedBlock = court.roundOf(pool, 0, 0).seedBlock;
        PoolTerms memory t = defaultTerms();
        _blocks(uint256(t.drawBlocks) + 1 + seedBlock - height); // longer than a draw may wait
        vm.expectRevert(abi.encodeWithSelector(ICourt.DrawOver.selector, seedBlock + t.drawBlocks));
        court.draw(pool, 0, 0);
        court.settle(pool, 0, 0, _refs(0)); // the next committee judges it
        _voteRound1();
        assertEq(_code(0), Codes.ACCEPT);
        for (uint256 seat = 1; seat <= SEATS; ++seat) {
            assertEq(seats.seatOf(seat).bond, BOND); // nobody was drawn: nobody is blamed
        }
        _passWindow();
        assertEq(_claim(0), PAY);
    }

    function _voteRound1() private {
        _vote(0, 1, _three(_all(1), _all(1), _all(1)));
    }

    function test_replayedInvite() public {
        PoolTerms memory t = defaultTerms();
        t.inviteOnly = true;
        uint256 other = _createPool(t);
        uint256 invited = _createPool(t);
        address n = _register(stranger, "invitee", STAKE);
        bytes memory invite = _sign(key("owner"), pools.inviteDigest(invited, n, clock + 10));
        vm.prank(n);
        vm.expectRevert(IPools.BadInvite.selector);
        pools.joinWithInvite(other, n, clock + 10, invite); // another pool
        vm.chainId(999);
        vm.prank(n);
        vm.expectRevert(IPools.BadInvite.selector);
        pools.joinWithInvite(invited, n, clock + 10, invite); // another chain
        vm.chainId(31337);
        vm.prank(n);
        vm.expectRevert(IPools.InviteRequired.selector);
        pools.join(invited, n);
        vm.prank(n);
        pools.joinWithInvite(invited, n, clock + 10, invite);
        vm.prank(owner);
        pools.removeNode(invited, n);
        vm.prank(n);
        vm.expectRevert(IPools.Removed.selector);
        pools.joinWithInvite(invited, n, clock + 10, invite); // after removal
        _wait(11);
        vm.prank(n);
        vm.expectRevert(IPools.InviteExpired.selector);
        pools.joinWithInvite(invited, n, clock - 1, invite);
    }

    function test_replayedConsent() public {
        address n = account("consenting");
        bytes memory consent = _sign(key("consenting"), stakes.consentDigest(n, operator, clock + 60));
        _give(stranger, address(stakes), STAKE);
        vm.prank(stranger);
        vm.expectRevert(IStakes.BadConsent.selector);
        stakes.registerNode(n, STAKE, clock + 60, consent); // another operator
        vm.chainId(999);
        vm.prank(operator);
        vm.expectRevert(IStakes.BadConsent.selector);
        stakes.registerNode(n, STAKE, clock + 60, consent); // another chain
        vm.chainId(31337);
        vm.prank(operator);
        vm.expectRevert(IStakes.BadConsent.selector);
        stakes.registerNode(n, STAKE, clock + 61, consent); // another expiry
        _give(operator, address(stakes), 2 * STAKE);
        vm.startPrank(operator);
        stakes.registerNode(n, STAKE, clock + 60, consent);
        vm.expectRevert(IStakes.AlreadyRegistered.selector);
        stakes.registerNode(n, STAKE, clock + 60, consent); // twice
        vm.stopPrank();
    }

    /// Owner, worker and validators in one hand: everything they pay one another comes out of the owner's own budget.
    function test_selfDealing() public {
        uint256 others = token.balanceOf(address(stakes)) + token.balanceOf(address(seats));
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        uint256 got = _claim(s);
        _closeAll(0, 0);
        assertEq(token.balanceOf(address(pools)), BUDGET - got - FEES);
        assertEq(token.balanceOf(address(stakes)) + token.balanceOf(address(seats)), others);
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

    /// An attested file that the storage then loses is the owner's cost: its node and the seats have done their work.
    function test_unavailableFromTheStorage() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE);
        FileRef memory ref = _ref(s);
        vm.expectRevert(abi.encodeWithSelector(IPools.NotYet.selector, clock + 3600));
        pools.finalize(pool, s, ref);
        _passWindow();
        assertEq(_claim(s), PAY);
        uint256 attempts = 3 * (FEE / 4);
        assertEq(pools.poolOf(pool).free, BUDGET - PAY - FEES);
        pools.finalize(pool, s, ref);
        assertEq(pools.poolOf(pool).free, BUDGET - PAY - attempts); // three quarters of the fees go back
        assertEq(stakes.stakeOf(node), STAKE);
        assertEq(pools.accountOf(pool, node).slashed, false);
        assertEq(pools.accountOf(pool, node).unsettled, 0);
        _closeAll(0, 0);
        uint256[] memory drawn = court.roundOf(pool, 0, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(token.balanceOf(_seatOwner(drawn[i])), FEE / 4);
        }
        assertEq(token.balanceOf(address(pools)), BUDGET - PAY - attempts);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, s, IPools.Phase.Final));
        pools.finalize(pool, s, ref);
    }

    function test_unavailableClaimedByValidators() public {
        uint256 s = _submit();
        _voteAll(0, Codes.UNAVAILABLE); // they lie: the file is there
        uint256 trial = _dispute(operator, s);
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(_bondOf(0, 0), BOND); // nobody can tell whether it was there: no seat loses anything
        assertEq(token.balanceOf(operator), 10_000e9 - 5 * 5e8); // who has it overturned pays the jury, and earns nothing
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    function test_unavailableToTheJury() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256 trial = _dispute(operator, s); // and then hides the file
        _juryVotes(trial, Codes.UNAVAILABLE);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS); // dismissed
        assertEq(_bondOf(0, 0), BOND);
        assertEq(stakes.stakeOf(node), 0);
        juries.closeJuror(trial, 0);
        assertEq(seats.seatOf(juries.seatsOf(trial)[0]).bond, BOND);
    }

    function test_escrowExhaustion() public {
        PoolTerms memory t = defaultTerms();
        _give(owner, address(pools), 1e9 + FEES);
        vm.prank(owner);
        uint256 poor = pools.createPool(t, 1e9 + FEES);
        _serve(poor);
        vm.prank(operator);
        pools.leavePool(pool, node);
        _wait(20_000);
        vm.prank(operator);
        pools.join(poor, node);
        pool = poor;
        _step();
        uint256 s = _submit(); // takes all of it
        vm.expectRevert(abi.encodeWithSelector(IPools.EscrowExhausted.selector, 1e6 + FEES, 0));
        vm.prank(node);
        pools.submit(_work(0, 1, Draft(keccak256("r"), keccak256("f"), 1, 1)));
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(s), PAY); // what was accepted for checking is paid
    }

    /// Fees of rejected and malformed dust come from the submitter's stake.
    function test_dustDoesNotDrainTheEscrow() public {
        uint256 first;
        for (uint256 i = 0; i < 16; ++i) {
            uint256 s = _submitFrom(node, 1);
            if (i == 0) first = s;
        }
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        for (uint256 i = 0; i < 16; ++i) {
            pools.finalize(pool, first + i, _ref(first + i));
        }
        _closeAll(0, 0);
        assertEq(pools.poolOf(pool).free, BUDGET);
        assertEq(token.balanceOf(address(pools)), BUDGET);
        assertEq(STAKE - stakes.stakeOf(node), 16 * (FEES + 1e9));
    }

    function test_leverageLimit() public {
        // limit = 4 * 1000e9 / 1e6 = 4,000,000 units; a file has at most 100,000
        for (uint256 i = 0; i < 40; ++i) {
            _submitFrom(node, 100_000);
        }
        vm.expectRevert(abi.encodeWithSelector(IPools.OverLimit.selector, 4_000_001, 4_000_000));
        vm.prank(node);
        pools.submit(_work(0, 40, Draft(keccak256("r"), keccak256("f"), 1, 1)));
    }

    function test_nodeCheatsItsSiblingsDoNotSuffer() public {
        address good = _register(operator, "sibling", STAKE);
        vm.prank(operator);
        pools.join(pool, good);
        _step();
        uint256 bad = _submit();
        uint256 fine = _submitFrom(good, 1_000);
        uint256 codes = Codes.set(_all(1), bad & 15, Codes.REJECT_DUPLICATE);
        _vote(bad / 16, 0, _three(codes, codes, codes));
        _passWindow();
        pools.finalize(pool, bad, _ref(bad));
        assertEq(stakes.stakeOf(node), 0);
        assertEq(stakes.stakeOf(good), STAKE);
        assertEq(_claim(fine), PAY);
        vm.prank(node);
        vm.expectRevert(IPools.Removed.selector);
        pools.join(pool, node);
    }

    function test_slashForfeitsOnlyUnvestedPay() public {
        uint256 a = _submit();
        _voteAll(0, Codes.ACCEPT);
        _passWindow(); // a has vested
        _blocks(4);
        uint256 b = _submit();
        _voteAll(1, Codes.ACCEPT);
        _blocks(4);
        uint256 c = _submit();
        _voteAll(2, Codes.REJECT_WEIGHTS);
        uint256 since = clock;
        _passWindow();
        pools.finalize(pool, c, _ref(c));
        bytes32 inner = _inner(b);
        vm.expectRevert(abi.encodeWithSelector(IPools.IsFrozen.selector, since));
        pools.claim(pool, node, b, inner);
        assertEq(_claim(a), PAY);
        uint256 burnt = _burnt();
        pools.forfeit(pool, b, files[pool][b]);
        assertEq(_burnt() - burnt, PAY);
        assertEq(pools.poolOf(pool).free, BUDGET - 2 * PAY - 2 * FEES); // the owner has none of it back
        IPools.Account memory acc = pools.accountOf(pool, node);
        assertEq(acc.earned, acc.spent);
        FileData memory data = files[pool][a];
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, a, IPools.Phase.Settled));
        pools.forfeit(pool, a, data); // vested pay is untouchable
        data = files[pool][b];
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, b, IPools.Phase.Final));
        pools.forfeit(pool, b, data); // and nothing is forfeited twice
    }

    function test_reentrancyThroughTheToken() public {
        CallingToken evil = new CallingToken();
        _start(address(evil));
        for (uint256 i = 0; i < SEATS; ++i) {
            uint256 seat = seats.opened() + 1;
            _fund(evil, _seatOwner(seat), address(seats));
            vm.prank(_seatOwner(seat));
            seats.openSeat(_voter(seat), _classes(FAMILY));
        }
        _nextEpoch();
        _fund(evil, owner, address(pools));
        vm.prank(owner);
        pool = pools.createPool(defaultTerms(), BUDGET);
        _serve(pool);
        _fund(evil, operator, address(stakes));
        bytes memory consent = _sign(key("node"), stakes.consentDigest(node, operator, clock + 60));
        vm.prank(operator);
        stakes.registerNode(node, STAKE, clock + 60, consent);
        vm.prank(operator);
        pools.join(pool, node);
        _step();
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        bytes32 inner = _inner(s);
        evil.arm(address(pools), abi.encodeCall(pools.claim, (pool, node, s, inner)));
        uint256 before = evil.balanceOf(operator);
        pools.claim(pool, node, s, inner);
        assertEq(evil.balanceOf(operator) - before, PAY); // once
        _refusedInside(evil);
        evil.arm(address(seats), abi.encodeCall(seats.topUp, (1)));
        vm.prank(_seatOwner(1));
        seats.topUp(1);
        _refusedInside(evil);
        _everyGuard(evil);
    }

    /// Whatever moves tokens refuses to be called while tokens move.
    function _everyGuard(CallingToken evil) private {
        bytes[] memory inside = new bytes[](3);
        inside[0] = abi.encodeCall(pools.fund, (pool, 1));
        inside[1] = abi.encodeCall(pools.createPool, (defaultTerms(), 0));
        inside[2] = abi.encodeCall(pools.claim, (pool, node, 0, 0));
        for (uint256 i = 0; i < inside.length; ++i) {
            evil.arm(address(pools), inside[i]);
            vm.prank(owner);
            pools.fund(pool, 1);
            _refusedInside(evil);
        }
        inside[0] = abi.encodeCall(stakes.deposit, (node, 1));
        inside[1] = abi.encodeCall(stakes.withdraw, (node, 1));
        inside[2] = abi.encodeCall(stakes.registerNode, (stranger, 1, clock, ""));
        for (uint256 i = 0; i < inside.length; ++i) {
            evil.arm(address(stakes), inside[i]);
            vm.prank(operator);
            stakes.deposit(node, 1);
            _refusedInside(evil);
        }
        inside[0] = abi.encodeCall(seats.topUp, (1));
        inside[1] = abi.encodeCall(seats.withdrawSeat, (1));
        inside[2] = abi.encodeCall(seats.openSeat, (stranger, _classes(FAMILY)));
        for (uint256 i = 0; i < inside.length; ++i) {
            evil.arm(address(seats), inside[i]);
            vm.prank(_seatOwner(1));
            seats.topUp(1);
            _refusedInside(evil);
        }
    }

    function _refusedInside(CallingToken evil) private {
        assertTrue(evil.called());
        assertFalse(evil.succeeded());
        assertEq(bytes32(evil.answer()), bytes32(ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector));
    }

    function _fund(CallingToken evil, address who, address spender) private {
        evil.mint(who, 10_000_000e9);
        vm.prank(who);
        evil.approve(spender, type(uint256).max);
    }

    function test_seatCannotLeaveBeforeItsVotesAreFinal() public {
        _submit();
        _draw(0, 0);
        uint256 seat = court.roundOf(pool, 0, 0).seats[0];
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
