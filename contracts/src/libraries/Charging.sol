// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IStakes} from "../interfaces/IStakes.sol";
import {Codes} from "./Codes.sol";
import {PoolSlot} from "./PoolSlot.sol";

/// @title Charging
/// @notice What an outcome costs whom. A submission reserves its pay and one fee per seat of two committees in the
/// budget. Of that the node gets the pay when the file is paid, the seats get (or burn) their share of the fees, and
/// everything else goes back. What a rejected or malformed file costs, its node's stake pays back to the budget.
/// @dev `pool` is the pool's word (PoolSlot): its rate, fee and committee.
library Charging {
    using PoolSlot for uint256;

    /// @notice A file that is finally not paid.
    struct Unpaid {
        uint256 code;
        uint256 units;
        /// When the committee's outcome was settled: the penalties of that time hold.
        uint256 settledAt;
        /// Since when its node's unvested pay is barred, if the file is rejected.
        uint256 barredAt;
        /// It counts as a frozen one in its node's account.
        bool frozen;
        /// Most that Appeals may get of a slash.
        uint256 reward;
        /// What its dispute's juries cost the budget.
        uint256 juryFees;
        /// Who gets the collector's share, or zero.
        address collector;
    }

    /// Committees that may judge a file, one after the other.
    uint256 internal constant ROUNDS = 2;

    /// @notice What a file of `units` reserves.
    function reserved(uint256 units, uint256 pool) internal pure returns (uint256) {
        unchecked {
            return units * pool.rate() + ROUNDS * pool.fees(); // 24 + 32 bits, and 5 + 32
        }
    }

    /// @notice What of it is free at settlement, when `rounds` committees were drawn.
    function undrawn(uint256 rounds, uint256 pool) internal pure returns (uint256) {
        unchecked {
            return (ROUNDS - rounds) * pool.fees(); // 1 bit, 4 + 32
        }
    }

    /// @notice What of the committee's fees the node's stake pays back to the budget: all for work that was not worth
    /// judging; nothing for a canary, which is its owner's.
    function advanced(uint256 code, uint256 pool) internal pure returns (uint256) {
        return Codes.isReject(code) || code == Codes.MALFORMED ? pool.fees() : 0;
    }

    /// @notice What is burnt of the node's stake besides, unless the file was rejected, which costs a share of all of
    /// it.
    function penalty(uint256 code, uint256 malformed) internal pure returns (uint256) {
        return code == Codes.MALFORMED ? malformed : 0;
    }

    /// @notice The order to Stakes for a file that is not paid: what to take, how it is split, and below which stake
    /// the node leaves its pool (rejected: with whatever is left).
    function order(
        Unpaid memory unpaid,
        uint256 pool,
        uint256 slashBps,
        uint256 rewardBps,
        uint256 malformed,
        uint256 minStake
    ) internal pure returns (IStakes.Slash memory slash) {
        slash.fees = advanced(unpaid.code, pool) + unpaid.juryFees;
        (slash.reward, slash.collector) = (unpaid.reward, unpaid.collector);
        if (Codes.isReject(unpaid.code)) {
            (slash.bps, slash.rewardBps, slash.minStake) = (slashBps, rewardBps, type(uint256).max);
        } else {
            (slash.amount, slash.minStake) = (slash.fees + penalty(unpaid.code, malformed), minStake);
        }
    }
}
