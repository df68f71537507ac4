// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICanaries} from "../src/interfaces/ICanaries.sol";
import {ICourt} from "../src/interfaces/ICourt.sol";
import {IJuries} from "../src/interfaces/IJuries.sol";
import {IPools} from "../src/interfaces/IPools.sol";
import {Codes} from "../src/libraries/Codes.sol";
import {FileData, FileRef} from "../src/libraries/Types.sol";
import {Planting} from "./helpers/Planting.sol";
import {Vm} from "@prb/test/Vm.sol";

/// @notice What daemons learn from events alone: each is there, once, with its figures.
contract EventsTest is Planting {
    function test_settlementNamesEachFilesOutcome() public {
        uint256 s = _submit();
        _draw(0, 0);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 0, i, _all(1));
        }
        for (uint256 i = 0; i < 3; ++i) {
            _reveal(0, 0, i, _all(1));
        }
        FileRef[] memory refs = _refs(0);
        vm.expectEmit(address(court));
        emit ICourt.LaneSettled(pool, 0, 0, Codes.ACCEPT);
        vm.expectEmit(address(pools));
        emit IPools.FileSettled(pool, node, s, Codes.ACCEPT, 1_000, clock + 3600);
        court.settle(pool, 0, 0, refs);
    }

    function test_jurorsVotesAreAnnounced() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _blocks(3);
        juries.draw(trial);
        (uint256[] memory jurors, address[] memory voters,,) = juries.juryOf(trial);
        bytes32 hash = juries.ballotHash(trial, voters[2], 3, keccak256("verdict"), keccak256("salt"));
        vm.expectEmit(address(juries));
        emit IJuries.JurorCommitted(trial, jurors[2], 2, hash);
        vm.prank(voters[2]);
        juries.commit(trial, 2, hash);
        _wait(60);
        vm.expectEmit(address(juries));
        emit IJuries.JurorRevealed(trial, jurors[2], 2, 3, keccak256("verdict"));
        vm.prank(voters[2]);
        juries.reveal(trial, 2, 3, keccak256("verdict"), keccak256("salt"));
    }

    function test_canarysEndIsAnnounced() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _openCanary(s);
        FileData memory f = files[pool][s];
        vm.expectEmit(address(canaries));
        emit ICanaries.CanaryConcluded(pool, s, true, Codes.CANARY);
        canaries.conclude(pool, s, f);
    }

    /// One of three is silent: one is named and fined, and nobody else.
    function test_onlyAbsentMembersAreFinedForSilence() public {
        _submit();
        _draw(0, 0);
        _commit(0, 0, 0, _all(1));
        _commit(0, 0, 1, _all(1));
        _wait(60);
        _reveal(0, 0, 0, _all(1));
        _reveal(0, 0, 1, _all(1));
        FileRef[] memory refs = _refs(0);
        uint256 silent = court.roundOf(pool, 0, 0).seats[2];
        vm.recordLogs();
        court.settle(pool, 0, 0, refs);
        uint256 named;
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i = 0; i < logs.length; ++i) {
            if (logs[i].topics[0] != ICourt.MemberAbsent.selector) continue;
            ++named;
            assertEq(uint256(logs[i].topics[3]), silent);
        }
        assertEq(named, 1);
    }
}
