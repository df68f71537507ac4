// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice What a node challenge came to.
enum Outcome {
    None,
    Open,
    /// A cheat: the node is slashed.
    Upheld,
    /// The accuser is wrong and loses the bond.
    Refuted,
    /// The juries could not get the files.
    Dismissed,
    /// The juries found no majority, or nobody drew them.
    Lapsed,
    /// The node computes otherwise than calibrated: its membership ends.
    Different
}
