// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDilocoRuns} from "./interfaces/IDilocoRuns.sol";

/// @title DilocoRuns
/// @notice Records outer steps of DiLoCo runs.
contract DilocoRuns is IDilocoRuns {
    uint256 private constant MAX_CONTRIBUTIONS = 64;

    /// @inheritdoc IDilocoRuns
    uint256 public opened;
    mapping(uint256 run => Run) private _runs;
    mapping(uint256 run => mapping(uint256 step => uint256)) private _blocks;

    /// @inheritdoc IDilocoRuns
    function open(bytes32 document, bytes32 start) external returns (uint256 run) {
        if (document == 0 || start == 0) revert EmptyHash();
        run = ++opened;
        _runs[run] = Run(document, start, msg.sender, 0);
        emit RunOpened(run, document, msg.sender, start);
    }

    /// @inheritdoc IDilocoRuns
    function record(
        uint256 run,
        uint256 step,
        bytes32 state,
        uint256 number,
        bytes32 entry,
        Contribution[] calldata contributions
    ) external {
        Run storage slot = _runs[run];
        if (msg.sender != slot.coordinator) revert NotCoordinator();
        if (step != slot.steps) revert WrongStep(slot.steps);
        if (state == 0 || entry == 0) revert EmptyHash();
        if (contributions.length > MAX_CONTRIBUTIONS) revert TooManyContributions();
        slot.steps += 1;
        _blocks[run][step] = block.number;
        emit StepRecorded(run, step, state, number, entry, contributions);
    }

    /// @inheritdoc IDilocoRuns
    function runOf(uint256 run) external view returns (Run memory) {
        return _runs[run];
    }

    /// @inheritdoc IDilocoRuns
    function blockOf(uint256 run, uint256 step) external view returns (uint256) {
        return _blocks[run][step];
    }
}
