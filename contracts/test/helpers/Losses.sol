// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Planting} from "./Planting.sol";

/// @notice What files earn and what seats lose by their votes.
contract Losses is Planting {
    /// A file of `_submit`.
    uint256 internal constant PAY = 1_000 * 1e6;
    /// Of a dispute in the default pool.
    uint256 internal constant DEPOSIT = 5 * 5e8 + 5e9;
    /// Of a node for a malformed file.
    uint256 internal constant PENALTY = 1e9;

    function _loss(uint256 seat) internal view returns (uint256) {
        return BOND - seats.seatOf(seat).bond;
    }

    function _bondOf(uint256 lane, uint256 member) internal view returns (uint256) {
        return seats.seatOf(_round(pool, lane, 0).seats[member]).bond;
    }

    function _committee() internal view returns (uint256[] memory) {
        return _round(pool, 0, 0).seats;
    }

    function claimOut(uint256 s) external {
        _claim(s);
    }

    function _drawJury(uint256 trial) internal {
        _blocks(juries.caseOf(trial).seedBlock + 1 - height);
        _drawTrial(trial);
    }
}
