// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {BadSignature} from "./Types.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

/// @title TypedData
/// @notice EIP-712 digests. Every domain is {name, version "1", this chain, a contract of the suite}.
library TypedData {
    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");

    /// @notice Reverts unless `signer` signed the struct for this contract.
    function check(address signer, bytes32 name, bytes32 structHash, bytes calldata signature) internal view {
        if (!signedBy(signer, digest(name, address(this), structHash), signature)) revert BadSignature();
    }

    /// @param name keccak256 of the domain's name. @param structHash The struct's hash, type first.
    function digest(bytes32 name, address verifyingContract, bytes32 structHash) internal view returns (bytes32) {
        return MessageHashUtils.toTypedDataHash(domain(name, verifyingContract), structHash);
    }

    /// @notice The domain's separator.
    function domain(bytes32 name, address verifyingContract) internal view returns (bytes32) {
        return keccak256(abi.encode(DOMAIN_TYPEHASH, name, keccak256("1"), block.chainid, verifyingContract));
    }

    /// @notice Whether `signer` signed. Ordinary keys only, and one signature each: a contract's could say later that
    /// it never signed.
    function signedBy(address signer, bytes32 digest_, bytes calldata signature) internal pure returns (bool) {
        (address found, ECDSA.RecoverError error,) = ECDSA.tryRecoverCalldata(digest_, signature);
        return error == ECDSA.RecoverError.NoError && found == signer;
    }
}
