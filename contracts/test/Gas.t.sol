// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../src/interfaces/IPools.sol";
import {IStakes} from "../src/interfaces/IStakes.sol";
import {Codes} from "../src/libraries/Codes.sol";
import {FileData, FileRef, Receipt, Work} from "../src/libraries/Types.sol";
import {MeasuringChallenges} from "./helpers/MeasuringChallenges.sol";

/// @notice Measures calls as whole transactions (run with --isolate: base cost and calldata included) in steady state,
/// while the network grows. contracts/tools/gas.mjs reads what it writes.
contract GasTest is MeasuringChallenges {
    /// Of the latest lane: its attestation, the commit that draws, the last member's vote.
    uint256 internal attesting;
    uint256 internal drawing;
    uint256 internal voting;

    function test_gas() public {
        if (!vm.envOr("MUSTER_GAS", false)) return; // only under contracts/tools/gas.mjs
        token.mint(SINK, 1);
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
            pools.join(pool, member);
            crowd.push(member);
        }
        _step();
        uint256 from = pools.poolOf(pool).sequence;
        for (uint256 i = from; i < n; ++i) {
            _submitFrom(crowd[i % crowd.length], 10);
        }
        _blocks(4);
    }

    function _measure(string memory suffix) internal {
        _settleUp();
        _register_(suffix);
        _optIn(suffix);
        uint256 lane = _laneOfOne(suffix);
        lane = _laneOf16(suffix, lane + 1);
        _many(suffix);
        _slash(suffix, pools.poolOf(pool).sequence / 16 + 1);
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
        _give(op, address(stakes), 2 * STAKE);
        bytes memory consent = _sign(key(name), stakes.consentDigest(n, op, clock + 60));
        vm.prank(op);
        stakes.registerNode(n, STAKE, clock + 60, consent);
        _note(string.concat("register", s), _used());

        string memory second = string.concat("second", s);
        address m = account(second);
        vm.prank(op);
        token.approve(address(stakes), 0);
        consent = _sign(key(second), stakes.consentDigest(m, op, clock + 60));
        IStakes.Permit memory permit = _permit(op, key(string.concat("fresh op", s)));
        vm.prank(op);
        stakes.registerNodeWithPermit(m, STAKE, clock + 60, consent, permit);
        _note(string.concat("register_permit", s), _used());

        bytes memory invite = _sign(key("owner"), pools.inviteDigest(pool, n, clock + 60));
        vm.prank(n);
        pools.joinWithInvite(pool, n, clock + 60, invite);
        _note(string.concat("join", s), _used());
    }

    /// @dev A seat of no group yet joins the group of the crowd.
    function _optIn(string memory s) internal {
        address who = account(string.concat("opting", s));
        _give(who, address(seats), BOND);
        vm.prank(who);
        uint256 seat = seats.openSeat(account(string.concat("opting voter", s)), new uint256[](0));
        vm.prank(who);
        seats.optIn(seat, FAMILY);
        _note(string.concat("opt_in", s), _used());
    }

    function _permit(address who, uint256 k) internal view returns (IStakes.Permit memory p) {
        bytes32 digest = keccak256(
            abi.encodePacked(
                "\x19\x01",
                token.DOMAIN_SEPARATOR(),
                keccak256(
                    abi.encode(
                        keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"),
                        who,
                        address(stakes),
                        STAKE,
                        token.nonces(who),
                        clock + 60
                    )
                )
            )
        );
        p.deadline = clock + 60;
        (p.v, p.r, p.s) = vm.sign(k, digest);
    }

    /// @dev A lane's way to its outcomes in the fewest transactions: attestation by the service, unless its files came with
    /// their receipts, a commit that draws, a commit, commit and reveal of the last member in one call, a reveal, and one
    /// that settles. Returns the gas of all but the last, and of the last.
    function _judge(uint256 lane, uint256 code) internal returns (uint256 votes, uint256 settling) {
        attesting = 0;
        if (court.roundOf(pool, lane, 0).seedBlock == 0) {
            _attest(lane);
            attesting = _used();
        }
        votes = attesting;
        uint256 seedBlock = court.roundOf(pool, lane, 0).seedBlock;
        if (height <= seedBlock) _blocks(seedBlock + 1 - height);
        _commit(lane, 0, 0, _all(code));
        drawing = _used();
        votes += drawing;
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
        court.revealAndSettle(pool, lane, 0, 1, _all(code), keccak256("verdict"), keccak256("salt"), refs);
        settling = _used();
    }

    /// @dev Two lives: one whose lane the service attests, one whose node presents the receipt with its submission.
    function _laneOfOne(string memory s) internal returns (uint256 lane) {
        uint256 sequence = _submit();
        uint256 submitting = _used();
        _note(string.concat("submit", s), submitting);
        (uint256 votes, uint256 settling) = _judge(sequence / 16, Codes.ACCEPT);
        _note(string.concat("attest_lane1", s), attesting);
        _note(string.concat("last_reveal_and_settle_lane1", s), settling);
        _note(string.concat("life_lane1_attested", s), submitting + votes + settling + _paid(sequence));
        _blocks(4);

        sequence = _present();
        lane = sequence / 16;
        submitting = _used();
        _note(string.concat("submit_with_receipt", s), submitting);
        (votes, settling) = _judge(lane, Codes.ACCEPT);
        _note(string.concat("draw_and_commit", s), drawing);
        _note(string.concat("vote", s), voting);
        uint256 claiming = _paid(sequence);
        _note(string.concat("claim", s), claiming);
        _note(string.concat("life_lane1", s), submitting + votes + settling + claiming);
        court.closeCommittee(pool, lane, 0);
        _note(string.concat("close_committee_lane1", s), _used());
        _blocks(4);
    }

    /// @dev A submission of `node` with its receipt.
    function _present() internal returns (uint256 sequence) {
        IPools.Account memory a = pools.accountOf(pool, node);
        uint256 step = pools.poolOf(pool).steps - 1;
        bytes32 hash = keccak256(abi.encode(node, a.counter));
        Draft memory w = Draft({root: hash, fileHash: hash, units: 1_000, rows: 8});
        bytes memory signature = _sign(key("service"), court.receiptDigest(pool, node, hash, 1_000_000, clock));
        Work memory work = _work(step, a.counter, w);
        vm.prank(node);
        sequence = pools.submitWithReceipt(work, Receipt(1_000_000, uint40(clock), signature));
        files[pool][sequence] = FileData(node, uint24(step), uint24(a.counter), 1_000, 8, hash, hash);
    }

    function _paid(uint256 sequence) internal returns (uint256) {
        _passWindow();
        bytes32 inner = _inner(sequence);
        pools.claim(pool, node, sequence, inner);
        return _used();
    }

    function _laneOf16(string memory s, uint256) internal returns (uint256 lane) {
        uint256 sum;
        uint256 sequence;
        for (uint256 i = 0; i < 16; ++i) {
            sequence = _submit();
            sum += _used();
        }
        lane = sequence / 16;
        (uint256 votes, uint256 settling) = _judge(lane, Codes.ACCEPT);
        _note(string.concat("attest_lane16", s), attesting);
        _note(string.concat("last_reveal_and_settle_lane16", s), settling);
        _passWindow();
        bytes32 inner = _inner(sequence);
        pools.claim(pool, node, sequence, inner);
        _note(string.concat("life_lane16", s), (sum + votes + settling + _used()) / 16);
        _note(string.concat("claim_after_many", s), _used());
        court.closeCommittee(pool, lane, 0);
        _note(string.concat("close_committee_lane16", s), _used());
        _blocks(4);
    }

    function _many(string memory s) internal {
        Work[] memory works = new Work[](16);
        uint256 counter = pools.accountOf(pool, node).counter;
        uint256 step = pools.poolOf(pool).steps - 1;
        for (uint256 i = 0; i < 16; ++i) {
            Draft memory w = Draft(keccak256(abi.encode(s, i)), keccak256(abi.encode(i, s)), 1_000, 8);
            works[i] = _work(step, counter + i, w);
        }
        vm.prank(node);
        (uint256 first,) = pools.submitMany(works);
        _note(string.concat("submit_many_per_file", s), _used() / 16);
        for (uint256 i = 0; i < 16; ++i) {
            files[pool][first + i] =
                FileData(node, uint24(step), uint24(counter + i), 1_000, 8, works[i].root, works[i].fileHash);
        }
        _judge(first / 16, Codes.ACCEPT);
        _blocks(4);
    }

    /// @dev What rejecting costs on top of accepting, and the burn.
    function _slash(string memory s, uint256) internal {
        address n = account(string.concat("fresh", s));
        _step();
        uint256 first = _submitFrom(n, 1_000);
        (, uint256 accepting) = _judge(first / 16, Codes.ACCEPT);
        _blocks(4);
        uint256 sequence = _submitFrom(n, 1_000);
        (, uint256 rejecting) = _judge(sequence / 16, Codes.REJECT_WEIGHTS);
        _passWindow();
        FileRef memory ref = _ref(sequence);
        pools.finalize(pool, sequence, ref);
        uint256 extra = rejecting > accepting ? rejecting - accepting : 0;
        _note(string.concat("slash", s), extra + _used());
        _blocks(4);
    }
}
