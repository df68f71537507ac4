// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICourt} from "../interfaces/ICourt.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IPools} from "../interfaces/IPools.sol";
import {ISeats} from "../interfaces/ISeats.sol";
import {Codes} from "../libraries/Codes.sol";
import {Epochs} from "../libraries/Epochs.sol";
import {LaneSlot} from "../libraries/LaneSlot.sol";
import {SuiteLib} from "../libraries/SuiteLib.sol";
import {PoolTerms, Suite} from "../libraries/Types.sol";

/// @title Committees
/// @notice Who judges a lane: the rounds' words, their seeds and the draw.
abstract contract Committees is ICourt {
    using LaneSlot for uint256;

    bytes32 public constant SEED_TAG = keccak256("muster/lane-seed/1");

    /// @dev What every call of a round needs of a pool's terms, in one word.
    struct Terms {
        uint8 committee;
        uint8 attestBlocks;
        uint16 drawBlocks;
        uint32 commitWindow;
        uint32 revealWindow;
        uint32 challengeWindow;
        /// Seconds for which a receipt, and a service key that was replaced, counts: for its window to submit, and from
        /// there to the last chance to attest.
        uint32 receiptLife;
        uint32 fee;
        uint32 class;
    }

    ISeats public immutable seats;
    IPools public immutable pools;
    uint256 public immutable epochBlocks;
    uint256 private immutable _blockSeconds;

    mapping(uint256 pool => PoolTerms) private _promised;
    mapping(uint256 pool => Terms) internal _terms;
    /// By pool << 32 | lane << 1 | round.
    mapping(uint256 key => uint256 slot) internal _lanes;

    constructor(Suite memory suite) {
        SuiteLib.checkPlace(suite.court);
        seats = ISeats(suite.seats);
        pools = IPools(suite.pools);
        epochBlocks = ISeats(suite.seats).epochBlocks();
        _blockSeconds = IParams(suite.params).blockSeconds();
    }

    /// @inheritdoc ICourt
    function registerPool(uint256 pool, PoolTerms calldata terms) external {
        if (msg.sender != address(pools)) revert NotPools();
        _promised[pool] = terms;
        uint256 blocks = uint256(terms.laneBlocks) + terms.attestBlocks + 1;
        _terms[pool] = Terms({
            committee: terms.committee,
            attestBlocks: terms.attestBlocks,
            drawBlocks: terms.drawBlocks,
            commitWindow: terms.commitWindow,
            revealWindow: terms.revealWindow,
            challengeWindow: terms.challengeWindow,
            receiptLife: uint32(terms.receiptWindow + blocks * _blockSeconds),
            fee: terms.fee,
            class: terms.class
        });
    }

    /// @inheritdoc ICourt
    function staffed(uint256 pool) external view returns (bool) {
        PoolTerms storage terms = _promised[pool];
        uint256 needed = 2 * uint256(terms.committee) + terms.jury + terms.appealJury;
        return seats.countAt(terms.class, seats.currentEpoch()) >= needed;
    }

    /// @inheritdoc ICourt
    function termsOf(uint256 pool) external view returns (PoolTerms memory) {
        return _promised[pool];
    }

    /// @inheritdoc ICourt
    function committeeOf(uint256 pool, uint256 lane, uint256 round)
        external
        view
        returns (uint256[] memory members, address[] memory voters, bytes32 seed, bool drawn)
    {
        uint256 word = _word(pool, lane, round);
        drawn = word.seed() != 0;
        if (drawn) {
            seed = bytes32(word.seed());
            members = _members(word, _terms[pool].committee);
        } else {
            (members, seed,) = _drawn(word, pool, lane, round);
        }
        voters = new address[](members.length);
        for (uint256 i = 0; i < members.length; ++i) {
            voters[i] = seats.voterOf(members[i]);
        }
    }

    /// @inheritdoc ICourt
    function roundOf(uint256 pool, uint256 lane, uint256 round) external view returns (Round memory round_) {
        uint256 word = _word(pool, lane, round);
        Terms storage terms = _terms[pool];
        round_.settled = word.settled();
        round_.codes = word.codes();
        if (word.seed() == 0) {
            if (round_.settled) {
                round_.settledAt = word.settledAt();
            } else if (word != 0) {
                uint256 effective = Epochs.effective(word.seedBlock(), epochBlocks, block.number);
                round_.seedBlock = effective == 0 ? word.seedBlock() : effective;
            }
            return round_;
        }
        round_.seed = bytes32(word.seed());
        round_.seats = _members(word, terms.committee);
        (round_.committed, round_.revealed, round_.closed) = (word.committed(), word.revealed(), word.closed());
        if (round_.settled) {
            round_.settledAt = word.settledAt();
        } else {
            round_.drawnAt = word.drawnAt();
            round_.commitUntil = round_.drawnAt + terms.commitWindow;
            round_.revealUntil = round_.commitUntil + terms.revealWindow;
        }
    }

    /// @dev The word of a round; for a lane of which nothing is written yet, what the receipts that its files came with
    /// say. It takes more files until its last block, which is before that seed: once S is known, S is fixed.
    function _word(uint256 pool, uint256 lane, uint256 round) internal view returns (uint256 word) {
        word = _lanes[_key(pool, lane, round)];
        if (word != 0 || round != 0) return word;
        (uint256 end, uint256 files, uint256 places) = pools.presentedIn(pool, lane, 0);
        return places == 0 ? 0 : _attested(pool, end, files, places, end + 1);
    }

    /// @dev The word of an attested lane. S is block `complete` if all files are; else the one after the last chance.
    function _attested(uint256 pool, uint256 end, uint256 files, uint256 places, uint256 complete)
        internal
        view
        returns (uint256)
    {
        uint256 seedBlock = places + 1 == 1 << files ? complete : end + _terms[pool].attestBlocks + 1;
        return uint256(0).withTime(seedBlock).withCodes(Codes.spread(places, Codes.UNDECIDED));
    }

    function _draw(uint256 word, uint256 pool, uint256 lane, uint256 round) internal returns (uint256) {
        (uint256[] memory members, bytes32 seed, uint256 seedBlock) = _drawn(word, pool, lane, round);
        word = word.withTime(block.timestamp) | uint256(seed);
        for (uint256 i = 0; i < members.length; ++i) {
            word = word.withMember(i, members[i]);
        }
        emit CommitteeDrawn(_which(pool, lane, round), seedBlock, word.drawn());
        return word;
    }

    /// @dev The committee that a draw now would give.
    function _drawn(uint256 word, uint256 pool, uint256 lane, uint256 round)
        internal
        view
        returns (uint256[] memory members, bytes32 seed, uint256 seedBlock)
    {
        Terms storage terms = _terms[pool];
        if (word == 0) revert NoSuchLane();
        uint256 base = word.seedBlock();
        seedBlock = Epochs.effective(base, epochBlocks, block.number);
        if (seedBlock == 0) revert SeedNotMined(base);
        if (block.number > base + terms.drawBlocks) revert DrawOver(base + terms.drawBlocks);
        bytes32 hash = Epochs.hashOf(seedBlock);
        if (hash == 0) revert SeedNotMined(seedBlock);
        hash = keccak256(abi.encode(SEED_TAG, hash, pool, lane, round));
        uint64 short = uint64(uint256(hash));
        seed = bytes32(uint256(short == 0 ? 1 : short)); // zero stands for not drawn
        uint256[] memory excluded;
        if (round == 1) {
            uint256 first = _lanes[_key(pool, lane, 0)];
            if (first.seed() != 0) excluded = _members(first, terms.committee);
        }
        uint256 epoch = seedBlock / epochBlocks;
        members = seats.draw(hash, epoch, terms.class, terms.committee, excluded, address(0));
        // When too few seats are left for a fresh committee, the first one's members may serve again.
        if (members.length < terms.committee && round == 1) {
            members = seats.draw(hash, epoch, terms.class, terms.committee, new uint256[](0), address(0));
        }
        if (members.length < terms.committee) revert TooFewSeats(members.length);
    }

    function _members(uint256 word, uint256 size) internal pure returns (uint256[] memory members) {
        members = new uint256[](size);
        for (uint256 i = 0; i < size; ++i) {
            members[i] = word.member(i);
        }
    }

    /// @dev A round in the events; a vote's has its seat and member besides.
    function _which(uint256 pool, uint256 lane, uint256 round) internal pure returns (uint256) {
        return (pool << 64) | (lane << 32) | (round << 8);
    }

    function _key(uint256 pool, uint256 lane, uint256 round) internal pure returns (uint256) {
        // a number that is too large would stand for another lane
        if (round > 1 || (pool >> 24) | (lane >> 24) != 0) revert NoSuchLane();
        return (pool << 32) | (lane << 1) | round;
    }
}
