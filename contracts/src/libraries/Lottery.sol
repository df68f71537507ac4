// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Lottery
/// @notice Different numbers of 0 … count − 1, one at a time, each drawn uniformly among those that are left.
library Lottery {
    struct Urn {
        bytes32 seed;
        uint256 count;
        /// Numbers taken so far, and the first `taken` places of `numbers`: which, in ascending order.
        uint256 taken;
        uint256[] numbers;
    }

    /// @notice The next number. The caller takes at most `count`, and as many as `numbers` has places.
    function take(Urn memory urn) internal pure returns (uint256 number) {
        uint256 i = urn.taken++;
        number = uint256(keccak256(abi.encode(urn.seed, i))) % (urn.count - i);
        uint256 place;
        // the number is a rank among those that are left
        for (; place < i && urn.numbers[place] <= number; ++place) {
            ++number;
        }
        for (; i > place; --i) {
            urn.numbers[i] = urn.numbers[i - 1];
        }
        urn.numbers[place] = number;
    }
}
