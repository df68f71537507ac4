// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "./interfaces/IParams.sol";
import {ISwarms} from "./interfaces/ISwarms.sol";
import {SignerStakes} from "./libraries/SignerStakes.sol";
import {SuiteLib} from "./libraries/SuiteLib.sol";
import {TypedData} from "./libraries/TypedData.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @title Swarms
contract Swarms is ISwarms, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    bytes32 public constant ENVELOPE_TYPEHASH =
        keccak256("Envelope(uint256 swarm,address member,bytes32 document,uint256 round,bytes32 root)");
    bytes32 public constant CONSENT_TYPEHASH =
        keccak256("Consent(uint256 swarm,address member,address owner,uint256 expiry)");
    uint256 public constant MAX_STAKE = SignerStakes.MAX_STAKE;
    uint256 public constant MAX_DELAY = SignerStakes.MAX_DELAY;
    uint256 public constant MAX_ROUND = type(uint32).max;
    uint256 public constant SLASH_BPS = SignerStakes.SLASH_BPS;
    uint256 public constant REWARD_BPS = SignerStakes.REWARD_BPS;

    struct SwarmSlot {
        bytes32 document;
        uint56 stake;
        uint32 delay;
    }

    struct MemberSlot {
        address owner;
        uint56 stake;
        uint40 joinedBlock;
        uint40 releaseAt;
        uint40 nextRound;
        bool ejected;
    }

    IERC20 public immutable token;
    IParams public immutable params;

    /// @inheritdoc ISwarms
    uint256 public opened;
    mapping(uint256 swarm => SwarmSlot) private _swarms;
    mapping(uint256 swarm => mapping(address member => MemberSlot)) private _members;

    constructor(IERC20 token_, IParams params_) {
        (token, params) = (token_, params_);
    }

    /// @inheritdoc ISwarms
    function open(bytes32 document, uint256 stake, uint256 delay) external returns (uint256 swarm) {
        if (params.paused()) revert Paused();
        if (document == 0 || !SignerStakes.isStake(stake)) revert BadSwarmTerms();
        if (!SignerStakes.isDelay(delay, params)) revert BadSwarmTerms();
        swarm = ++opened;
        _swarms[swarm] = SwarmSlot({document: document, stake: uint56(stake), delay: uint32(delay)});
        emit SwarmOpened(swarm, document, msg.sender, stake, delay);
    }

    /// @inheritdoc ISwarms
    function join(uint256 swarm, address member, uint256 expiry, bytes calldata consent) external nonReentrant {
        if (params.paused()) revert Paused();
        uint56 stake = _swarms[swarm].stake;
        if (stake == 0) revert NoSuchSwarm();
        MemberSlot storage slot = _members[swarm][member];
        if (slot.owner != address(0)) revert AlreadyJoined();
        if (member != msg.sender) {
            if (block.timestamp > expiry) revert ExpiredConsent();
            if (!TypedData.signedBy(member, consentDigest(swarm, member, msg.sender, expiry), consent)) {
                revert WrongConsent();
            }
        }
        (slot.owner, slot.stake, slot.joinedBlock) = (msg.sender, stake, uint40(block.number));
        emit MemberJoined(swarm, member, msg.sender, stake);
        token.safeTransferFrom(msg.sender, address(this), stake);
    }

    /// @inheritdoc ISwarms
    function leave(uint256 swarm, address member) external {
        MemberSlot storage slot = _owned(swarm, member);
        if (slot.releaseAt != 0) revert AlreadyLeft();
        uint256 releaseAt = block.timestamp + _swarms[swarm].delay;
        slot.releaseAt = uint40(releaseAt);
        emit MemberLeft(swarm, member, releaseAt);
    }

    /// @inheritdoc ISwarms
    function withdraw(uint256 swarm, address member) external nonReentrant {
        MemberSlot storage slot = _owned(swarm, member);
        uint256 releaseAt = slot.releaseAt;
        if (releaseAt == 0 || block.timestamp < releaseAt) revert StakeHeld(releaseAt);
        uint256 amount = slot.stake;
        if (amount == 0) revert NothingAtStake();
        slot.stake = 0;
        emit StakeWithdrawn(swarm, member, msg.sender, amount);
        token.safeTransfer(msg.sender, amount);
    }

    /// @inheritdoc ISwarms
    function record(uint256 swarm, uint256 first, uint256 last, uint256 groups, bytes32 root) external {
        MemberSlot storage slot = _members[swarm][msg.sender];
        if (slot.owner == address(0)) revert NoSuchMember();
        if (slot.ejected) revert AlreadyEjected();
        // Envelopes from before leaving may still be recorded; not when nothing stands behind them any more.
        if (slot.stake == 0) revert NothingAtStake();
        uint256 next = slot.nextRound;
        if (first < next || last < first || last > MAX_ROUND) revert BadRounds(next);
        if (groups == 0 || root == 0) revert EmptyRoot();
        slot.nextRound = uint40(last + 1);
        emit RootRecorded(swarm, msg.sender, first, last, groups, root);
    }

    /// @inheritdoc ISwarms
    function accuse(
        uint256 swarm,
        address member,
        uint256 round,
        bytes32 rootA,
        bytes calldata signatureA,
        bytes32 rootB,
        bytes calldata signatureB
    ) external nonReentrant {
        MemberSlot storage slot = _members[swarm][member];
        if (slot.owner == address(0)) revert NoSuchMember();
        if (slot.ejected) revert AlreadyEjected();
        if (slot.stake == 0) revert NothingAtStake();
        if (rootA == rootB) revert SameEnvelope();
        if (!TypedData.signedBy(member, envelopeDigest(swarm, member, round, rootA), signatureA)) {
            revert BadSignature();
        }
        if (!TypedData.signedBy(member, envelopeDigest(swarm, member, round, rootB), signatureB)) {
            revert BadSignature();
        }
        _eject(swarm, member, slot, round);
    }

    /// @inheritdoc ISwarms
    function swarmOf(uint256 swarm) external view returns (Swarm memory) {
        SwarmSlot storage slot = _swarms[swarm];
        return Swarm({document: slot.document, stake: slot.stake, delay: slot.delay});
    }

    /// @inheritdoc ISwarms
    function memberOf(uint256 swarm, address member) external view returns (Member memory) {
        return _member(swarm, member);
    }

    /// @inheritdoc ISwarms
    function membersOf(uint256 swarm, address[] calldata members) external view returns (Member[] memory views) {
        views = new Member[](members.length);
        for (uint256 i = 0; i < members.length; ++i) {
            views[i] = _member(swarm, members[i]);
        }
    }

    /// @inheritdoc ISwarms
    function isMember(uint256 swarm, address member) external view returns (bool) {
        MemberSlot storage slot = _members[swarm][member];
        return slot.owner != address(0) && slot.releaseAt == 0;
    }

    /// @inheritdoc ISwarms
    function envelopeDigest(uint256 swarm, address member, uint256 round, bytes32 root) public view returns (bytes32) {
        return _digest(keccak256(abi.encode(ENVELOPE_TYPEHASH, swarm, member, _swarms[swarm].document, round, root)));
    }

    /// @inheritdoc ISwarms
    function consentDigest(uint256 swarm, address member, address owner, uint256 expiry) public view returns (bytes32) {
        return _digest(keccak256(abi.encode(CONSENT_TYPEHASH, swarm, member, owner, expiry)));
    }

    /// @dev An ejected member counts as one that left: its first release stays, so no accusation makes it earlier.
    function _eject(uint256 swarm, address member, MemberSlot storage slot, uint256 round) private {
        uint256 stake = slot.stake;
        (uint256 taken, uint256 reward) = SignerStakes.slashed(stake);
        uint256 releaseAt = slot.releaseAt;
        if (releaseAt == 0) releaseAt = block.timestamp + _swarms[swarm].delay;
        (slot.stake, slot.releaseAt, slot.ejected) = (uint56(stake - taken), uint40(releaseAt), true);
        emit MemberEjected(swarm, member, msg.sender, round, reward, taken - reward, releaseAt);
        if (reward != 0) token.safeTransfer(msg.sender, reward);
        if (taken != reward) token.safeTransfer(SuiteLib.SINK, taken - reward);
    }

    function _owned(uint256 swarm, address member) private view returns (MemberSlot storage slot) {
        slot = _members[swarm][member];
        if (slot.owner == address(0)) revert NoSuchMember();
        if (slot.owner != msg.sender) revert NotStakeOwner();
    }

    function _member(uint256 swarm, address member) private view returns (Member memory) {
        MemberSlot storage slot = _members[swarm][member];
        return Member({
            member: member,
            owner: slot.owner,
            stake: slot.stake,
            joinedBlock: slot.joinedBlock,
            releaseAt: slot.releaseAt,
            nextRound: slot.nextRound,
            ejected: slot.ejected
        });
    }

    function _digest(bytes32 structHash) private view returns (bytes32) {
        return TypedData.digest(keccak256("muster-swarm"), address(this), structHash);
    }
}
