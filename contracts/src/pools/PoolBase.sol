// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICourt} from "../interfaces/ICourt.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IPools} from "../interfaces/IPools.sol";
import {ISeats} from "../interfaces/ISeats.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {AccountSlot} from "../libraries/AccountSlot.sol";
import {FileId} from "../libraries/FileId.sol";
import {FileSlot} from "../libraries/FileSlot.sol";
import {PackedWork} from "../libraries/PackedWork.sol";
import {PoolSlot} from "../libraries/PoolSlot.sol";
import {SuiteLib} from "../libraries/SuiteLib.sol";
import {FileData, Suite} from "../libraries/Types.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Hashes} from "@openzeppelin/contracts/utils/cryptography/Hashes.sol";

/// @title PoolBase
/// @notice Storage and shared helpers of Pools.
abstract contract PoolBase is IPools, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;
    using PoolSlot for uint256;
    using AccountSlot for uint256;
    using FileSlot for uint256;

    /// @dev One packed word; a struct, so that the hot path can keep a pointer to it.
    struct Word {
        uint256 word;
    }

    struct Desk {
        address owner;
        uint32 seedBlock;
        /// When it became what its status says: open (again), paused, closing.
        uint32 since;
        // next word: what is needed here of the terms
        uint32 unbonding;
        uint56 minStake;
        uint16 leverage;
        uint32 challengeWindow;
        uint32 receiptWindow;
        bool inviteOnly;
    }

    struct Step {
        bytes32 canaryRoot;
        uint40 publishedAt;
    }

    IERC20 public immutable token;
    IParams internal immutable params;
    IStakes internal immutable stakes;
    ISeats internal immutable seats;
    ICourt internal immutable court;
    address internal immutable appeals;
    address internal immutable canaries;
    address internal immutable nodeCases;

    /// @inheritdoc IPools
    uint256 public poolCount;
    mapping(uint256 pool => Word) internal _pools;
    mapping(uint256 pool => Desk) internal _desks;
    mapping(uint256 pool => mapping(uint256 step => Step)) internal _steps;
    /// By pool << 160 | node.
    mapping(uint256 member => Word) internal _accounts;
    /// By FileId.
    mapping(uint256 id => uint256 slot) internal _files;

    modifier onlyOwner(uint256 pool) {
        _checkOwner(pool);
        _;
    }

    modifier onlyCourt() {
        _checkSender(address(court), address(court));
        _;
    }

    modifier onlyBench() {
        _checkSender(appeals, canaries);
        _;
    }

    modifier onlyNodeCases() {
        _checkSender(nodeCases, nodeCases);
        _;
    }

    constructor(Suite memory suite) {
        SuiteLib.checkPlace(suite.pools);
        token = IERC20(suite.token);
        params = IParams(suite.params);
        stakes = IStakes(suite.stakes);
        seats = ISeats(suite.seats);
        court = ICourt(suite.court);
        appeals = suite.appeals;
        canaries = suite.canaries;
        nodeCases = suite.nodeCases;
    }

    /// @inheritdoc IPools
    function innerHash(uint256 pool, uint256 sequence, FileData calldata file) public pure returns (bytes32) {
        FileId.checked(pool, sequence);
        uint256 packed = PackedWork.pack(pool, file.step, file.counter, file.units, file.rows);
        return _inner(file.root, file.fileHash, PackedWork.placed(packed, sequence));
    }

    /// @inheritdoc IPools
    function digestOf(bytes32 inner, address node) public pure returns (bytes20) {
        return bytes20(uint160(_digest(inner, node)));
    }

    // Modifiers are copied wherever they stand; what they check stands here once.
    function _checkOwner(uint256 pool) private view {
        if (_desks[pool].owner != msg.sender) revert NotOwner();
    }

    function _checkSender(address one, address other) private view {
        if (msg.sender != one && msg.sender != other) revert NotCourt();
    }

    function _member(uint256 pool, address node) internal pure returns (uint256) {
        if (pool >> 24 != 0) revert NoSuchPool(); // it would stand for another
        return (pool << 160) | uint160(node);
    }

    /// @dev keccak256(abi.encode(root, fileHash, placed)); every submission pays for it, so the words lie beyond the free
    /// memory pointer, which stays where it is.
    function _inner(bytes32 root, bytes32 fileHash, uint256 placed) internal pure returns (bytes32 inner) {
        assembly ("memory-safe") {
            let words := mload(0x40)
            mstore(words, root)
            mstore(add(words, 0x20), fileHash)
            mstore(add(words, 0x40), placed)
            inner := keccak256(words, 0x60)
        }
    }

    function _digest(bytes32 inner, address node) internal pure returns (uint256) {
        return uint256(Hashes.efficientKeccak256(inner, bytes32(uint256(uint160(node))))) >> 96;
    }

    /// @dev Refunds never exceed what was once deposited; a budget at its cap burns nothing, it only stays in escrow.
    function _credit(uint256 state, uint256 amount) internal pure returns (uint256) {
        uint256 free = state.free() + amount;
        return state.withFree(free < PoolSlot.MAX_FREE ? free : PoolSlot.MAX_FREE);
    }

    function _burn(uint256 amount) internal {
        if (amount != 0) token.safeTransfer(SuiteLib.SINK, amount);
    }

    /// @dev The file's slot, after checking that `inner` and `node` are what it binds.
    function _checked(uint256 pool, uint256 sequence, bytes32 inner, address node)
        internal
        view
        returns (uint256 slot)
    {
        slot = _files[FileId.checked(pool, sequence)];
        if (slot.phase() == 0 || slot.digest() != _digest(inner, node)) revert WrongFile(sequence);
    }
}
