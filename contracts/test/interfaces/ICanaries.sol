// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileData} from "../../src/libraries/Types.sol";
import {IParams} from "./IParams.sol";

/// @notice contracts/src/Canaries.sol for the tests, written by contracts/tools/abi.mjs.
interface ICanaries {
    struct Canary {
        address owner;
        uint256 deposit;
        uint256 code;
        uint256[] accused;
        uint256 trial;
        bool concluded;
    }
    struct Planted {
        bytes32 salt;
        bytes32[] proof;
        bytes consent;
    }
    struct Rollout {
        uint256 row;
        bytes32 rowHash;
        bytes32[] proof;
    }
    error AlreadyConcluded();
    error BadReason();
    error BadSignature();
    error NoSuchFile(uint256 pool, uint256 sequence);
    error NotInFile();
    error NotInSample();
    error NotOpened();
    error NotOwner();
    error NotPlanted();
    error ReentrancyGuardReentrantCall();
    error SafeERC20FailedOperation(address token);
    error WindowOver(uint256 time);
    error WrongAddress(address expected, address actual);
    error WrongFile(uint256 sequence);
    event CanaryConcluded(uint256 indexed pool, uint256 indexed sequence, bool upheld, uint256 code);
    event CanaryOpened(uint256 indexed pool, uint256 indexed sequence, uint256 row, uint256 reason, uint256[] accused, uint256 deposit, uint256 trial);
    event SeatSlashed(uint256 indexed pool, uint256 indexed sequence, uint256 indexed seat, uint256 amount);
    function CONSENT_TYPEHASH() external view returns (bytes32);
    function DEPTH() external view returns (uint256);
    function canaryOf(uint256 pool, uint256 sequence) external view returns (Canary memory);
    function conclude(uint256 pool, uint256 sequence, FileData calldata file) external;
    function inSample(bytes32 seed, uint256 sequence, uint256 rows, uint256 rate, uint256 row) external pure returns (bool);
    function open(uint256 pool, uint256 sequence, FileData calldata file, Planted calldata planted, Rollout calldata rollout, uint256 reason) external;
    function params() external view returns (IParams);
}
