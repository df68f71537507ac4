// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Lottery
/// @notice A uniform random order of 0 … count − 1, produced one number at a time (Fisher–Yates over a sparse array).
library Lottery {
    struct Urn {
        bytes32 seed;
        uint256 count;
        uint256 taken;
        /// Positions that hold another number than their own: position, number.
        uint256[] positions;
        uint256[] numbers;
    }

    /// @notice An urn from which at most `most` numbers will be taken.
    function fill(bytes32 seed, uint256 count, uint256 most) internal pure returns (Urn memory urn) {
        urn.seed = seed;
        urn.count = count;
        urn.positions = new uint256[](most);
        urn.numbers = new uint256[](most);
    }

    /// @notice The next number. The caller takes at most `count` and at most `most`.
    function take(Urn memory urn) internal pure returns (uint256 number) {
        uint256 i = urn.taken;
        uint256 r = i + uint256(keccak256(abi.encode(urn.seed, i))) % (urn.count - i);
        uint256 first = i;
        number = r;
        uint256 entry = i; // where position r is recorded
        for (uint256 j = 0; j < i; ++j) {
            uint256 position = urn.positions[j];
            if (position == r) {
                number = urn.numbers[j];
                entry = j;
            }
            if (position == i) first = urn.numbers[j];
        }
        urn.positions[entry] = r;
        urn.numbers[entry] = first;
        urn.taken = i + 1;
    }
}
