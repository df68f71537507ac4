// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title IVoting
/// @notice Hidden votes of a drawn body: what committees (ICourt) and juries (IJuries) refuse alike.
interface IVoting {
    error SeedNotMined(uint256 seedBlock);
    error TooFewSeats(uint256 seats);
    error NotDrawn();
    error AlreadyDrawn();
    error NotVoter();
    error AlreadyCommitted();
    error EmptyCommitment();
    error CommitOver(uint256 time);
    error RevealNotOpen(uint256 time);
    error RevealOver(uint256 time);
    error NotCommitted();
    error AlreadyRevealed();
    error WrongReveal();
    error AlreadyClosed();
}
