// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;


/// @notice contracts/src/DilocoRuns.sol for the tests, written by contracts/tools/abi.mjs.
interface IDilocoRuns {
    struct Contribution {
        address worker;
        uint64 weight;
        bytes32 document;
    }
    struct Run {
        bytes32 document;
        bytes32 start;
        address coordinator;
        uint64 steps;
    }
    error EmptyHash();
    error NotCoordinator();
    error WrongStep(uint256 next);
    event RunOpened(uint256 indexed run, bytes32 indexed document, address indexed coordinator, bytes32 start);
    event StepRecorded(uint256 indexed run, uint256 indexed step, bytes32 state, uint256 number, bytes32 entry, Contribution[] contributions);
    function blockOf(uint256 run, uint256 step) external view returns (uint256);
    function opened() external view returns (uint256);
    function open(bytes32 document, bytes32 start) external returns (uint256 run);
    function record(uint256 run, uint256 step, bytes32 state, uint256 number, bytes32 entry, Contribution[] calldata contributions) external;
    function runOf(uint256 run) external view returns (Run memory);
}
