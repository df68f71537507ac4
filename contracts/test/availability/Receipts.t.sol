// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICourt} from "../../src/interfaces/ICourt.sol";
import {IPools} from "../../src/interfaces/IPools.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, Receipt} from "../../src/libraries/Types.sol";
import {Receipting} from "../helpers/Receipting.sol";

/// @notice A receipt attests its file when the service is silent, and nothing else.
contract ReceiptsTest is Receipting {
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
}
