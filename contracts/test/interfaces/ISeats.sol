// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "./IParams.sol";

/// @notice contracts/src/Seats.sol for the tests, written by contracts/tools/abi.mjs.
interface ISeats {
    enum State {
        None,
        Active,
        Left,
        Closed
    }
    struct Seat {
        address voter;
        uint56 bond;
        uint16 frozen;
        address owner;
        State state;
        uint32 leftEpoch;
        uint32 releaseAt;
    }
    error AlreadyOptedIn();
    error BadGroup(uint256 group);
    error NotOptedIn();
    error NotPermitted();
    error NotSeatOwner();
    error OutOfBounds(string name);
    error Paused();
    error ReentrancyGuardReentrantCall();
    error SafeERC20FailedOperation(address token);
    error SeatActive();
    error SeatInactive();
    error SeatLocked(uint256 releaseAt, uint256 frozen);
    error SeatNotClosed();
    error TooEarly(uint256 epoch, uint256 neededEpoch);
    error TooManyGroups();
    error TooManySeats();
    error UnknownEpoch();
    error WrongAddress(address expected, address actual);
    error ZeroVoter();
    event SeatClosed(uint256 indexed seat, address indexed owner, uint256 bond);
    event SeatFrozen(uint256 indexed seat, uint256 frozen);
    event SeatLeft(uint256 indexed seat, uint256 epoch, bool evicted);
    event SeatOpened(uint256 indexed seat, address indexed owner, address voter, uint256 bond, uint256 activeFrom);
    event SeatOptedIn(uint256 indexed seat, uint256 indexed group, uint256 epoch);
    event SeatOptedOut(uint256 indexed seat, uint256 indexed group, uint256 epoch);
    event SeatPenalised(uint256 indexed seat, uint256 amount, uint256 bond);
    event SeatReleased(uint256 indexed seat, uint256 frozen);
    event SeatToppedUp(uint256 indexed seat, uint256 amount, uint256 bond);
    event SeatUnbonding(uint256 indexed seat, uint256 releaseAt);
    event VoterSet(uint256 indexed seat, address voter);
    function FINES_SHARE() external view returns (uint256);
    function MAX_SEATS() external view returns (uint256);
    function MAX_TRIES() external view returns (uint256);
    function bond() external view returns (uint256);
    function collect(uint256 seat, uint256 amount, address collector) external returns (uint256 taken);
    function countAt(uint256 group, uint256 epoch) external view returns (uint256);
    function currentEpoch() external view returns (uint256);
    function draw(bytes32 seed, uint256 epoch, uint256 group, uint256 size, uint256[] calldata excluded, address excludedOwner) external view returns (uint256[] memory seats);
    function epochBlocks() external view returns (uint256);
    function fine(uint256 seat, uint256 amount, address collector) external returns (uint256 taken);
    function freeze(uint256 seat) external;
    function leaveSeat(uint256 seat) external;
    function membershipsOf(uint256 seat) external view returns (uint256 word);
    function minBond() external view returns (uint256);
    function openSeat(uint256 seat, address voter, uint256[] calldata groups) external returns (uint256);
    function opened() external view returns (uint256);
    function optIn(uint256 seat, uint256 group) external;
    function optOut(uint256 seat, uint256 group) external;
    function ownerOf(uint256 seat) external view returns (address);
    function params() external view returns (IParams);
    function penalise(uint256 seat, uint256 amount, address to) external returns (uint256 taken);
    function release(uint256 seat) external;
    function seatOf(uint256 seat) external view returns (Seat memory);
    function setVoter(uint256 seat, address voter) external;
    function topUp(uint256 seat) external;
    function unbondSeat(uint256 seat) external;
    function voterOf(uint256 seat) external view returns (address);
    function withdrawSeat(uint256 seat) external;
}
