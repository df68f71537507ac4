// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title IOneJury
/// @notice What is decided by one jury, the larger of the pool's two, replaced once, without appeal: node cases
/// (INodeCases). Whoever brings it deposits a bond.
interface IOneJury {
    enum Outcome {
        None,
        Open,
        /// Whoever brought it is right: the accused is slashed.
        Upheld,
        /// Whoever brought it is wrong: the bond is lost.
        Refuted,
        /// The jury could not get what it was to judge: it is paid out of the bond, whose rest goes back.
        Dismissed,
        /// No majority, twice, or nobody drew the jury: the bond goes back.
        Lapsed
    }

    error Undecided();
    error AlreadyConcluded();
}
