// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData} from "../../src/libraries/Types.sol";
import {Losses} from "../helpers/Losses.sol";
import {ICanaries} from "../interfaces/ICanaries.sol";

/// @notice A node's account with code that acknowledges every signature.
contract Agreeable {
    function isValidSignature(bytes32, bytes calldata) external pure returns (bytes4) {
        return Agreeable.isValidSignature.selector;
    }
}

/// @notice Only the key of a file's own node makes the file a canary.
contract DecoyConsentTest is Losses {
    /// A captured committee rejects honest work; its worker disputes; no canary that the owner opens ends the dispute.
    function test_canaryDoesNotTakeAWrongedWorkersJury() public {
        uint256 sequence = _submitPlanted();
        _voteAll(sequence / 16, Codes.REJECT_WEIGHTS);
        uint256 trial = _dispute(stranger, sequence);
        uint256 free = _pool(pool).free;
        _refusesToOpen(sequence, "");
        assertEq(_pool(pool).free, free); // the pay stays reserved for the worker
        _juryVotes(trial, Codes.ACCEPT);
        _passWindow();
        _conclude(sequence);
        assertEq(_code(sequence), Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(sequence), PAY);
    }

    /// Only the key of the file's own node makes it a canary, for this file, on this chain, to this contract.
    function test_nobodysWorkIsACanaryWithoutItsNodesConsent() public {
        uint256 s = _submitPlanted();
        uint256 other = _submit(); // planted as well
        _voteAll(s / 16, Codes.ACCEPT);
        FileData memory f = files[pool][s];
        bytes32 leaf = _leafOf(_opening(f).salt, pool, f.step, node, f.counter);
        bytes32 digest = _decoyDigest(leaf);
        _refusesToOpen(s, "");
        _refusesToOpen(s, _sign(key("owner"), digest));
        _refusesToOpen(s, _sign(key("operator"), digest));
        _refusesToOpen(s, _opening(files[pool][other]).consent);
        _refusesToOpen(s, _sign(key("node"), leaf));
        _refusesToOpen(s, _sign(key("node"), _digestAt(leaf, block.chainid + 1, address(canaries))));
        _refusesToOpen(s, _sign(key("node"), _digestAt(leaf, block.chainid, address(appeals))));
        assertEq(digest, _digestAt(leaf, block.chainid, address(canaries)));
        _openCanary(s);
        assertEq(canaries.canaryOf(pool, s).accused.length, 3);
    }

    /// A contract is not asked: one that acknowledges every signature would give its operator's work away.
    function test_aContractsConsentIsNone() public {
        vm.etch(node, type(Agreeable).runtimeCode);
        uint256 s = _submitPlanted();
        _voteAll(s / 16, Codes.ACCEPT);
        _refusesToOpen(s, "");
        _openCanary(s); // its key's is, whatever code the account has
        assertEq(canaries.canaryOf(pool, s).accused.length, 3);
    }

    /// The consent is to one file of the node's, wherever a reorganisation puts it, and also once the node has left.
    function test_aDecoysConsentOutlastsItsMembershipAndAReorganisation() public {
        address early = _register(operator, "early", STAKE);
        vm.prank(operator);
        pools.join(pool, early, type(uint256).max, "", "");
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 snapshot = vm.snapshot();
        uint256 s = _submit();
        ICanaries.Planted memory p = _opening(files[pool][s]);
        vm.revertTo(snapshot);
        _submitFrom(early, 1_000);
        assertEq(_submit(), s + 16);
        vm.prank(operator);
        pools.leavePool(pool, node, type(uint256).max, "");
        s += 16;
        _voteAll(s / 16, Codes.ACCEPT);
        FileData memory f = files[pool][s];
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        _give(owner, address(canaries), 100_000e9);
        vm.prank(owner);
        canaries.open(pool, s, f, p, r, 3);
        assertEq(canaries.canaryOf(pool, s).accused.length, 3);
    }

    function _refusesToOpen(uint256 s, bytes memory consent) private {
        FileData memory f = files[pool][s];
        ICanaries.Planted memory p = _opening(f);
        p.consent = consent;
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        vm.expectRevert(ICanaries.BadSignature.selector);
        vm.prank(owner);
        canaries.open(pool, s, f, p, r, 3);
    }

    function _digestAt(bytes32 leaf, uint256 chain, address place) private pure returns (bytes32) {
        bytes32 domain = keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
        domain = keccak256(abi.encode(domain, keccak256("muster-canaries"), keccak256("1"), chain, place));
        bytes32 consent = keccak256(abi.encode(keccak256("DecoyConsent(bytes32 leaf)"), leaf));
        return keccak256(abi.encodePacked(bytes2(0x1901), domain, consent));
    }
}
