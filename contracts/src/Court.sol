// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Attestations} from "./court/Attestations.sol";
import {Committees} from "./court/Committees.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {IParams} from "./interfaces/IParams.sol";
import {Codes} from "./libraries/Codes.sol";
import {LaneSlot} from "./libraries/LaneSlot.sol";
import {Reckoning} from "./libraries/Reckoning.sol";
import {Tally} from "./libraries/Tally.sol";
import {FileRef, Suite} from "./libraries/Types.sol";
import {Voting} from "./libraries/Voting.sol";

/// @title Court
/// @notice Hidden votes, outcomes and fees of the committees.
contract Court is Attestations {
    using LaneSlot for uint256;

    /// In a ballot, above the codes: its seat is frozen until it is closed.
    uint256 private constant FROZEN = 1 << 64;

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
        uint256 word = _word(pool, lane, round);
        if (word.settled()) revert AlreadySettled();
        if (word.seed() != 0) revert AlreadyDrawn();
        _lanes[_key(pool, lane, round)] = _draw(word, pool, lane, round);
    }

    /// @inheritdoc ICourt
    function commit(uint256 pool, uint256 lane, uint256 round, uint256 member, bytes32 commitment) external {
        (uint256 word,) = _committing(pool, lane, round, member);
        if (commitment == 0) revert EmptyCommitment();
        uint256 key = _key(pool, lane, round);
        _lanes[key] = word;
        _ballots[(key << 3) | member] = commitment;
        emit VoteCommitted(_ballotId(word, pool, lane, round, member), commitment);
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
        uint256 word = _lanes[key];
        if (word.settled()) revert AlreadySettled();
        if (word.seed() == 0) revert NotDrawn();
        Voting.checkReveal(_body(word, _terms[pool]), member);
        bytes32 hash = ballotHash(pool, lane, round, msg.sender, codes, verdictHash, salt);
        if (codes > type(uint64).max || _ballots[(key << 3) | member] != hash) revert WrongReveal();
        _ballots[(key << 3) | member] = bytes32(codes);
        _lanes[key] = word.withRevealed(member);
        emit VoteRevealed(_ballotId(word, pool, lane, round, member), codes, verdictHash);
    }

    /// @inheritdoc ICourt
    function vote(uint256 pool, uint256 lane, uint256 round, uint256 member, uint256 codes, bytes32 verdictHash)
        external
    {
        (uint256 word, Voting.Body memory body) = _committing(pool, lane, round, member);
        body.committed = word.committed();
        Voting.checkReveal(body, member);
        if (codes > type(uint64).max) revert WrongReveal();
        uint256 key = _key(pool, lane, round);
        _lanes[key] = word.withRevealed(member);
        _ballots[(key << 3) | member] = bytes32(codes);
        emit VoteRevealed(_ballotId(word, pool, lane, round, member), codes, verdictHash);
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
        uint256 word = _word(pool, lane, round);
        if (word.settled()) revert AlreadySettled();
        Terms storage terms = _terms[pool];
        _checkSettleable(word, terms, pool, lane, round);
        uint256[] memory votes;
        if (word.seed() != 0) votes = _votes(word, key, terms.committee);
        uint256 codes = Tally.lane(votes, word.codes(), terms.committee, round == 0 ? Codes.UNDECIDED : Codes.VOID);
        _lanes[key] = word.withCodes(codes).withTime(block.timestamp) | LaneSlot.SETTLED;
        emit LaneSettled(_which(pool, lane, round), codes);
        if (round == 0) _redraw(pool, lane, key, codes);
        if (word.seed() != 0) _blame(word, pool, lane, round, votes, codes);
        pools.settleLane(pool, lane, round, codes, terms.challengeWindow, files);
    }

    /// @inheritdoc ICourt
    function closeMember(uint256 pool, uint256 lane, uint256 round, uint256 member) external {
        uint256 key = _key(pool, lane, round);
        uint256 word = _lanes[key];
        if (!word.settled()) revert NotSettled();
        Terms storage terms = _terms[pool];
        if (word.seed() == 0 || member >= terms.committee) revert NotDrawn();
        if (word.closed() & (1 << member) != 0) revert AlreadyClosed();
        uint256 until = word.settledAt() + terms.challengeWindow;
        if (block.timestamp < until || Reckoning.has(word.codes(), Codes.DISPUTED)) revert NotFinal(until);
        _lanes[key] = word.withClosed(member);

        uint256 ballot = uint256(_ballots[(key << 3) | member]);
        delete _ballots[(key << 3) | member];
        uint256 seat = word.member(member);
        bool present = word.revealed() & (1 << member) != 0;
        if (present && ballot & FROZEN != 0) seats.release(seat);
        // the values of a time before the draw
        IParams.Values memory values = params.valuesAt(word.settledAt() - terms.commitWindow - terms.revealWindow);
        (uint256 paid, uint256 burnt, uint256 penalty) = Reckoning.member(
            present ? ballot & type(uint64).max : 0,
            word.codes(),
            terms.fee,
            values.minorityPenalty,
            values.withheldPenalty
        );
        if (!present) penalty = 0; // taken at settlement
        if (penalty != 0) penalty = seats.collect(seat, penalty, msg.sender);
        emit MemberClosed(pool, lane, seat, round, paid, burnt, penalty);
        if (paid + burnt != 0) pools.payFees(pool, seats.ownerOf(seat), paid, burnt);
    }

    /// @inheritdoc ICourt
    function setOutcome(uint256 pool, uint256 sequence, uint256 code) external {
        if (msg.sender != appeals && msg.sender != canaries) revert NotAppeals();
        (uint256 round, uint256 word) = _decided(pool, sequence);
        uint256 key = _key(pool, sequence >> 4, round);
        _lanes[key] = word.withCodes(Codes.set(word.codes(), sequence & 15, code));
        if (code == Codes.DISPUTED && word.seed() != 0) {
            for (uint256 i = 0; i < _terms[pool].committee; ++i) {
                _freeze(word, key, i);
            }
        }
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
        if (revealed) codes = uint64(uint256(ballot));
        else commitment = ballot;
    }

    /// @inheritdoc ICourt
    function decisionOf(uint256 pool, uint256 sequence)
        external
        view
        returns (uint256 round, uint256[] memory members, uint256[] memory votes, bytes32 seed, uint256 code)
    {
        uint256 word;
        (round, word) = _decided(pool, sequence);
        uint256 key = _key(pool, sequence >> 4, round);
        seed = bytes32(word.seed());
        code = Codes.get(word.codes(), sequence & 15);
        members = _members(word, _terms[pool].committee);
        votes = new uint256[](members.length);
        for (uint256 i = 0; i < members.length; ++i) {
            if (word.revealed() & (1 << i) != 0) {
                votes[i] = Codes.get(uint256(_ballots[(key << 3) | i]), sequence & 15);
            }
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

    // ---- Voting

    /// @dev A round after a member's commitment, drawn by it if need be; and its body as it was before.
    function _committing(uint256 pool, uint256 lane, uint256 round, uint256 member)
        private
        returns (uint256 word, Voting.Body memory body)
    {
        word = _word(pool, lane, round);
        if (word.settled()) revert AlreadySettled();
        if (word.seed() == 0) word = _draw(word, pool, lane, round);
        if (member >= LaneSlot.MOST) revert NotVoter();
        uint256 seat = word.member(member);
        if (seat == 0 || seats.voterOf(seat) != msg.sender) revert NotVoter();
        body = _body(word, _terms[pool]);
        Voting.checkCommit(body, member);
        word = word.withCommitted(member);
    }

    function _ballotId(uint256 word, uint256 pool, uint256 lane, uint256 round, uint256 member)
        private
        pure
        returns (uint256)
    {
        return _which(pool, lane, round) | (word.member(member) << 16) | member;
    }

    // ---- Settling

    /// @dev A drawn round once its votes can be counted. One that was not drawn once it can be drawn no more, for the next
    /// committee; or, when nothing of it was attested, once nothing can be.
    function _checkSettleable(uint256 word, Terms storage terms, uint256 pool, uint256 lane, uint256 round)
        private
        view
    {
        if (word.seed() != 0) {
            uint256 until = Voting.countableFrom(_body(word, terms));
            if (block.timestamp < until) revert NotSettleable(until);
            return;
        }
        if (word == 0 && round == 1) revert NoSuchLane();
        uint256 last = word == 0 ? _lastChance(pool, lane) : word.seedBlock() + terms.drawBlocks;
        if (block.number <= last) revert NotSettleable(last + 1);
    }

    /// @dev Round 1's seed is the next but one block's hash; nobody knows it yet.
    function _redraw(uint256 pool, uint256 lane, uint256 key, uint256 codes) private {
        if (!Reckoning.has(codes, Codes.UNDECIDED)) return;
        uint256 seedBlock = block.number + 2;
        _lanes[key | 1] = uint256(0).withTime(seedBlock).withCodes(Reckoning.only(codes, Codes.UNDECIDED));
        emit LaneRedrawn(pool, lane, seedBlock);
    }

    /// @dev Who did not reveal pays now. Who contradicts the outcome will pay when it is final, and stays until then.
    function _blame(uint256 word, uint256 pool, uint256 lane, uint256 round, uint256[] memory votes, uint256 codes)
        private
    {
        uint256 key = _key(pool, lane, round);
        bool unanimous = true;
        for (uint256 i = 1; i < votes.length; ++i) {
            if (votes[i] != votes[0]) unanimous = false;
        }
        bool all = word.revealed() + 1 == 1 << votes.length;
        if (all && unanimous && !Reckoning.has(codes, Codes.UNDECIDED)) return;
        uint256 penalty = params.valuesAt(word.drawnAt()).withheldPenalty * Reckoning.count(codes);
        for (uint256 i = 0; i < votes.length; ++i) {
            if (word.revealed() & (1 << i) == 0) {
                uint256 taken = seats.collect(word.member(i), penalty, msg.sender);
                emit MemberAbsent(pool, lane, word.member(i), round, taken);
            } else if (Reckoning.owes(votes[i], codes)) {
                _freeze(word, key, i);
            }
        }
    }

    /// @dev Keeps the bond of a member that revealed until the member is closed.
    function _freeze(uint256 word, uint256 key, uint256 member) private {
        uint256 ballot = uint256(_ballots[(key << 3) | member]);
        if (word.revealed() & (1 << member) == 0 || ballot & FROZEN != 0) return;
        _ballots[(key << 3) | member] = bytes32(ballot | FROZEN);
        seats.freeze(word.member(member));
    }

    /// @dev Vote words by member, 0 where none was revealed.
    function _votes(uint256 word, uint256 key, uint256 size) private view returns (uint256[] memory votes) {
        votes = new uint256[](size);
        for (uint256 i = 0; i < size; ++i) {
            if (word.revealed() & (1 << i) != 0) votes[i] = uint64(uint256(_ballots[(key << 3) | i]));
        }
    }

    // ---- Helpers

    function _body(uint256 word, Terms storage terms) private view returns (Voting.Body memory) {
        return Voting.Body(
            terms.committee, word.committed(), word.revealed(), word.drawnAt(), terms.commitWindow, terms.revealWindow
        );
    }

    function _decided(uint256 pool, uint256 sequence) private view returns (uint256 round, uint256 word) {
        word = _lanes[_key(pool, sequence >> 4, 0)];
        if (Codes.get(word.codes(), sequence & 15) == Codes.UNDECIDED) {
            round = 1;
            word = _lanes[_key(pool, sequence >> 4, 1)];
        }
        if (!word.settled() || Codes.get(word.codes(), sequence & 15) == Codes.NONE) revert NotSettled();
    }
}
