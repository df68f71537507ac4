// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Voting
/// @notice When the members of a drawn body may commit, reveal and be counted. Commits end `commitWindow` seconds after
/// the draw; reveals begin then, or once all have committed, and end `revealWindow` later. Only the account that
/// committed can reveal: the commitment binds it, so a seat's new voting key does not lose the old one's ballot.
///
/// A draw fixed to block S may happen until the end of the third epoch after S's own: within the history that Seats and
/// EIP-2935 keep. S never moves: waiting must not give another body.
library Voting {
    /// EIP-2935: block hashes of the last 8191 blocks.
    address internal constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;
    /// Epochs back for which Seats knows its set (Checkpoint keeps one value more, and the next epoch's).
    uint256 internal constant REACH = 3;

    error SeedNotMined(uint256 seedBlock);
    error TooFewSeats(uint256 seats);
    error NotDrawn();
    error AlreadyDrawn();
    /// @notice Before this block only a drawn member's commit draws.
    error DrawNotOpen(uint256 firstBlock);
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

    struct Body {
        uint256 size;
        /// Bit j: member j has committed, revealed.
        uint256 committed;
        uint256 revealed;
        uint256 drawnAt;
        uint256 commitWindow;
        uint256 revealWindow;
    }

    function checkCommit(Body memory body, uint256 member) internal view {
        if (body.committed & (1 << member) != 0) revert AlreadyCommitted();
        uint256 until = body.drawnAt + body.commitWindow;
        if (block.timestamp >= until) revert CommitOver(until);
    }

    function checkReveal(Body memory body, uint256 member) internal view {
        if (member >= body.size || body.committed & (1 << member) == 0) revert NotCommitted();
        if (body.revealed & (1 << member) != 0) revert AlreadyRevealed();
        uint256 opens = body.drawnAt + body.commitWindow;
        if (body.committed + 1 != 1 << body.size && block.timestamp < opens) revert RevealNotOpen(opens);
        if (block.timestamp >= opens + body.revealWindow) revert RevealOver(opens + body.revealWindow);
    }

    /// @notice When the votes can be counted: 0 (at once) when all have revealed.
    function countableFrom(Body memory body) internal pure returns (uint256 time) {
        if (body.revealed + 1 == 1 << body.size) return 0;
        time = body.drawnAt + body.commitWindow;
        // Those who committed may still reveal; without any commitment there is nothing to wait for.
        if (body.committed != body.revealed) time += body.revealWindow;
    }

    /// @notice Whether the seats of `seedBlock`'s epoch are no longer known at block `current`.
    function over(uint256 seedBlock, uint256 epochBlocks, uint256 current) internal pure returns (bool) {
        return current / epochBlocks > seedBlock / epochBlocks + REACH;
    }

    /// @notice Hash of a past block, zero when the chain no longer knows it.
    function hashOf(uint256 blockNumber) internal view returns (bytes32 hash) {
        hash = blockhash(blockNumber);
        if (hash == 0 && blockNumber < block.number) {
            (bool ok, bytes memory data) = HISTORY.staticcall(abi.encode(blockNumber));
            if (ok && data.length == 32) hash = abi.decode(data, (bytes32));
        }
    }
}
