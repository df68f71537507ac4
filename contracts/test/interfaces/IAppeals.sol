// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileData} from "../../src/libraries/Types.sol";
import {IParams} from "./IParams.sol";

/// @notice contracts/src/Appeals.sol for the tests, written by contracts/tools/abi.mjs.
interface IAppeals {
    struct Dispute {
        address disputer;
        uint256 deposit;
        uint256 code;
        uint256 trial;
        bool resolved;
    }
    error AlreadyConcluded();
    error NoDispute();
    error NoSuchFile(uint256 pool, uint256 sequence);
    error NotPermitted();
    error NotYet(uint256 time);
    error ReentrancyGuardReentrantCall();
    error SafeERC20FailedOperation(address token);
    error WrongAddress(address expected, address actual);
    event DisputeResolved(uint256 indexed pool, uint256 indexed sequence, uint256 code, bool overturned, uint256 reward);
    event Disputed(uint256 indexed pool, uint256 indexed sequence, address indexed disputer, uint256 trial, uint256 deposit);
    event MemberPenalised(uint256 indexed pool, uint256 indexed sequence, uint256 indexed seat, uint256 amount);
    function cancel(uint256 pool, uint256 sequence) external returns (uint256 code, uint256 used);
    function conclude(uint256 pool, uint256 sequence, FileData calldata file) external;
    function disputeOf(uint256 pool, uint256 sequence) external view returns (Dispute memory);
    function dispute(uint256 pool, uint256 sequence, FileData calldata file) external;
    function params() external view returns (IParams);
}
