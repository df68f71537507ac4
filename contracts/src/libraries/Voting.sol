// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IVoting} from "../interfaces/IVoting.sol";

/// @title Voting
/// @notice When the members of a drawn body may commit, reveal and be counted. Commits end `commitWindow` seconds after
/// the draw; reveals begin then, or once all have committed, and end `revealWindow` later. Only the account that
/// committed can reveal: the commitment binds it, so a seat's new voting key does not lose the old one's ballot.
library Voting {
    struct Body {
        uint256 size;
        /// Bit j: member j has committed, revealed.
        uint256 committed;
        uint256 revealed;
        uint256 drawnAt;
        uint256 commitWindow;
        uint256 revealWindow;
    }

    function checkCommit(Body memory b, uint256 member) internal view {
        if (b.committed & (1 << member) != 0) revert IVoting.AlreadyCommitted();
        uint256 until = b.drawnAt + b.commitWindow;
        if (block.timestamp >= until) revert IVoting.CommitOver(until);
    }

    function checkReveal(Body memory b, uint256 member) internal view {
        if (member >= b.size || b.committed & (1 << member) == 0) revert IVoting.NotCommitted();
        if (b.revealed & (1 << member) != 0) revert IVoting.AlreadyRevealed();
        uint256 opens = b.drawnAt + b.commitWindow;
        if (b.committed + 1 != 1 << b.size && block.timestamp < opens) revert IVoting.RevealNotOpen(opens);
        if (block.timestamp >= opens + b.revealWindow) revert IVoting.RevealOver(opens + b.revealWindow);
    }

    /// @notice When the votes can be counted: 0 (at once) when all have revealed.
    function countableFrom(Body memory b) internal pure returns (uint256 time) {
        if (b.revealed + 1 == 1 << b.size) return 0;
        time = b.drawnAt + b.commitWindow;
        // Those who committed may still reveal; without any commitment there is nothing to wait for.
        if (b.committed != b.revealed) time += b.revealWindow;
    }
}
