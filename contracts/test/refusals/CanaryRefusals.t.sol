// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData} from "../../src/libraries/Types.sol";
import {Refusing} from "../helpers/Refusing.sol";
import {ICanaries} from "../interfaces/ICanaries.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {IPools} from "../interfaces/IPools.sol";

/// @notice Canaries says no, with the right error, to who may not make a call or at the wrong time.
contract CanaryRefusalsTest is Refusing {
    function test_canaries() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        address c = address(canaries);
        uint256 s = _submit();
        FileData memory f = files[pool][s];
        ICanaries.Planted memory p = _openingAt(f, 0);
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        _no(stranger, c, abi.encodeCall(canaries.open, (pool, s, f, p, r, 3)), IPools.NotOwner.selector);
        _no(owner, c, abi.encodeCall(canaries.open, (pool, s, f, p, r, 1)), ICanaries.BadReason.selector);
        _no(owner, c, abi.encodeCall(canaries.open, (pool, s, f, p, r, 3)), ICourt.NotSettled.selector);
        _no(stranger, c, abi.encodeCall(canaries.conclude, (pool, s, f)), ICanaries.NotOpened.selector);
        _vote(s / 16, 0, _three(_all(1), _all(2), _all(3)));
        r.row = 8;
        _no(owner, c, abi.encodeCall(canaries.open, (pool, s, f, p, r, 3)), ICanaries.NotInSample.selector);
        r.row = 0;
        r.rowHash = 0;
        _no(owner, c, abi.encodeCall(canaries.open, (pool, s, f, p, r, 3)), ICanaries.NotInFile.selector);
        p.proof = new bytes32[](3);
        _no(owner, c, abi.encodeCall(canaries.open, (pool, s, f, p, r, 3)), ICanaries.NotPlanted.selector);
        _openCanary(s);
        assertEq(canaries.canaryOf(pool, s).accused.length, 2);
        uint256 accused = canaries.canaryOf(pool, s).accused[0];
        assertEq(seats.seatOf(accused).frozen, 2); // by the canary, and by its lane until it is closed
        bytes memory notYet = abi.encodeWithSelector(IJuries.Undecided.selector);
        _no(stranger, c, abi.encodeCall(canaries.conclude, (pool, s, f)), notYet);
        uint256 trial = canaries.canaryOf(pool, s).trial;
        _juryVotes(trial, 3);
        canaries.conclude(pool, s, f);
        _no(stranger, c, abi.encodeCall(canaries.conclude, (pool, s, f)), ICanaries.AlreadyConcluded.selector);
        assertEq(_code(s), Codes.CANARY);
        assertEq(seats.seatOf(accused).bond, BOND - 200e9);
        assertEq(seats.seatOf(accused).frozen, 1);
        assertEq(token.balanceOf(c), 0);
        for (uint256 i = 0; i < 5; ++i) {
            juries.closeJuror(trial, i);
        }
        assertEq(token.balanceOf(address(juries)), 0);
    }

    function test_canaryThatNobodyCanFetch() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 s = _submit();
        _voteAll(s / 16, 3); // the committee was right: a canary frees its decoy node, and there is nothing to judge
        _openCanary(s);
        assertEq(canaries.canaryOf(pool, s).trial, 0);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.CANARY);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(_account(pool, node).frozen, 0);
        assertEq(stakes.nodeOf(node).frozen, 0);
        _blocks(4);

        uint256 second = _submit();
        _voteAll(second / 16, 1);
        uint256 before = token.balanceOf(owner) + 100_000e9; // _openCanary gives it that much
        _openCanary(second);
        uint256 trial = canaries.canaryOf(pool, second).trial;
        for (uint256 i = 0; i < 2; ++i) {
            _juryVotes(trial + i, Codes.UNAVAILABLE);
            canaries.conclude(pool, second, files[pool][second]);
        }
        assertEq(_code(second), Codes.ACCEPT); // cannot tell: the committee's outcome stays, nobody is slashed
        assertEq(token.balanceOf(owner), before - 10 * 5e8 / 4); // the owner had to show the file, and pays for attempts
        _passWindow();
        assertEq(_claim(second), 1_000 * 1e6);
    }

    function test_oneCanarySlashPerLane() public {
        uint256 first = _submitPlanted(2);
        uint256 second = first + 1;
        _voteAll(first / 16, 1);
        _openCanary(first);
        _openCanary(second);
        uint256 accused = canaries.canaryOf(pool, first).accused[0];
        assertEq(canaries.canaryOf(pool, second).accused.length, 3);
        assertEq(seats.seatOf(accused).frozen, 2 + 1); // two canaries, and the lane itself
        _juryVotes(canaries.canaryOf(pool, first).trial, 3);
        _juryVotes(canaries.canaryOf(pool, second).trial, 3);
        canaries.conclude(pool, first, files[pool][first]);
        canaries.conclude(pool, second, files[pool][second]);
        assertEq(seats.seatOf(accused).bond, BOND - 200e9);
        assertEq(seats.seatOf(accused).frozen, 1);
        assertEq(token.balanceOf(address(canaries)), 0);
    }
}
