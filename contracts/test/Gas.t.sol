// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {FileData, FileRef, Receipt} from "../src/libraries/Types.sol";
import {MeasuringChallenges} from "./helpers/MeasuringChallenges.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {IPools} from "./interfaces/IPools.sol";

/// @notice Measures calls as whole transactions (run with --isolate: base cost and calldata included) in steady state,
/// while the network grows. contracts/tools/gas.mjs reads what it writes.
contract GasTest is MeasuringChallenges {
    /// Of the latest lane: the commit that draws, the last member's vote.
    uint256 internal drawing;
    uint256 internal voting;

    function test_gas() public {
        if (!vm.envOr("MUSTER_GAS", false)) return; // only under contracts/tools/gas.mjs
        token.mint(SINK, 1);
        token.mint(operator, 1);
        _submitFrom(node, 500); // steady state: slots of pool and account are in use
        _measure("");
        if (vm.envOr("MUSTER_GAS_QUICK", false)) {
            vm.writeFile("./contracts/cache/gas.json", json);
            return;
        }
        _grow(10);
        _measure("_10");
        _grow(1_000);
        _measure("_1000");
        _grow(10_000);
        _measure("_10000");
        vm.writeFile("./contracts/cache/gas.json", json);
    }

    uint256 internal grown;
    address[] internal crowd;

    /// @dev Up to `n` seats, nodes in the pool and submissions.
    function _grow(uint256 n) internal {
        // one outer call, so that isolation does not make a transaction of each of the thousands of calls inside
        this.growInside(n);
    }

    function growInside(uint256 n) external {
        if (n > seats.opened()) _openSeats(n - seats.opened());
        _nextEpoch();
        for (; grown < n; ++grown) {
            string memory name = string.concat("crowd ", _text(grown));
            address op = account(string.concat("operator ", _text(grown)));
            address member = _register(op, name, STAKE);
            vm.prank(op);
            pools.join(pool, member, type(uint256).max, "", "");
            crowd.push(member);
        }
        _step();
        for (uint256 lane = _pool(pool).lanes; lane < n / 16; ++lane) {
            _submitLaneFrom(crowd[lane % crowd.length], 10, 16);
        }
        _blocks(4);
    }

    function _measure(string memory suffix) internal {
        _settleUp();
        _register_(suffix);
        _optIn(suffix);
        _laneOfOne(suffix);
        _laneOf16(suffix);
        _slash(suffix);
        _challengeCosts(suffix);
    }

    /// @dev Opens a fresh lane for `node`.
    function _settleUp() internal {
        _blocks(4);
        _step();
    }

    function _register_(string memory s) internal {
        string memory name = string.concat("fresh", s);
        address op = account(string.concat("fresh op", s));
        address n = account(name);
        nodeKeys[n] = key(name);
        _give(op, address(stakes), STAKE);
        bytes memory consent = _sign(key(name), _consentDigest(n, op, op, clock + 60));
        vm.prank(op);
        stakes.registerNode(n, op, 0, STAKE, clock + 60, consent);
        _note(string.concat("register", s), _used());

        _sponsor(s);
        bytes memory invite = _sign(key("owner"), _inviteDigest(pool, n, clock + 60));
        vm.prank(n);
        pools.join(pool, n, clock + 60, "", invite);
        _note(string.concat("join", s), _used());
    }

    /// @dev A seat of no group yet joins the group of the crowd.
    function _optIn(string memory s) internal {
        address who = account(string.concat("opting", s));
        _give(who, address(seats), BOND);
        vm.prank(who);
        uint256 seat = seats.openSeat(0, account(string.concat("opting voter", s)), new uint256[](0));
        vm.prank(who);
        seats.optIn(seat, FAMILY);
        _note(string.concat("opt_in", s), _used());
    }

    /// @dev A sponsor registers a node, which joins by its signature, and has its loan back.
    function _sponsor(string memory s) internal {
        string memory name = string.concat("sponsored", s);
        address n = account(name);
        _give(stranger, address(stakes), STAKE);
        bytes memory consent = _sign(key(name), _consentDigest(n, operator, stranger, clock + 60));
        vm.prank(stranger);
        stakes.registerNode(n, operator, uint24(pool), STAKE, clock + 60, consent);
        _note(string.concat("register_for", s), _used());
        bytes memory join = _sign(key(name), _memberDigest("Join", pool, n, 0, clock + 60));
        pools.join(pool, n, clock + 60, join, "");
        _note(string.concat("join_for", s), _used());
    }

    /// @dev A lane's way to its outcomes in the fewest transactions: a commit that draws, a commit, commit and reveal of the last member in one call, a reveal, and one
    /// that settles. Returns the gas of all but the last, and of the last.
    function _judge(uint256 lane, uint256 code) internal returns (uint256 votes, uint256 settling) {
        uint256 seedBlock = _round(pool, lane, 0).time;
        if (height <= seedBlock) _blocks(seedBlock + 1 - height);
        _commit(lane, 0, 0, _all(code));
        drawing = _used();
        votes = drawing;
        _commit(lane, 0, 1, _all(code));
        votes += _used();
        (, address[] memory voters,,) = court.committeeOf(pool, lane, 0);
        vm.prank(voters[2]);
        court.vote(pool, lane, 0, 2, _all(code), keccak256("verdict"));
        voting = _used();
        votes += voting;
        _reveal(lane, 0, 0, _all(code));
        votes += _used();
        FileRef[] memory refs = _refs(lane);
        vm.prank(voters[1]);
        court.revealAndSettle(
            pool, lane, 0, ICourt.Opening(1, _all(code), keccak256("verdict"), keccak256("salt")), refs
        );
        settling = _used();
        _noteWords(lane);
    }

    /// @dev Two lives: one that the service relays alone, one that comes with its receipt.
    function _laneOfOne(string memory s) internal {
        uint256 sequence = _submit();
        uint256 submitting = _used();
        _note(string.concat("submit_lane1", s), submitting);
        (uint256 votes, uint256 settling) = _judge(sequence / 16, Codes.ACCEPT);
        _note(string.concat("last_reveal_and_settle_lane1", s), settling);
        _note(string.concat("draw_and_commit", s), drawing);
        _note(string.concat("vote", s), voting);
        uint256 claiming = _paid(sequence);
        _note(string.concat("claim", s), claiming);
        court.closeCommittee(pool, sequence / 16, 0);
        _note(string.concat("close_committee_lane1", s), _used());
        _note(string.concat("life_lane1", s), submitting + votes + settling + claiming + _used());
        pools.unpack(pool, sequence / 16, laneWords[pool][sequence / 16], 1);
        _note(string.concat("unpack_one", s), _used());
        _present();
        _note(string.concat("submit_with_receipt", s), _used());
    }

    /// @dev A submission of `node` with its receipt.
    function _present() internal {
        FileData[] memory lane = _one(_next(node, 1_000, 0));
        bytes32 digest = _receiptDigest(pool, node, lane[0].fileHash, 1_000_000, clock);
        Receipt[] memory receipts = new Receipt[](1);
        receipts[0] = Receipt(1_000_000, uint40(clock), _sign(key("service"), digest));
        bytes[] memory signatures = _signatures(lane);
        vm.prank(node);
        pools.submitLane(pool, lane, signatures, receipts, _anchor(), _anchorHash());
    }

    function _paid(uint256 sequence) internal returns (uint256) {
        _passWindow();
        bytes32 inner = _inner(sequence);
        pools.claim(pool, node, sequence, inner, laneWords[pool][sequence / 16]);
        return _used();
    }

    /// @dev A full lane of as many nodes as there are, up to sixteen.
    function _laneOf16(string memory s) internal {
        FileData[] memory files_ = new FileData[](16);
        for (uint256 i = 0; i < 16; ++i) {
            uint256 others = crowd.length < 15 ? crowd.length : 15;
            uint256 who = i % (others + 1);
            files_[i] = _next(who == others ? node : crowd[who], 1_000, i / (others + 1));
        }
        uint256 sequence = _relay(files_);
        uint256 submitting = _used();
        _note(string.concat("submit_lane16_per_file", s), submitting / 16);
        uint256 lane = sequence / 16;
        (uint256 votes, uint256 settling) = _judge(lane, Codes.ACCEPT);
        _note(string.concat("last_reveal_and_settle_lane16", s), settling);
        _passWindow();
        bytes32 inner = _inner(sequence + 15);
        pools.claim(pool, files[pool][sequence + 15].node, sequence + 15, inner, laneWords[pool][lane]);
        uint256 claiming = _used();
        court.closeCommittee(pool, lane, 0);
        _note(string.concat("close_committee_lane16", s), _used());
        _note(string.concat("life_lane16", s), (submitting + votes + settling + claiming + _used()) / 16);
        sequence = _submitLane(16);
        _note(string.concat("submit_lane16_of_one_node_per_file", s), _used() / 16);
        _voteAll(sequence / 16, Codes.ACCEPT);
    }

    /// @dev What rejecting costs on top of accepting, and the burn.
    function _slash(string memory s) internal {
        address n = account(string.concat("fresh", s));
        _step();
        uint256 first = _submitFrom(n, 1_000);
        (, uint256 accepting) = _judge(first / 16, Codes.ACCEPT);
        _blocks(4);
        uint256 sequence = _submitFrom(n, 1_000);
        (, uint256 rejecting) = _judge(sequence / 16, Codes.REJECT_WEIGHTS);
        _passWindow();
        FileRef memory ref = _ref(sequence);
        pools.finalize(pool, sequence, ref, laneWords[pool][sequence / 16]);
        uint256 extra = rejecting > accepting ? rejecting - accepting : 0;
        _note(string.concat("slash", s), extra + _used());
        _blocks(4);
    }
}
