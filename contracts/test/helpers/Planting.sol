// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData} from "../../src/libraries/Types.sol";
import {ICanaries} from "../interfaces/ICanaries.sol";
import {IPools} from "../interfaces/IPools.sol";
import {Network} from "./Network.sol";

/// @notice What a pool owner needs for canaries: trees of salted leaves, of which the first sixteen are its own.
contract Planting is Network {
    struct Slot {
        address node;
        uint256 counter;
    }

    mapping(uint256 step => Slot[16]) internal planted;

    function _salt(uint256 step, uint256 place) internal pure returns (bytes32) {
        return keccak256(abi.encode("salt", step, place));
    }

    function _leaves(uint256 step) internal view returns (bytes32[] memory leaves) {
        leaves = new bytes32[](16);
        for (uint256 i = 0; i < 16; ++i) {
            Slot memory s = planted[step][i];
            leaves[i] = s.node == address(0)
                ? keccak256(abi.encode("padding", step, i))
                : _leafOf(_salt(step, i), pool, step, s.node, s.counter);
        }
    }

    function _pair(bytes32 a, bytes32 b) internal pure returns (bytes32) {
        return a < b ? keccak256(abi.encode(a, b)) : keccak256(abi.encode(b, a));
    }

    /// @dev What stands beside the sixteen leaves' subtree at a height of 4 or more.
    function _padding(uint256 height) private pure returns (bytes32) {
        return keccak256(abi.encode("padding above", height));
    }

    function _root(bytes32[] memory level) internal view returns (bytes32 root) {
        for (uint256 n = level.length; n > 1; n /= 2) {
            for (uint256 i = 0; i < n / 2; ++i) {
                level[i] = _pair(level[2 * i], level[2 * i + 1]);
            }
        }
        root = level[0];
        for (uint256 height = 4; height < canaries.DEPTH(); ++height) {
            root = _pair(root, _padding(height));
        }
    }

    function _proof(bytes32[] memory level, uint256 index) internal view returns (bytes32[] memory proof) {
        proof = new bytes32[](canaries.DEPTH());
        uint256 depth;
        for (uint256 n = level.length; n > 1; n /= 2) {
            proof[depth++] = level[index ^ 1];
            for (uint256 i = 0; i < n / 2; ++i) {
                level[i] = _pair(level[2 * i], level[2 * i + 1]);
            }
            index /= 2;
        }
        for (; depth < proof.length; ++depth) {
            proof[depth] = _padding(depth);
        }
    }

    /// @dev Publishes a step with up to four planted counters for each node, from its present counter on.
    function _plantStep(address[] memory who) internal {
        uint256 step = _pool(pool).steps;
        uint256 each = who.length == 0 ? 0 : 16 / who.length;
        for (uint256 i = 0; i < 16 && i < who.length * each; ++i) {
            address n = who[i / each];
            planted[step][i] = Slot(n, _account(pool, n).counter + (i % each));
        }
        bytes32 root = _root(_leaves(step));
        vm.prank(owner);
        pools.publishStep(pool, step, keccak256("manifest"), root);
        _blocks(2);
    }

    /// @dev The node's next file, planted.
    function _submitPlanted() internal returns (uint256) {
        return _submitPlanted(1);
    }

    /// @dev A lane of the node's next files, planted; the first one's sequence.
    function _submitPlanted(uint256 count) internal returns (uint256) {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        return _submitLane(count);
    }

    function _place(FileData memory f) internal view returns (uint256) {
        for (uint256 i = 0; i < 16; ++i) {
            if (planted[f.step][i].node == f.node && planted[f.step][i].counter == f.counter) return i;
        }
        return 16;
    }

    function _planted(FileData memory f) internal view returns (bool) {
        return _place(f) < 16;
    }

    /// @dev What the owner has of a file that it planted, if its decoy node's key is the owner's.
    function _opening(FileData memory f) internal view returns (ICanaries.Planted memory) {
        return _openingAt(f, _place(f));
    }

    /// @dev The same for a leaf elsewhere in its step's tree.
    function _openingAt(FileData memory f, uint256 place) internal view returns (ICanaries.Planted memory) {
        bytes32 salt = _salt(f.step, place);
        return ICanaries.Planted(salt, _proof(_leaves(f.step), place), _consent(f, salt));
    }

    function _consent(FileData memory f, bytes32 salt) internal view returns (bytes memory) {
        bytes32 leaf = _leafOf(salt, pool, f.step, f.node, f.counter);
        return _sign(nodeKeys[f.node], _decoyDigest(leaf));
    }

    /// @dev Files of the tests have a one-leaf tree: root = keccak256(rowHash).
    function _openCanary(uint256 sequence) internal {
        FileData memory f = files[pool][sequence];
        ICanaries.Planted memory p = _opening(f);
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        _give(owner, address(canaries), 100_000e9);
        _unpack(sequence >> 4);
        vm.prank(owner);
        canaries.open(pool, sequence, f, p, r, Codes.REJECT_WEIGHTS);
    }

    function _rowHash(FileData memory f) internal pure returns (bytes32) {
        return keccak256(abi.encode(f.node, uint256(f.counter)));
    }
}
