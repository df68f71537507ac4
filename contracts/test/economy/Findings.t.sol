// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Planting} from "../helpers/Planting.sol";

/// @notice What `python -m benchmarks economy` found to gain within the stated limits, each at its smallest. These say
/// what happens, not what should: whoever mends a rule turns its test round.
contract FindingsTest is Planting {
    uint256 internal constant PAY = 1_000 * 1e6;
    uint256 internal constant LOCAL_BOND = 100e9;

    function _plant() private returns (uint256 sequence) {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        sequence = _submit();
    }

    /// A committee of the owner's friends says that it cannot get an honest worker's file, which its receipt keeps paid;
    /// the owner opens a canary that nobody accepted. A jury judges it. (Mended: no jury did, and the pay went back.)
    function test_anOpenedCanaryThatNobodyAcceptedLeavesAReceiptsPayToAJury() public {
        uint256 sequence = _plant();
        _voteAll(sequence / 16, Codes.UNAVAILABLE);
        _openCanary(sequence);
        _juryVotes(canaries.canaryOf(pool, sequence).trial, Codes.ACCEPT);
        canaries.conclude(pool, sequence, files[pool][sequence]);
        assertEq(_code(sequence), Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(sequence), PAY);
    }

    /// A committee of the owner's friends rejects honest work, and the owner opens a canary that nobody accepted before the
    /// worker can dispute: no jury judges, it costs the owner nothing, and the work was free.
    function test_anOpenedCanaryThatNobodyAcceptedForestallsAWrongedWorkersDispute() public {
        uint256 sequence = _plant();
        _voteAll(sequence / 16, Codes.REJECT_WEIGHTS);
        uint256 free = pools.poolOf(pool).free;
        uint256 before = token.balanceOf(owner) + 100_000e9; // _openCanary gives it that much
        _openCanary(sequence);
        assertEq(canaries.canaryOf(pool, sequence).trial, 0);
        canaries.conclude(pool, sequence, files[pool][sequence]);
        assertEq(_code(sequence), Codes.CANARY);
        assertEq(token.balanceOf(owner), before);
        assertEq(pools.poolOf(pool).free - free, PAY); // should wait for the worker's jury
    }

    /// Who rejects honest work pays together what it would have earned, like who accepts forged work. (Mended: it was the
    /// least penalty, whatever the work was worth to an owner who got it for nothing when the jury was captured too.)
    function test_aWrongRejectionCostsWhatTheWorkWouldHaveEarned() public {
        uint256 sequence = _submitFrom(node, 100_000);
        _voteAll(sequence / 16, Codes.REJECT_WEIGHTS);
        uint256[] memory members = court.roundOf(pool, sequence / 16, 0).seats;
        _juryVotes(_dispute(operator, sequence), Codes.ACCEPT);
        _conclude(sequence);
        assertEq(_code(sequence), Codes.ACCEPT);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(LOCAL_BOND - seats.seatOf(members[i]).bond, 33_333_333_334); // a third of 100 tokens
        }
    }

    /// The bonds that judge a file cover its pay, but not that of a lane's other files: who rejects nine of them is out of
    /// bond after three. With a jury of five that is captured now and then, an owner gains by it.
    function test_aLanesWrongRejectionsCostNoMoreThanTheBonds() public {
        for (uint256 i = 0; i < 9; ++i) {
            _submitFrom(node, 100_000);
        }
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256[] memory members = court.roundOf(pool, 0, 0).seats;
        for (uint256 i = 0; i < 9; ++i) {
            _juryVotes(_dispute(operator, i), Codes.ACCEPT);
            _conclude(i);
            assertEq(_code(i), Codes.ACCEPT);
        }
        uint256 cost;
        for (uint256 i = 0; i < 3; ++i) {
            cost += LOCAL_BOND - seats.seatOf(members[i]).bond;
        }
        assertEq(cost, 3 * LOCAL_BOND); // should be 9 files of 100 tokens
    }

    /// @dev With bonds and the least penalty of the network `local`.
    function _setting() internal view override returns (Setting memory setting) {
        setting = super._setting();
        (setting.bond, setting.minBond) = (LOCAL_BOND, LOCAL_BOND / 2);
        setting.values.overturnPenalty = 1e9;
    }
}
