// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title DilocoRuns
/// @notice One public record per outer step of a DiLoCo run: the state that the step led to and the contributions that
/// it was made of. A run's coordinator signs a log of all steps in the run's bucket; the record fixes what the log
/// said, so that anyone who recomputes the step from the bucket (`muster diloco verify`) can show a difference. The
/// contract holds no tokens and judges nothing.
contract DilocoRuns {
    struct Run {
        /// SHA-256 of the run's canonical document.
        bytes32 document;
        /// Digest of the outer state that the run starts from.
        bytes32 start;
        /// The key that opened the run and records its steps; zero when there is no such run.
        address coordinator;
        /// Outer steps recorded, which is also the number of the next one.
        uint64 steps;
    }

    struct Contribution {
        address worker;
        /// Factor that the contribution was multiplied by, in 1e-9, rounded down; 0 for one that was excluded.
        uint64 weight;
        /// SHA-256 of the signed contribution.
        bytes32 document;
    }

    event RunOpened(uint256 indexed run, bytes32 indexed document, address indexed coordinator, bytes32 start);
    /// @notice Outer step `step` led to the state of digest `state`. The commit record is entry `number` of the log,
    /// whose stored bytes have the SHA-256 `entry`.
    event StepRecorded(
        uint256 indexed run,
        uint256 indexed step,
        bytes32 state,
        uint256 number,
        bytes32 entry,
        Contribution[] contributions
    );

    error EmptyHash();
    error NotCoordinator();
    /// @notice Outer steps are recorded in order, each once; `next` is the one that is due.
    error WrongStep(uint256 next);

    /// @notice Returns how many runs were ever opened, which is the number of the newest.
    uint256 public opened;
    mapping(uint256 run => Run) private _runs;
    mapping(uint256 run => mapping(uint256 step => uint256)) private _blocks;

    /// @notice Opens a run. The caller becomes its coordinator; nothing of the run can change afterwards.
    function open(bytes32 document, bytes32 start) external returns (uint256 run) {
        if (document == 0 || start == 0) revert EmptyHash();
        run = ++opened;
        _runs[run] = Run(document, start, msg.sender, 0);
        emit RunOpened(run, document, msg.sender, start);
    }

    /// @notice Records outer step `step`; only the coordinator may, in order, from step 0 on.
    /// @param contributions All that the step was made of, including those that were excluded.
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
        slot.steps += 1;
        _blocks[run][step] = block.number;
        emit StepRecorded(run, step, state, number, entry, contributions);
    }

    function runOf(uint256 run) external view returns (Run memory) {
        return _runs[run];
    }

    /// @notice Returns the block of the step's `StepRecorded` event, 0 if the step is not recorded.
    function blockOf(uint256 run, uint256 step) external view returns (uint256) {
        return _blocks[run][step];
    }
}
