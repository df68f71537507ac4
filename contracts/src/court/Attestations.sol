// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICourt} from "../interfaces/ICourt.sol";
import {IPools} from "../interfaces/IPools.sol";
import {Codes} from "../libraries/Codes.sol";
import {LaneSlot} from "../libraries/LaneSlot.sol";
import {TypedData} from "../libraries/TypedData.sol";
import {FileData, Receipt} from "../libraries/Types.sol";
import {Committees} from "./Committees.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

/// @title Attestations
/// @notice Bytes before randomness: which files of a lane had their bytes in the pool's storage. The block that seeds the
/// draw is fixed by that, and its hash is known to nobody who attests.
abstract contract Attestations is Committees {
    using LaneSlot for uint256;

    bytes32 public constant RECEIPT_TYPEHASH =
        keccak256("UploadReceipt(uint256 pool,address node,bytes32 sha256,uint256 size,uint256 time)");

    struct Service {
        address current;
        address previous;
        uint40 previousUntil;
    }

    mapping(uint256 pool => Service) private _services;

    /// @inheritdoc ICourt
    function setService(uint256 pool, address service) external {
        if (pools.ownerOf(pool) != msg.sender) revert IPools.NotOwner();
        Service storage keys = _services[pool];
        if (block.timestamp < keys.previousUntil) revert TooSoon(keys.previousUntil);
        uint256 until = keys.current == address(0) ? 0 : block.timestamp + _terms[pool].receiptLife;
        (keys.previous, keys.previousUntil, keys.current) = (keys.current, uint40(until), service);
        emit ServiceSet(pool, service, until);
    }

    /// @inheritdoc ICourt
    function announceService(uint256 pool, string calldata url) external {
        if (pools.ownerOf(pool) != msg.sender) revert IPools.NotOwner();
        emit ServiceAnnounced(pool, url);
    }

    /// @inheritdoc ICourt
    function attest(uint256 pool, uint256 lane, uint256 places) external {
        Service storage keys = _services[pool];
        bool known = msg.sender == keys.current || (msg.sender == keys.previous && block.timestamp < keys.previousUntil);
        if (!known) revert NotService();
        _attest(pool, lane, places);
    }

    /// @inheritdoc ICourt
    function attestByReceipt(uint256 pool, uint256 sequence, FileData calldata file, Receipt calldata receipt)
        external
    {
        bytes20 digest = pools.digestOf(pools.innerHash(pool, sequence, file), file.node);
        if (pools.submissionOf(pool, sequence).digest != digest) revert IPools.WrongFile(sequence);
        checkReceipt(pool, file.node, file.fileHash, receipt);
        // bytes are not kept for ever: an old receipt must not have the same file paid once more, as unavailable
        if (receipt.time + _terms[pool].receiptLife < block.timestamp) revert BadReceipt();
        _attest(pool, sequence >> 4, 1 << (sequence & 15));
    }

    /// @inheritdoc ICourt
    function checkReceipt(uint256 pool, address node, bytes32 fileHash, Receipt calldata receipt) public view {
        Service storage keys = _services[pool];
        bytes32 digest = receiptDigest(pool, node, fileHash, receipt.size, receipt.time);
        // never ERC-1271: what a contract acknowledged it can deny, when the work is there
        (address signer,,) = ECDSA.tryRecoverCalldata(digest, receipt.signature);
        bool known = signer == keys.current || (signer == keys.previous && block.timestamp < keys.previousUntil);
        if (signer == address(0) || !known || receipt.time > block.timestamp) revert BadReceipt();
    }

    /// @inheritdoc ICourt
    function serviceOf(uint256 pool) external view returns (address service, address previous, uint256 previousUntil) {
        Service memory keys = _services[pool];
        return (keys.current, keys.previous, keys.previousUntil);
    }

    /// @inheritdoc ICourt
    function receiptDigest(uint256 pool, address node, bytes32 fileHash, uint256 size, uint256 time)
        public
        view
        returns (bytes32)
    {
        bytes32 hash = keccak256(abi.encode(RECEIPT_TYPEHASH, pool, node, fileHash, size, time));
        return TypedData.digest(keccak256("muster-receipts"), address(pools), hash);
    }

    /// @dev The seed's block S is the next one once all files are attested, and the one after the last chance otherwise:
    /// a complete lane takes nothing more, so S cannot move after its hash is known. What came with its receipt was
    /// attested by that.
    function _attest(uint256 pool, uint256 lane, uint256 places) private {
        uint256 key = _key(pool, lane, 0);
        uint256 word = _lanes[key];
        if (word.settled()) revert AlreadySettled();
        if (word.seed() != 0) revert AlreadyDrawn();
        uint256 attested = Codes.gather(word.codes());
        (uint256 end, uint256 files, uint256 presented) = pools.presentedIn(pool, lane, attested | places);
        if (files == 0) revert NoSuchLane();
        if (files < 16 && block.number <= end) revert LaneOpen(end);
        uint256 last = end + _terms[pool].attestBlocks;
        if (block.number > last) revert AttestationOver(last);
        if (places >> files != 0) revert NoSuchFile();
        attested |= presented;
        if (places & ~attested == 0) revert NothingNew();
        attested |= places;
        word = _attested(pool, end, files, attested, block.number + 1);
        _lanes[key] = word;
        emit LaneAttested(pool, lane, attested, word.seedBlock());
    }

    /// @dev Last block in which a file of the lane can be attested.
    function _lastChance(uint256 pool, uint256 lane) internal view returns (uint256) {
        (, uint256 end, uint256 files) = pools.laneOf(pool, lane);
        if (files == 0) revert NoSuchLane();
        return end + _terms[pool].attestBlocks;
    }
}
