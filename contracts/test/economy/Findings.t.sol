// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData} from "../../src/libraries/Types.sol";
import {Planting} from "../helpers/Planting.sol";
import {ICanaries} from "../interfaces/ICanaries.sol";

/// @notice What `python -m benchmarks economy` found to gain within the stated limits before the rules were mended, each
/// at its smallest.
contract FindingsTest is Planting {
    uint256 internal constant PAY = 1_000 * 1e6;
    uint256 internal constant LEAST_BOND = 800e9;

    function _refusesToOpen(uint256 sequence) private {
        FileData memory f = files[pool][sequence];
        ICanaries.Planted memory p = _opening(f);
        p.consent = _sign(key("owner"), _decoyDigest(_leafOf(p.salt, pool, f.step, node, f.counter)));
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        vm.expectRevert(ICanaries.BadSignature.selector);
        vm.prank(owner);
        canaries.open(pool, sequence, f, p, r, Codes.REJECT_WEIGHTS);
    }

    /// A committee of the owner's friends says that it cannot get an honest worker's file, which its receipt keeps paid:
    /// the owner cannot open it as a canary. (It could, and the pay went back.)
    function test_noCanaryTakesAReceiptsPay() public {
        uint256 sequence = _submitPlanted();
        _voteAll(sequence / 16, Codes.UNAVAILABLE);
        _refusesToOpen(sequence);
        _passWindow();
        assertEq(_claim(sequence), PAY);
    }

    /// A committee of the owner's friends rejects honest work: the owner cannot open it as a canary before the worker
    /// disputes. (It could, no jury judged it, and the work was free.)
    function test_noCanaryForestallsAWrongedWorkersDispute() public {
        uint256 sequence = _submitPlanted();
        _voteAll(sequence / 16, Codes.REJECT_WEIGHTS);
        uint256 free = _pool(pool).free;
        _refusesToOpen(sequence);
        assertEq(_pool(pool).free, free);
        _juryVotes(_dispute(operator, sequence), Codes.ACCEPT);
        _passWindow();
        _conclude(sequence);
        assertEq(_code(sequence), Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(sequence), PAY);
    }

    /// Who rejects honest work pays together what it would have earned, like who accepts forged work. (It was the least
    /// penalty, whatever the work was worth to an owner who got it for nothing when the jury was captured too.)
    function test_aWrongRejectionCostsWhatTheWorkWouldHaveEarned() public {
        uint256 sequence = _submitFrom(node, 100_000);
        _voteAll(sequence / 16, Codes.REJECT_WEIGHTS);
        uint256[] memory members = _round(pool, sequence / 16, 0).seats;
        _juryVotes(_dispute(operator, sequence), Codes.ACCEPT);
        _conclude(sequence);
        assertEq(_code(sequence), Codes.ACCEPT);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(LEAST_BOND - seats.seatOf(members[i]).bond, 33_333_333_334); // a third of 100 tokens
        }
    }

    /// The same for every file of a lane: the least bonds of a majority cover sixteen of the largest. (They covered one
    /// file's pay: who rejected nine was out of bond after three, and with a captured jury now and then an owner gained.)
    function test_aLanesWrongRejectionsCostWhatItsWorkWouldHaveEarned() public {
        _submitLaneFrom(node, 100_000, 16);
        _vote(0, 0, _three(_all(Codes.REJECT_WEIGHTS), _all(Codes.REJECT_WEIGHTS), _all(Codes.ACCEPT)));
        uint256[] memory members = _round(pool, 0, 0).seats;
        for (uint256 i = 0; i < 16; ++i) {
            _juryVotes(_dispute(operator, i), Codes.ACCEPT);
            _conclude(i);
            assertEq(_code(i), Codes.ACCEPT);
        }
        assertEq(seats.seatOf(members[0]).bond, 0);
        assertEq(seats.seatOf(members[1]).bond, 0);
        assertEq(seats.seatOf(members[2]).bond, LEAST_BOND);
        assertEq(2 * LEAST_BOND, 16 * 100_000 * 1e6); // what both had is what the work would have earned
    }

    /// A jury that is captured now and then takes one file's pay, not what other juries gave back to the same node: its pay
    /// that had not vested is burnt. (It went to the owner: of fifteen juries nearly always one was captured.)
    function test_aCapturedJuryTakesTheOwnerNoMoreThanItsFilesPay() public {
        uint256 pay = 100_000 * 1e6;
        _submitLaneFrom(node, 100_000, 4);
        _voteAll(0, Codes.REJECT_WEIGHTS);
        for (uint256 i = 0; i < 4; ++i) {
            _juryVotes(_dispute(operator, i), i == 3 ? Codes.REJECT_WEIGHTS : Codes.ACCEPT);
            _conclude(i);
        }
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_code(i), Codes.ACCEPT);
            uint256 burnt = _burnt();
            pools.forfeit(pool, i, files[pool][i]);
            assertEq(_burnt() - burnt, pay);
        }
        assertEq(stakes.nodeOf(node).stake, 0);
        assertEq(_pool(pool).free, BUDGET - 3 * (pay + FEES));
    }

    /// @dev Seats with no more than the least bond, and the least penalty of the network `local`.
    function _setting() internal view override returns (Setting memory setting) {
        setting = super._setting();
        (setting.bond, setting.minBond) = (LEAST_BOND, LEAST_BOND);
        setting.values.overturnPenalty = 1e9;
    }
}
