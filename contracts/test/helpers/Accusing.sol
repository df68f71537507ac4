// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {INodeChallenges} from "../interfaces/INodeChallenges.sol";
import {Losses} from "./Losses.sol";
import {Outcome} from "./Outcome.sol";
import {Refusing} from "./Refusing.sol";

/// @notice Nodes with files that are accepted for good, and those who accuse them.
contract Accusing is Losses, Refusing {
    /// Of a challenge over one file in the default pool: five jurors' fees and the compensation.
    uint256 internal constant CHALLENGE_BOND = 5 * 5e8 + 5e9;
    /// A jury's fees for one file, when all of its five agree.
    uint256 internal constant JURY = 5 * 5e8;
    uint256 internal constant MOST_FILES = 256;

    address internal accuser = account("accuser");

    function setUp() public virtual override {
        super.setUp();
        _give(accuser, address(nodeChallenges), 1_000e9);
    }

    /// @dev Files of the node that are accepted for good.
    function _history(address n, uint256 count) internal returns (uint256[] memory sequences) {
        sequences = new uint256[](count);
        for (uint256 i = 0; i < count; ++i) {
            sequences[i] = _accepted(n);
        }
        _passWindow();
    }

    /// @dev The same for many files, which fill whole lanes.
    function _longHistory(address n, uint256 count) internal returns (uint256[] memory sequences) {
        sequences = new uint256[](count);
        for (uint256 i = 0; i < count; ++i) {
            uint256 left = count - i;
            sequences[i] = i % 16 == 0 ? _submitLaneFrom(n, 10, left < 16 ? left : 16) : sequences[i - 1] + 1;
            if (i % 16 == 0) _voteAll(sequences[i] >> 4, Codes.ACCEPT);
        }
        _passWindow();
    }

    /// @dev Fees of a jury that agrees on a challenge over so many files: of a juror the jury's fee, and a committee's for
    /// each file but the first.
    function _juryFor(uint256 files_) internal pure returns (uint256) {
        return 5 * (5e8 + (files_ - 1) * FEE);
    }

    function _bondFor(uint256 files_) internal pure returns (uint256) {
        return _juryFor(files_) + 5e9;
    }

    /// @dev One file that is accepted, and can be disputed yet.
    function _accepted(address n) internal returns (uint256 sequence) {
        return _decided(n, Codes.ACCEPT);
    }

    function _decided(address n, uint256 code) internal returns (uint256 sequence) {
        sequence = _submitFrom(n, 1_000);
        _voteAll(sequence >> 4, code);
    }

    function _list(uint256 a) internal pure returns (uint256[] memory list) {
        list = new uint256[](1);
        list[0] = a;
    }

    function _list(uint256 a, uint256 b) internal pure returns (uint256[] memory list) {
        list = new uint256[](2);
        (list[0], list[1]) = (a, b);
    }

    function _inners(uint256[] memory sequences) internal view returns (bytes32[] memory inners) {
        inners = new bytes32[](sequences.length);
        for (uint256 i = 0; i < sequences.length; ++i) {
            inners[i] = _inner(sequences[i]);
        }
    }

    function _opening(address n, uint256[] memory sequences) internal view returns (bytes memory) {
        return abi.encodeCall(nodeChallenges.open, (pool, n, sequences, _inners(sequences), keccak256("evidence")));
    }

    function _accuse(address n, uint256[] memory sequences) internal returns (uint256) {
        return _accuse(accuser, n, sequences);
    }

    function _accuse(address who, address n, uint256[] memory sequences) internal returns (uint256) {
        bytes32[] memory inners = _inners(sequences);
        vm.prank(who);
        return nodeChallenges.open(pool, n, sequences, inners, keccak256("evidence"));
    }

    function _trial(uint256 challenge) internal view returns (uint256) {
        return nodeChallenges.challengeOf(challenge).trial;
    }

    /// @dev The jury votes one code, and nobody appeals; a second jury, if there is one, votes the same.
    function _judged(uint256 challenge, uint256 code) internal {
        _juryVotes(_trial(challenge), code);
        _ends(challenge, code);
    }

    /// @dev The challenge ends after its first jury's vote.
    function _ends(uint256 challenge, uint256 code) internal {
        nodeChallenges.conclude(challenge);
        uint256 next = juries.caseOf(_trial(challenge)).next;
        if (next != 0) _juryVotes(next, code);
        else _wait(defaultTerms().appealWindow);
        nodeChallenges.conclude(challenge);
    }

    function _next(uint256 challenge) internal view returns (uint256) {
        return juries.caseOf(_trial(challenge)).next;
    }

    /// @dev Neither jury is drawn in time.
    function _lapses(uint256 challenge) internal {
        for (uint256 i = 0; i < 2; ++i) {
            _blocks(5 * EPOCH);
            nodeChallenges.conclude(challenge);
        }
    }

    function _is(uint256 challenge, Outcome outcome) internal {
        assertEq(uint256(_outcomeOf(challenge)), uint256(outcome));
    }

    function _outcomeOf(uint256 challenge) internal view returns (Outcome) {
        INodeChallenges.NodeChallenge memory challenge_ = nodeChallenges.challengeOf(challenge);
        if (challenge_.accuser == address(0)) return Outcome.None;
        if (!challenge_.concluded) return Outcome.Open;
        uint256 code = challenge_.code;
        if (code == Codes.ACCEPT) return Outcome.Refuted;
        if (code == Codes.DIFFERENT) return Outcome.Different;
        if (code == Codes.NONE) return Outcome.Lapsed;
        if (code == Codes.UNAVAILABLE) return Outcome.Dismissed;
        require(code >= Codes.REJECT_WEIGHTS && code <= Codes.REJECT_COMMITMENT, "no code of a case");
        return Outcome.Upheld;
    }

    function _leave() internal {
        vm.prank(operator);
        pools.leavePool(pool, node, type(uint256).max, "");
    }

    /// @dev A second node in the pool.
    function _other() internal returns (address n) {
        n = _register(account("other operator"), "other node", STAKE);
        vm.prank(n);
        pools.join(pool, n, type(uint256).max, "", "");
        _step();
    }

    function _close(uint256 trial) internal {
        for (uint256 i = 0; i < juries.seatsOf(trial).length; ++i) {
            juries.closeJuror(trial, i);
        }
    }

    /// @dev Jurors are closed, and nothing of any case is left anywhere.
    function _empty(uint256 trial) internal {
        _close(trial);
        assertEq(token.balanceOf(address(juries)), 0);
        assertEq(token.balanceOf(address(nodeChallenges)), 0);
        assertEq(token.balanceOf(address(stakes)), stakes.nodeOf(node).stake + stakes.unburnt());
    }
}
