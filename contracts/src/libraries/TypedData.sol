// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

/// @title TypedData
/// @notice EIP-712 digests. Every domain is {name, version "1", this chain, a contract of the suite}.
library TypedData {
    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");

    /// @param name keccak256 of the domain's name. @param structHash The struct's hash, type first.
    function digest(bytes32 name, address verifyingContract, bytes32 structHash) internal view returns (bytes32) {
        bytes32 domain = keccak256(abi.encode(DOMAIN_TYPEHASH, name, keccak256("1"), block.chainid, verifyingContract));
        return MessageHashUtils.toTypedDataHash(domain, structHash);
    }
}
