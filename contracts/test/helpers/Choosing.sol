// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../interfaces/IPools.sol";
import {Losses} from "./Losses.sol";

/// @notice Seats that opt in and out, and a pool that follows.
contract Choosing is Losses {
    /// A family whose seats the tests' pools have not.
    uint256 internal constant OTHER = uint32(uint256(keccak256("other family"))) | (1 << 31);

    function setUp() public override {
        super.setUp();
        _openSeatsIn(12, OTHER); // seats 12 to 23
        for (uint256 i = 2; i <= 9; ++i) {
            _createPool(defaultTerms()); // whose groups there are
        }
        vm.prank(stranger);
        token.approve(address(seats), type(uint256).max);
        token.mint(stranger, BOND);
        vm.prank(stranger);
        seats.openSeat(0, stranger, new uint256[](0)); // seat 24 chose nothing
        _nextEpoch();
        _step();
    }

    function _in(uint256 seat, uint256 group) internal {
        vm.prank(_seatOwner(seat));
        seats.optIn(seat, group);
    }

    function _in(uint256 seat, uint256 group, address who) internal {
        vm.prank(who);
        seats.optIn(seat, group);
    }

    function _out(uint256 seat, uint256 group) internal {
        vm.prank(_seatOwner(seat));
        seats.optOut(seat, group);
    }

    function _status() internal view returns (IPools.Status) {
        return _pool(pool).status;
    }

    function _is(IPools.Status status) internal {
        assertEq(uint256(_status()), uint256(status));
    }

    function _review(IPools.Status expected) internal {
        vm.prank(stranger);
        pools.reviewSeats(pool);
        _is(expected);
    }

    /// @dev How often each seat is drawn in `rounds` draws of three.
    function _hits(uint256 group, uint256 rounds) internal view returns (uint256[] memory hits) {
        hits = new uint256[](seats.opened() + 1);
        uint256 epoch = seats.currentEpoch();
        for (uint256 i = 0; i < rounds; ++i) {
            bytes32 seed = keccak256(abi.encode("choice", i));
            uint256[] memory drawn = seats.draw(seed, epoch, group, 3, new uint256[](0), address(0));
            for (uint256 j = 0; j < drawn.length; ++j) {
                ++hits[drawn[j]];
            }
        }
    }
}
