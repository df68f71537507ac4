// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {FileSlot} from "../src/libraries/FileSlot.sol";
import {Reckoning} from "../src/libraries/Reckoning.sol";
import {FileData, FileRef} from "../src/libraries/Types.sol";
import {CallingToken} from "./attacks/Reentrancy.t.sol";
import {Network} from "./helpers/Network.sol";
import {INodeChallenges} from "./interfaces/INodeChallenges.sol";
import {IPools} from "./interfaces/IPools.sol";

/// @notice Whoever has a lane's words of any time, and calls in any order, gets no file paid twice, unsettled or back.
contract LaneAttacksTest is Network {
    address[3] internal workers;
    address[3] internal operators;
    uint256 internal first;
    uint256 internal size;
    uint256[] internal pending;

    function setUp() public override {
        super.setUp();
        (workers[0], operators[0]) = (node, operator);
        for (uint256 i = 1; i < 3; ++i) {
            operators[i] = account(string.concat("operator ", _text(i)));
            workers[i] = _register(operators[i], string.concat("worker ", _text(i)), STAKE);
            vm.prank(operators[i]);
            pools.join(pool, workers[i], type(uint256).max, "", "");
        }
        _step();
    }

    function _random(uint256 seed, string memory what, uint256 i) private pure returns (uint256) {
        return uint256(keccak256(abi.encode(seed, what, i)));
    }

    /// @dev A lane of files of these nodes, in any mixture.
    function _mixed(uint256 seed) private {
        size = 1 + _random(seed, "size", 0) % 16;
        uint256[3] memory ahead;
        FileData[] memory lane = new FileData[](size);
        for (uint256 i = 0; i < size; ++i) {
            uint256 who = _random(seed, "node", i) % 3;
            lane[i] = _next(workers[who], uint32(1 + _random(seed, "units", i) % 5_000), ahead[who]++);
        }
        first = _relay(lane);
        pending = _pendingWords(first >> 4);
    }

    /// @dev Three votes on every file: of `kinds`, lowest four bits first, one by chance; 0: all three differ.
    function _votes(uint256 seed, uint256[] memory kinds) private view returns (uint256[] memory votes) {
        votes = new uint256[](3);
        for (uint256 i = 0; i < size; ++i) {
            uint256 code = kinds[_random(seed, "code", i) % kinds.length];
            votes[0] = Codes.set(votes[0], i, code == 0 ? Codes.ACCEPT : code);
            votes[1] = Codes.set(votes[1], i, code == 0 ? Codes.REJECT_WEIGHTS : code);
            votes[2] = Codes.set(votes[2], i, code == 0 ? Codes.UNAVAILABLE : code);
        }
    }

    function _kinds(uint256 mode) private pure returns (uint256[] memory kinds) {
        if (mode == 0) kinds = new uint256[](1); // undecided, all of it
        else kinds = new uint256[](8);
        for (uint256 i = 0; i < kinds.length; ++i) {
            kinds[i] = mode == 0 ? 0 : i % 2 == 0 ? Codes.ACCEPT : Codes.UNAVAILABLE;
        }
        if (mode > 1) (kinds[1], kinds[3]) = (Codes.REJECT_SAMPLING, Codes.MALFORMED);
        if (mode > 2) (kinds[5], kinds[7]) = (0, 0);
    }

    /// @dev A round, whose files get no words of their own by it but where the contract gives them.
    function _judge(uint256 round, uint256[] memory votes) private {
        _draw(first >> 4, round);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(first >> 4, round, i, votes[i]);
        }
        for (uint256 i = 0; i < 3; ++i) {
            _reveal(first >> 4, round, i, votes[i]);
        }
        court.settle(pool, first >> 4, round, _refs(first >> 4));
        _noteWords(first >> 4);
    }

    function _secondRound() private view returns (bool) {
        return _round(pool, first >> 4, 1).time != 0;
    }

    function _tryUnpack(uint256[] memory words, uint256 places) private {
        try pools.unpack(pool, first >> 4, words, places) {} catch {}
    }

    function _tryClaim(uint256 sequence, uint256[] memory words) private {
        try pools.claim(pool, files[pool][sequence].node, sequence, _inner(sequence), words) {} catch {}
    }

    /// @dev Whatever anybody can do with a lane's old words, or its words now.
    function _meddle(uint256 seed) private {
        uint256[] memory before = new uint256[](size);
        for (uint256 i = 0; i < size; ++i) {
            before[i] = pools.wordOf(pool, first + i);
        }
        _tryUnpack(pending, type(uint256).max);
        _tryUnpack(laneWords[pool][first >> 4], _random(seed, "places", 0));
        for (uint256 i = 0; i < size; ++i) {
            uint256 word = pools.wordOf(pool, first + i);
            if (before[i] != 0) assertEq(word, before[i]);
            else if (word != 0) assertEq(word, laneWords[pool][first >> 4][i]);
            _tryClaim(first + i, pending);
        }
    }

    function _disputed(uint256 seed) private {
        uint256 sequence = first + _random(seed, "disputed", 0) % size;
        _tryUnpack(laneWords[pool][first >> 4], 1 << (sequence & 15));
        _give(stranger, address(appeals), 1_000e9);
        vm.prank(stranger);
        appeals.dispute(pool, sequence, files[pool][sequence]);
        uint256 trial = appeals.disputeOf(pool, sequence).trial;
        _meddle(seed + 1);
        _juryVotes(trial, _random(seed, "jury", 0) % 2 == 0 ? Codes.REJECT_WEIGHTS : Codes.ACCEPT);
        _conclude(sequence);
    }

    /// @dev Makes a file final by words that may be old.
    function tryFinalize(uint256 sequence, uint256[] memory words) external {
        bool within = pools.wordOf(pool, sequence) == 0;
        try pools.finalize(pool, sequence, _ref(sequence), words) {
            if (within) _leftLane(sequence);
        } catch {}
    }

    function finalizeNow(uint256 sequence) external {
        _finalize(sequence);
    }

    /// @dev All files are final: paid, charged or forfeited, in any order.
    function _ended(uint256 seed) private {
        uint256[] memory words = laneWords[pool][first >> 4];
        uint256 start = _random(seed, "start", 0);
        for (uint256 i = 0; i < 2 * size; ++i) {
            uint256 sequence = first + (start + i * 7) % size;
            _tryClaim(sequence, words);
            if (i % 3 == 0) _tryUnpack(words, start >> i);
        }
        for (uint256 i = 0; i < size; ++i) {
            this.tryFinalize(first + (start + i * 5) % size, i % 2 == 0 ? words : laneWords[pool][first >> 4]);
        }
        for (uint256 i = 0; i < size; ++i) {
            try this.finalizeNow(first + i) {} catch {}
            _tryClaim(first + i, words);
            _tryClaim(first + i, laneWords[pool][first >> 4]);
            this.tryFinalize(first + i, words); // nothing is charged twice
        }
        _tryUnpack(words, type(uint256).max);
        for (uint256 i = 0; i < size; ++i) {
            try pools.forfeit(pool, first + i, files[pool][first + i]) {} catch {}
            _tryClaim(first + i, words);
        }
        _closeAll(first >> 4, 0);
        if (_secondRound()) _closeAll(first >> 4, 1);
    }

    /// @dev What stands of `who` in the end, file by file.
    function _due(address who) private view returns (uint256 units) {
        if (_account(pool, who).slashed) return 0; // all of the lane vests after whatever it was slashed for
        for (uint256 i = 0; i < size; ++i) {
            if (files[pool][first + i].node == who && Codes.isPaid(_code(first + i))) {
                units += files[pool][first + i].units;
            }
        }
    }

    /// Every unit that is paid in the end is paid once, and all others go back or are burnt.
    function testFuzz_everyUnitIsPaidOnceWhateverWordsAreShown(uint256 seed) public {
        seed >>= 1;
        _mixed(seed);
        _meddle(seed);
        uint256 mode = _random(seed, "mode", 0) % 5;
        _judge(0, _votes(seed, _kinds(mode)));
        _meddle(seed + 2);
        if (_secondRound()) _judge(1, _votes(seed + 3, _kinds(_random(seed, "mode", 1) % 5)));
        _meddle(seed + 4);
        if (_random(seed, "dispute", 0) % 3 == 0) _disputed(seed);
        _meddle(seed + 5);
        _passWindow();
        _passWindow();
        _ended(seed);
        for (uint256 i = 0; i < 3; ++i) {
            Account memory a = _account(pool, workers[i]);
            assertEq(token.balanceOf(operators[i]), _due(workers[i]) * 1e6 + _compensation(i));
            assertEq(a.earned, a.spent);
            assertEq(a.pending + a.unsettled + a.frozen, 0);
        }
        assertEq(token.balanceOf(address(pools)), _pool(pool).free);
    }

    /// @dev Of a dispute that was wrong about an accepted file.
    function _compensation(uint256 worker) private view returns (uint256) {
        for (uint256 i = 0; i < size; ++i) {
            if (files[pool][first + i].node != workers[worker]) continue;
            if (!appeals.disputeOf(pool, first + i).resolved) continue;
            uint256 before = appeals.disputeOf(pool, first + i).code;
            return before == Codes.ACCEPT && _code(first + i) == Codes.ACCEPT ? 5e9 : 0;
        }
        return 0;
    }

    /// A dispute between two rounds, and its verdict, are not undone by the second one.
    function test_secondRoundLeavesWhatTheFirstOneSettled() public {
        size = 3;
        FileData[] memory lane = new FileData[](3);
        (lane[0], lane[1], lane[2]) = (_next(node, 1_000, 0), _next(node, 500, 1), _next(workers[1], 70, 0));
        first = _relay(lane);
        _judge(0, _three(0x111, 0x131, 0x1b1)); // the second is undecided
        assertTrue(_secondRound());
        uint256 trial = _dispute(stranger, first);
        _judge(1, _three(_all(1), _all(1), _all(1)));
        assertEq(FileSlot.phase(pools.wordOf(pool, first)), FileSlot.DISPUTED);
        assertEq(_code(first + 1), Codes.ACCEPT);
        FileRef[] memory refs = _refs(first >> 4);
        for (uint256 round = 0; round < 2; ++round) {
            vm.expectRevert(abi.encodeWithSignature("AlreadySettled()"));
            court.settle(pool, first >> 4, round, refs);
        }
        _juryVotes(trial, Codes.REJECT_WEIGHTS);
        _conclude(first);
        assertEq(_code(first), Codes.REJECT_WEIGHTS);
        _passWindow();
        _tryClaim(first + 1, pending);
        _tryClaim(first + 2, pending);
        assertEq(token.balanceOf(operators[0]), 0);
        assertEq(token.balanceOf(operators[1]), 70 * 1e6);
        pools.forfeit(pool, first + 1, files[pool][first + 1]);
        Account memory a = _account(pool, node);
        assertEq(a.earned, a.spent);
    }

    /// A lane's words are those of its own places only, however they are named or strung together.
    function test_wordsAreOfNoOtherLane() public {
        size = 16;
        uint256[] memory both = new uint256[](32);
        uint256[2] memory lanes;
        for (uint256 l = 0; l < 2; ++l) {
            first = _submitLane(16);
            lanes[l] = first >> 4;
            _judge(0, _three(_all(1), _all(1), _all(1)));
            for (uint256 i = 0; i < 16; ++i) {
                both[l * 16 + i] = laneWords[pool][first >> 4][i];
            }
        }
        uint256[] memory words = laneWords[pool][lanes[0]];
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, first));
        pools.unpack(pool, lanes[1], words, 1);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, first));
        pools.unpack(pool, lanes[0], both, 1 << 16); // the next lane's first place
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, first - 1));
        pools.unpack(pool, lanes[0], both, 1 << 15);
        _passWindow();
        bytes32 inner = _inner(first);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, first));
        pools.claim(pool, node, first, inner, both);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, first + 1));
        pools.claim(pool, node, first + 1, inner, laneWords[pool][lanes[1]]);
        // an older lane's word after a newer one's pays nothing, and the newest all
        for (uint256 i = 0; i < 16; ++i) {
            _tryClaim(first + 15 - i, laneWords[pool][lanes[1]]);
            _tryClaim(first - 1 - i, words);
        }
        assertEq(token.balanceOf(operator), 32 * 1_000 * 1e6);
        assertEq(_account(pool, node).spent, 32_000);
    }

    /// Whoever settles a lane names its files as they came in: no more units, no other node, place or number of them.
    function test_settlementTakesTheFilesAsTheyCameIn() public {
        FileData[] memory lane = new FileData[](2);
        (lane[0], lane[1]) = (_next(node, 1_000, 0), _next(workers[1], 1_000, 0));
        first = _relay(lane);
        _draw(first >> 4, 0);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(first >> 4, 0, i, _all(1));
        }
        for (uint256 i = 0; i < 3; ++i) {
            _reveal(first >> 4, 0, i, _all(1));
        }
        for (uint256 forgery = 0; forgery < 6; ++forgery) {
            FileRef[] memory refs = _refs(first >> 4);
            if (forgery == 0) refs[1].units = 1_001;
            if (forgery == 1) refs[0].units = 0;
            if (forgery == 2) refs[0].node = workers[1];
            if (forgery == 3) (refs[0], refs[1]) = (refs[1], refs[0]);
            if (forgery == 4) refs[1] = refs[0];
            if (forgery == 5) {
                refs = new FileRef[](3);
                (refs[0], refs[1]) = (_ref(first), _ref(first + 1));
            }
            vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, first));
            court.settle(pool, first >> 4, 0, refs);
        }
        court.settle(pool, first >> 4, 0, _refs(first >> 4));
        _noteWords(first >> 4);
        _passWindow();
        assertEq(_claim(first), 1_000 * 1e6);
        assertEq(_claim(first + 1), 1_000 * 1e6);
    }

    /// A node's lanes may be settled in any order: each word has what was earned until then, and vests at its own time.
    function test_lanesSettledInReversePayInTheirOwnTime() public {
        size = 3;
        uint256 early = _submitLane(3);
        uint256 late = _submitLane(3);
        first = late;
        _judge(0, _three(_all(1), _all(1), _all(1)));
        _wait(500);
        first = early;
        _judge(0, _three(_all(1), _all(1), 0x311));
        _wait(3_600 - 300);
        _tryClaim(early + 2, laneWords[pool][early >> 4]);
        assertEq(token.balanceOf(operator), 0);
        _tryClaim(late + 2, laneWords[pool][late >> 4]);
        assertEq(token.balanceOf(operator), 3_000 * 1e6);
        _wait(300);
        _tryClaim(early + 1, laneWords[pool][early >> 4]);
        assertEq(token.balanceOf(operator), 5_000 * 1e6);
        _tryUnpack(laneWords[pool][early >> 4], 7);
        for (uint256 i = 0; i < 3; ++i) {
            _tryClaim(late + i, laneWords[pool][late >> 4]);
            _tryClaim(early + i, laneWords[pool][early >> 4]);
        }
        assertEq(token.balanceOf(operator), 6_000 * 1e6);
        assertEq(_account(pool, node).earned, 6_000);
    }

    /// No bench takes a file whose word only its lane's hash binds; each does once anybody unpacked it.
    function test_benchesWaitForAWordOfItsOwn() public {
        size = 2;
        first = _submitLane(2);
        _judge(0, _three(_all(1), _all(1), _all(1)));
        _give(stranger, address(appeals), 1_000e9);
        FileData memory f = files[pool][first];
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, first));
        vm.prank(stranger);
        appeals.dispute(pool, first, f);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, first));
        pools.forfeit(pool, first, f);
        _passWindow();
        uint256[] memory sequences = new uint256[](1);
        bytes32[] memory inners = new bytes32[](1);
        (sequences[0], inners[0]) = (first, _inner(first));
        _give(stranger, address(nodeChallenges), 1_000e9);
        vm.expectRevert(abi.encodeWithSelector(INodeChallenges.NotAccepted.selector, first));
        vm.prank(stranger);
        nodeChallenges.open(pool, node, sequences, inners, keccak256("evidence"));
        // whoever was paid by the lane's words can still be challenged for the file, but not paid by its own word again
        _tryClaim(first + 1, laneWords[pool][first >> 4]);
        assertEq(token.balanceOf(operator), 2_000 * 1e6);
        pools.unpack(pool, first >> 4, laneWords[pool][first >> 4], 3);
        vm.prank(stranger);
        nodeChallenges.open(pool, node, sequences, inners, keccak256("evidence"));
        vm.expectRevert(IPools.NothingToClaim.selector);
        pools.claim(pool, node, first, inners[0], new uint256[](0));
        vm.expectRevert(abi.encodeWithSignature("WindowOver(uint256)", clock));
        vm.prank(stranger);
        appeals.dispute(pool, first, f);
    }

    /// While a settlement pays its collector, nothing of its lane can be had or settled.
    function test_nothingOfALaneIsThereWhileItIsSettled() public {
        CallingToken evil = new CallingToken();
        _start(address(evil));
        _startWith(evil);
        bytes[] memory inside = new bytes[](4);
        for (uint256 i = 0; i < 4; ++i) {
            size = 2;
            first = _submitLane(2);
            pending = _pendingWords(first >> 4);
            FileRef[] memory refs = _refs(first >> 4);
            inside[0] = abi.encodeCall(pools.unpack, (pool, first >> 4, pending, 3));
            inside[1] = abi.encodeCall(pools.claim, (pool, node, first, _inner(first), pending));
            inside[2] = abi.encodeCall(court.settle, (pool, first >> 4, 0, refs));
            inside[3] = abi.encodeCall(appeals.dispute, (pool, first, files[pool][first]));
            _draw(first >> 4, 0);
            _commit(first >> 4, 0, 0, _all(1));
            _commit(first >> 4, 0, 1, _all(1));
            _wait(60);
            _reveal(first >> 4, 0, 0, _all(1));
            _reveal(first >> 4, 0, 1, _all(1));
            _wait(60);
            address[4] memory targets = [address(pools), address(pools), address(court), address(appeals)];
            evil.arm(targets[i], inside[i]);
            court.settle(pool, first >> 4, 0, refs);
            assertTrue(evil.called());
            assertFalse(evil.succeeded());
            _noteWords(first >> 4);
            assertEq(pools.wordOf(pool, first), 0);
        }
        _passWindow();
        _claim(first + 1);
        assertEq(evil.balanceOf(operator), 8_000 * 1e6);
    }

    function _startWith(CallingToken evil) private {
        for (uint256 i = 0; i < SEATS; ++i) {
            uint256 seat = seats.opened() + 1;
            _fund(evil, _seatOwner(seat), BOND, address(seats));
            vm.prank(_seatOwner(seat));
            seats.openSeat(0, _voter(seat), _classes(FAMILY));
        }
        _nextEpoch();
        _fund(evil, owner, BUDGET, address(pools));
        vm.prank(owner);
        pool = pools.createPool(defaultTerms(), BUDGET);
        _serve(pool);
        _fund(evil, operator, STAKE, address(stakes));
        bytes memory consent = _sign(key("node"), _consentDigest(node, operator, operator, clock + 60));
        vm.prank(operator);
        stakes.registerNode(node, operator, 0, STAKE, clock + 60, consent);
        vm.prank(operator);
        pools.join(pool, node, type(uint256).max, "", "");
        _step();
    }

    function _fund(CallingToken evil, address who, uint256 amount, address spender) private {
        evil.mint(who, amount);
        vm.prank(who);
        evil.approve(spender, type(uint256).max);
    }

    /// The usual case's shortcuts count and reckon as the loops do, whatever stands beyond the lane's files.
    function testFuzz_shortcutsSayWhatTheLoopsSay(uint256 seed, uint64 beyond, uint16 places) public {
        uint256 open = Codes.spread(places, Codes.UNDECIDED);
        uint256 all = Codes.spread(places, 15);
        uint256 most = seed % 2 == 0 ? 3 : 5;
        uint256[] memory votes = new uint256[](seed % 7 == 0 ? most - 1 : most);
        for (uint256 i = 0; i < votes.length; ++i) {
            votes[i] = Codes.spread(places, Codes.ACCEPT);
            uint256 random = _random(seed, "vote", i);
            if (random % 8 == 0) votes[i] = Codes.set(votes[i], (random >> 8) & 15, (random >> 16) & 15);
            if (random % 3 == 0) votes[i] |= beyond & ~all & type(uint64).max;
        }
        uint256 codes = Reckoning.lane(votes, open, most, Codes.VOID);
        for (uint256 place = 0; place < 16; ++place) {
            uint256 code = (places >> place) & 1 == 0 ? Codes.NONE : Reckoning.outcome(votes, place, most);
            assertEq(Codes.get(codes, place), code == Codes.UNDECIDED ? Codes.VOID : code);
        }
        for (uint256 i = 0; i < votes.length; ++i) {
            (uint256 paid, uint256 burnt, uint256 penalty) = Reckoning.closed(votes[i], codes, 7, 100, 200);
            (uint256 paid2, uint256 burnt2, uint256 penalty2) = Reckoning.member(votes[i], codes, 7, 100, 200);
            assertEq(paid, paid2);
            assertEq(burnt, burnt2);
            assertEq(penalty, penalty2);
        }
    }
}
