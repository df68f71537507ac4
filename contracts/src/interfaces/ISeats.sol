// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title ISeats
/// @notice Validators' seats of equal bond, and the uniform draw among those that chose to judge. A seat judges the
/// validator groups that it has opted into, five at most, and nothing else. A group below 2^24 is the pool of that
/// number. Any other group is one that pools name in their terms; by convention its number is the last four bytes of
/// keccak256 of the group's name, with the highest bit set. The set that a draw uses changes only at epoch boundaries
/// (an epoch is `epochBlocks` blocks): opting in and out take effect in the next epoch, and draws under way still hold
/// who opted out.
interface ISeats {
    enum State {
        None,
        Active,
        Left,
        Closed
    }

    struct Seat {
        /// Who posted the bond and receives fees.
        address owner;
        /// Base units left of the bond.
        uint56 bond;
        State state;
        /// First epoch in which the seat can be drawn; 0 once it is leaving or was evicted.
        uint32 activeFrom;
        /// The hot key that votes.
        address voter;
        /// Epoch in which it left, the last one in which it could be drawn; 0 while active.
        uint32 leftEpoch;
        /// After `unbondSeat`: when the bond can be withdrawn; 0 before.
        uint32 releaseAt;
        /// Duties whose penalty is open: it cannot be withdrawn before they are closed.
        uint16 frozen;
        /// The bond fell below `minBond`: not drawn any more, whatever the epoch's set says.
        bool bondless;
    }

    event SeatOpened(uint256 indexed seat, address indexed owner, address voter, uint256 bond, uint256 activeFrom);
    /// @notice The seat can be drawn for `group` from `epoch` on.
    event SeatOptedIn(uint256 indexed seat, uint256 indexed group, uint256 epoch);
    /// @notice The seat opted out of `group`, left, or was evicted. Last drawable for it in `epoch`.
    event SeatOptedOut(uint256 indexed seat, uint256 indexed group, uint256 epoch);
    event VoterSet(uint256 indexed seat, address voter);
    event SeatToppedUp(uint256 indexed seat, uint256 amount, uint256 bond);
    /// @notice The seat left all its groups, or was evicted because its bond fell below `minBond`. Last drawable in
    /// `epoch`.
    event SeatLeft(uint256 indexed seat, uint256 epoch, bool evicted);
    event SeatUnbonding(uint256 indexed seat, uint256 releaseAt);
    event SeatClosed(uint256 indexed seat, address indexed owner, uint256 bond);
    event SeatPenalised(uint256 indexed seat, uint256 amount, uint256 bond);
    event SeatFrozen(uint256 indexed seat, uint256 frozen);
    event SeatReleased(uint256 indexed seat, uint256 frozen);
    /// @notice A closed seat was opened again by its owner.
    event SeatReopened(uint256 indexed seat, address voter, uint256 bond, uint256 activeFrom);
    /// @notice `collector` got its share of a penalty.
    event Collected(uint256 indexed seat, address indexed collector, uint256 amount);

    error NotSeatOwner();
    error NotCourt();
    error Paused();
    error ZeroVoter();
    error SeatInactive();
    error SeatActive();
    error TooManySeats();
    error TooEarly(uint256 epoch, uint256 neededEpoch);
    error SeatLocked(uint256 releaseAt, uint256 frozen);
    error UnknownEpoch();
    error SeatNotClosed();
    /// @notice Groups are 1 to 2^32 - 1; below 2^24 only those of pools that exist.
    error BadGroup(uint256 group);
    error TooManyGroups();
    error AlreadyOptedIn();
    error NotOptedIn();

    /// @notice Opens a seat with the fixed `bond` (approved before); it can be drawn for `groups` from the next epoch
    /// on.
    function openSeat(address voter, uint256[] calldata groups) external returns (uint256 seat);
    /// @notice Opens a closed seat again with a new bond. Its id stays its owner's.
    function reopenSeat(uint256 seat, address voter, uint256[] calldata groups) external;
    /// @notice Lets the seat judge one more group from the next epoch on.
    function optIn(uint256 seat, uint256 group) external;
    /// @notice Takes the seat out of the group's set from the next epoch on. It keeps the duties of draws from earlier
    /// sets.
    function optOut(uint256 seat, uint256 group) external;
    /// @notice Replaces the voting key at once, for open lanes too. The old key reveals what it committed.
    function setVoter(uint256 seat, address voter) external;
    /// @notice Restores a penalised bond to its full size; anyone may pay.
    function topUp(uint256 seat) external;
    /// @notice Takes the seat out of all sets from the next epoch on. `unbondSeat` and `withdrawSeat` follow.
    function leaveSeat(uint256 seat) external;
    /// @notice Starts the unbonding period, once no draw can reach the seat.
    function unbondSeat(uint256 seat) external;
    /// @notice Sends the bond to the owner after the unbonding period, once no duty is open. A hundredth of a full bond
    /// is burnt, so that no bond can use up more than a hundred of the 65,535 ids.
    function withdrawSeat(uint256 seat) external;

    // Hooks of Court, Juries, Appeals, Canaries.
    /// @notice Takes up to `amount` of a bond and sends it to the caller's choice: the burn address or a jury's fees.
    function penalise(uint256 seat, uint256 amount, address to) external returns (uint256 taken);
    /// @notice Takes up to `amount` of a bond: a share for the collector, the rest is burnt.
    function collect(uint256 seat, uint256 amount, address collector) external returns (uint256 taken);
    /// @notice The same for absence: at most a twentieth of a full bond in one epoch.
    function fine(uint256 seat, uint256 amount, address collector) external returns (uint256 taken);
    function freeze(uint256 seat) external;
    function release(uint256 seat) external;

    function seatOf(uint256 seat) external view returns (Seat memory);
    function voterOf(uint256 seat) external view returns (address);
    function ownerOf(uint256 seat) external view returns (address);
    function bond() external view returns (uint256);
    /// @notice Seats ever opened; the last seat's id.
    function opened() external view returns (uint256);
    function minBond() external view returns (uint256);
    function epochBlocks() external view returns (uint256);
    function currentEpoch() external view returns (uint256);
    /// @notice The groups that a seat has opted into.
    function groupsOf(uint256 seat) external view returns (uint256[] memory);
    /// @notice Seats that can be drawn for `group` in `epoch`: the next one, the current one or one of the three before
    /// it.
    function countAt(uint256 group, uint256 epoch) external view returns (uint256);
    /// @notice The seat in `place` (0 to countAt − 1) of `group` in `epoch`.
    function seatAt(uint256 group, uint256 place, uint256 epoch) external view returns (uint256);
    /// @notice Draws up to `size` different seats of `group` in `epoch`, none of `excluded`, none owned by
    /// `excludedOwner`, none without a bond. Returns fewer if there are too few.
    function draw(
        bytes32 seed,
        uint256 epoch,
        uint256 group,
        uint256 size,
        uint256[] calldata excluded,
        address excludedOwner
    ) external view returns (uint256[] memory seats);
}
