// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {FileSlot} from "../src/libraries/FileSlot.sol";
import {FileData, FileRef} from "../src/libraries/Types.sol";
import {Network} from "./helpers/Network.sol";
import {Phase} from "./helpers/Phase.sol";
import {IPools} from "./interfaces/IPools.sol";

/// @notice Files that only their lane's hash binds: what its words allow, and what no other words do.
contract LaneWordsTest is Network {
    address internal other;
    uint256 internal first;

    /// @dev A lane of three files, two of `node` and one of another, settled by `codes`, lowest first.
    function _settled(uint256 codes) internal returns (uint256[] memory words) {
        other = _register(stranger, "other", STAKE);
        vm.prank(stranger);
        pools.join(pool, other, type(uint256).max, "", "");
        _step();
        FileData[] memory lane = new FileData[](3);
        (lane[0], lane[1], lane[2]) = (_next(node, 1_000, 0), _next(other, 500, 0), _next(node, 70, 1));
        first = _relay(lane);
        _judged(codes);
        _noteWords(first / 16);
        return laneWords[pool][first / 16];
    }

    function _judged(uint256 codes) private {
        _draw(first / 16, 0);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(first / 16, 0, i, codes);
        }
        for (uint256 i = 0; i < 3; ++i) {
            _reveal(first / 16, 0, i, codes);
        }
        court.settle(pool, first / 16, 0, _refs(first / 16));
    }

    function _claimed(address who, uint256 sequence, uint256[] memory words) private returns (uint256) {
        return pools.claim(pool, who, sequence, _inner(sequence), words);
    }

    function _wrong(address who, uint256 sequence, uint256[] memory words) private {
        bytes32 inner = _inner(sequence);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, sequence));
        pools.claim(pool, who, sequence, inner, words);
    }

    function test_acceptedFilesArePaidByTheirLanesWords() public {
        uint256[] memory words = _settled(0x111);
        assertEq(pools.wordOf(pool, first), 0);
        vm.expectRevert(abi.encodeWithSelector(IPools.NotYet.selector, clock + 3600));
        this.claimFor(node, first, words);
        _passWindow();
        assertEq(_claimed(node, first, words), 1_000 * 1e6);
        assertEq(_claimed(other, first + 1, words), 500 * 1e6);
        assertEq(_claimed(node, first + 2, words), 70 * 1e6);
        bytes32 inner = _inner(first + 2);
        vm.expectRevert(IPools.NothingToClaim.selector);
        pools.claim(pool, node, first + 2, inner, words);
    }

    function claimFor(address who, uint256 sequence, uint256[] calldata words) external returns (uint256) {
        return pools.claim(pool, who, sequence, _inner(sequence), words);
    }

    /// Whoever changes a word, a place, a node or the number of words has no lane's words.
    function test_otherWordsAreNobodys() public {
        uint256[] memory words = _settled(0x111);
        _passWindow();
        _wrong(node, first, new uint256[](0));
        _wrong(node, first, _pendingWords(first / 16));
        _wrong(other, first, words);
        bytes32 inner = _inner(first + 1);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, first));
        pools.claim(pool, other, first, inner, words);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, first + 3));
        pools.claim(pool, other, first + 3, inner, words);
        uint256[] memory fewer = new uint256[](2);
        (fewer[0], fewer[1]) = (words[0], words[1]);
        _wrong(node, first, fewer);
        for (uint256 bit = 0; bit < 256; bit += 5) {
            uint256[] memory forged = new uint256[](3);
            (forged[0], forged[1], forged[2]) = (words[0] ^ (1 << bit), words[1], words[2]);
            _wrong(node, first, forged);
            vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, first));
            pools.unpack(pool, first / 16, forged, 1);
        }
        vm.expectRevert(abi.encodeWithSelector(FileSlot.NoSuchFile.selector, pool | (1 << 24), first));
        pools.unpack(pool | (1 << 24), first / 16, words, 1);
        vm.expectRevert(abi.encodeWithSelector(FileSlot.NoSuchFile.selector, pool, (uint256(1) << 28) | first));
        pools.unpack(pool, (1 << 24) | (first / 16), words, 1);
        assertEq(_claimed(node, first, words), 1_000 * 1e6);
    }

    /// A file with a word of its own is read there: its lane's word brings nothing of the past back.
    function test_lanesWordsDoNotUndoWhatHappenedSince() public {
        uint256[] memory words = _settled(0x111);
        pools.unpack(pool, first / 16, words, 1);
        assertEq(FileSlot.phase(pools.wordOf(pool, first)), FileSlot.SETTLED);
        assertEq(pools.wordOf(pool, first + 1), 0);
        _juryVotes(_dispute(stranger, first), Codes.REJECT_WEIGHTS);
        _conclude(first);
        assertEq(_code(first), Codes.REJECT_WEIGHTS);
        pools.unpack(pool, first / 16, words, 7);
        assertEq(_code(first), Codes.REJECT_WEIGHTS);
        assertEq(FileSlot.phase(pools.wordOf(pool, first)), FileSlot.FINAL);
        FileData memory f = files[pool][first];
        vm.prank(address(appeals));
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, first, Phase.Final));
        pools.hold(pool, first, f);
        _passWindow();
        bytes32 inner = _inner(first + 2);
        vm.expectRevert(abi.encodeWithSelector(IPools.IsFrozen.selector, _account(pool, node).barrier));
        pools.claim(pool, node, first + 2, inner, words);
        assertEq(_claimed(other, first + 1, words), 500 * 1e6);
    }

    function _endedBy(uint256 sequence, uint256[] memory words, bytes4 reason) private {
        FileRef memory ref = _ref(sequence);
        vm.expectRevert(abi.encodeWithSelector(reason, sequence));
        pools.finalize(pool, sequence, ref, words);
    }

    /// A refused file is made final by its lane's words, which have zero for it from then on: it is charged once, and the
    /// lane's old words are nobody's any more.
    function test_refusedFilesLeaveTheirLane() public {
        uint256[] memory words = _settled(0x131);
        assertEq(pools.wordOf(pool, first + 1), 0);
        assertEq(_code(first + 1), Codes.REJECT_WEIGHTS);
        FileRef memory ref = _ref(first + 1);
        vm.expectRevert(abi.encodeWithSelector(IPools.NotYet.selector, clock + 3600));
        pools.finalize(pool, first + 1, ref, words);
        _passWindow();
        _endedBy(first + 1, _none(), IPools.WrongFile.selector);
        _endedBy(first + 1, _pendingWords(first / 16), IPools.WrongFile.selector);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, first, Phase.Settled));
        this.finalFor(first, words); // it is paid
        ref.node = node;
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, first + 1));
        pools.finalize(pool, first + 1, ref, words);
        _finalize(first + 1);
        assertEq(stakes.nodeOf(other).stake, 0);
        assertEq(pools.wordOf(pool, first + 1), 0);
        _endedBy(first + 1, words, IPools.WrongFile.selector);
        _endedBy(first + 1, laneWords[pool][first / 16], IPools.WrongFile.selector);
        _wrong(node, first + 2, words);
        words[1] = 0;
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, first + 1, Phase.None));
        pools.unpack(pool, first / 16, words, 2);
        assertEq(_claimed(node, first + 2, words), 1_070 * 1e6);
    }

    function finalFor(uint256 sequence, uint256[] calldata words) external {
        pools.finalize(pool, sequence, _ref(sequence), words);
    }

    /// One that was unpacked before is made final by its own word, and its lane's words stay.
    function test_unpackedRefusedFilesAreEndedOnce() public {
        uint256[] memory words = _settled(0x131);
        vm.expectEmit(address(pools));
        emit IPools.FilesUnpacked((pool << 32) | first, 6);
        pools.unpack(pool, first / 16, words, (1 << 255) | 6);
        _passWindow();
        _finalize(first + 1);
        assertEq(FileSlot.phase(pools.wordOf(pool, first + 1)), FileSlot.FINAL);
        FileRef memory ref = _ref(first + 1);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, first + 1, Phase.Final));
        pools.finalize(pool, first + 1, ref, words);
        pools.unpack(pool, first / 16, words, 7);
        assertEq(FileSlot.phase(pools.wordOf(pool, first + 1)), FileSlot.FINAL);
        assertEq(_claimed(node, first + 2, words), 1_070 * 1e6); // by its own word
    }

    /// Nobody can make clients believe that files have words of their own.
    function test_onlyWhatWasUnpackedIsAnnounced() public {
        uint256[] memory words = _settled(0x111);
        vm.recordLogs();
        pools.unpack(pool, first / 16, _none(), 0xffff);
        pools.unpack(pool, first / 16, words, 0xfff8);
        pools.unpack(pool, first / 16 + 1, new uint256[](3), 0);
        assertEq(vm.getRecordedLogs().length, 0);
        pools.unpack(pool, first / 16, words, 1);
        assertEq(vm.getRecordedLogs().length, 1);
        vm.expectEmit(address(pools));
        emit IPools.FilesUnpacked((pool << 32) | first, 6);
        pools.unpack(pool, first / 16, words, 7);
    }

    /// Where a round leaves some files undecided, there are no words but the files' own.
    function test_lanesThatAreNotSettledAsAWholeKeepNothing() public {
        _settled(0x333);
        _passWindow();
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_code(first + i), Codes.REJECT_WEIGHTS);
            _finalize(first + i);
        }
        FileData[] memory lane = new FileData[](2);
        address third = _register(stranger, "third", STAKE);
        vm.prank(stranger);
        pools.join(pool, third, type(uint256).max, "", "");
        _step();
        (lane[0], lane[1]) = (_next(third, 1_000, 0), _next(third, 500, 1));
        uint256 mixed = _relay(lane);
        uint256[] memory pending = _pendingWords(mixed / 16);
        _vote(mixed / 16, 0, _three(0x11, 0x31, 0xb1));
        assertEq(_code(mixed), Codes.ACCEPT);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, mixed + 1, Phase.Pending));
        pools.unpack(pool, mixed / 16, pending, 3);
        _vote(mixed / 16, 1, _three(_all(1), _all(1), _all(1)));
        assertEq(_code(mixed + 1), Codes.ACCEPT);
        _passWindow();
        _wrong(third, mixed + 2, pending);
        assertEq(_claimed(third, mixed + 1, new uint256[](0)), 1_500 * 1e6);
    }
}
