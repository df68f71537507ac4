// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICourt} from "../interfaces/ICourt.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {ISeats} from "../interfaces/ISeats.sol";
import {Codes} from "../libraries/Codes.sol";
import {Epochs} from "../libraries/Epochs.sol";
import {SuiteLib} from "../libraries/SuiteLib.sol";
import {Tally} from "../libraries/Tally.sol";
import {Suite} from "../libraries/Types.sol";
import {Voting} from "../libraries/Voting.sol";

/// @title Trials
/// @notice Who judges a case: what is stored of it, its seed, the draw, its votes and their majority.
abstract contract Trials is IJuries {
    bytes32 public constant SEED_TAG = keccak256("muster/jury-seed/1");

    struct Trial {
        address bench;
        uint8 size;
        uint8 code;
        bool concluded;
        uint40 fee;
        uint32 commitWindow;
        // next word
        bool replacement;
        bool discharged;
        uint32 revealWindow;
        uint32 seedBlock;
        uint32 time;
        uint16 committed;
        uint16 revealed;
        uint16 closed;
        uint24 pool;
        uint32 sequence;
        uint40 feePaid;
        // next word
        address excludedOwner;
        uint64 seed;
        uint32 class;
        // next words
        uint16[] seats;
        uint256[] excluded;
    }

    ISeats public immutable seats;
    ICourt public immutable court;
    uint256 public immutable epochBlocks;

    /// @inheritdoc IJuries
    uint256 public trialCount;
    mapping(uint256 trial => Trial) internal _trials;
    /// By trial << 4 | juror: the commitment, then the revealed code.
    mapping(uint256 key => bytes32) internal _ballots;

    constructor(Suite memory suite) {
        SuiteLib.checkPlace(suite.juries);
        seats = ISeats(suite.seats);
        court = ICourt(suite.court);
        epochBlocks = ISeats(suite.seats).epochBlocks();
    }

    /// @inheritdoc IJuries
    function caseOf(uint256 trial) external view returns (Case memory case_) {
        Trial storage trial_ = _trials[trial];
        case_.bench = trial_.bench;
        case_.pool = trial_.pool;
        case_.sequence = trial_.sequence;
        case_.size = trial_.size;
        case_.fee = trial_.fee;
        case_.commitWindow = trial_.commitWindow;
        case_.revealWindow = trial_.revealWindow;
        case_.time = trial_.time;
        case_.committed = trial_.committed;
        case_.revealed = trial_.revealed;
        case_.closed = trial_.closed;
        case_.concluded = trial_.concluded;
        case_.code = trial_.code;
        if (trial_.time == 0) {
            case_.seedBlock = trial_.seedBlock;
        } else {
            case_.seats = _seats(trial_);
            case_.commitUntil = uint256(trial_.time) + trial_.commitWindow;
            case_.revealUntil = case_.commitUntil + trial_.revealWindow;
        }
    }

    /// @inheritdoc IJuries
    function juryOf(uint256 trial)
        external
        view
        returns (uint256[] memory jurors, address[] memory voters, bytes32 seed, bool drawn)
    {
        Trial storage trial_ = _trials[trial];
        drawn = trial_.time != 0;
        if (drawn) (jurors, seed) = (_seats(trial_), bytes32(uint256(trial_.seed)));
        else (jurors, seed,) = _drawn(trial);
        voters = new address[](jurors.length);
        for (uint256 i = 0; i < jurors.length; ++i) {
            voters[i] = seats.voterOf(jurors[i]);
        }
    }

    /// @inheritdoc IJuries
    function seatsOf(uint256 trial) external view returns (uint256[] memory) {
        return _seats(_trials[trial]);
    }

    /// @inheritdoc IJuries
    function verdictOf(uint256 trial) public view returns (bool done, uint256 code) {
        Trial storage trial_ = _trials[trial];
        // Never drawn, and no longer to be drawn: a later seed would be a second try for whoever waited.
        if (trial_.time == 0) {
            return (trial_.size != 0 && Epochs.over(trial_.seedBlock, epochBlocks, block.number), Codes.NONE);
        }
        if (block.timestamp < Voting.countableFrom(_body(trial_))) return (false, Codes.NONE);
        uint256[] memory votes = new uint256[](trial_.size);
        for (uint256 i = 0; i < trial_.size; ++i) {
            votes[i] = _vote(trial, trial_, i);
        }
        code = Tally.outcome(votes, 0, trial_.size);
        return (true, code == Codes.UNDECIDED ? Codes.NONE : code);
    }

    /// @inheritdoc IJuries
    function votesOf(uint256 trial) external view returns (uint256[] memory votes) {
        Trial storage trial_ = _trials[trial];
        votes = new uint256[](trial_.seats.length);
        for (uint256 i = 0; i < votes.length; ++i) {
            votes[i] = _vote(trial, trial_, i);
        }
    }

    /// @inheritdoc IJuries
    function costOf(uint256 trial, uint256 code) external view returns (uint256) {
        Trial storage trial_ = _trials[trial];
        return _matching(trial, trial_, code) * trial_.fee;
    }

    /// @inheritdoc IJuries
    function ballotOf(uint256 trial, uint256 juror)
        external
        view
        returns (bytes32 commitment, uint256 code, bool revealed)
    {
        bytes32 ballot = _ballots[(trial << 4) | juror];
        revealed = _trials[trial].revealed & (1 << juror) != 0;
        if (revealed) code = uint256(ballot);
        else commitment = ballot;
    }

    /// @inheritdoc IJuries
    function ballotHash(uint256 trial, address voter, uint256 code, bytes32 verdictHash, bytes32 salt)
        public
        view
        returns (bytes32)
    {
        return keccak256(abi.encode(block.chainid, address(this), trial, voter, code, verdictHash, salt));
    }

    function _draw(uint256 trial) internal {
        (uint256[] memory jurors, bytes32 seed, uint256 seedBlock) = _drawn(trial);
        Trial storage trial_ = _trials[trial];
        trial_.time = uint32(block.timestamp);
        trial_.seed = uint64(uint256(seed));
        for (uint256 i = 0; i < jurors.length; ++i) {
            trial_.seats.push(uint16(jurors[i]));
            seats.freeze(jurors[i]);
        }
        emit JuryDrawn(trial, seedBlock, seed, jurors);
    }

    function _drawn(uint256 trial) internal view returns (uint256[] memory jurors, bytes32 seed, uint256 seedBlock) {
        Trial storage trial_ = _trials[trial];
        if (trial_.size == 0) revert NoSuchTrial();
        seedBlock = trial_.seedBlock;
        if (Epochs.over(seedBlock, epochBlocks, block.number)) revert Lapsed();
        bytes32 hash = block.number > seedBlock ? Epochs.hashOf(seedBlock) : bytes32(0);
        if (hash == 0) revert SeedNotMined(seedBlock);
        hash = keccak256(abi.encode(SEED_TAG, hash, trial));
        seed = bytes32(uint256(uint64(uint256(hash))));
        jurors =
            seats.draw(hash, seedBlock / epochBlocks, trial_.class, trial_.size, trial_.excluded, trial_.excludedOwner);
        if (jurors.length < trial_.size) revert TooFewSeats(jurors.length);
    }

    /// @dev Jurors who voted the kind of `code`.
    function _matching(uint256 trial, Trial storage trial_, uint256 code) internal view returns (uint256 count) {
        uint256 kind = Codes.kind(code);
        if (kind == Codes.KIND_NONE) return 0;
        for (uint256 i = 0; i < trial_.seats.length; ++i) {
            if (Codes.kind(_vote(trial, trial_, i)) == kind) ++count;
        }
    }

    function _body(Trial storage trial_) internal view returns (Voting.Body memory) {
        return Voting.Body(
            trial_.size, trial_.committed, trial_.revealed, trial_.time, trial_.commitWindow, trial_.revealWindow
        );
    }

    function _vote(uint256 trial, Trial storage trial_, uint256 juror) internal view returns (uint256) {
        return trial_.revealed & (1 << juror) != 0 ? uint256(_ballots[(trial << 4) | juror]) : Codes.NONE;
    }

    function _seats(Trial storage trial_) internal view returns (uint256[] memory out) {
        out = new uint256[](trial_.seats.length);
        for (uint256 i = 0; i < out.length; ++i) {
            out[i] = trial_.seats[i];
        }
    }
}
