// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {PoolTerms} from "../../src/libraries/Types.sol";
import {Receipting} from "../helpers/Receipting.sol";

/// @notice What later events must not change: a jury's exclusions, and a file's own vesting.
contract KeptTermsTest is Receipting {
    function test_aReplacementJuryHasTheExclusionsOfTheFirst() public {
        for (uint256 lane = 0; lane < 4; ++lane) {
            uint256 s = _submit();
            _voteAll(lane, Codes.ACCEPT);
            uint256 trial = _dispute(stranger, s);
            _drawJury(trial);
            _wait(60); // nobody commits
            _conclude(s);
            uint256[] memory jurors;
            uint256 next = _second(s);
            _drawJury(next);
            jurors = juries.seatsOf(next);
            uint256[] memory committee = _round(pool, lane, 0).seats;
            for (uint256 i = 0; i < jurors.length; ++i) {
                for (uint256 j = 0; j < committee.length; ++j) {
                    assertTrue(jurors[i] != committee[j]);
                }
            }
            _blocks(4);
        }
    }

    function test_aRestoredFileVestsAWindowAfterItsVerdict() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256 first = _submission(s).finalAt;
        uint256 trial = _dispute(operator, s);
        _wait(1_000);
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(s);
        assertEq(_code(s), Codes.ACCEPT);
        assertEq(_submission(s).finalAt, clock + defaultTerms().challengeWindow);
        assertGt(_submission(s).finalAt, first);
    }

    function test_aLeaverWithExactlyTheLeastStakeMayPresentItsReceipt() public {
        PoolTerms memory terms = defaultTerms();
        terms.minStake = uint56(STAKE);
        _moveTo(terms);
        uint256 uploaded = clock;
        vm.prank(operator);
        pools.leavePool(pool, node, type(uint256).max, "");
        _isPaid(_late(0, uploaded));
    }
}
