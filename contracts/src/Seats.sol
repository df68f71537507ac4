// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Params} from "./Params.sol";
import {Pools} from "./Pools.sol";
import {SuiteContract} from "./SuiteContract.sol";
import {Checkpoint} from "./libraries/Checkpoint.sol";
import {Lottery} from "./libraries/Lottery.sol";
import {Memberships} from "./libraries/Memberships.sol";
import {Bounds, Paused, Suite} from "./libraries/Types.sol";
import {Voting} from "./libraries/Voting.sol";

/// @title Seats
/// @notice Validators' seats of equal bond, and the uniform draw among those that chose to judge. A seat judges the
/// validator groups that it has opted into, five at most, and nothing else. A group below 2^24 is the pool of that
/// number. Any other group is one that pools name in their terms; by convention its number is the last four bytes of
/// keccak256 of the group's name, with the highest bit set. The set that a draw uses changes only at epoch boundaries
/// (an epoch is `epochBlocks` blocks): opting in and out take effect in the next epoch, and draws under way still hold
/// who opted out.
/// @dev Validators' bonds, the keys that own and vote for them, the validator groups that they judge, and the draw.
/// The seats of a group are a list without gaps: a seat that opts in takes the next place, and the last seat takes the
/// place of one that opts out.
contract Seats is SuiteContract {
    using Checkpoint for uint256;
    using Lottery for Lottery.Urn;
    using Memberships for uint256;

    enum State {
        None,
        Active,
        Left,
        Closed
    }

    struct Seat {
        /// The hot key that votes.
        address voter;
        /// Base units left of the bond. A seat with less than `minBond` is never drawn, whatever the epoch's set says.
        uint56 bond;
        /// Duties whose penalty is open: it cannot be withdrawn before they are closed.
        uint16 frozen;
        // next word
        /// Who posted the bond and receives fees.
        address owner;
        State state;
        /// Epoch in which it left, the last one in which it could be drawn; 0 while active.
        uint32 leftEpoch;
        /// After `unbondSeat`: when the bond can be withdrawn; 0 before.
        uint32 releaseAt;
    }

    /// @notice A new seat, or a closed one that its owner opened again.
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

    error NotSeatOwner();
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

    /// Seats ever opened: their ids have 16 bits and are never used again.
    uint256 public constant MAX_SEATS = type(uint16).max;
    /// Tries of one draw, so that exclusions cannot make it grow.
    uint256 public constant MAX_TRIES = 64;
    /// What absence may cost of a bond in one epoch, so that nobody is drained by being drawn: one part in so many.
    uint256 public constant FINES_SHARE = 20;

    uint256 public immutable epochBlocks;
    uint256 public immutable bond;
    uint256 public immutable minBond;

    /// @notice Seats ever opened; the last seat's id.
    uint256 public opened;
    mapping(uint256 seat => Seat) private _seats;
    /// @dev Drawable seats (a Checkpoint).
    mapping(uint256 group => uint256 checkpoint) private _counts;
    /// @dev By group << 16 | place: the seat (a Checkpoint).
    mapping(uint256 key => uint256 checkpoint) private _places;
    /// @notice The groups that a seat has opted into, in one word (`Memberships`).
    mapping(uint256 seat => uint256 word) public membershipsOf;
    /// @dev Fines for absence: epoch << 64 | their sum in it.
    mapping(uint256 seat => uint256 word) private _fines;

    modifier onlyCourt() {
        if (msg.sender != court && msg.sender != juries) _onlyFrom(appeals, canaries);
        _;
    }

    constructor(Suite memory suite, uint256 bond_, uint256 minBond_, uint256 epochBlocks_)
        SuiteContract(suite, suite.seats)
    {
        if (bond_ == 0 || bond_ > type(uint56).max) revert Params.OutOfBounds("bond");
        if (minBond_ == 0 || minBond_ > bond_) revert Params.OutOfBounds("minBond");
        // A seed's own epoch and those in which it can be drawn must fit the history of EIP-2935.
        if (epochBlocks_ < 2 || epochBlocks_ > 2000) revert Params.OutOfBounds("epochBlocks");
        (bond, minBond, epochBlocks) = (bond_, minBond_, epochBlocks_);
    }

    // ---- Bonds

    /// @notice Opens a new seat (`seat` 0), or the caller's closed one again, with the fixed `bond` (approved before).
    /// Its id stays its owner's. It can be drawn for `groups` from the next epoch on.
    function openSeat(uint256 seat, address voter, uint256[] calldata groups) external nonReentrant returns (uint256) {
        if (params.paused()) revert Paused();
        if (voter == address(0)) revert ZeroVoter();
        if (seat == 0) {
            seat = ++opened;
            if (seat > MAX_SEATS) revert TooManySeats();
        } else {
            _onlyOwner(seat);
            if (_seats[seat].state != State.Closed) revert SeatNotClosed();
        }
        Seat storage slot = _seats[seat];
        (slot.owner, slot.bond, slot.state) = (msg.sender, uint56(bond), State.Active);
        // `frozen` stays: a lane that was settled late may still hold a seat that closed
        (slot.voter, slot.leftEpoch, slot.releaseAt) = (voter, 0, 0);
        emit SeatOpened(seat, msg.sender, voter, bond, currentEpoch() + 1);
        uint256 word = Memberships.NONE;
        for (uint256 i = 0; i < groups.length; ++i) {
            word = _enter(word, seat, groups[i]);
        }
        membershipsOf[seat] = word;
        Pools(pools).openFees(seat);
        _receive(bond);
        return seat;
    }

    /// @notice Restores a penalised bond to its full size; anyone may pay.
    function topUp(uint256 seat) external nonReentrant {
        Seat storage slot = _seats[seat];
        if (slot.state != State.Active) revert SeatInactive();
        uint256 amount = bond - slot.bond;
        slot.bond = uint56(bond);
        emit SeatToppedUp(seat, amount, bond);
        _receive(amount);
    }

    /// @notice Takes the seat out of all sets from the next epoch on. `unbondSeat` and `withdrawSeat` follow.
    function leaveSeat(uint256 seat) external {
        _onlyActive(seat);
        _leave(seat, false);
    }

    /// @notice Starts the unbonding period, once no draw can reach the seat.
    function unbondSeat(uint256 seat) external {
        _onlyOwner(seat);
        Seat storage slot = _seats[seat];
        if (slot.state != State.Left) revert SeatActive();
        uint256 needed = uint256(slot.leftEpoch) + Voting.REACH + 1;
        if (currentEpoch() < needed) revert TooEarly(currentEpoch(), needed);
        if (slot.releaseAt != 0) revert SeatLocked(slot.releaseAt, slot.frozen);
        uint256 releaseAt = block.timestamp + params.unbonding();
        slot.releaseAt = uint32(releaseAt);
        emit SeatUnbonding(seat, releaseAt);
    }

    /// @notice Sends the bond to the owner after the unbonding period, once no duty is open. A hundredth of a full bond
    /// is burnt, so that no bond can use up more than a hundred of the 65,535 ids.
    function withdrawSeat(uint256 seat) external nonReentrant {
        _onlyOwner(seat);
        Seat storage slot = _seats[seat];
        if (slot.state != State.Left) revert SeatActive();
        if (slot.releaseAt == 0 || block.timestamp < slot.releaseAt || slot.frozen != 0) {
            revert SeatLocked(slot.releaseAt, slot.frozen);
        }
        uint256 cost = bond / 100;
        if (cost > slot.bond) cost = slot.bond;
        uint256 amount = slot.bond - cost;
        (slot.bond, slot.state) = (0, State.Closed);
        emit SeatClosed(seat, msg.sender, amount);
        _send(SINK, cost);
        _send(msg.sender, amount);
    }

    /// @notice Replaces the voting key at once, for open lanes too. The old key reveals what it committed.
    function setVoter(uint256 seat, address voter) external {
        _onlyOwner(seat);
        if (voter == address(0)) revert ZeroVoter();
        _seats[seat].voter = voter;
        emit VoterSet(seat, voter);
    }

    function _leave(uint256 seat, bool evicted) private {
        uint256 epoch = currentEpoch();
        Seat storage slot = _seats[seat];
        (slot.state, slot.leftEpoch) = (State.Left, uint32(epoch));
        uint256 word = membershipsOf[seat];
        for (uint256 i = 0; i < Memberships.MOST; ++i) {
            if (word.groupAt(i) != 0) word = _exit(word, seat, i);
        }
        membershipsOf[seat] = word;
        emit SeatLeft(seat, epoch, evicted);
    }

    // ---- Which groups a seat judges

    /// @notice Lets the seat judge one more group from the next epoch on.
    function optIn(uint256 seat, uint256 group) external {
        _onlyActive(seat);
        membershipsOf[seat] = _enter(membershipsOf[seat], seat, group);
    }

    /// @notice Takes the seat out of the group's set from the next epoch on. It keeps the duties of draws from earlier
    /// sets.
    function optOut(uint256 seat, uint256 group) external {
        _onlyActive(seat);
        uint256 word = membershipsOf[seat];
        uint256 index = word.find(group);
        if (group == 0 || index == Memberships.MOST) revert NotOptedIn();
        membershipsOf[seat] = _exit(word, seat, index);
    }

    /// @dev The seat's word with one group more, whose last place it gets from the next epoch on.
    function _enter(uint256 word, uint256 seat, uint256 group) private returns (uint256) {
        if (group == 0 || group > type(uint32).max) revert BadGroup(group);
        // what is not there yet may become anybody's
        if (group < Bounds.FIRST_SHARED_GROUP && group > Pools(pools).poolCount()) revert BadGroup(group);
        if (word.find(group) != Memberships.MOST) revert AlreadyOptedIn();
        uint256 index = word.find(0);
        if (index == Memberships.MOST) revert TooManyGroups();
        uint256 next = currentEpoch() + 1;
        uint256 count = _counts[group];
        uint256 place = count.latest();
        uint256 key = _key(group, place);
        _places[key] = _places[key].write(seat, next);
        _counts[group] = count.write(place + 1, next);
        emit SeatOptedIn(seat, group, next);
        return word.withEntry(index, group, place);
    }

    /// @dev The seat's word without its group at `index`, whose place goes to the last seat from the next epoch on.
    function _exit(uint256 word, uint256 seat, uint256 index) private returns (uint256) {
        uint256 group = word.groupAt(index);
        uint256 place = word.placeAt(index);
        uint256 epoch = currentEpoch();
        uint256 count = _counts[group];
        uint256 last = count.latest() - 1;
        if (place != last) {
            uint256 moved = _places[_key(group, last)].latest();
            uint256 key = _key(group, place);
            _places[key] = _places[key].write(moved, epoch + 1);
            uint256 other = membershipsOf[moved];
            membershipsOf[moved] = other.withEntry(other.find(group), group, place);
        }
        _counts[group] = count.write(last, epoch + 1);
        emit SeatOptedOut(seat, group, epoch);
        return word.withEntry(index, 0, 0);
    }

    // ---- Draw

    /// @notice Draws up to `size` different seats of `group` in `epoch`, none of `excluded`, none owned by
    /// `excludedOwner`, none without a bond. Returns fewer if there are too few.
    function draw(
        bytes32 seed,
        uint256 epoch,
        uint256 group,
        uint256 size,
        uint256[] calldata excluded,
        address excludedOwner
    ) external view returns (uint256[] memory seats) {
        uint256 count = countAt(group, epoch);
        uint256 tries = count < MAX_TRIES ? count : MAX_TRIES;
        Lottery.Urn memory urn = Lottery.Urn(seed, count, 0, new uint256[](tries));
        seats = new uint256[](size);
        uint256 found;
        for (uint256 i = 0; i < tries && found < size; ++i) {
            uint256 seat = _places[_key(group, urn.take())].read(epoch);
            if (_seats[seat].bond < minBond || _isIn(excluded, seat)) continue;
            if (excludedOwner != address(0) && _seats[seat].owner == excludedOwner) continue;
            seats[found++] = seat;
        }
        assembly ("memory-safe") {
            mstore(seats, found)
        }
    }

    function _isIn(uint256[] calldata list, uint256 seat) private pure returns (bool) {
        for (uint256 i = 0; i < list.length; ++i) {
            if (list[i] == seat) return true;
        }
        return false;
    }

    // ---- Penalties

    /// @notice Takes up to `amount` of a bond and sends it to the caller's choice: the burn address or a jury's fees.
    function penalise(uint256 seat, uint256 amount, address to) external onlyCourt returns (uint256 taken) {
        taken = _take(seat, amount);
        _send(to, taken);
    }

    /// @notice Takes up to `amount` of a bond: a share for the collector, the rest is burnt.
    function collect(uint256 seat, uint256 amount, address collector) public onlyCourt returns (uint256 taken) {
        taken = _take(seat, amount);
        uint256 share = taken * COLLECTOR_BPS / 10_000;
        _send(collector, share);
        _send(SINK, taken - share);
    }

    /// @notice The same for absence: at most a twentieth of a full bond in one epoch.
    function fine(uint256 seat, uint256 amount, address collector) external onlyCourt returns (uint256 taken) {
        uint256 epoch = currentEpoch();
        uint256 word = _fines[seat];
        uint256 fined = word >> 64 == epoch ? uint64(word) : 0;
        uint256 most = bond / FINES_SHARE - fined;
        if (amount > most) amount = most;
        _fines[seat] = (epoch << 64) | (fined + amount);
        return collect(seat, amount, collector);
    }

    function freeze(uint256 seat) external onlyCourt {
        emit SeatFrozen(seat, ++_seats[seat].frozen);
    }

    function release(uint256 seat) external onlyCourt {
        emit SeatReleased(seat, --_seats[seat].frozen);
    }

    /// @dev Up to `amount` of a bond. A seat whose bond is gone is drawn no more, at once.
    function _take(uint256 seat, uint256 amount) private returns (uint256 taken) {
        Seat storage slot = _seats[seat];
        taken = amount < slot.bond ? amount : slot.bond;
        uint256 left = slot.bond - taken;
        slot.bond = uint56(left);
        emit SeatPenalised(seat, taken, left);
        if (left < minBond && slot.state == State.Active) _leave(seat, true);
    }

    // ---- Views

    function seatOf(uint256 seat) external view returns (Seat memory) {
        return _seats[seat];
    }

    function voterOf(uint256 seat) external view returns (address) {
        return _seats[seat].voter;
    }

    function ownerOf(uint256 seat) external view returns (address) {
        return _seats[seat].owner;
    }

    function currentEpoch() public view returns (uint256) {
        return block.number / epochBlocks;
    }

    /// @notice Seats that can be drawn for `group` in `epoch`: the next one, the current one or one of the three before
    /// it.
    function countAt(uint256 group, uint256 epoch) public view returns (uint256) {
        uint256 current = currentEpoch();
        if (epoch > current + 1 || epoch + Voting.REACH < current) revert UnknownEpoch();
        return _counts[group].read(epoch);
    }

    // ---- Shared checks

    function _onlyOwner(uint256 seat) private view {
        if (_seats[seat].owner != msg.sender) revert NotSeatOwner();
    }

    function _onlyActive(uint256 seat) private view {
        _onlyOwner(seat);
        if (_seats[seat].state != State.Active) revert SeatInactive();
    }

    function _key(uint256 group, uint256 place) private pure returns (uint256) {
        return (group << 16) | place;
    }
}
