// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileData} from "../libraries/Types.sol";

/// @title IAppeals
/// @notice Disputes of a committee's outcome, as cases of Juries. Whoever has an outcome overturned gets its deposit
/// back, unless the file was paid and still is: then, and where no jury found a verdict, the deposit pays the jurors
/// and the rest goes back. Without a verdict the committee's outcome stands, or the first jury's, if that is better for
/// the node: a jury that cannot get a file, or cannot agree, convicts nobody and fines nobody.
interface IAppeals {
    struct Dispute {
        /// Who disputed the committee's outcome.
        address disputer;
        uint256 deposit;
        /// The committee's outcome.
        uint256 code;
        /// The case's first jury.
        uint256 trial;
        bool resolved;
    }

    event Disputed(
        uint256 indexed pool, uint256 indexed sequence, address indexed disputer, uint256 trial, uint256 deposit
    );
    /// @notice `code` is final. `reward` went to a disputer that was right.
    event DisputeResolved(
        uint256 indexed pool, uint256 indexed sequence, uint256 code, bool overturned, uint256 reward
    );
    /// @notice A member of an overturned majority lost `amount`.
    event MemberPenalised(uint256 indexed pool, uint256 indexed sequence, uint256 indexed seat, uint256 amount);

    error NotCanaries();
    error NoDispute();
    /// @notice The file may be a canary until `time`.
    error NotYet(uint256 time);
    error AlreadyResolved();

    /// @notice Disputes the outcome of a file within its challenge window; takes `Juries.depositOf(pool, 1)` (approved
    /// before). The disputer must make the file's bytes available to the jury.
    function dispute(uint256 pool, uint256 sequence, FileData calldata file) external;
    /// @notice Takes the dispute's case on (`Juries.proceed`), and resolves it once that has ended. Anyone may call. A
    /// file that may be a canary waits until its challenge window is over.
    function conclude(uint256 pool, uint256 sequence, FileData calldata file) external;

    /// @notice Ends a dispute of a file that is opened as a canary. Canaries only. `code` is the committee's outcome,
    /// `used` the fees of jurors who had revealed, to be sent to Juries.
    function cancel(uint256 pool, uint256 sequence) external returns (uint256 code, uint256 used);

    function disputeOf(uint256 pool, uint256 sequence) external view returns (Dispute memory);
}
