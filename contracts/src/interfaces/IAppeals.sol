// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileData} from "../libraries/Types.sol";

/// @title IAppeals
/// @notice Disputes of a committee's outcome, and appeals against the first jury's verdict. There are at most two
/// juries, each replaced at most once. A jury without a verdict leaves the outcome and returns the deposits. A jury
/// that cannot get an accepted file ends the acceptance, because the seats that accepted it had to keep its bytes. An
/// outcome `unavailable` blames nobody: whoever has it overturned pays the jury.
interface IAppeals {
    struct Dispute {
        /// Who disputed the committee's outcome.
        address disputer;
        uint256 deposit;
        /// Who appealed against the first jury, or zero.
        address appellant;
        uint256 appealDeposit;
        /// The committee's outcome.
        uint256 code;
        /// The code after the first jury's verdict.
        uint256 verdict;
        uint256 trial;
        uint256 appealTrial;
        /// End of the time to appeal against the first verdict.
        uint256 appealUntil;
        bool resolved;
        /// The penalties of this time hold.
        uint256 openedAt;
    }

    event Disputed(
        uint256 indexed pool, uint256 indexed sequence, address indexed disputer, uint256 trial, uint256 deposit
    );
    event VerdictReached(uint256 indexed pool, uint256 indexed sequence, uint256 code, uint256 appealUntil);
    event Appealed(
        uint256 indexed pool, uint256 indexed sequence, address indexed appellant, uint256 trial, uint256 deposit
    );
    /// @notice `code` is final. `reward` went to the disputer or appellant that was right.
    event DisputeResolved(
        uint256 indexed pool, uint256 indexed sequence, uint256 code, bool overturned, uint256 reward
    );
    /// @notice A member of an overturned majority lost `amount`.
    event MemberPenalised(uint256 indexed pool, uint256 indexed sequence, uint256 indexed seat, uint256 amount);

    /// @notice The owner opened the file as a canary: no verdict, all deposits went back.
    event DisputeCancelled(uint256 indexed pool, uint256 indexed sequence);

    error NotCanaries();
    error NoDispute();
    error AlreadyAppealed();
    error NoAppeal();
    error AppealOver(uint256 time);
    error NotYet(uint256 time);
    error AlreadyResolved();

    /// @notice Disputes the outcome of a file within its challenge window; takes `depositOf(pool, 0)` (approved
    /// before). The disputer must make the file's bytes available to the jury.
    function dispute(uint256 pool, uint256 sequence, FileData calldata file) external;
    /// @notice Appeals against the first jury's verdict, if the pool has a second jury; takes `depositOf(pool, 1)`.
    function appeal(uint256 pool, uint256 sequence) external;
    /// @notice Records the verdict after the first jury, which is final without a second one, or resolves after the
    /// appeal window or the second jury. Anyone may call. A file that may be a canary is resolved after its challenge
    /// window.
    function conclude(uint256 pool, uint256 sequence, FileData calldata file) external;

    /// @notice Ends a dispute of a file that is opened as a canary. Canaries only. `code` is the committee's outcome,
    /// `used` the fees of jurors who had revealed, to be sent to Juries.
    function cancel(uint256 pool, uint256 sequence) external returns (uint256 code, uint256 used);

    function disputeOf(uint256 pool, uint256 sequence) external view returns (Dispute memory);
    /// @notice Deposit of a dispute (round 0) or an appeal (round 1): jury fees and compensation for delay, doubled in
    /// round 1.
    function depositOf(uint256 pool, uint256 round) external view returns (uint256);
}
