// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../../src/interfaces/IPools.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, Receipt} from "../../src/libraries/Types.sol";
import {Losses} from "./Losses.sol";

/// @notice The service's receipts, and files that are submitted with them.
contract Receipting is Losses {
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
}
