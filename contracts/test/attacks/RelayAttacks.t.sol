// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, PoolTerms, Receipt} from "../../src/libraries/Types.sol";
import {Voting} from "../../src/libraries/Voting.sol";
import {Receipting} from "../helpers/Receipting.sol";
import {IPools} from "../interfaces/IPools.sol";

/// @notice A node that is a contract and says yes to every signature.
contract Agreeing {
    function isValidSignature(bytes32, bytes calldata) external pure returns (bytes4) {
        return Agreeing.isValidSignature.selector;
    }
}

/// @notice Whoever relays can bring in what a node signed, once, and nothing else.
contract RelayAttacksTest is Receipting {
    function _send(FileData memory f, bytes memory signature) private {
        bytes[] memory signatures = new bytes[](1);
        signatures[0] = signature;
        vm.prank(account("service"));
        pools.submitLane(pool, _one(f), signatures, new Receipt[](0), _anchor(), _anchorHash());
    }

    function _forged(FileData memory f, bytes memory signature) private {
        vm.expectRevert(_refusal(IPools.BadSignature.selector));
        this.sendOut(f, signature);
        assertEq(_account(pool, node).counter, 0);
    }

    function sendOut(FileData calldata f, bytes calldata signature) external {
        _send(f, signature);
    }

    function _onAnotherChain(uint256 anchor, bytes32 anchorHash) private {
        FileData[] memory lane = _one(_next(node, 1_000, 0));
        bytes[] memory signatures = _signatures(lane);
        vm.expectRevert(IPools.OtherChain.selector);
        vm.prank(account("service"));
        pools.submitLane(pool, lane, signatures, new Receipt[](0), anchor, anchorHash);
    }

    /// A lane that was under way when its step's seed block was reorganised does not come in on the other branch; nor does
    /// one that names a block which nobody knows (any more).
    function test_laneOfAnotherBranchIsRefused() public {
        _step();
        uint256 seedBlock = _pool(pool).seedBlock;
        _blocks(60);
        bytes32 seed = blockhash(seedBlock);
        uint256 snapshot = vm.snapshot();
        bytes32 other = keccak256("another branch");
        (bool done,) = address(vm).call(abi.encodeWithSignature("setBlockhash(uint256,bytes32)", seedBlock, other));
        require(done, "a cheatcode that the tests' interface lacks");
        _onAnotherChain(seedBlock, seed);
        _onAnotherChain(seedBlock, 0);
        vm.revertTo(snapshot);
        for (uint256 ahead = 0; ahead < 2; ++ahead) {
            _onAnotherChain(height + ahead, blockhash(height + ahead)); // no hash, as of any block to come
            _onAnotherChain(height + ahead, keccak256("made up"));
        }
        _onAnotherChain(seedBlock - 1, seed);
        _onAnotherChain(type(uint256).max, 0);
        FileData[] memory lane = _one(_next(node, 1_000, 0));
        bytes[] memory signatures = _signatures(lane);
        vm.prank(account("service"));
        pools.submitLane(pool, lane, signatures, new Receipt[](0), seedBlock, seed);
        assertEq(_account(pool, node).pending, 1_000);
    }

    /// What a halted or censoring sequencer is forced to include, after as many blocks as it likes, comes in by its receipt.
    function test_forcedInclusionNeedsNoRecentBlock() public {
        FileData[] memory lane = _one(_next(node, 1_000, 0));
        bytes[] memory signatures = _signatures(lane);
        Receipt[] memory receipts = _only(_signed("service", pool, node, lane[0].fileHash, clock));
        (uint256 anchor, bytes32 anchorHash) = (_anchor(), _anchorHash());
        _blocks(400);
        vm.expectRevert(IPools.OtherChain.selector);
        pools.submitLane(pool, lane, signatures, receipts, anchor, anchorHash);
        vm.expectRevert(IPools.OtherChain.selector);
        vm.prank(account("service"));
        pools.submitLane(pool, lane, signatures, new Receipt[](0), anchor, 0);
        pools.submitLane(pool, lane, signatures, receipts, 0, 0);
        assertEq(_account(pool, node).pending, 1_000);
    }

    function test_signatureOfAnythingElseIsRefused() public {
        FileData memory f = _next(node, 1_000, 0);
        bytes32 digest = _submissionDigest(pool, f);
        _forged(f, _sign(key("stranger"), digest)); // another key
        _forged(f, _sign(key("service"), digest)); // the relayer's own
        _forged(f, _sign(key("node"), _submissionDigest(pool + 1, f))); // another pool
        vm.chainId(999);
        bytes memory elsewhere = _sign(key("node"), _submissionDigest(pool, f));
        vm.chainId(31337);
        _forged(f, elsewhere);
        _forged(f, _sign(key("node"), _receiptDigest(pool, node, f.fileHash, 8, 0))); // another struct
        _forged(f, "");
        bytes memory signature = _sign(key("node"), digest);
        (f.units, f.rows) = (1_001, 8);
        _forged(f, signature);
        (f.units, f.rows) = (1_000, 9);
        _forged(f, signature);
        (f.rows, f.root) = (8, keccak256("root"));
        _forged(f, signature);
        f = _next(node, 1_000, 0);
        f.fileHash = keccak256("file");
        _forged(f, signature);
        _send(_next(node, 1_000, 0), signature);
    }

    /// Neither the other of the two signatures of one digest, nor the short form, is one.
    function test_malleatedSignatureIsRefused() public {
        FileData memory f = _next(node, 1_000, 0);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key("node"), _submissionDigest(pool, f));
        uint256 order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;
        _forged(f, abi.encodePacked(r, order - uint256(s), v == 27 ? uint8(28) : uint8(27)));
        _forged(f, abi.encodePacked(r, uint256(s) | (uint256(v - 27) << 255)));
        _forged(f, abi.encodePacked(r, s, v, uint8(0)));
    }

    function test_contractsSignNoSubmissions() public {
        vm.etch(node, address(new Agreeing()).code);
        _forged(_next(node, 1_000, 0), "anything");
    }

    function test_nothingIsRelayedTwice() public {
        FileData[] memory lane = new FileData[](2);
        (lane[0], lane[1]) = (_next(node, 1_000, 0), _next(node, 1_000, 0));
        bytes memory again = abi.encodeWithSelector(IPools.CounterMismatch.selector, 0, 1);
        _refusedLane(lane, 1, again); // in one lane
        _relay(_one(lane[0]));
        _refused(lane[0], again); // nor in two
        assertEq(_pool(pool).free, BUDGET - PAY - 2 * FEES);
    }

    function test_countersHaveNoGap() public {
        FileData[] memory lane = new FileData[](3);
        (lane[0], lane[1], lane[2]) = (_next(node, 1, 0), _next(node, 1, 2), _next(node, 1, 1));
        _refusedLane(lane, 1, abi.encodeWithSelector(IPools.CounterMismatch.selector, 2, 1));
        (lane[1], lane[2]) = (lane[2], lane[1]);
        _relay(lane);
        assertEq(_account(pool, node).counter, 3);
    }

    /// Sixteen files of one node are what they would be one by one, and the limit counts all of them.
    function test_fullLaneOfOneNodeHasItsLimits() public {
        FileData[] memory lane = new FileData[](16);
        for (uint256 i = 0; i < 16; ++i) {
            lane[i] = _next(node, 100_000, i);
        }
        _relay(lane);
        assertEq(_account(pool, node).pending, 1_600_000);
        assertEq(_pool(pool).free, BUDGET - 16 * (100_000 * 1e6 + 2 * FEES));
        _submitLaneFrom(node, 100_000, 16);
        for (uint256 i = 0; i < 16; ++i) {
            lane[i] = _next(node, 100_000, i);
        }
        _refusedLane(lane, 8, abi.encodeWithSelector(IPools.OverLimit.selector, 4_100_000, 4_000_000));
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(15), 16 * 100_000 * 1e6);
    }

    /// Who sends a file of a lane before it makes the service drop that file, and no other.
    function test_frontRunMakesOneFileInvalidAndTheErrorNamesIt() public {
        address other = _register(operator, "other", STAKE);
        vm.prank(operator);
        pools.join(pool, other, type(uint256).max, "", "");
        _step();
        FileData[] memory lane = new FileData[](3);
        (lane[0], lane[1], lane[2]) = (_next(other, 1, 0), _next(node, 1, 0), _next(other, 1, 1));
        _present(lane[1], _signed("service", pool, node, lane[1].fileHash, clock));
        _refusedLane(lane, 1, abi.encodeWithSelector(IPools.CounterMismatch.selector, 0, 1));
        lane[1] = lane[2];
        assembly ("memory-safe") {
            mstore(lane, 2)
        }
        assertEq(_relay(lane), 16);
    }

    function test_onlyThePoolsOwnServiceRelays() public {
        uint256 other = pool;
        vm.prank(owner);
        pool = pools.createPool(defaultTerms(), 0);
        address[3] memory who = [stranger, node, address(court)];
        pool = other;
        bytes memory relay = _relaying(_next(node, 1, 0));
        vm.prank(owner);
        court.setService(pool, account("new service"));
        for (uint256 i = 0; i < 3; ++i) {
            vm.prank(who[i]);
            (bool ok, bytes memory answer) = address(pools).call(relay);
            assertFalse(ok);
            assertEq(bytes32(bytes4(answer)), bytes32(IPools.NotService.selector));
        }
        vm.prank(owner);
        (bool done,) = address(pools).call(relay);
        assertTrue(done);
    }

    /// What a service holds back until its node has left is worth nothing.
    function test_heldBackSubmissionEndsWithTheMembership() public {
        FileData memory f = _next(node, 1, 0);
        vm.prank(node);
        pools.leavePool(pool, node, type(uint256).max, "");
        _refused(f, abi.encodePacked(IPools.NotMember.selector));
    }

    /// Whoever relays does not know who will judge: not in its block, nor in the next.
    function test_laneIsDrawnFromABlockAfterItsSubmission() public {
        _submit();
        uint256 seedBlock = height + 1;
        assertEq(_round(pool, 0, 0).time, seedBlock);
        for (uint256 i = 0; i < 2; ++i) {
            vm.expectRevert(abi.encodeWithSelector(Voting.SeedNotMined.selector, seedBlock));
            court.committeeOf(pool, 0, 0);
            _blocks(1);
        }
        (uint256[] memory members,,,) = court.committeeOf(pool, 0, 0);
        assertEq(members.length, 3);
    }

    // Joining and leaving by signature

    function _join(string memory name, uint256 p, uint256 nonce, uint256 expiry) private view returns (bytes memory) {
        return _sign(key(name), _memberDigest("Join", p, account(name), nonce, expiry));
    }

    function _leave(uint256 nonce, uint256 expiry) private view returns (bytes memory) {
        return _sign(key("node"), _memberDigest("Leave", pool, node, nonce, expiry));
    }

    function test_signatureJoinsOrLeavesOnce() public {
        uint256 expiry = clock + 60;
        bytes memory leave = _leave(0, expiry);
        bytes memory join = _join("node", pool, 1, expiry);
        vm.expectRevert(IPools.BadSignature.selector);
        pools.leavePool(pool, node, expiry, join); // one is not the other
        vm.expectRevert(IPools.BadSignature.selector);
        pools.leavePool(pool, node, expiry + 1, leave);
        vm.chainId(999);
        vm.expectRevert(IPools.BadSignature.selector);
        pools.leavePool(pool, node, expiry, leave);
        vm.chainId(31337);
        vm.prank(stranger);
        pools.leavePool(pool, node, expiry, leave);
        assertEq(_account(pool, node).limit, 0);
        assertEq(stakes.nodeOf(node).releaseAt, clock + _pool(pool).unbonding);
        vm.prank(stranger);
        pools.join(pool, node, expiry, join, "");
        assertEq(_account(pool, node).limit, 4 * STAKE / 1e6);
        assertEq(pools.nonceOf(node), 2);
        vm.expectRevert(IPools.BadSignature.selector);
        pools.leavePool(pool, node, expiry, leave); // a second time
        vm.prank(node);
        pools.leavePool(pool, node, type(uint256).max, "");
        vm.expectRevert(IPools.BadSignature.selector);
        pools.join(pool, node, expiry, join, "");
        join = _join("node", pool, 2, expiry);
        vm.prank(operator); // whoever may do without it uses it up, too
        pools.join(pool, node, expiry, join, "");
        vm.prank(node);
        pools.leavePool(pool, node, type(uint256).max, "");
        vm.expectRevert(IPools.BadSignature.selector);
        pools.join(pool, node, expiry, join, "");
    }

    function test_joinIsSignedByTheNodeForThePoolInTime() public {
        address n = _register(operator, "fresh", STAKE);
        uint256 expiry = clock + 60;
        bytes memory join = _join("fresh", pool + 1, 0, expiry);
        vm.expectRevert(IPools.BadSignature.selector);
        pools.join(pool, n, expiry, join, ""); // another pool
        bytes32 digest = _memberDigest("Join", pool, n, 0, expiry);
        bytes memory operators = _sign(key("operator"), digest);
        vm.expectRevert(IPools.BadSignature.selector);
        pools.join(pool, n, expiry, operators, ""); // another key
        join = _sign(key("fresh"), digest);
        _wait(61);
        vm.expectRevert(IPools.SignatureExpired.selector);
        pools.join(pool, n, expiry, join, "");
        clock -= 1;
        vm.warp(clock);
        pools.join(pool, n, expiry, join, ""); // in the last second
    }

    function test_joinByInviteNeedsBothSignatures() public {
        PoolTerms memory t = defaultTerms();
        t.inviteOnly = true;
        uint256 closed = _createPool(t);
        address n = _register(operator, "fresh", STAKE);
        uint256 expiry = clock + 60;
        bytes memory join = _join("fresh", closed, 0, expiry);
        vm.expectRevert(IPools.BadInvite.selector);
        pools.join(closed, n, expiry, join, "");
        bytes memory longer = _sign(key("owner"), _inviteDigest(closed, n, expiry + 1));
        vm.expectRevert(IPools.BadInvite.selector);
        pools.join(closed, n, expiry, join, longer);
        bytes memory invite = _sign(key("owner"), _inviteDigest(closed, n, expiry));
        vm.expectRevert(IPools.BadSignature.selector);
        pools.join(closed, n, expiry, invite, invite);
        pools.join(closed, n, expiry, join, invite);
        vm.prank(owner);
        pools.removeNode(closed, n);
        join = _join("fresh", closed, 1, expiry);
        vm.expectRevert(IPools.Removed.selector);
        pools.join(closed, n, expiry, join, invite);
    }
}
