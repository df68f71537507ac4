// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Epochs
/// @notice Which block seeds a draw. A draw fixed to block S may happen until the end of the third epoch after S's own;
/// later a lane uses the block one or more whole epochs after S, always the one that lies three epochs back: known to
/// nobody when S was fixed, the same for whoever draws, and within the history that Seats and EIP-2935 keep. A jury's
/// seed never moves: waiting must not give another jury.
library Epochs {
    /// EIP-2935: block hashes of the last 8191 blocks.
    address internal constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;
    /// Epochs back for which Seats knows its set (Checkpoint keeps one value more, and the next epoch's).
    uint256 internal constant REACH = 3;

    /// @notice The block to use at block `current`; 0 while `seedBlock` is not mined.
    function effective(uint256 seedBlock, uint256 epochBlocks, uint256 current) internal pure returns (uint256) {
        if (current <= seedBlock) return 0;
        uint256 own = seedBlock / epochBlocks;
        uint256 now_ = current / epochBlocks;
        return now_ <= own + REACH ? seedBlock : seedBlock + epochBlocks * (now_ - REACH - own);
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
