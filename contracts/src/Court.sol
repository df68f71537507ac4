// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Committees} from "./court/Committees.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {IParams} from "./interfaces/IParams.sol";
import {Codes} from "./libraries/Codes.sol";
import {LaneSlot} from "./libraries/LaneSlot.sol";
import {Reckoning} from "./libraries/Reckoning.sol";
import {SuiteLib} from "./libraries/SuiteLib.sol";
import {Tally} from "./libraries/Tally.sol";
import {FileRef, Suite} from "./libraries/Types.sol";

/// @title Court
/// @notice Hidden votes, outcomes and fees of the committees.
contract Court is Committees {
    using LaneSlot for uint256;

    IParams public immutable params;
    address public immutable appeals;
    address public immutable canaries;

    /// By lane key << 3 | member: the commitment, then the revealed codes.
    mapping(uint256 key => bytes32) private _ballots;

    constructor(Suite memory suite) Committees(suite) {
        params = IParams(suite.params);
        appeals = suite.appeals;
        canaries = suite.canaries;
    }

    /// @inheritdoc ICourt
    function draw(uint256 pool, uint256 lane, uint256 round) external {
        uint256 key = _key(pool, lane, round);
        uint256 w = _lanes[key];
        if (w.settled()) revert AlreadySettled();
        if (w.seed() != 0) revert AlreadyDrawn();
        _lanes[key] = _draw(w, pool, lane, round);
    }

    /// @inheritdoc ICourt
    function commit(uint256 pool, uint256 lane, uint256 round, uint256 member, bytes32 commitment) external {
        uint256 key = _key(pool, lane, round);
        uint256 w = _lanes[key];
        if (w.settled()) revert AlreadySettled();
        if (w.seed() == 0) w = _draw(w, pool, lane, round);
        uint256 seat = _onlyVoter(w, member);
        if (w.committed() & (1 << member) != 0) revert AlreadyCommitted();
        if (commitment == 0) revert EmptyCommitment();
        uint256 until = w.time() + _terms[pool].commitWindow;
        if (block.timestamp >= until) revert CommitOver(until);
        _lanes[key] = w.withCommitted(member);
        _ballots[(key << 3) | member] = commitment;
        emit VoteCommitted(pool, lane, seat, round, member, commitment);
    }

    /// @inheritdoc ICourt
    function reveal(
        uint256 pool,
        uint256 lane,
        uint256 round,
        uint256 member,
        uint256 codes,
        bytes32 verdictHash,
        bytes32 salt
    ) public {
        uint256 key = _key(pool, lane, round);
        uint256 w = _lanes[key];
        if (w.settled()) revert AlreadySettled();
        if (w.seed() == 0) revert NotDrawn();
        // The commitment binds its sender: nobody else can open it, and no call to Seats is needed.
        if (member >= LaneSlot.MOST || w.committed() & (1 << member) == 0) revert NotCommitted();
        if (w.revealed() & (1 << member) != 0) revert AlreadyRevealed();
        Terms memory t = _terms[pool];
        uint256 opens = w.time() + t.commitWindow;
        if (w.committed() + 1 != 1 << t.committee && block.timestamp < opens) revert RevealNotOpen(opens);
        if (block.timestamp >= opens + t.revealWindow) revert RevealOver(opens + t.revealWindow);
        bytes32 hash = ballotHash(pool, lane, round, msg.sender, codes, verdictHash, salt);
        if (codes > type(uint64).max || _ballots[(key << 3) | member] != hash) revert WrongReveal();
        _ballots[(key << 3) | member] = bytes32(codes);
        _lanes[key] = w.withRevealed(member);
        emit VoteRevealed(pool, lane, w.member(member), round, member, codes, verdictHash);
    }

    /// @inheritdoc ICourt
    function revealAndSettle(
        uint256 pool,
        uint256 lane,
        uint256 round,
        uint256 member,
        uint256 codes,
        bytes32 verdictHash,
        bytes32 salt,
        FileRef[] calldata files
    ) external {
        reveal(pool, lane, round, member, codes, verdictHash, salt);
        settle(pool, lane, round, files);
    }

    /// @inheritdoc ICourt
    function settle(uint256 pool, uint256 lane, uint256 round, FileRef[] calldata files) public {
        uint256 key = _key(pool, lane, round);
        uint256 w = _lanes[key];
        if (w.settled()) revert AlreadySettled();
        Terms memory t = _terms[pool];
        uint256 codes;
        if (w.seed() == 0) {
            // never drawn: void once it can be drawn no more
            uint256 last = _seedBlock(w, pool, lane, round, t) + t.drawBlocks;
            if (block.number <= last) revert NotSettleable(last + 1);
            codes = _voids(files.length);
        } else {
            _requireDone(w, t);
            codes = w.committed() == 0
                ? _voids(files.length)
                : Tally.lane(_revealed(w, key, t.committee), files.length, t.committee);
        }
        if (round == 1) codes = _lastWord(codes, _lanes[key ^ 1].codes());
        _lanes[key] = w.withCodes(codes).withTime(block.timestamp) | LaneSlot.SETTLED;
        emit LaneSettled(pool, lane, round, codes);
        if (round == 0) _redraw(pool, lane, key, codes, files.length);
        pools.settleLane(pool, lane, codes, files);
    }

    /// @inheritdoc ICourt
    function closeMember(uint256 pool, uint256 lane, uint256 round, uint256 member) external {
        uint256 key = _key(pool, lane, round);
        uint256 w = _lanes[key];
        if (!w.settled()) revert NotSettled();
        Terms memory t = _terms[pool];
        if (w.seed() == 0 || member >= t.committee) revert NotDrawn();
        if (w.closed() & (1 << member) != 0) revert AlreadyClosed();
        uint256 until = w.time() + t.challengeWindow;
        if (block.timestamp < until || Reckoning.has(w.codes(), Codes.DISPUTED)) revert NotFinal(until);
        _lanes[key] = w.withClosed(member);

        IParams.Values memory v = params.values();
        bool present = w.revealed() & (1 << member) != 0;
        uint256 votes = present ? uint256(_ballots[(key << 3) | member]) : 0;
        delete _ballots[(key << 3) | member];
        (uint256 paid, uint256 burnt, uint256 penalty) =
            Reckoning.member(votes, w.codes(), t.fee, v.minorityPenalty, v.withheldPenalty);
        if (w.committed() == 0) penalty = 0; // nobody was there: no penalty for anyone
        uint256 seat = w.member(member);
        if (penalty != 0) penalty = seats.penalise(seat, penalty, SuiteLib.SINK);
        emit MemberClosed(pool, lane, seat, round, paid, burnt, penalty);
        if (paid + burnt != 0) pools.payFees(pool, seats.ownerOf(seat), paid, burnt);
    }

    /// @inheritdoc ICourt
    function setOutcome(uint256 pool, uint256 sequence, uint256 code) external {
        if (msg.sender != appeals && msg.sender != canaries) revert NotAppeals();
        (uint256 round, uint256 w) = _decided(pool, sequence);
        _lanes[_key(pool, sequence >> 4, round)] = w.withCodes(Codes.set(w.codes(), sequence & 15, code));
        emit OutcomeSet(pool, sequence >> 4, sequence & 15, round, code);
    }

    /// @inheritdoc ICourt
    function ballotOf(uint256 pool, uint256 lane, uint256 round, uint256 member)
        external
        view
        returns (bytes32 commitment, uint256 codes, bool revealed)
    {
        uint256 key = _key(pool, lane, round);
        bytes32 ballot = _ballots[(key << 3) | member];
        revealed = _lanes[key].revealed() & (1 << member) != 0;
        if (revealed) codes = uint256(ballot);
        else commitment = ballot;
    }

    /// @inheritdoc ICourt
    function decisionOf(uint256 pool, uint256 sequence)
        external
        view
        returns (uint256 round, uint256[] memory members, uint256[] memory votes, bytes32 seed, uint256 code)
    {
        uint256 w;
        (round, w) = _decided(pool, sequence);
        uint256 key = _key(pool, sequence >> 4, round);
        seed = bytes32(w.seed());
        code = Codes.get(w.codes(), sequence & 15);
        members = _members(w, _terms[pool].committee);
        votes = new uint256[](members.length);
        for (uint256 i = 0; i < members.length; ++i) {
            if (w.revealed() & (1 << i) != 0) votes[i] = Codes.get(uint256(_ballots[(key << 3) | i]), sequence & 15);
        }
    }

    /// @inheritdoc ICourt
    function ballotHash(
        uint256 pool,
        uint256 lane,
        uint256 round,
        address voter,
        uint256 codes,
        bytes32 verdictHash,
        bytes32 salt
    ) public view returns (bytes32) {
        return keccak256(abi.encode(block.chainid, address(this), pool, lane, round, voter, codes, verdictHash, salt));
    }

    // ---- Settling

    function _requireDone(uint256 w, Terms memory t) private view {
        uint256 all = (1 << t.committee) - 1;
        if (w.revealed() == all) return;
        uint256 until = w.time() + t.commitWindow;
        // Without any commitment there is nothing to reveal; else those who committed all revealed, or time is up.
        if (w.committed() != 0 && w.committed() != w.revealed()) until += t.revealWindow;
        if (block.timestamp < until) revert NotSettleable(until);
    }

    /// @dev Round 1's seed is the next but one block's hash; nobody knows it yet.
    function _redraw(uint256 pool, uint256 lane, uint256 key, uint256 codes, uint256 files) private {
        for (uint256 place = 0; place < files; ++place) {
            if (Codes.get(codes, place) != Codes.UNDECIDED) continue;
            uint256 seedBlock = block.number + 2;
            _lanes[key | 1] = uint256(0).withTime(seedBlock);
            emit LaneRedrawn(pool, lane, seedBlock);
            return;
        }
    }

    /// @dev Round 1 speaks only of what round 0 left undecided, and what it leaves undecided is void.
    function _lastWord(uint256 codes, uint256 first) private pure returns (uint256 out) {
        for (uint256 place = 0; place < 16; ++place) {
            if (Codes.get(first, place) != Codes.UNDECIDED) continue;
            uint256 code = Codes.get(codes, place);
            out = Codes.set(out, place, code == Codes.UNDECIDED ? Codes.VOID : code);
        }
    }

    function _voids(uint256 files) private pure returns (uint256 codes) {
        for (uint256 place = 0; place < files && place < 16; ++place) {
            codes = Codes.set(codes, place, Codes.VOID);
        }
    }

    /// @dev Vote words of those who revealed.
    function _revealed(uint256 w, uint256 key, uint256 size) private view returns (uint256[] memory votes) {
        votes = new uint256[](size);
        uint256 found;
        for (uint256 i = 0; i < size; ++i) {
            if (w.revealed() & (1 << i) != 0) votes[found++] = uint256(_ballots[(key << 3) | i]);
        }
        assembly ("memory-safe") {
            mstore(votes, found)
        }
    }

    // ---- Helpers

    function _decided(uint256 pool, uint256 sequence) private view returns (uint256 round, uint256 w) {
        w = _lanes[_key(pool, sequence >> 4, 0)];
        if (Codes.get(w.codes(), sequence & 15) == Codes.UNDECIDED) {
            round = 1;
            w = _lanes[_key(pool, sequence >> 4, 1)];
        }
        if (!w.settled() || Codes.get(w.codes(), sequence & 15) == Codes.NONE) revert NotSettled();
    }

    function _onlyVoter(uint256 w, uint256 member) private view returns (uint256 seat) {
        if (member >= LaneSlot.MOST) revert NotVoter();
        seat = w.member(member);
        if (seat == 0 || seats.voterOf(seat) != msg.sender) revert NotVoter();
    }
}
