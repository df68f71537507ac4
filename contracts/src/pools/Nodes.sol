// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../interfaces/IPools.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {AccountSlot} from "../libraries/AccountSlot.sol";
import {PoolSlot} from "../libraries/PoolSlot.sol";
import {TypedData} from "../libraries/TypedData.sol";
import {PoolBase} from "./PoolBase.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";

/// @title Nodes
/// @notice A node's account in a pool: joining, leaving, being removed, and the limit that its stake gives it.
abstract contract Nodes is PoolBase {
    using AccountSlot for uint256;
    using PoolSlot for uint256;

    bytes32 public constant INVITE_TYPEHASH = keccak256("Invite(uint256 pool,address node,uint256 expiry)");

    /// @inheritdoc IPools
    function join(uint256 pool, address node) external {
        if (_desks[pool].inviteOnly) revert InviteRequired();
        _join(pool, node);
    }

    /// @inheritdoc IPools
    function joinWithInvite(uint256 pool, address node, uint256 expiry, bytes calldata invite) external {
        if (block.timestamp > expiry) revert InviteExpired();
        bytes32 digest = inviteDigest(pool, node, expiry);
        if (!SignatureChecker.isValidSignatureNowCalldata(_desks[pool].owner, digest, invite)) revert BadInvite();
        _join(pool, node);
    }

    /// @inheritdoc IPools
    function leavePool(uint256 pool, address node) external {
        uint256 account = _accounts[_member(pool, node)].word;
        if (account.limit() == 0) revert NotMember();
        _onlyNode(node, stakes.operatorOf(node));
        _accounts[_member(pool, node)].word = account.withLimit(0);
        emit NodeLeft(pool, node, false);
        stakes.unbind(node, block.timestamp + _desks[pool].unbonding);
    }

    /// @inheritdoc IPools
    function removeNode(uint256 pool, address node) external onlyOwner(pool) {
        uint256 account = _accounts[_member(pool, node)].word;
        if (account.removed()) revert Removed();
        bool member = account.limit() != 0;
        _accounts[_member(pool, node)].word = (member ? account.withLimit(0) : account) | AccountSlot.REMOVED;
        emit NodeLeft(pool, node, true);
        if (member) stakes.unbind(node, block.timestamp + _desks[pool].unbonding);
    }

    /// @inheritdoc IPools
    function refresh(uint256 pool, address node) external {
        uint256 account = _accounts[_member(pool, node)].word;
        if (account.limit() == 0) revert NotMember();
        uint256 limit = _limit(pool, _pools[pool].word, stakes.stakeOf(node));
        _accounts[_member(pool, node)].word = account.withLimit(limit);
        emit LimitSet(pool, node, limit);
    }

    /// @inheritdoc IPools
    function expel(uint256 pool, address node) external onlyNodeCases {
        uint256 member = _member(pool, node);
        _accounts[member].word = _accounts[member].word.slashedAt(block.timestamp);
        emit NodeExpelled(pool, node);
    }

    /// @inheritdoc IPools
    function inviteDigest(uint256 pool, address node, uint256 expiry) public view returns (bytes32) {
        bytes32 hash = keccak256(abi.encode(INVITE_TYPEHASH, pool, node, expiry));
        return TypedData.digest(keccak256("muster-pools"), address(this), hash);
    }

    function _join(uint256 pool, address node) private {
        uint256 p = _pools[pool].word;
        if (p.status() != uint256(Status.Open) && p.status() != uint256(Status.Understaffed)) {
            revert WrongStatus(Status(p.status()));
        }
        if (params.paused()) revert Paused();
        uint256 first = _accounts[_member(pool, node)].word;
        if (first.removed() || first.slashed()) revert Removed();
        if (first.limit() != 0) revert AlreadyMember();
        (address operator, uint256 stake) = stakes.bind(node, pool, _desks[pool].minStake);
        _onlyNode(node, operator);
        uint256 limit = _limit(pool, p, stake);
        // Only steps whose seed block is later than the join: nobody can pick an address that has easy problems.
        uint256 steps = p.steps();
        uint256 step = steps != 0 && block.number < _desks[pool].seedBlock ? steps - 1 : steps;
        _accounts[_member(pool, node)].word = first.withLimit(limit).withJoinedStep(step);
        emit NodeJoined(pool, node, operator, step, limit);
    }

    /// @dev Of a node that may be no member any more: its limit, out of the stake that is still locked here, and the last
    /// time at which it was one.
    function _lockedLimit(uint256 pool, uint256 state, uint256 account)
        internal
        view
        returns (uint256 limit, uint256 last)
    {
        limit = account.limit();
        if (limit != 0) return (limit, block.timestamp);
        IStakes.Node memory node = stakes.nodeOf(msg.sender);
        Desk storage desk = _desks[pool];
        bool locked = node.pool == 0 && node.lastPool == pool && node.stake >= desk.minStake;
        if (!locked || account.slashed()) revert NotMember();
        return (_limit(pool, state, node.stake), node.releaseAt - desk.unbonding);
    }

    /// @dev One frozen file less.
    function _thaw(uint256 pool, address node) internal {
        uint256 account = _accounts[_member(pool, node)].word.frozenLess();
        _accounts[_member(pool, node)].word = account;
        if (account.frozen() == 0) emit NodeReleased(pool, node);
    }

    /// @dev A member whose stake shrank: its limit follows; below the pool's least stake it is no member any more.
    function _relimit(uint256 pool, address node, uint256 stake) internal returns (bool stays) {
        stays = stake >= _desks[pool].minStake;
        uint256 limit = stays ? _limit(pool, _pools[pool].word, stake) : 0;
        _accounts[_member(pool, node)].word = _accounts[_member(pool, node)].word.withLimit(limit);
        if (stays) emit LimitSet(pool, node, limit);
        else emit NodeLeft(pool, node, false);
    }

    /// @dev A node that went to another pool before this one was done with it: the stake under that membership shrank.
    function _relimitElsewhere(address node, uint256 stake) internal {
        uint256 other = stakes.nodeOf(node).pool;
        if (other == 0 || _relimit(other, node, stake)) return;
        stakes.unbind(node, block.timestamp + _desks[other].unbonding);
    }

    /// @dev Units that may be under way or unclaimed at once: never none, as the least stake allows one.
    function _limit(uint256 pool, uint256 state, uint256 stake) private view returns (uint256 limit) {
        limit = stake * _desks[pool].leverage / state.rate();
        if (limit > AccountSlot.MAX_34) limit = AccountSlot.MAX_34;
    }

    function _onlyNode(address node, address operator) private view {
        if (msg.sender != node && msg.sender != operator) revert NotOperatorOrNode();
    }
}
