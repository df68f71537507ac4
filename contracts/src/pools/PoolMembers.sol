// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../interfaces/IPools.sol";
import {AccountSlot} from "../libraries/AccountSlot.sol";
import {PoolSlot} from "../libraries/PoolSlot.sol";
import {PoolBase} from "./PoolBase.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";

/// @title PoolMembers
/// @notice Nodes joining, leaving and being removed.
abstract contract PoolMembers is PoolBase, EIP712 {
    using AccountSlot for uint256;
    using PoolSlot for uint256;

    bytes32 public constant INVITE_TYPEHASH = keccak256("Invite(uint256 pool,address node,uint256 expiry)");

    constructor() EIP712("muster-pools", "1") {}

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
        uint256 a = _accounts[pool][node].w;
        if (a.limit() == 0) revert NotMember();
        _onlyNode(node, stakes.operatorOf(node));
        _accounts[pool][node].w = a.withLimit(0);
        emit NodeLeft(pool, node, false);
        stakes.unbind(node, block.timestamp + _desks[pool].unbonding);
    }

    /// @inheritdoc IPools
    function removeNode(uint256 pool, address node) external onlyOwner(pool) {
        uint256 a = _accounts[pool][node].w;
        if (a.removed()) revert Removed();
        bool member = a.limit() != 0;
        _accounts[pool][node].w = (member ? a.withLimit(0) : a) | AccountSlot.REMOVED;
        emit NodeLeft(pool, node, true);
        if (member) stakes.unbind(node, block.timestamp + _desks[pool].unbonding);
    }

    /// @inheritdoc IPools
    function refresh(uint256 pool, address node) external {
        uint256 a = _accounts[pool][node].w;
        if (a.limit() == 0) revert NotMember();
        uint256 limit = _limit(pool, _pools[pool].w, stakes.stakeOf(node));
        _accounts[pool][node].w = a.withLimit(limit);
        emit LimitSet(pool, node, limit);
    }

    /// @inheritdoc IPools
    function inviteDigest(uint256 pool, address node, uint256 expiry) public view returns (bytes32) {
        return _hashTypedDataV4(keccak256(abi.encode(INVITE_TYPEHASH, pool, node, expiry)));
    }

    function _join(uint256 pool, address node) private {
        uint256 p = _pools[pool].w;
        if (p.status() != uint256(Status.Open) && p.status() != uint256(Status.Understaffed)) {
            revert WrongStatus(Status(p.status()));
        }
        if (params.paused()) revert Paused();
        uint256 a = _accounts[pool][node].w;
        if (a.removed() || a.slashed()) revert Removed();
        if (a.limit() != 0) revert AlreadyMember();
        (address operator, uint256 stake) = stakes.bind(node, pool, _desks[pool].minStake);
        _onlyNode(node, operator);
        uint256 limit = _limit(pool, p, stake);
        // Only steps whose seed block is later than the join: nobody can pick an address that has easy problems.
        uint256 steps = p.steps();
        uint256 step = steps != 0 && block.number < _desks[pool].seedBlock ? steps - 1 : steps;
        _accounts[pool][node].w = a.withLimit(limit).withJoinedStep(step);
        emit NodeJoined(pool, node, operator, step, limit);
    }

    function _onlyNode(address node, address operator) private view {
        if (msg.sender != node && msg.sender != operator) revert NotOperatorOrNode();
    }
}
