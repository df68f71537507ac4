// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "./IParams.sol";

/// @notice contracts/src/NodeChallenges.sol for the tests, written by contracts/tools/abi.mjs.
interface INodeChallenges {
    struct NodeChallenge {
        uint256 pool;
        address node;
        address accuser;
        bool concluded;
        uint8 code;
        uint256 bond;
        uint256 trial;
    }
    error Acquitted(uint256 time);
    error AlreadyConcluded();
    error AlreadyEjected();
    error BadCount();
    error NoSuchChallenge();
    error NotAccepted(uint256 sequence);
    error NotAscending(uint256 sequence);
    error NothingAtStake();
    error ReentrancyGuardReentrantCall();
    error SafeERC20FailedOperation(address token);
    error TooManyChallenges();
    error WrongAddress(address expected, address actual);
    error WrongFile(uint256 sequence);
    event ChallengeConcluded(uint256 indexed challenge, uint256 indexed pool, address indexed node, uint256 code, uint256 slashed, uint256 back, uint256 reward);
    event ChallengeOpened(uint256 indexed challenge, uint256 indexed pool, address indexed node, address accuser, uint256 trial, uint256 bond, uint256[] sequences, bytes32 evidence);
    function MAX_FILES() external view returns (uint256);
    function acquittedUntil(uint256 pool, address node) external view returns (uint256);
    function challengeOf(uint256 challenge) external view returns (NodeChallenge memory);
    function conclude(uint256 challenge) external;
    function opened() external view returns (uint256);
    function open(uint256 pool, address node, uint256[] calldata sequences, bytes32[] calldata inners, bytes32 evidence) external returns (uint256 challenge);
    function params() external view returns (IParams);
}
