// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {AccountSlot} from "../../src/libraries/AccountSlot.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {FileSlot} from "../../src/libraries/FileSlot.sol";
import {LaneSlot} from "../../src/libraries/LaneSlot.sol";
import {Memberships} from "../../src/libraries/Memberships.sol";
import {TypedData} from "../../src/libraries/TypedData.sol";
import {FileData, FileRef, PoolTerms, Receipt} from "../../src/libraries/Types.sol";
import {Voting} from "../../src/libraries/Voting.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IPools} from "../interfaces/IPools.sol";
import {ISeats} from "../interfaces/ISeats.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {Deployer} from "./Deploy.sol";
import {History} from "./History.sol";
import {Phase} from "./Phase.sol";

/// @notice A whole network with an own clock, and one short call per thing that people do.
contract Network is Deployer {
    address internal constant SINK = 0x000000000000000000000000000000000000dEaD;
    uint256 internal constant BUDGET = 1_000_000e9;
    uint256 internal constant STAKE = 1_000e9;
    /// As many as the default pool needs: two committees of three, a jury of five.
    uint256 internal constant SEATS = 11;

    uint256 internal clock = 1_700_000_000;
    uint256 internal height = 1_000;
    /// The file at each pool's place, as its event said.
    mapping(uint256 pool => mapping(uint256 sequence => FileData)) internal files;
    /// Of lanes that one round settled as a whole: their files' words, zero where a file is not paid.
    mapping(uint256 pool => mapping(uint256 lane => uint256[])) internal laneWords;
    /// Of files that left their lane by their end: what the contract does not keep.
    mapping(uint256 pool => mapping(uint256 sequence => uint256)) internal endedWords;
    /// The private keys of registered nodes.
    mapping(address node => uint256) internal nodeKeys;

    address internal owner = account("owner");
    address internal operator = account("operator");
    address internal node = account("node");
    address internal stranger = account("stranger");
    uint256 internal pool;

    /// @dev A file's word, read.
    struct Submission {
        bytes20 digest;
        Phase phase;
        uint256 code;
        /// Its units, unless it was ever to be paid.
        uint256 units;
        /// For a file to be paid: the node's `earned` including it.
        uint256 earned;
        uint256 finalAt;
    }

    /// @dev What Pools says of a pool.
    struct Pool {
        address owner;
        IPools.Status status;
        uint256 free;
        uint256 steps;
        uint256 lanes;
        uint256 seedBlock;
        uint256 unbonding;
        /// Once closing: when the owner can take the leftovers.
        uint256 settleAt;
    }

    /// @dev A node's account in a pool, read from its word.
    struct Account {
        uint256 earned;
        uint256 spent;
        uint256 pending;
        uint256 limit;
        uint256 counter;
        uint256 joinedStep;
        uint256 barrier;
        uint256 frozen;
        bool slashed;
        bool removed;
        uint256 unsettled;
    }

    /// @dev A committee's round, read from its word.
    struct Round {
        uint256 time;
        bytes32 seed;
        uint256[] seats;
        uint256 committed;
        uint256 revealed;
        bool closed;
        bool settled;
        uint256 codes;
    }

    function _pool(uint256 number) internal view returns (Pool memory p) {
        (IPools.Intake memory intake, IPools.Desk memory desk) = pools.poolOf(number);
        (p.owner, p.status, p.free, p.steps) = (desk.owner, intake.status, intake.free, intake.steps);
        (p.lanes, p.seedBlock, p.unbonding) = (intake.lanes, desk.seedBlock, desk.unbonding);
        bool closed = intake.status == IPools.Status.Closing || intake.status == IPools.Status.Settled;
        if (closed) p.settleAt = uint256(desk.since) + desk.unbonding;
    }

    function _account(uint256 number, address who) internal view returns (Account memory a) {
        uint256 word = pools.accountOf(number, who);
        (a.earned, a.spent, a.pending) = (AccountSlot.earned(word), AccountSlot.spent(word), AccountSlot.pending(word));
        (a.limit, a.counter) = (AccountSlot.limit(word), AccountSlot.counter(word));
        (a.joinedStep, a.barrier) = (AccountSlot.joinedStep(word), AccountSlot.barrier(word));
        (a.frozen, a.unsettled) = (AccountSlot.frozen(word), AccountSlot.unsettled(word));
        (a.slashed, a.removed) = (AccountSlot.slashed(word), word & AccountSlot.REMOVED != 0);
    }

    function _round(uint256 number, uint256 lane, uint256 round) internal view returns (Round memory r) {
        uint256 word = court.roundOf(number, lane, round);
        (r.time, r.seed, r.codes) = (LaneSlot.time(word), bytes32(LaneSlot.seed(word)), LaneSlot.codes(word));
        (r.committed, r.revealed) = (LaneSlot.committed(word), LaneSlot.revealed(word));
        (r.closed, r.settled) = (word & LaneSlot.CLOSED != 0, LaneSlot.settled(word));
        uint256 size;
        while (size < LaneSlot.MOST && LaneSlot.member(word, size) != 0) ++size;
        r.seats = new uint256[](size);
        for (uint256 i = 0; i < size; ++i) {
            r.seats[i] = LaneSlot.member(word, i);
        }
    }

    function setUp() public virtual {
        _start(address(0));
        _openSeats(SEATS);
        _nextEpoch();
        pool = _createPool(defaultTerms());
        _register(operator, "node", STAKE);
        vm.prank(operator);
        pools.join(pool, node, type(uint256).max, "", "");
        _step();
    }

    function _start(address other) internal {
        vm.warp(clock);
        vm.roll(height);
        _deploy(vm.getNonce(address(this)), other);
    }

    // Time

    function _blocks(uint256 n) internal {
        height += n;
        vm.roll(height);
        _wait(n);
    }

    function _wait(uint256 secs) internal {
        clock += secs;
        vm.warp(clock);
    }

    function _nextEpoch() internal {
        _blocks(EPOCH - height % EPOCH);
    }

    /// @dev The test's network anew, with other penalties.
    function _redeploy(IParams.Values memory v) internal {
        penalties = v;
        setUp();
    }

    // Ballots

    /// @dev A member's of the pool's lane: its commitment, then its codes.
    function _ballot(uint256 lane, uint256 round, uint256 member) internal view returns (bytes32) {
        return court.ballotOf((pool << 64) | (lane << 32) | (round << 8) | member);
    }

    function _hasRevealed(uint256 lane, uint256 round, uint256 member) internal view returns (bool) {
        return _round(pool, lane, round).revealed & (1 << member) != 0;
    }

    // Accounts

    function account(string memory name) internal pure returns (address) {
        return vm.addr(key(name));
    }

    function key(string memory name) internal pure returns (uint256) {
        return uint256(keccak256(bytes(name))) >> 1;
    }

    function _sign(uint256 signer, bytes32 digest) internal pure returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(signer, digest);
        return abi.encodePacked(r, s, v);
    }

    function _give(address who, address spender, uint256 amount) internal {
        token.mint(who, amount);
        vm.prank(who);
        token.approve(spender, type(uint256).max);
    }

    /// @dev What nobody can have any more, sent off or not yet.
    function _burnt() internal view returns (uint256) {
        return token.balanceOf(SINK) + stakes.unburnt();
    }

    // Roles

    function _seatOwner(uint256 i) internal pure returns (address) {
        return account(string.concat("seat owner ", _text(i)));
    }

    function _voter(uint256 seat) internal pure returns (address) {
        return account(string.concat("voter ", _text(seat)));
    }

    function _openSeats(uint256 n) internal {
        _openSeatsIn(n, FAMILY);
    }

    function _openSeatsIn(uint256 n, uint256 group) internal {
        for (uint256 i = 0; i < n; ++i) {
            uint256 seat = seats.opened() + 1;
            _give(_seatOwner(seat), address(seats), BOND);
            vm.prank(_seatOwner(seat));
            seats.openSeat(0, _voter(seat), _classes(group));
        }
    }

    function _classes(uint256 group) internal pure returns (uint256[] memory groups) {
        groups = new uint256[](1);
        groups[0] = group;
    }

    function _createPool(PoolTerms memory terms) internal returns (uint256 created) {
        _give(owner, address(pools), BUDGET);
        vm.prank(owner);
        created = pools.createPool(terms, BUDGET);
        _serve(created);
    }

    /// @dev Names the pool's service key.
    function _serve(uint256 served) internal {
        vm.prank(owner);
        court.setService(served, account("service"));
    }

    function _register(address op, string memory nodeName, uint256 amount) internal returns (address n) {
        n = account(nodeName);
        nodeKeys[n] = key(nodeName);
        _give(op, address(stakes), amount);
        bytes memory consent = _sign(key(nodeName), _consentDigest(n, op, op, clock + 60));
        vm.prank(op);
        stakes.registerNode(n, op, 0, amount, clock + 60, consent);
    }

    function _step() internal {
        uint256 steps = _pool(pool).steps;
        vm.prank(owner);
        pools.publishStep(pool, steps, keccak256("manifest"), bytes32(0));
        _blocks(2);
    }

    /// @dev The node works for a new pool of these terms, as soon as it may.
    function _moveTo(PoolTerms memory terms) internal {
        uint256 unbonding = _pool(pool).unbonding;
        vm.prank(operator);
        pools.leavePool(pool, node, type(uint256).max, "");
        _wait(unbonding);
        pool = _createPool(terms);
        vm.prank(operator);
        pools.join(pool, node, type(uint256).max, "", "");
        _step();
    }

    /// @dev A pool with two juries, of five and of seven, and the 18 seats that they and committees of three need.
    function _moveToTwoJuries() internal {
        PoolTerms memory terms = defaultTerms();
        terms.appealJury = 7;
        _openSeats(18 - seats.countAt(FAMILY, seats.currentEpoch()));
        _nextEpoch();
        _moveTo(terms);
    }

    // Work

    /// @dev A file for any step and counter.
    struct Draft {
        bytes32 root;
        bytes32 fileHash;
        uint32 units;
        uint16 rows;
    }

    /// @dev The file of a draft, from `node`.
    function _work(uint256 step, uint256 counter, Draft memory d) internal view returns (FileData memory) {
        return _work(node, step, counter, d);
    }

    function _work(address n, uint256 step, uint256 counter, Draft memory d) internal pure returns (FileData memory) {
        return FileData(n, uint24(step), uint24(counter), d.units, d.rows, d.root, d.fileHash);
    }

    /// @dev The next file of a node, or the one `ahead` of it.
    function _next(address n, uint32 units, uint256 ahead) internal view returns (FileData memory) {
        uint256 counter = _account(pool, n).counter + ahead;
        bytes32 hash = keccak256(abi.encode(keccak256(abi.encode(n, counter))));
        return _work(n, _pool(pool).steps - 1, counter, Draft(hash, hash, units, 8));
    }

    function _submit() internal returns (uint256) {
        return _submitFrom(node, 1_000);
    }

    /// @dev A lane of one file; its sequence.
    function _submitFrom(address n, uint32 units) internal returns (uint256) {
        return _relay(_one(_next(n, units, 0)));
    }

    /// @dev A lane of so many files of `node`; the sequence of the first.
    function _submitLane(uint256 count) internal returns (uint256) {
        return _submitLaneFrom(node, 1_000, count);
    }

    function _submitLaneFrom(address n, uint32 units, uint256 count) internal returns (uint256) {
        FileData[] memory lane = new FileData[](count);
        for (uint256 i = 0; i < count; ++i) {
            lane[i] = _next(n, units, i);
        }
        return _relay(lane);
    }

    function _one(FileData memory f) internal pure returns (FileData[] memory lane) {
        lane = new FileData[](1);
        lane[0] = f;
    }

    /// @dev The service relays a lane; the sequence of its first file.
    function _relay(FileData[] memory lane) internal returns (uint256 first) {
        bytes[] memory signatures = _signatures(lane);
        vm.prank(account("service"));
        first = pools.submitLane(pool, lane, signatures, new Receipt[](0), _anchor(), _anchorHash()) << 4;
        delete laneWords[pool][first >> 4]; // of a deployment before
        for (uint256 i = 0; i < lane.length; ++i) {
            files[pool][first + i] = lane[i];
        }
    }

    /// @dev The newest block of this chain.
    function _anchor() internal view returns (uint256) {
        return block.number - 1;
    }

    function _anchorHash() internal view returns (bytes32) {
        return blockhash(block.number - 1);
    }

    /// @dev In the place of a lane's words, for a file with a word of its own.
    function _none() internal pure returns (uint256[] memory) {}

    /// @dev By the file's own word, or by its lane's, which then have zero for it.
    function _finalize(uint256 sequence) internal {
        uint256[] memory words = pools.wordOf(pool, sequence) == 0 ? laneWords[pool][sequence >> 4] : _none();
        FileRef memory ref = _ref(sequence);
        pools.finalize(pool, sequence, ref, words);
        if (words.length != 0) _leftLane(sequence);
    }

    function _leftLane(uint256 sequence) internal {
        uint256[] storage words = laneWords[pool][sequence >> 4];
        endedWords[pool][sequence] = FileSlot.withPhase(words[sequence & 15], FileSlot.FINAL) & ~FileSlot.FROZEN;
        words[sequence & 15] = 0;
    }

    /// @dev The call by which the service relays one file.
    function _relaying(FileData memory f) internal view returns (bytes memory) {
        FileData[] memory lane = _one(f);
        return
            abi.encodeCall(
                pools.submitLane, (pool, lane, _signatures(lane), new Receipt[](0), _anchor(), _anchorHash())
            );
    }

    /// @dev The service relays one file and is refused: `reason` is the error with its arguments.
    function _refused(FileData memory f, bytes memory reason) internal {
        _refusedLane(_one(f), 0, reason);
    }

    function _refusedLane(FileData[] memory lane, uint256 index, bytes memory reason) internal {
        bytes[] memory signatures = _signatures(lane);
        vm.expectRevert(_refusal(index, reason));
        vm.prank(account("service"));
        pools.submitLane(pool, lane, signatures, new Receipt[](0), _anchor(), _anchorHash());
    }

    /// @dev The error with which a lane is refused for one of its files.
    function _refusal(uint256 index, bytes memory reason) internal pure returns (bytes memory) {
        bytes memory padded = bytes.concat(reason, new bytes(100 - reason.length));
        return abi.encodeWithSelector(IPools.FileRefused.selector, index, padded);
    }

    function _refusal(bytes4 reason) internal pure returns (bytes memory) {
        return _refusal(0, abi.encodePacked(reason));
    }

    function _signatures(FileData[] memory lane) internal view returns (bytes[] memory signatures) {
        signatures = new bytes[](lane.length);
        for (uint256 i = 0; i < lane.length; ++i) {
            uint256 signer = nodeKeys[lane[i].node];
            signatures[i] = _sign(signer == 0 ? 1 : signer, _submissionDigest(pool, lane[i]));
        }
    }

    function _submissionDigest(uint256 p, FileData memory f) internal view returns (bytes32) {
        string memory fields =
            "uint256 pool,address node,uint256 step,uint256 counter,uint256 units,uint256 rows,bytes32 root,bytes32 file";
        bytes32 typehash = keccak256(bytes(string.concat("Submission(", fields, ")")));
        return _typed(
            keccak256(abi.encode(typehash, p, f.node, f.step, f.counter, f.units, uint256(f.rows), f.root, f.fileHash))
        );
    }

    function _inviteDigest(uint256 p, address n, uint256 expiry) internal view returns (bytes32) {
        bytes32 typehash = keccak256("Invite(uint256 pool,address node,uint256 expiry)");
        return _typed(keccak256(abi.encode(typehash, p, n, expiry)));
    }

    /// @dev What a node signs to join (`"Join"`) or leave (`"Leave"`).
    function _memberDigest(string memory verb, uint256 p, address n, uint256 nonce, uint256 expiry)
        internal
        view
        returns (bytes32)
    {
        bytes32 typehash =
            keccak256(bytes(string.concat(verb, "(uint256 pool,address node,uint256 nonce,uint256 expiry)")));
        return _typed(keccak256(abi.encode(typehash, p, n, nonce, expiry)));
    }

    function _typed(bytes32 structHash) private view returns (bytes32) {
        return TypedData.digest(keccak256("muster-pools"), address(pools), structHash);
    }

    function _consentDigest(address n, address op, address sponsor, uint256 expiry) internal view returns (bytes32) {
        bytes32 typehash = keccak256("Consent(address node,address operator,address sponsor,uint256 expiry)");
        bytes32 structHash = keccak256(abi.encode(typehash, n, op, sponsor, expiry));
        return TypedData.digest(keccak256("muster-stakes"), address(stakes), structHash);
    }

    function _decoyDigest(bytes32 leaf) internal view returns (bytes32) {
        bytes32 structHash = keccak256(abi.encode(keccak256("DecoyConsent(bytes32 leaf)"), leaf));
        return TypedData.digest(keccak256("muster-canaries"), address(canaries), structHash);
    }

    function _leafOf(bytes32 salt, uint256 p, uint256 step, address n, uint256 counter)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(abi.encodePacked(keccak256(abi.encode(salt, p, step, n, counter))));
    }

    function _receiptDigest(uint256 p, address n, bytes32 fileHash, uint256 size, uint256 time)
        internal
        view
        returns (bytes32)
    {
        bytes32 typehash =
            keccak256("UploadReceipt(uint256 pool,address node,bytes32 sha256,uint256 size,uint256 time)");
        bytes32 structHash = keccak256(abi.encode(typehash, p, n, fileHash, size, time));
        return TypedData.digest(keccak256("muster-receipts"), address(pools), structHash);
    }

    function _ballotHash(
        uint256 p,
        uint256 lane,
        uint256 round,
        address voter,
        uint256 codes,
        bytes32 verdict,
        bytes32 salt
    ) internal view returns (bytes32) {
        return keccak256(abi.encode(block.chainid, address(court), p, lane, round, voter, codes, verdict, salt));
    }

    function _groupsOf(uint256 seat) internal view returns (uint256[] memory groups) {
        uint256 word = seats.membershipsOf(seat);
        groups = new uint256[](Memberships.MOST);
        uint256 found;
        for (uint256 i = 0; i < Memberships.MOST; ++i) {
            uint256 group = Memberships.groupAt(word, i);
            if (group != 0) groups[found++] = group;
        }
        assembly ("memory-safe") {
            mstore(groups, found)
        }
    }

    /// @dev Bit s: seat s has a bond and a place in the group's set of that epoch.
    function _setOf(uint256 group, uint256 epoch) internal view returns (uint256 set) {
        uint256 count = seats.countAt(group, epoch);
        uint256[] memory drawn = seats.draw(0, epoch, group, count, new uint256[](0), address(0));
        for (uint256 i = 0; i < drawn.length; ++i) {
            require((set >> drawn[i]) & 1 == 0, "a seat has two places");
            set |= 1 << drawn[i];
        }
    }

    /// @dev A juror's revealed code, 0 where there is none.
    function _jurorVote(uint256 trial, uint256 juror) internal view returns (uint256) {
        if ((juries.caseOf(trial).revealed >> juror) & 1 == 0) return Codes.NONE;
        return uint256(juries.ballotOf((trial << 4) | juror));
    }

    function _isActive(uint256 seat) internal view returns (bool) {
        return seats.seatOf(seat).state == ISeats.State.Active;
    }

    function _withdrawable(address n) internal view returns (uint256) {
        IStakes.Node memory s = stakes.nodeOf(n);
        return s.pool != 0 || s.frozen != 0 || clock < s.releaseAt ? 0 : s.stake;
    }

    function _inner(uint256 sequence) internal view returns (bytes32) {
        return _innerOf(sequence, files[pool][sequence]);
    }

    function _innerOf(uint256 sequence, FileData memory f) internal view returns (bytes32) {
        uint256 what = (uint256(f.step) << 72) | (uint256(f.counter) << 48) | (uint256(f.units) << 16) | f.rows;
        return keccak256(abi.encode(f.root, f.fileHash, (pool << 136) | (sequence << 104) | what));
    }

    /// @dev Units and base units that a claim by this file would pay.
    function _claimable(uint256 sequence) internal view returns (uint256 units, uint256 amount) {
        Account memory a = _account(pool, files[pool][sequence].node);
        Submission memory s = _submission(sequence);
        bool vested = clock >= s.finalAt && (a.barrier == 0 || s.finalAt <= a.barrier);
        if (vested && s.earned > a.spent) units = s.earned - a.spent;
        amount = units * court.termsOf(pool).rate;
    }

    function _ref(uint256 sequence) internal view returns (FileRef memory) {
        FileData storage f = files[pool][sequence];
        return FileRef({inner: _inner(sequence), node: f.node, units: f.units});
    }

    function _refs(uint256 lane) internal view returns (FileRef[] memory refs) {
        uint256 n;
        while (n < 16 && files[pool][lane * 16 + n].node != address(0)) ++n;
        refs = new FileRef[](n);
        for (uint256 i = 0; i < n; ++i) {
            refs[i] = _ref(lane * 16 + i);
        }
    }

    // Votes

    /// @dev Sixteen times one code.
    function _all(uint256 code) internal pure returns (uint256) {
        return code * 0x1111111111111111;
    }

    function _three(uint256 a, uint256 b, uint256 c) internal pure returns (uint256[] memory votes) {
        votes = new uint256[](3);
        (votes[0], votes[1], votes[2]) = (a, b, c);
    }

    /// @dev Moves past the seed block and draws, as if half of the time for it were over.
    function _draw(uint256 lane, uint256 round) internal {
        uint256 seedBlock = _round(pool, lane, round).time;
        if (height <= seedBlock) _blocks(seedBlock + 1 - height);
        vm.roll(height + court.termsOf(pool).drawBlocks / 2);
        court.draw(pool, lane, round);
        vm.roll(height);
    }

    function _commit(uint256 lane, uint256 round, uint256 member, uint256 codes) internal {
        (, address[] memory voters,,) = court.committeeOf(pool, lane, round);
        address voter = voters[member];
        bytes32 hash = _ballotHash(pool, lane, round, voter, codes, keccak256("verdict"), keccak256("salt"));
        vm.prank(voter);
        court.commit(pool, lane, round, member, hash);
    }

    function _reveal(uint256 lane, uint256 round, uint256 member, uint256 codes) internal {
        (, address[] memory voters,,) = court.committeeOf(pool, lane, round);
        vm.prank(voters[member]);
        court.reveal(pool, lane, round, member, codes, keccak256("verdict"), keccak256("salt"));
    }

    /// @dev Draw, commits, reveals and settlement; a vote of 0 is an absent member.
    function _vote(uint256 lane, uint256 round, uint256[] memory votes) internal {
        _draw(lane, round);
        bool absent;
        for (uint256 i = 0; i < votes.length; ++i) {
            if (votes[i] == 0) absent = true;
            else _commit(lane, round, i, votes[i]);
        }
        if (absent) _wait(60);
        for (uint256 i = 0; i < votes.length; ++i) {
            if (votes[i] != 0) _reveal(lane, round, i, votes[i]);
        }
        court.settle(pool, lane, round, _refs(lane));
        _unpack(lane);
    }

    // The words of a settled lane

    /// @dev Notes the words of a lane that one round has just settled as a whole, and gives its files words of their own.
    function _unpack(uint256 lane) internal {
        _noteWords(lane);
        uint256[] memory words = laneWords[pool][lane];
        uint256 places;
        for (uint256 i = 0; i < words.length; ++i) {
            if (words[i] != 0) places |= 1 << i;
        }
        if (places != 0) pools.unpack(pool, lane, words, places);
    }

    /// @dev From what the court and the accounts say, right after the settlement.
    function _noteWords(uint256 lane) internal {
        Round memory r = _round(pool, lane, 0);
        uint256 n;
        for (; n < 16 && files[pool][lane * 16 + n].node != address(0); ++n) {}
        uint256 open = Codes.spread((1 << n) - 1, Codes.UNDECIDED);
        if (r.codes == open) r = _round(pool, lane, 1);
        if (!r.settled || laneWords[pool][lane].length != 0) return;
        for (uint256 i = 0; i < n; ++i) {
            if (Codes.get(r.codes, i) == Codes.UNDECIDED) return;
        }
        uint256[] memory words = new uint256[](n);
        for (uint256 i = 0; i < n; ++i) {
            words[i] = _settledWord(lane * 16 + i, n, r);
        }
        laneWords[pool][lane] = words;
    }

    /// @dev Its node's earned units are those that it has less those of its later files in the lane.
    function _settledWord(uint256 sequence, uint256 n, Round memory r) private view returns (uint256) {
        FileData storage f = files[pool][sequence];
        uint256 code = Codes.get(r.codes, sequence & 15);
        uint256 digest = uint256(keccak256(abi.encode(_inner(sequence), f.node))) >> 96;
        uint256 time = r.time + court.termsOf(pool).challengeWindow;
        if (!Codes.isPaid(code)) {
            return
                FileSlot.pack(digest, f.units, time, code, FileSlot.SETTLED)
                    | (Codes.isReject(code) ? FileSlot.FROZEN : 0);
        }
        uint256 earned = _account(pool, f.node).earned;
        for (uint256 i = (sequence & 15) + 1; i < n; ++i) {
            FileData storage later = files[pool][(sequence & ~uint256(15)) | i];
            if (later.node == f.node && Codes.isPaid(Codes.get(r.codes, i))) earned -= later.units;
        }
        return FileSlot.pack(digest, earned, time, code, FileSlot.SETTLED) | FileSlot.CUMULATIVE;
    }

    /// @dev The words of a lane before anything of it is settled.
    function _pendingWords(uint256 lane) internal view returns (uint256[] memory words) {
        FileRef[] memory refs = _refs(lane);
        words = new uint256[](refs.length);
        for (uint256 i = 0; i < words.length; ++i) {
            uint256 digest = uint256(keccak256(abi.encode(refs[i].inner, refs[i].node))) >> 96;
            words[i] = FileSlot.pack(digest, refs[i].units, 0, 0, FileSlot.PENDING);
        }
    }

    /// @dev What stands of a file: in its own word, in its lane's, or of one that is not settled.
    function _submission(uint256 sequence) internal view returns (Submission memory) {
        uint256 word = pools.wordOf(pool, sequence);
        uint256[] storage words = laneWords[pool][sequence >> 4];
        if (word == 0 && words.length > sequence & 15) {
            word = words[sequence & 15];
            if (word == 0) word = endedWords[pool][sequence];
        } else if (word == 0 && files[pool][sequence].node != address(0)) {
            uint256 round = Codes.get(_round(pool, sequence >> 4, 0).codes, sequence & 15) == 14 ? 1 : 0;
            uint256 code = Codes.get(_round(pool, sequence >> 4, round).codes, sequence & 15);
            require(code == Codes.UNDECIDED || code == Codes.NONE, "a settled file whose lane was not noted");
            word = _pendingWords(sequence >> 4)[sequence & 15];
        }
        bool cumulative = word & FileSlot.CUMULATIVE != 0;
        return Submission({
            digest: bytes20(FileSlot.digest(word)),
            phase: Phase(FileSlot.phase(word)),
            code: FileSlot.code(word),
            units: cumulative ? 0 : FileSlot.amount(word),
            earned: cumulative ? FileSlot.amount(word) : 0,
            finalAt: FileSlot.finalAt(word)
        });
    }

    /// @dev One lane in which all three members vote one code for every file.
    function _voteAll(uint256 lane, uint256 code) internal {
        _vote(lane, 0, _three(_all(code), _all(code), _all(code)));
    }

    function _passWindow() internal {
        _wait(3600);
    }

    function _claim(uint256 sequence) internal returns (uint256) {
        return pools.claim(pool, files[pool][sequence].node, sequence, _inner(sequence), laneWords[pool][sequence >> 4]);
    }

    function _closeAll(uint256 lane, uint256 round) internal {
        court.closeCommittee(pool, lane, round);
        _withdrawFees(lane, round);
    }

    function _withdrawFees(uint256 lane, uint256 round) internal {
        uint256[] memory members = _round(pool, lane, round).seats;
        for (uint256 i = 0; i < members.length; ++i) {
            pools.withdrawFees(members[i]);
        }
    }

    // Juries

    /// @dev Draw, commits and reveals of one code by every juror.
    function _juryVotes(uint256 trial, uint256 code) internal {
        _juryVotes(trial, code, type(uint256).max, code);
    }

    /// @dev The first `some` jurors vote `code`, the others `rest`; 0 is an absent juror.
    function _juryVotes(uint256 trial, uint256 code, uint256 some, uint256 rest) internal {
        uint256[] memory votes = new uint256[](_jurors(trial));
        for (uint256 i = 0; i < votes.length; ++i) {
            votes[i] = i < some ? code : rest;
        }
        _juryVotes(trial, votes);
    }

    /// @dev Draw, commits and reveals: juror i votes `votes[i]`; 0 is an absent juror.
    function _juryVotes(uint256 trial, uint256[] memory votes) internal {
        uint256 count = _jurors(trial);
        (, address[] memory voters,,) = juries.juryOf(trial);
        for (uint256 i = 0; i < count; ++i) {
            if (votes[i] == 0) continue;
            bytes32 hash = juries.ballotHash(trial, voters[i], votes[i], keccak256("verdict"), keccak256("salt"));
            vm.prank(voters[i]);
            juries.commit(trial, i, hash);
        }
        if (juries.caseOf(trial).committed != (1 << count) - 1) _wait(juries.caseOf(trial).commitWindow);
        for (uint256 i = 0; i < count; ++i) {
            if (votes[i] == 0) continue;
            vm.prank(voters[i]);
            juries.reveal(trial, i, votes[i], keccak256("verdict"), keccak256("salt"));
        }
    }

    /// @dev A jury of five votes whatever the bytes of `random` say; how many vote each kind.
    function _juryVotesAnything(uint256 trial, uint256 random) internal returns (uint256[] memory kinds) {
        uint256[] memory votes = new uint256[](5);
        kinds = new uint256[](5);
        for (uint256 i = 0; i < 5; ++i) {
            votes[i] = 1 + (random >> (8 * i)) % 11;
            ++kinds[Codes.kind(votes[i])];
        }
        _juryVotes(trial, votes);
    }

    /// @dev Anybody draws a jury, an epoch after its seed block, and the clock goes back to now.
    function _drawTrial(uint256 trial) internal {
        // Of blocks this old the chain answers through EIP-2935 alone.
        if (seats.epochBlocks() > 255) vm.etch(Voting.HISTORY, address(new History()).code);
        vm.roll(juries.caseOf(trial).seedBlock + seats.epochBlocks() + 1);
        juries.draw(trial);
        vm.roll(height);
    }

    /// @dev How many there are, drawn now if they were not before.
    function _jurors(uint256 trial) internal returns (uint256) {
        IJuries.Trial memory view_ = juries.caseOf(trial);
        if (view_.time == 0) {
            if (height <= view_.seedBlock) _blocks(view_.seedBlock + 1 - height);
            _drawTrial(trial);
        }
        return juries.seatsOf(trial).length;
    }

    function _dispute(address who, uint256 sequence) internal returns (uint256 trial) {
        _give(who, address(appeals), 10_000e9);
        _unpack(sequence >> 4);
        vm.prank(who);
        appeals.dispute(pool, sequence, files[pool][sequence]);
        return appeals.disputeOf(pool, sequence).trial;
    }

    function _conclude(uint256 sequence) internal {
        appeals.conclude(pool, sequence, files[pool][sequence]);
    }

    /// @dev Appeals against the verdict of a dispute's first jury.
    function _appeal(address who, uint256 sequence) internal returns (uint256 next) {
        return _appealTrial(who, appeals.disputeOf(pool, sequence).trial);
    }

    function _appealTrial(address who, uint256 trial) internal returns (uint256 next) {
        _give(who, address(juries), 10_000e9);
        vm.prank(who);
        return juries.appeal(trial);
    }

    /// @dev The second jury of a dispute.
    function _second(uint256 sequence) internal view returns (uint256) {
        return juries.caseOf(appeals.disputeOf(pool, sequence).trial).next;
    }

    function _text(uint256 n) internal pure returns (string memory) {
        if (n == 0) return "0";
        bytes memory out;
        for (; n > 0; n /= 10) {
            out = abi.encodePacked(bytes1(uint8(48 + n % 10)), out);
        }
        return string(out);
    }

    function _code(uint256 sequence) internal view returns (uint256) {
        return _submission(sequence).code;
    }
}
