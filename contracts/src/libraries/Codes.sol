// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Codes
/// @notice The codes of votes and outcomes. Votes use 1 to 11; 12 to 15 exist only as outcomes of a file, in the same
/// four bits.
library Codes {
    /// No vote; or nothing to judge at this place of the lane.
    uint256 internal constant NONE = 0;
    /// Every check passed.
    uint256 internal constant ACCEPT = 1;
    /// Inside the calibrated band around a threshold: counts as accept, loses only on a canary.
    uint256 internal constant UNSURE = 2;
    /// Activations are not those of the published weights (TOPLOC, log-probabilities).
    uint256 internal constant REJECT_WEIGHTS = 3;
    /// Tokens are not those that the seeded noise picks.
    uint256 internal constant REJECT_SAMPLING = 4;
    /// Problems, prompts, target lengths or counters are not the assigned ones.
    uint256 internal constant REJECT_ASSIGNMENT = 5;
    /// Rewards or units are inflated.
    uint256 internal constant REJECT_REWARD = 6;
    /// Copies another or an own earlier rollout.
    uint256 internal constant REJECT_DUPLICATE = 7;
    /// Cut short or padded: neither a likely EOS nor the length limit.
    uint256 internal constant REJECT_TERMINATION = 8;
    /// The bytes under the submission's SHA-256 do not match its Merkle root, or another proven fraud.
    uint256 internal constant REJECT_COMMITMENT = 9;
    /// Not a readable rollout file.
    uint256 internal constant MALFORMED = 10;
    /// In a node challenge: the node computes otherwise than calibrated.
    uint256 internal constant DIFFERENT = MALFORMED;
    /// Nowhere to be fetched, though its pool's service took it: paid, never trained on.
    uint256 internal constant UNAVAILABLE = 11;
    /// Outcome only: opened as a canary; unpaid, its decoy node free.
    uint256 internal constant CANARY = 12;
    /// Outcome only: undecided twice, or never drawn or voted on; paid like unavailable.
    uint256 internal constant VOID = 13;
    /// Of a lane only: not decided yet, or not by the first committee.
    uint256 internal constant UNDECIDED = 14;
    /// Outcome only: before a jury, or in an opened canary's contest window.
    uint256 internal constant DISPUTED = 15;

    /// Bit c: code c pays; is a fraud reason.
    uint256 private constant PAID = (1 << ACCEPT) | (1 << UNSURE) | (1 << UNAVAILABLE) | (1 << VOID);
    uint256 private constant REJECTS = (1 << (REJECT_COMMITMENT + 1)) - (1 << REJECT_WEIGHTS);

    /// Classes of codes, for fees and penalties.
    uint256 internal constant KIND_NONE = 0;
    uint256 internal constant KIND_ACCEPT = 1;
    uint256 internal constant KIND_REJECT = 2;
    uint256 internal constant KIND_MALFORMED = 3;
    uint256 internal constant KIND_UNAVAILABLE = 4;

    /// @notice The kind of a code. A canary counts as a reject, void as unavailable; undecided and disputed have none.
    function kind(uint256 code) internal pure returns (uint256) {
        if (code == ACCEPT || code == UNSURE) return KIND_ACCEPT;
        if (isReject(code) || code == CANARY) return KIND_REJECT;
        if (code == MALFORMED) return KIND_MALFORMED;
        if (code == UNAVAILABLE || code == VOID) return KIND_UNAVAILABLE;
        return KIND_NONE;
    }

    /// @notice Whether a code says what a file is worth, and not that nobody could tell.
    function isVerdict(uint256 code) internal pure returns (bool) {
        uint256 kind_ = kind(code);
        return kind_ != KIND_NONE && kind_ != KIND_UNAVAILABLE;
    }

    /// @notice Whichever of an outcome and a jury's code costs the node less; the outcome where the jury has no
    /// verdict.
    function lenient(uint256 outcome, uint256 code) internal pure returns (uint256) {
        if (!isVerdict(code) || isPaid(outcome)) return outcome;
        return isPaid(code) || (code == MALFORMED && isReject(outcome)) ? code : outcome;
    }

    /// @notice Whether a code is a fraud reason, which slashes.
    function isReject(uint256 code) internal pure returns (bool) {
        return (REJECTS >> code) & 1 == 1;
    }

    /// @notice Whether two codes blame each other: one accepts, the other does not. One seat may get a file that
    /// another cannot, so accept and unavailable do not.
    function contradict(uint256 code, uint256 other) internal pure returns (bool) {
        (uint256 first, uint256 second) = (kind(code), kind(other));
        if ((first == KIND_ACCEPT) == (second == KIND_ACCEPT)) return false;
        return first != KIND_UNAVAILABLE && second != KIND_UNAVAILABLE && first != KIND_NONE && second != KIND_NONE;
    }

    /// @notice Whether a file of this outcome is paid: what the service took and cannot be fetched later, or is not
    /// decided, keeps its pay.
    function isPaid(uint256 code) internal pure returns (bool) {
        return (PAID >> code) & 1 == 1;
    }

    /// @notice Whether a code can be voted.
    function isVote(uint256 code) internal pure returns (bool) {
        return code >= ACCEPT && code <= UNAVAILABLE;
    }

    /// @notice Code number `index` (0 to 15) of a word of sixteen.
    function get(uint256 word, uint256 index) internal pure returns (uint256) {
        return (word >> (index << 2)) & 15;
    }

    /// @notice Sixteen codes, `code` where `places` has a bit.
    function spread(uint256 places, uint256 code) internal pure returns (uint256 x) {
        places &= 0xffff;
        x = (places | (places << 24)) & 0x000000ff000000ff;
        x = (x | (x << 12)) & 0x000f000f000f000f;
        x = (x | (x << 6)) & 0x0303030303030303;
        x = ((x | (x << 3)) & 0x1111111111111111) * code;
    }

    /// @notice The places of sixteen codes that have one.
    function gather(uint256 codes) internal pure returns (uint256 x) {
        x = (codes | (codes >> 1) | (codes >> 2) | (codes >> 3)) & 0x1111111111111111;
        x = (x | (x >> 3)) & 0x0303030303030303;
        x = (x | (x >> 6)) & 0x000f000f000f000f;
        x = (x | (x >> 12)) & 0x000000ff000000ff;
        x = (x | (x >> 24)) & 0xffff;
    }

    /// @notice `word` with code number `index` replaced.
    function set(uint256 word, uint256 index, uint256 code) internal pure returns (uint256) {
        return (word & ~(uint256(15) << (index << 2))) | (code << (index << 2));
    }
}
