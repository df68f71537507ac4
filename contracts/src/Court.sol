// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Params} from "./Params.sol";
import {Pools} from "./Pools.sol";
import {Seats} from "./Seats.sol";
import {SuiteContract} from "./SuiteContract.sol";
import {Codes} from "./libraries/Codes.sol";
import {LaneSlot} from "./libraries/LaneSlot.sol";
import {Reckoning} from "./libraries/Reckoning.sol";
import {TypedData} from "./libraries/TypedData.sol";
import {FileRef, NotYet, PoolTerms, Receipt, Suite} from "./libraries/Types.sol";
import {Voting} from "./libraries/Voting.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

/// @title Court
/// @notice Committees over lanes: draw, hidden votes, outcome. The block after a lane's submission seeds its draw: the
/// bytes of its files are in the pool's storage before anybody knows who judges them. A fresh committee (round 1) judges
/// what round 0 left undecided because it disagreed, kept silent or was never drawn; its outcome judges the votes of
/// both. What round 1 leaves undecided is void. A drawn seat that does not reveal loses `withheldPenalty` per file at
/// settlement, up to what Seats allows in an epoch.
///
/// A round: seed block mined → draw (with the first commit, or later by anyone) → commit → reveal (once all have
/// committed, or after the commit window) → settle (once all have revealed, or after the reveal window).
contract Court is SuiteContract {
    using LaneSlot for uint256;

    /// @notice What opens a member's vote: see `reveal`.
    struct Opening {
        uint256 member;
        uint256 codes;
        bytes32 verdictHash;
        bytes32 salt;
    }

    /// @notice The pool's owner named a service key. The previous one counts until `previousUntil`.
    event ServiceSet(uint256 indexed pool, address service, uint256 previousUntil);
    /// @notice The URL of the pool's service.
    event ServiceAnnounced(uint256 indexed pool, string url);
    /// @notice Another place to fetch a file from. Anyone can emit it; readers decide whom to believe.
    event MirrorAnnounced(uint256 indexed pool, uint256 indexed sequence, address indexed sender, string uri);
    /// @notice A lane of so many files, from place 0 on. The hash of `seedBlock` will draw its committee.
    event LaneSubmitted(uint256 indexed pool, uint256 indexed lane, uint256 files, uint256 seedBlock);
    /// @notice which = pool << 64 | lane << 32 | round << 8; drawn: seed 64 | up to five seats of 16, lowest first.
    event CommitteeDrawn(uint256 which, uint256 seedBlock, uint256 drawn);
    /// @notice ballot = pool << 64 | lane << 32 | seat << 16 | round << 8 | member.
    event VoteCommitted(uint256 ballot, bytes32 commitment);
    /// @notice `codes` are sixteen 4-bit codes, `verdictHash` the keccak256 of the voter's verdict document. A member
    /// that had not committed did so by this (`vote`).
    event VoteRevealed(uint256 ballot, uint256 codes, bytes32 verdictHash);
    event LaneSettled(uint256 which, uint256 codes);
    /// @notice Round 1 will be seeded by the hash of `seedBlock`.
    event LaneRedrawn(uint256 indexed pool, uint256 indexed lane, uint256 seedBlock);
    event OutcomeSet(uint256 indexed pool, uint256 indexed lane, uint256 place, uint256 round, uint256 code);
    /// @notice `paid` base units are the seat's to withdraw (`Pools.withdrawFees`).
    event MemberClosed(uint256 ballot, uint256 paid, uint256 burnt, uint256 penalty);
    /// @notice A drawn seat that did not reveal lost `penalty` at settlement.
    event MemberAbsent(uint256 ballot, uint256 penalty);

    /// @notice A lane of the largest files would earn more than the bonds of a committee's majority.
    error PayAboveBonds(uint256 pay, uint256 bonds);
    /// @notice No such lane or round.
    error NoSuchLane();
    /// @notice Not signed for this node and file by a valid key of this pool's service, or from the future.
    error BadReceipt();
    /// @notice The key before the present one is still valid.
    error TooSoon(uint256 time);
    error DrawOver(uint256 lastBlock);
    error NotSettleable(uint256 time);
    error AlreadySettled();
    error NotSettled();

    bytes32 public constant SEED_TAG = keccak256("muster/lane-seed/1");
    bytes32 public constant RECEIPT_TYPEHASH =
        keccak256("UploadReceipt(uint256 pool,address node,bytes32 sha256,uint256 size,uint256 time)");
    /// In a ballot, above the codes: its seat is frozen until it is closed.
    uint256 private constant FROZEN = 1 << 64;
    /// In `which`: round 1.
    uint256 private constant SECOND = 1 << 8;

    struct Service {
        address current;
        address previous;
        uint40 previousUntil;
    }

    uint256 public immutable epochBlocks;

    mapping(uint256 pool => PoolTerms) private _terms;
    /// @notice The service key, and the one before it, which is valid until `previousUntil`.
    mapping(uint256 pool => Service) public serviceOf;
    /// By `which`.
    mapping(uint256 which => uint256 slot) private _lanes;
    /// @notice Of member `which` | member: its commitment; once revealed its codes in the low 64 bits, with bit 64 while its
    /// seat is frozen.
    mapping(uint256 ballot => bytes32) public ballotOf;

    constructor(Suite memory suite) SuiteContract(suite, suite.court) {
        epochBlocks = Seats(seats).epochBlocks();
    }

    // ---- A pool's terms

    /// @notice Checks and stores the terms of a new pool; returns its unbonding seconds. Pools only.
    function registerPool(uint256 pool, PoolTerms calldata terms) external returns (uint256 unbonding) {
        _onlyFrom(pools, pools);
        unbonding = params.checkTerms(terms);
        // the same seats may judge all of a lane's files wrongly
        uint256 pay = 16 * uint256(terms.maxUnits) * terms.rate;
        uint256 bonds = (terms.committee / 2 + 1) * Seats(seats).minBond();
        if (pay > bonds) revert PayAboveBonds(pay, bonds);
        // a draw never needs seats or block hashes that are no longer known
        if (terms.drawBlocks > Voting.REACH * epochBlocks) revert Params.BadTerms("drawBlocks");
        _terms[pool] = terms;
        if (terms.group == 0) _terms[pool].group = uint32(pool);
    }

    /// @notice Whether the pool's group has enough seats in this epoch for two committees and both juries without
    /// overlap, and for two first juries.
    function staffed(uint256 pool) external view returns (bool) {
        PoolTerms storage terms = _terms[pool];
        uint256 needed = 2 * uint256(terms.committee) + terms.jury + terms.appealJury;
        uint256 juries = 2 * uint256(terms.jury); // of a node challenge, where the pool has one size
        if (needed < juries) needed = juries;
        return Seats(seats).countAt(terms.group, Seats(seats).currentEpoch()) >= needed;
    }

    function termsOf(uint256 pool) external view returns (PoolTerms memory) {
        return _terms[pool];
    }

    // ---- The pool's service: what it relays or gave a receipt for is in the pool's storage

    /// @notice Sets the key that relays submissions and signs receipts. Pool owner only. The previous key stays valid as
    /// long as a receipt that it signed before allows a submission. No other rotation is possible meanwhile.
    function setService(uint256 pool, address service) external {
        if (Pools(pools).ownerOf(pool) != msg.sender) revert Pools.NotOwner();
        Service storage keys = serviceOf[pool];
        if (block.timestamp < keys.previousUntil) revert TooSoon(keys.previousUntil);
        // one second more than the oldest receipt that it signed
        uint256 until = keys.current == address(0) ? 0 : block.timestamp + _terms[pool].receiptWindow + 1;
        (keys.previous, keys.previousUntil, keys.current) = (keys.current, uint40(until), service);
        emit ServiceSet(pool, service, until);
    }

    /// @notice Announces the URL of the pool's service. Pool owner only. Emits an event and stores nothing.
    function announceService(uint256 pool, string calldata url) external {
        if (Pools(pools).ownerOf(pool) != msg.sender) revert Pools.NotOwner();
        emit ServiceAnnounced(pool, url);
    }

    /// @notice Announces where else a file can be fetched. Emits an event and stores nothing.
    function announceMirror(uint256 pool, uint256 sequence, string calldata uri) external {
        emit MirrorAnnounced(pool, sequence, msg.sender, uri);
    }

    /// @notice Reverts unless a valid key of the pool's service signed the receipt for this node and file.
    function checkReceipt(uint256 pool, address node, bytes32 fileHash, Receipt calldata receipt) external view {
        bytes32 hash = keccak256(abi.encode(RECEIPT_TYPEHASH, pool, node, fileHash, receipt.size, receipt.time));
        bytes32 digest = TypedData.digest(keccak256("muster-receipts"), pools, hash);
        // never ERC-1271: what a contract acknowledged it can deny, when the work is there
        (address signer,,) = ECDSA.tryRecoverCalldata(digest, receipt.signature);
        if (!isService(pool, signer) || receipt.time > block.timestamp) revert BadReceipt();
    }

    /// @notice Whether this is the service key, or the one before it while that is valid.
    function isService(uint256 pool, address who) public view returns (bool) {
        Service storage keys = serviceOf[pool];
        if (who == address(0)) return false;
        return who == keys.current || (who == keys.previous && block.timestamp < keys.previousUntil);
    }

    // ---- Draw

    /// @notice A lane of one to sixteen files. Pools only.
    function openLane(uint256 pool, uint256 lane, uint256 files) external onlyFrom(pools, pools) {
        uint256 seedBlock = block.number + 1; // nobody knows its hash yet
        uint256 codes = Codes.spread((1 << files) - 1, Codes.UNDECIDED);
        _lanes[_which(pool, lane, 0)] = uint256(0).withTime(seedBlock).withCodes(codes);
        emit LaneSubmitted(pool, lane, files, seedBlock);
    }

    /// @notice Draws the committee of a round and starts its clock. The first commit draws once the seed block is mined;
    /// anyone may call once half of `drawBlocks` has passed after it.
    function draw(uint256 pool, uint256 lane, uint256 round) external {
        uint256 which = _which(pool, lane, round);
        uint256 word = _lanes[which];
        if (word.settled()) revert AlreadySettled();
        if (word.seed() != 0) revert Voting.AlreadyDrawn();
        uint256 last = word.time() + _terms[pool].drawBlocks / 2;
        if (word != 0 && block.number <= last) revert Voting.DrawNotOpen(last + 1);
        _lanes[which] = _draw(word, which);
    }

    /// @notice The committee of a round, known as soon as the seed block is mined, drawn or not.
    function committeeOf(uint256 pool, uint256 lane, uint256 round)
        external
        view
        returns (uint256[] memory members, address[] memory voters, bytes32 seed, bool drawn)
    {
        uint256 which = _which(pool, lane, round);
        uint256 word = _lanes[which];
        drawn = word.seed() != 0;
        if (drawn) {
            seed = bytes32(word.seed());
            members = _members(word, _terms[pool].committee);
        } else {
            (members, seed) = _drawn(word, which);
        }
        voters = new address[](members.length);
        for (uint256 i = 0; i < members.length; ++i) {
            voters[i] = Seats(seats).voterOf(members[i]);
        }
    }

    /// @notice A round, in one word (`LaneSlot`).
    function roundOf(uint256 pool, uint256 lane, uint256 round) external view returns (uint256) {
        return _lanes[_which(pool, lane, round)];
    }

    function _draw(uint256 word, uint256 which) private returns (uint256) {
        (uint256[] memory members, bytes32 seed) = _drawn(word, which);
        uint256 seedBlock = word.time();
        word = word.withTime(block.timestamp) | uint256(seed);
        for (uint256 i = 0; i < members.length; ++i) {
            word = word.withMember(i, members[i]);
        }
        emit CommitteeDrawn(which, seedBlock, word.drawn());
        return word;
    }

    /// @dev The committee that a draw now would give, and the seed of its audit sample. Both rounds audit the same rows,
    /// because one outcome judges the votes of both.
    function _drawn(uint256 word, uint256 which) private view returns (uint256[] memory members, bytes32 seed) {
        PoolTerms storage terms = _terms[which >> 64];
        if (word == 0) revert NoSuchLane();
        uint256 seedBlock = word.time();
        if (block.number <= seedBlock) revert Voting.SeedNotMined(seedBlock);
        if (block.number > seedBlock + terms.drawBlocks) revert DrawOver(seedBlock + terms.drawBlocks);
        bytes32 hash = Voting.hashOf(seedBlock);
        if (hash == 0) revert Voting.SeedNotMined(seedBlock);
        hash = keccak256(abi.encode(SEED_TAG, hash, which));
        uint64 short = uint64(uint256(hash));
        seed = bytes32(uint256(short == 0 ? 1 : short)); // zero stands for not drawn
        uint256[] memory excluded;
        if (which & SECOND != 0) {
            uint256 first = _lanes[which ^ SECOND];
            if (first.seed() != 0) (seed, excluded) = (bytes32(first.seed()), _members(first, terms.committee));
        }
        uint256 epoch = seedBlock / epochBlocks;
        members = Seats(seats).draw(hash, epoch, terms.group, terms.committee, excluded, address(0));
        // When too few seats are left for a fresh committee, the first one's members may serve again.
        if (members.length < terms.committee && which & SECOND != 0) {
            members = Seats(seats).draw(hash, epoch, terms.group, terms.committee, new uint256[](0), address(0));
        }
        if (members.length < terms.committee) revert Voting.TooFewSeats(members.length);
    }

    function _members(uint256 word, uint256 size) private pure returns (uint256[] memory members) {
        members = new uint256[](size);
        for (uint256 i = 0; i < size; ++i) {
            members[i] = word.member(i);
        }
    }

    // ---- Votes

    /// @notice A member's hidden vote for the whole lane; `member` is its index in the committee.
    /// @param commitment keccak256(abi.encode(chainid, this, pool, lane, round, voter, codes, verdictHash, salt)).
    function commit(uint256 pool, uint256 lane, uint256 round, uint256 member, bytes32 commitment) external {
        uint256 which = _which(pool, lane, round);
        (uint256 word,) = _committing(which, member);
        if (commitment == 0) revert Voting.EmptyCommitment();
        _lanes[which] = word;
        ballotOf[which | member] = commitment;
        emit VoteCommitted(_ballot(word, which, member), commitment);
    }

    /// @notice Opens a member's vote, from the account that committed it.
    function reveal(
        uint256 pool,
        uint256 lane,
        uint256 round,
        uint256 member,
        uint256 codes,
        bytes32 verdictHash,
        bytes32 salt
    ) public {
        uint256 which = _which(pool, lane, round);
        uint256 word = _lanes[which];
        if (word.settled()) revert AlreadySettled();
        if (word.seed() == 0) revert Voting.NotDrawn();
        Voting.checkReveal(_body(word, _terms[pool]), member);
        bytes memory ballot =
            abi.encode(block.chainid, address(this), pool, lane, round, msg.sender, codes, verdictHash, salt);
        if (codes > type(uint64).max || ballotOf[which | member] != keccak256(ballot)) revert Voting.WrongReveal();
        _open(word, which, member, codes, verdictHash);
    }

    /// @notice Commits and reveals at once, for the last member to commit. Nobody can have revealed before, so there is
    /// nothing to copy.
    function vote(uint256 pool, uint256 lane, uint256 round, uint256 member, uint256 codes, bytes32 verdictHash)
        external
    {
        uint256 which = _which(pool, lane, round);
        (uint256 word, Voting.Body memory body) = _committing(which, member);
        body.committed = word.committed();
        Voting.checkReveal(body, member);
        if (codes > type(uint64).max) revert Voting.WrongReveal();
        _open(word, which, member, codes, verdictHash);
    }

    /// @dev A round after a member's commitment, drawn by it if need be; and its body as it was before.
    function _committing(uint256 which, uint256 member) private returns (uint256 word, Voting.Body memory body) {
        word = _lanes[which];
        if (word.settled()) revert AlreadySettled();
        if (word.seed() == 0) word = _draw(word, which);
        if (member >= LaneSlot.MOST) revert Voting.NotVoter();
        uint256 seat = word.member(member);
        if (seat == 0 || Seats(seats).voterOf(seat) != msg.sender) revert Voting.NotVoter();
        body = _body(word, _terms[which >> 64]);
        Voting.checkCommit(body, member);
        word = word.withCommitted(member);
    }

    function _open(uint256 word, uint256 which, uint256 member, uint256 codes, bytes32 verdictHash) private {
        _lanes[which] = word.withRevealed(member);
        ballotOf[which | member] = bytes32(codes);
        emit VoteRevealed(_ballot(word, which, member), codes, verdictHash);
    }

    function _ballot(uint256 word, uint256 which, uint256 member) private pure returns (uint256) {
        return which | (word.member(member) << 16) | member;
    }

    function _body(uint256 word, PoolTerms storage terms) private view returns (Voting.Body memory) {
        return Voting.Body(
            terms.committee, word.committed(), word.revealed(), word.time(), terms.commitWindow, terms.revealWindow
        );
    }

    // ---- Settlement

    /// @notice Counts the votes and writes the outcomes. Anyone may call after the last reveal or the reveal window.
    /// @param files All files of the lane, in order of their places.
    function settle(uint256 pool, uint256 lane, uint256 round, FileRef[] calldata files) public {
        uint256 which = _which(pool, lane, round);
        uint256 word = _lanes[which];
        if (word.settled()) revert AlreadySettled();
        PoolTerms storage terms = _terms[pool];
        _checkSettleable(word, terms);
        uint256[] memory votes;
        if (word.seed() != 0) votes = _votes(word, which, terms.committee);
        uint256 codes = Reckoning.lane(votes, word.codes(), terms.committee, round == 0 ? Codes.UNDECIDED : Codes.VOID);
        _lanes[which] = word.withCodes(codes).withTime(block.timestamp) | LaneSlot.SETTLED;
        emit LaneSettled(which, codes);
        if (round == 0) _redraw(which, codes);
        if (word.seed() != 0) _blame(word, which, votes, codes);
        uint256 drawn = word.seed() == 0 ? 0 : 1;
        if (round == 1 && _lanes[which ^ SECOND].seed() != 0) ++drawn;
        Pools(pools).settleLane(pool, lane, codes, drawn, terms.challengeWindow, files);
    }

    /// @notice Reveals and settles at once, for the last member to reveal.
    function revealAndSettle(
        uint256 pool,
        uint256 lane,
        uint256 round,
        Opening calldata vote_,
        FileRef[] calldata files
    ) external {
        reveal(pool, lane, round, vote_.member, vote_.codes, vote_.verdictHash, vote_.salt);
        settle(pool, lane, round, files);
    }

    /// @notice Pays a committee its fees and takes its penalties. Anyone may call once the outcomes that judge it are
    /// final: its own, and round 1's where it is round 0 and left files undecided. The caller gets a share of the
    /// penalties. Members that may owe one are frozen in Seats until then.
    function closeCommittee(uint256 pool, uint256 lane, uint256 round) external {
        uint256 which = _which(pool, lane, round);
        uint256 word = _lanes[which];
        if (!word.settled()) revert NotSettled();
        if (word.seed() == 0) revert Voting.NotDrawn();
        if (word & LaneSlot.CLOSED != 0) revert Voting.AlreadyClosed();
        PoolTerms storage terms = _terms[pool];
        (uint256 codes, uint256 until) = _final(word, which, terms.challengeWindow);
        if (block.timestamp < until || Reckoning.has(codes, Codes.DISPUTED)) revert NotYet(until);
        _lanes[which] = word | LaneSlot.CLOSED;

        for (uint256 i = 0; i < terms.committee; ++i) {
            uint256 ballot = uint256(ballotOf[which | i]);
            delete ballotOf[which | i];
            if (word.revealed() & (1 << i) == 0) ballot = 0;
            uint256 seat = word.member(i);
            if (ballot & FROZEN != 0) Seats(seats).release(seat);
            (uint256 paid, uint256 burnt, uint256 penalty) =
                Reckoning.closed(uint64(ballot), codes, terms.fee, minorityPenalty, withheldPenalty);
            // a member that did not reveal has paid at settlement
            if (word.revealed() & (1 << i) == 0) penalty = 0;
            if (penalty != 0) penalty = Seats(seats).collect(seat, penalty, msg.sender);
            emit MemberClosed(_ballot(word, which, i), paid, burnt, penalty);
            Pools(pools).payFees(seat, paid, burnt);
        }
    }

    /// @notice Sets the outcome of one file in the round that decided it. Appeals and Canaries only. A file that goes
    /// before a jury freezes the seats of its committee until they are closed.
    function setOutcome(uint256 pool, uint256 sequence, uint256 code) external {
        _onlyFrom(appeals, canaries);
        (uint256 round, uint256 word) = _decided(pool, sequence);
        uint256 which = _which(pool, sequence >> 4, round);
        _lanes[which] = word.withCodes(Codes.set(word.codes(), sequence & 15, code));
        if (code == Codes.DISPUTED && word.seed() != 0) {
            for (uint256 i = 0; i < _terms[pool].committee; ++i) {
                _freeze(word, which, i);
            }
        }
        emit OutcomeSet(pool, sequence >> 4, sequence & 15, round, code);
    }

    /// @notice The round that decided a file, its seed, and the seats and votes that its outcome judges: those of that
    /// round, after those of a first one that left the file undecided. Reverts while the file is undecided.
    function decisionOf(uint256 pool, uint256 sequence)
        external
        view
        returns (uint256 round, uint256[] memory members, uint256[] memory votes, bytes32 seed, uint256 code)
    {
        uint256 word;
        (round, word) = _decided(pool, sequence);
        code = Codes.get(word.codes(), sequence & 15);
        uint256 size = _terms[pool].committee;
        members = new uint256[]((round + 1) * size);
        votes = new uint256[](members.length);
        for (uint256 i = 0; i < members.length; ++i) {
            uint256 which = _which(pool, sequence >> 4, i / size);
            word = _lanes[which];
            members[i] = word.member(i % size);
            if (word.seed() != 0) seed = bytes32(word.seed()); // the same in both rounds that were drawn
            if (word.revealed() & (1 << (i % size)) == 0) continue;
            votes[i] = Codes.get(uint256(ballotOf[which | (i % size)]), sequence & 15);
        }
    }

    /// @dev A drawn round once its votes can be counted. One that was not drawn once it can be drawn no more, for the
    /// next committee.
    function _checkSettleable(uint256 word, PoolTerms storage terms) private view {
        if (word.seed() != 0) {
            uint256 until = Voting.countableFrom(_body(word, terms));
            if (block.timestamp < until) revert NotSettleable(until);
            return;
        }
        if (word == 0) revert NoSuchLane();
        uint256 last = word.time() + terms.drawBlocks;
        if (block.number <= last) revert NotSettleable(last + 1);
    }

    /// @dev Round 1's seed is the next but one block's hash; nobody knows it yet.
    function _redraw(uint256 which, uint256 codes) private {
        if (!Reckoning.has(codes, Codes.UNDECIDED)) return;
        uint256 seedBlock = block.number + 2;
        _lanes[which | SECOND] = uint256(0).withTime(seedBlock).withCodes(Reckoning.only(codes, Codes.UNDECIDED));
        emit LaneRedrawn(which >> 64, uint32(which >> 32), seedBlock);
    }

    /// @dev A member that did not reveal pays now. One that may owe a penalty is frozen until it is closed.
    function _blame(uint256 word, uint256 which, uint256[] memory votes, uint256 codes) private {
        bool undecided = Reckoning.has(codes, Codes.UNDECIDED);
        bool unanimous = word.revealed() + 1 == 1 << votes.length;
        for (uint256 i = 1; i < votes.length; ++i) {
            if (votes[i] != votes[0]) unanimous = false;
        }
        if (unanimous && !undecided) return;
        for (uint256 i = 0; i < votes.length; ++i) {
            if (word.revealed() & (1 << i) == 0) {
                uint256 penalty = withheldPenalty * Reckoning.count(codes);
                uint256 taken = Seats(seats).fine(word.member(i), penalty, msg.sender);
                emit MemberAbsent(_ballot(word, which, i), taken);
            } else if (undecided || Reckoning.owes(votes[i], codes)) {
                _freeze(word, which, i);
            }
        }
    }

    /// @dev The outcomes that judge a settled round's votes, and when they are final unless disputed. What round 0 left
    /// undecided is judged by round 1.
    function _final(uint256 word, uint256 which, uint256 window) private view returns (uint256 codes, uint256 until) {
        codes = word.codes();
        uint256 undecided = Reckoning.only(codes, Codes.UNDECIDED);
        if (undecided != 0) {
            word = _lanes[which | SECOND];
            if (!word.settled()) revert NotSettled();
            codes = (codes ^ undecided) | word.codes();
        }
        until = word.time() + window;
    }

    /// @dev Keeps the bond of a member that revealed until the member is closed.
    function _freeze(uint256 word, uint256 which, uint256 member) private {
        uint256 ballot = uint256(ballotOf[which | member]);
        if (word.revealed() & (1 << member) == 0 || ballot & FROZEN != 0) return;
        ballotOf[which | member] = bytes32(ballot | FROZEN);
        Seats(seats).freeze(word.member(member));
    }

    /// @dev Vote words by member, 0 where none was revealed.
    function _votes(uint256 word, uint256 which, uint256 size) private view returns (uint256[] memory votes) {
        votes = new uint256[](size);
        for (uint256 i = 0; i < size; ++i) {
            if (word.revealed() & (1 << i) != 0) votes[i] = uint64(uint256(ballotOf[which | i]));
        }
    }

    function _decided(uint256 pool, uint256 sequence) private view returns (uint256 round, uint256 word) {
        word = _lanes[_which(pool, sequence >> 4, 0)];
        if (Codes.get(word.codes(), sequence & 15) == Codes.UNDECIDED) {
            round = 1;
            word = _lanes[_which(pool, sequence >> 4, 1)];
        }
        if (!word.settled() || Codes.get(word.codes(), sequence & 15) == Codes.NONE) revert NotSettled();
    }

    /// @dev A round's number, here and in the events.
    function _which(uint256 pool, uint256 lane, uint256 round) private pure returns (uint256) {
        // a number that is too large would stand for another lane
        if (round > 1 || (pool >> 24) | (lane >> 24) != 0) revert NoSuchLane();
        return (pool << 64) | (lane << 32) | (round << 8);
    }
}
