// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, Receipt} from "../../src/libraries/Types.sol";
import {Receipting} from "../helpers/Receipting.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IPools} from "../interfaces/IPools.sol";

/// @notice A service key that is a contract: it acknowledges its signatures until it does not.
contract Fickle {
    function isValidSignature(bytes32, bytes calldata) external pure returns (bytes4) {
        return Fickle.isValidSignature.selector;
    }
}

/// @notice A file with its receipt needs nobody's leave, and comes in once.
contract ReceiptsTest is Receipting {
    /// The service is silent: whoever sends the node's file and the receipt has it judged and paid.
    function test_receiptStandsInForTheService() public {
        uint256 s = _late(0, clock);
        assertEq(_round(pool, 0, 0).time, height + 1);
        _isPaid(s);
    }

    function test_severalFilesWithTheirReceiptsAreOneLane() public {
        FileData[] memory lane = new FileData[](3);
        Receipt[] memory receipts = new Receipt[](3);
        for (uint256 i = 0; i < 3; ++i) {
            lane[i] = _next(node, 1_000, i);
            receipts[i] = _signed("service", pool, node, lane[i].fileHash, clock);
        }
        bytes[] memory signatures = _signatures(lane);
        receipts[2].time -= 1; // the service did not sign this
        vm.expectRevert(ICourt.BadReceipt.selector);
        pools.submitLane(pool, lane, signatures, receipts, _anchor(), _anchorHash());
        receipts[2].time += 1;
        assertEq(pools.submitLane(pool, lane, signatures, receipts, _anchor(), _anchorHash()), 0);
        assertEq(_round(pool, 0, 0).codes, Codes.spread(7, Codes.UNDECIDED));
    }

    /// Neither the relay nor a receipt has a file paid that the other brought in.
    function test_fileIsRelayedOrPresentedNeverBoth() public {
        FileData memory f = _for(0);
        Receipt memory r = _signed("service", pool, node, f.fileHash, clock);
        bytes memory twice = abi.encodeWithSelector(IPools.CounterMismatch.selector, 0, 1);
        uint256 snapshot = vm.snapshot();
        _present(f, r);
        _refused(f, twice);
        _presentReverts(f, r, _refusal(0, twice));
        vm.revertTo(snapshot);
        _relay(_one(f));
        _presentReverts(f, r, _refusal(0, twice));
        assertEq(_pool(pool).free, BUDGET - PAY - 2 * FEES);
    }

    function test_receiptOfAnotherThingDoesNotCount() public {
        FileData memory f = _for(0);
        _refuses(f, _signed("stranger", pool, node, f.fileHash, clock)); // another key
        _refuses(f, _signed("service", pool + 1, node, f.fileHash, clock)); // another pool
        _refuses(f, _signed("service", pool, stranger, f.fileHash, clock)); // another node
        _refuses(f, _signed("service", pool, node, keccak256("other"), clock)); // another file
        Receipt memory r = _signed("service", pool, node, f.fileHash, clock);
        r.size += 1;
        _refuses(f, r);
        r.size -= 1;
        r.time -= 1;
        _refuses(f, r);
        r.time += 1;
        r.signature = "";
        _refuses(f, r);
        vm.chainId(999);
        r = _signed("service", pool, node, f.fileHash, clock);
        vm.chainId(31337);
        _refuses(f, r); // another chain
        r = _signed("service", pool, node, f.fileHash, clock + 1);
        vm.expectRevert(ICourt.BadReceipt.selector);
        court.checkReceipt(pool, node, f.fileHash, r); // from the future
        _present(f, _signed("service", pool, node, f.fileHash, clock));
    }

    function _refuses(FileData memory f, Receipt memory r) internal {
        _presentReverts(f, r, abi.encodeWithSelector(ICourt.BadReceipt.selector));
    }

    /// What a contract "signed" it can deny later, when the work is there: only a key's own signature is a receipt.
    function test_contractsGiveNoReceipts() public {
        address fickle = address(new Fickle());
        vm.prank(owner);
        court.setService(pool, fickle);
        FileData memory f = _for(0);
        _refuses(f, Receipt(1, uint40(clock), "anything"));
        bytes[] memory signatures = _signatures(_one(f));
        vm.prank(fickle);
        pools.submitLane(pool, _one(f), signatures, new Receipt[](0), _anchor(), _anchorHash()); // relaying is an act of its own
    }

    /// A key whose account gets code (EIP-7702) has signed what it signed.
    function test_codeAtTheServicesAccountDeniesNoReceipt() public {
        vm.etch(account("service"), hex"600080fd");
        _late(0, clock);
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
        Receipt memory receipt = Receipt({size: 77, time: 88, signature: _sign(key("service"), digest)});
        court.checkReceipt(pool, node, keccak256("file"), receipt);
    }

    function test_previousKeyCountsForAWhile() public {
        FileData memory f = _for(0);
        Receipt memory r = _signed("service", pool, node, f.fileHash, clock);
        vm.expectRevert(IPools.NotOwner.selector);
        court.setService(pool, stranger);
        vm.prank(owner);
        court.setService(pool, account("second"));
        uint256 until = clock + WINDOW + 1;
        _names("second", "service", until);
        _wait(WINDOW);
        vm.expectRevert(abi.encodeWithSelector(ICourt.TooSoon.selector, until));
        vm.prank(owner);
        court.setService(pool, account("third"));
        uint256 snapshot = vm.snapshot();
        _present(f, r); // in the last second of both
        vm.revertTo(snapshot);
        _relay(_one(f)); // by the previous key
        vm.revertTo(snapshot);
        _wait(1);
        vm.expectRevert(ICourt.BadReceipt.selector);
        court.checkReceipt(pool, node, f.fileHash, r);
        bytes memory relay = _relaying(f);
        vm.prank(account("service"));
        (bool ok, bytes memory answer) = address(pools).call(relay);
        assertFalse(ok);
        assertEq(bytes32(bytes4(answer)), bytes32(IPools.NotService.selector));
        vm.prank(account("second"));
        (ok,) = address(pools).call(relay);
        assertTrue(ok);
        vm.prank(owner);
        court.setService(pool, account("third")); // the next rotation
        _counts("second", f);
        _counts("third", f);
    }

    function _names(string memory now_, string memory before, uint256 time) private {
        (address current, address previous, uint256 until) = court.serviceOf(pool);
        assertEq(current, account(now_));
        assertEq(previous, account(before));
        assertEq(until, time);
    }

    function _counts(string memory signer, FileData memory f) private view {
        court.checkReceipt(pool, node, f.fileHash, _signed(signer, pool, node, f.fileHash, clock));
    }
}
