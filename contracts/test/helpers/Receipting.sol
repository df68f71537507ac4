// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, Receipt} from "../../src/libraries/Types.sol";
import {IPools} from "../interfaces/IPools.sol";
import {Losses} from "./Losses.sol";

/// @notice The service's receipts, and files that are submitted with them.
contract Receipting is Losses {
    uint256 internal constant WINDOW = 600;

    function _signed(string memory signer, uint256 p, address n, bytes32 fileHash, uint256 time)
        internal
        view
        returns (Receipt memory)
    {
        bytes32 digest = _receiptDigest(p, n, fileHash, 1_234, time);
        return Receipt({size: 1_234, time: uint40(time), signature: _sign(key(signer), digest)});
    }

    function _receipt(uint256 sequence) internal view returns (Receipt memory) {
        FileData memory f = files[pool][sequence];
        return _signed("service", pool, f.node, f.fileHash, clock);
    }

    /// @dev `node`'s next file, for `step`.
    function _for(uint256 step) internal view returns (FileData memory f) {
        f = _next(node, 1_000, 0);
        f.step = uint24(step);
    }

    /// @dev A stranger submits `node`'s next file for `step`, with a receipt of `time`.
    function _late(uint256 step, uint256 time) internal returns (uint256 sequence) {
        FileData memory f = _for(step);
        sequence = _present(f, _signed("service", pool, node, f.fileHash, time));
    }

    function _present(FileData memory f, Receipt memory receipt) internal returns (uint256 sequence) {
        bytes[] memory signatures = _signatures(_one(f));
        vm.prank(stranger);
        sequence = pools.submitLane(pool, _one(f), signatures, _only(receipt), _anchor(), _anchorHash()) << 4;
        files[pool][sequence] = f;
    }

    function _only(Receipt memory receipt) internal pure returns (Receipt[] memory receipts) {
        receipts = new Receipt[](1);
        receipts[0] = receipt;
    }

    function _lateReverts(uint256 step, uint256 time, bytes memory reason) internal {
        FileData memory f = _for(step);
        _presentReverts(f, _signed("service", pool, node, f.fileHash, time), reason);
    }

    function _presentReverts(FileData memory f, Receipt memory receipt, bytes memory reason) internal {
        bytes[] memory signatures = _signatures(_one(f));
        vm.expectRevert(reason);
        vm.prank(stranger);
        pools.submitLane(pool, _one(f), signatures, _only(receipt), _anchor(), _anchorHash());
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
}
