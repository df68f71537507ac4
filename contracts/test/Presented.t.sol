// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICourt} from "../src/interfaces/ICourt.sol";
import {IPools} from "../src/interfaces/IPools.sol";
import {IVoting} from "../src/interfaces/IVoting.sol";
import {Codes} from "../src/libraries/Codes.sol";
import {FileData, FileRef, Receipt, Work} from "../src/libraries/Types.sol";
import {Network} from "./helpers/Network.sol";

/// @notice A receipt that comes with a submission attests its file: bytes before randomness holds as when the service
/// attests the lane, and nothing moves a seed that can be known.
contract PresentedTest is Network {
    uint256 internal constant PAY = 1_000 * 1e6;
    uint256 internal constant D = 32;

    function _receipt(string memory signer, bytes32 fileHash, uint256 time) internal view returns (Receipt memory) {
        bytes32 digest = court.receiptDigest(pool, node, fileHash, 1_234, time);
        return Receipt({size: 1_234, time: uint40(time), signature: _sign(key(signer), digest)});
    }

    /// @dev `node` submits its next file with its receipt.
    function _present() internal returns (uint256 sequence) {
        uint256 counter = pools.accountOf(pool, node).counter;
        bytes32 hash = keccak256(abi.encode(counter));
        Work memory work = _work(0, counter, Draft(hash, hash, 1_000, 8));
        Receipt memory receipt = _receipt("service", hash, clock);
        vm.prank(node);
        sequence = pools.submitWithReceipt(work, receipt);
        files[pool][sequence] = FileData(node, 0, uint24(counter), 1_000, 8, hash, hash);
    }

    function _seedBlock() internal view returns (uint256) {
        return court.roundOf(pool, 0, 0).seedBlock;
    }

    function _serviceAttests(uint256 places, bytes memory refusal) internal {
        if (refusal.length != 0) vm.expectRevert(refusal);
        vm.prank(account("service"));
        court.attest(pool, 0, places);
    }

    function test_presentedFileIsJudgedWithoutTheService() public {
        uint256 s = _present();
        (, uint256 end,) = pools.laneOf(pool, 0);
        assertEq(_seedBlock(), end + 1);
        assertEq(court.roundOf(pool, 0, 0).codes, Codes.UNDECIDED);
        _blocks(end + 1 - height); // the seed's block itself: its hash is known in the next one
        vm.expectRevert(abi.encodeWithSelector(IVoting.SeedNotMined.selector, end + 1));
        court.committeeOf(pool, 0, 0);
        _blocks(1);
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(s), PAY);
    }

    /// The same file without its receipt, and without the service, is late.
    function test_fileThatNobodyAttestsIsLate() public {
        uint256 s = _submit();
        assertEq(_seedBlock(), 0);
        _blocks(2 + D + 1);
        vm.expectRevert(ICourt.NoSuchLane.selector);
        court.draw(pool, 0, 0);
        court.settle(pool, 0, 0, _refs(0));
        assertEq(_code(s), Codes.LATE);
    }

    /// The seed is that of the block after the last in which a file can still come.
    function test_laneTakesFilesUntilTheBlockBeforeItsSeed() public {
        _present();
        (, uint256 end,) = pools.laneOf(pool, 0);
        _blocks(end - height);
        assertEq(_present(), 1);
        assertEq(_seedBlock(), end + 1);
        _blocks(1);
        assertEq(_present(), 16);
        assertEq(_seedBlock(), end + 1);
        _draw(0, 0);
        assertEq(court.roundOf(pool, 0, 0).codes, Codes.spread(3, Codes.UNDECIDED));
    }

    /// Who could have the service attest once more after the seed's hash is known could choose the committee.
    function test_seedOfAPresentedLaneNeverMoves() public {
        uint256 s = _present();
        _present();
        FileData memory f = files[pool][s];
        Receipt memory r = _receipt("service", f.fileHash, clock);
        (, uint256 end,) = pools.laneOf(pool, 0);
        bytes memory refusal = abi.encodeWithSelector(ICourt.NothingNew.selector);
        for (uint256 i = 0; i < 3; ++i) {
            _blocks(end + 1 + i - height); // before, in and after the seed's block
            for (uint256 places = 0; places < 4; ++places) {
                _serviceAttests(places, refusal);
            }
            vm.expectRevert(refusal);
            court.attestByReceipt(pool, s, f, r);
            assertEq(_seedBlock(), end + 1);
        }
        _voteAll(0, Codes.ACCEPT);
        assertEq(_code(s), Codes.ACCEPT);
    }

    function test_sixteenPresentedFilesAreDrawnFromTheNextBlock() public {
        for (uint256 i = 0; i < 16; ++i) {
            _present();
        }
        assertEq(_seedBlock(), height + 1);
        uint256 seedBlock = height + 1;
        _serviceAttests(0xffff, abi.encodeWithSelector(ICourt.NothingNew.selector));
        _blocks(2);
        _serviceAttests(0xffff, abi.encodeWithSelector(ICourt.NothingNew.selector));
        assertEq(_seedBlock(), seedBlock);
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(15), 16 * PAY);
    }

    /// Whoever came without a receipt waits for the service, and the lane with it.
    function test_serviceAttestsTheRestOfAMixedLane() public {
        _present();
        _submit();
        _present();
        (, uint256 end,) = pools.laneOf(pool, 0);
        assertEq(_seedBlock(), end + D + 1);
        _blocks(end + 3 - height);
        _serviceAttests(5, abi.encodeWithSelector(ICourt.NothingNew.selector));
        _serviceAttests(2, "");
        assertEq(_seedBlock(), height + 1);
        assertEq(court.roundOf(pool, 0, 0).codes, Codes.spread(7, Codes.UNDECIDED));
        _serviceAttests(7, abi.encodeWithSelector(ICourt.NothingNew.selector));
        _voteAll(0, Codes.ACCEPT);
        assertEq(_code(0), Codes.ACCEPT);
        assertEq(_code(2), Codes.ACCEPT);
    }

    function test_serviceAttestsAllOfAMixedLane() public {
        _present();
        _submit();
        _attestPlaces(0, 3);
        assertEq(_seedBlock(), height + 1);
        assertEq(court.roundOf(pool, 0, 0).codes, Codes.spread(3, Codes.UNDECIDED));
    }

    /// What was presented is remembered when the service attests a part of the others.
    function test_serviceAttestsAPartOfAMixedLane() public {
        _present();
        _submit();
        _submit();
        (, uint256 end,) = pools.laneOf(pool, 0);
        _attestPlaces(0, 2);
        assertEq(_seedBlock(), end + D + 1);
        assertEq(court.roundOf(pool, 0, 0).codes, Codes.spread(3, Codes.UNDECIDED));
        _attestPlaces(0, 4);
        assertEq(_seedBlock(), height + 1);
        assertEq(court.roundOf(pool, 0, 0).codes, Codes.spread(7, Codes.UNDECIDED));
    }

    function test_mixedLaneOfASilentServiceJudgesWhatWasPresented() public {
        uint256 late = _submit();
        uint256 s = _present();
        (, uint256 end,) = pools.laneOf(pool, 0);
        _blocks(end + D + 1 - height);
        vm.expectRevert(abi.encodeWithSelector(IVoting.SeedNotMined.selector, end + D + 1));
        court.committeeOf(pool, 0, 0);
        _serviceAttests(1, abi.encodeWithSelector(ICourt.AttestationOver.selector, end + D));
        FileRef[] memory refs = _refs(0);
        vm.expectRevert(abi.encodeWithSelector(ICourt.NotSettleable.selector, end + D + 1 + 64 + 1));
        court.settle(pool, 0, 0, refs);
        _blocks(1);
        _voteAll(0, Codes.ACCEPT);
        assertEq(_code(late), Codes.LATE);
        assertEq(_code(s), Codes.ACCEPT);
    }

    function test_presentedLaneThatNobodyDrawsGoesToAFreshCommittee() public {
        uint256 s = _present();
        (, uint256 end,) = pools.laneOf(pool, 0);
        _blocks(end + 1 + 64 + 1 - height);
        vm.expectRevert(abi.encodeWithSelector(ICourt.DrawOver.selector, end + 1 + 64));
        court.draw(pool, 0, 0);
        court.settle(pool, 0, 0, _refs(0));
        assertEq(court.roundOf(pool, 0, 1).seedBlock, height + 2);
        assertEq(court.roundOf(pool, 0, 0).codes, Codes.UNDECIDED);
        _vote(0, 1, _three(_all(1), _all(1), _all(1)));
        assertEq(_code(s), Codes.ACCEPT);
    }

    /// What the storage never acknowledged, or acknowledged to somebody else or for another file, is no receipt.
    function test_onlyTheServicesReceiptIsPresented() public {
        bytes32 hash = keccak256("file");
        Work memory work = _work(0, 0, Draft(hash, hash, 1_000, 8));
        Receipt memory forged = _receipt("node", hash, clock);
        Receipt memory other = _receipt("service", keccak256("other"), clock);
        Receipt memory old = _receipt("service", hash, clock - 601);
        vm.startPrank(node);
        vm.expectRevert(ICourt.BadReceipt.selector);
        pools.submitWithReceipt(work, forged);
        vm.expectRevert(ICourt.BadReceipt.selector);
        pools.submitWithReceipt(work, other);
        vm.expectRevert(abi.encodeWithSelector(IPools.ReceiptOutOfTime.selector, clock - 600, clock));
        pools.submitWithReceipt(work, old);
        vm.stopPrank();
        assertEq(_present(), 0);
    }

    function test_presentedReceiptsAreAnnounced() public {
        vm.expectEmit(address(pools));
        emit IPools.ReceiptPresented(pool << 32);
        _present();
    }

    /// A full lane is complete whatever its neighbour's files came with, and a later lane is read by its own number.
    function test_lanesArePresentedByThemselves() public {
        for (uint256 i = 0; i < 16; ++i) {
            _present();
        }
        (, uint256 end,) = pools.laneOf(pool, 0);
        assertEq(_present(), 16);
        assertEq(_seedBlock(), end + 1);
        (, end,) = pools.laneOf(pool, 1);
        assertEq(court.roundOf(pool, 1, 0).seedBlock, end + 1);
        assertEq(court.roundOf(pool, 1, 0).codes, Codes.UNDECIDED);
    }

    /// While a replaced key still counts, nobody else's does.
    function test_forgedReceiptIsNoneWhileAKeyIsReplaced() public {
        vm.prank(owner);
        court.setService(pool, account("new service"));
        bytes32 hash = keccak256("file");
        Work memory work = _work(0, 0, Draft(hash, hash, 1_000, 8));
        Receipt memory forged = _receipt("stranger", hash, clock);
        Receipt memory former = _receipt("service", hash, clock);
        vm.startPrank(node);
        vm.expectRevert(ICourt.BadReceipt.selector);
        pools.submitWithReceipt(work, forged);
        assertEq(pools.submitWithReceipt(work, former), 0);
        vm.stopPrank();
    }
}
