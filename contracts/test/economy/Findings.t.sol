// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Planting} from "../helpers/Planting.sol";

/// @notice What `python -m benchmarks economy` found to gain within the stated limits, each at its smallest. These say
/// what happens, not what should: whoever mends a rule turns its test round.
contract FindingsTest is Planting {
    uint256 internal constant PAY = 1_000 * 1e6;

    function _plant() private returns (uint256 sequence) {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        sequence = _submit();
    }

    function _openAndConclude(uint256 sequence) private {
        uint256 before = token.balanceOf(owner) + 100_000e9; // _openCanary gives it that much
        _openCanary(sequence);
        assertEq(canaries.canaryOf(pool, sequence).trial, 0); // no jury
        canaries.conclude(pool, sequence, files[pool][sequence]);
        assertEq(_code(sequence), Codes.CANARY);
        assertEq(token.balanceOf(owner), before); // no cost
    }

    /// A committee of the owner's friends says that it cannot get an honest worker's file. The worker has its receipt, so
    /// it would be paid; but the owner opens a canary that nobody accepted, and so nobody judges.
    function test_anOpenedCanaryThatNobodyAcceptedTakesAReceiptsPay() public {
        uint256 sequence = _plant();
        _voteAll(sequence / 16, Codes.UNAVAILABLE);
        uint256 free = pools.poolOf(pool).free;
        _openAndConclude(sequence);
        assertEq(pools.poolOf(pool).free - free, PAY); // should stay the worker's
    }

    /// The same committee rejects honest work. The worker disputes; the owner's canary ends the dispute without a jury.
    function test_anOpenedCanaryThatNobodyAcceptedEndsAWrongedWorkersDispute() public {
        uint256 sequence = _plant();
        _voteAll(sequence / 16, Codes.REJECT_WEIGHTS);
        _dispute(operator, sequence);
        uint256 free = pools.poolOf(pool).free;
        _openAndConclude(sequence);
        assertTrue(appeals.disputeOf(pool, sequence).resolved);
        assertEq(pools.poolOf(pool).free - free, PAY); // should wait for the worker's jury
    }

    /// Who accepts forged work pays what it would have earned when a jury says so. Who rejects honest work pays the least
    /// penalty, whatever the work is worth to an owner who gets it for nothing when the jury is captured too.
    function test_aWrongRejectionCostsLessThanTheWorkThatItTakes() public {
        uint256 sequence = _submitFrom(node, 100_000);
        uint256 pay = 100_000 * 1e6;
        _voteAll(sequence / 16, Codes.REJECT_WEIGHTS);
        uint256[] memory members = court.roundOf(pool, sequence / 16, 0).seats;
        uint256 trial = _dispute(operator, sequence);
        _juryVotes(trial, Codes.ACCEPT);
        _conclude(sequence);
        assertEq(_code(sequence), Codes.ACCEPT);
        uint256 cost;
        for (uint256 i = 0; i < 3; ++i) {
            cost += BOND - seats.seatOf(members[i]).bond;
        }
        assertEq(cost, 3 * defaultValues().overturnPenalty); // should be `pay` at least, as for accepting
        assertTrue(defaultValues().overturnPenalty == 50e9 && pay == 100e9);
    }
}
