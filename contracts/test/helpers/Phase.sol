// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice A file's phases, as `FileSlot` numbers them.
enum Phase {
    None,
    Pending,
    Settled,
    Disputed,
    Final
}
