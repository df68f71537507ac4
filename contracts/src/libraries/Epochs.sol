// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Epochs
/// @notice How long a draw can wait. A draw fixed to block S may happen until the end of the third epoch after S's own:
/// within the history that Seats and EIP-2935 keep. S never moves: waiting must not give another body.
library Epochs {
    /// EIP-2935: block hashes of the last 8191 blocks.
    address internal constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;
    /// Epochs back for which Seats knows its set (Checkpoint keeps one value more, and the next epoch's).
    uint256 internal constant REACH = 3;

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
