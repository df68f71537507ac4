// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "./interfaces/IParams.sol";
import {IStakes} from "./interfaces/IStakes.sol";
import {SplitLib} from "./libraries/SplitLib.sol";
import {SuiteLib} from "./libraries/SuiteLib.sol";
import {TypedData} from "./libraries/TypedData.sol";
import {Suite} from "./libraries/Types.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";

/// @title Stakes
contract Stakes is IStakes, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    bytes32 public constant CONSENT_TYPEHASH = keccak256("Consent(address node,address operator,uint256 expiry)");
    bytes32 public constant SPONSORSHIP_TYPEHASH =
        keccak256("Sponsorship(address node,address operator,address sponsor,uint256 expiry)");
    uint256 public constant MAX_STAKE = type(uint56).max;

    struct Slot {
        address operator;
        uint56 stake;
        uint24 pool;
        uint16 frozen;
    }

    struct Exit {
        uint40 releaseAt;
        uint24 lastPool;
    }

    /// @dev A slash takes of the stake alone: what is left of a loan is at most the stake.
    struct Loan {
        address sponsor;
        uint56 amount;
        uint24 pool;
    }

    IERC20 public immutable token;
    IParams public immutable params;
    address public immutable pools;
    address public immutable appeals;
    address public immutable nodeChallenges;

    /// @inheritdoc IStakes
    uint256 public unburnt;
    mapping(address node => Slot) private _nodes;
    mapping(address node => Exit) private _exits;
    mapping(address node => Loan) private _loans;

    modifier onlyPools() {
        if (msg.sender != pools) revert NotPools();
        _;
    }

    modifier onlyJudges() {
        if (msg.sender != pools && msg.sender != nodeChallenges) revert NotPools();
        _;
    }

    constructor(Suite memory suite) {
        SuiteLib.checkPlace(suite.stakes);
        token = IERC20(suite.token);
        params = IParams(suite.params);
        pools = suite.pools;
        appeals = suite.appeals;
        nodeChallenges = suite.nodeChallenges;
    }

    /// @inheritdoc IStakes
    function registerNode(address node, uint256 amount, uint256 expiry, bytes calldata consent) external nonReentrant {
        _register(node, msg.sender, amount, expiry, consentDigest(node, msg.sender, expiry), consent);
    }

    /// @inheritdoc IStakes
    function registerFor(
        address node,
        address operator,
        uint24 pool,
        uint256 amount,
        uint256 expiry,
        bytes calldata consent
    ) external nonReentrant {
        if (operator == address(0)) revert NotOperator();
        bytes32 digest = sponsorshipDigest(node, operator, msg.sender, expiry);
        _loans[node] = Loan(msg.sender, uint56(amount), pool);
        _register(node, operator, amount, expiry, digest, consent);
        emit StakeLent(node, msg.sender, amount);
    }

    /// @inheritdoc IStakes
    function deposit(address node, uint256 amount) external nonReentrant {
        Slot storage slot = _nodes[node];
        if (slot.operator == address(0)) revert UnknownNode();
        uint256 stake = slot.stake + amount;
        if (stake > MAX_STAKE) revert AmountTooLarge();
        // what a slash took of the loan is not to be paid back out of this
        if (_loans[node].amount > slot.stake) _loans[node].amount = slot.stake;
        slot.stake = uint56(stake);
        emit StakeDeposited(node, amount, stake);
        token.safeTransferFrom(msg.sender, address(this), amount);
    }

    /// @inheritdoc IStakes
    function withdraw(address node, uint256 amount) external nonReentrant {
        Slot storage slot = _nodes[node];
        if (slot.operator != msg.sender) revert NotOperator();
        _withdraw(node, amount);
    }

    /// @inheritdoc IStakes
    function repay(address node) external nonReentrant {
        (address sponsor, uint256 amount) = loanOf(node);
        if (sponsor != msg.sender) revert NotSponsor();
        if (amount == 0) revert NothingLent();
        _withdraw(node, amount);
    }

    /// @inheritdoc IStakes
    function burn() external nonReentrant {
        if (unburnt < 2) revert NothingToBurn();
        uint256 amount = unburnt - 1;
        unburnt = 1;
        token.safeTransfer(SuiteLib.SINK, amount);
    }

    /// @inheritdoc IStakes
    function bind(address node, uint256 pool, uint256 minStake)
        external
        onlyPools
        returns (address operator, uint256 stake)
    {
        Slot memory slot = _nodes[node];
        (operator, stake) = (slot.operator, slot.stake);
        if (operator == address(0)) revert UnknownNode();
        if (slot.pool != 0) revert InPool(slot.pool);
        if (stake < minStake) revert StakeTooLow(stake, minStake);
        // in a pool of its own seats and prices a borrower could have its stake paid out to itself
        if (_loans[node].amount != 0 && _loans[node].pool != pool) revert LentFor(_loans[node].pool);
        Exit memory exit = _exits[node];
        if (exit.lastPool != pool && (block.timestamp < exit.releaseAt || slot.frozen != 0)) {
            revert StakeLocked(exit.releaseAt, slot.frozen);
        }
        slot.pool = uint24(pool);
        _nodes[node] = slot;
        emit NodeBound(node, pool);
    }

    /// @inheritdoc IStakes
    function unbind(address node, uint256 releaseAt) external onlyPools {
        _unbind(node, releaseAt);
    }

    /// @inheritdoc IStakes
    function freeze(address node) external onlyJudges {
        // A count that has reached its end stays there: the stake is then locked for good, never free too early.
        uint256 frozen = _nodes[node].frozen;
        if (frozen != type(uint16).max) _nodes[node].frozen = uint16(++frozen);
        emit NodeFrozen(node, frozen);
    }

    /// @inheritdoc IStakes
    function release(address node) external onlyJudges {
        _release(node);
    }

    /// @inheritdoc IStakes
    function slash(address node, Slash calldata order)
        external
        onlyJudges
        nonReentrant
        returns (uint256 taken, uint256 feesPaid, uint256 rewardPaid, uint256 left)
    {
        Slot memory slot = _nodes[node];
        uint256 amount = order.bps == 0 ? order.amount : slot.stake * order.bps / 10_000;
        (taken, feesPaid, rewardPaid) =
            SplitLib.slash(slot.stake, amount, order.kept, order.fees, order.reward, order.rewardBps);
        left = slot.stake - taken;
        slot.stake = uint56(left);
        if (slot.frozen != type(uint16).max) --slot.frozen;
        if (left < order.minStake && slot.pool != 0) {
            // Nothing is left to lock when all of it was taken.
            if (left != 0) {
                _exits[node] = Exit({releaseAt: uint40(order.lockedUntil), lastPool: slot.pool});
                emit NodeUnbound(node, slot.pool, order.lockedUntil);
            }
            slot.pool = 0;
        }
        _nodes[node] = slot;
        emit NodeSlashed(node, taken, feesPaid, rewardPaid, left, slot.frozen);
        if (feesPaid != 0) token.safeTransfer(msg.sender, feesPaid);
        if (rewardPaid != 0) token.safeTransfer(msg.sender == pools ? appeals : msg.sender, rewardPaid);
        _discard(node, taken - feesPaid - rewardPaid, order.collector);
    }

    /// @inheritdoc IStakes
    function nodeOf(address node) external view returns (Node memory) {
        Slot memory slot = _nodes[node];
        Exit memory exit = _exits[node];
        return Node({
            operator: slot.operator,
            stake: slot.stake,
            pool: slot.pool,
            lastPool: exit.lastPool,
            frozen: slot.frozen,
            releaseAt: exit.releaseAt
        });
    }

    /// @inheritdoc IStakes
    function operatorOf(address node) external view returns (address) {
        return _nodes[node].operator;
    }

    /// @inheritdoc IStakes
    function stakeOf(address node) external view returns (uint256) {
        return _nodes[node].stake;
    }

    /// @inheritdoc IStakes
    function withdrawable(address node) external view returns (uint256) {
        Slot memory slot = _nodes[node];
        bool locked = slot.pool != 0 || slot.frozen != 0 || block.timestamp < _exits[node].releaseAt;
        return locked ? 0 : slot.stake;
    }

    /// @inheritdoc IStakes
    function loanOf(address node) public view returns (address sponsor, uint256 amount) {
        (sponsor, amount) = (_loans[node].sponsor, _loans[node].amount);
        uint256 stake = _nodes[node].stake;
        if (amount > stake) amount = stake;
    }

    /// @inheritdoc IStakes
    function consentDigest(address node, address operator, uint256 expiry) public view returns (bytes32) {
        bytes32 hash = keccak256(abi.encode(CONSENT_TYPEHASH, node, operator, expiry));
        return TypedData.digest(keccak256("muster-stakes"), address(this), hash);
    }

    /// @inheritdoc IStakes
    function sponsorshipDigest(address node, address operator, address sponsor, uint256 expiry)
        public
        view
        returns (bytes32)
    {
        bytes32 hash = keccak256(abi.encode(SPONSORSHIP_TYPEHASH, node, operator, sponsor, expiry));
        return TypedData.digest(keccak256("muster-stakes"), address(this), hash);
    }

    function _register(
        address node,
        address operator,
        uint256 amount,
        uint256 expiry,
        bytes32 digest,
        bytes calldata consent
    ) private {
        if (params.paused()) revert Paused();
        if (_nodes[node].operator != address(0)) revert AlreadyRegistered();
        if (amount > MAX_STAKE) revert AmountTooLarge();
        if (block.timestamp > expiry) revert ConsentExpired();
        if (!SignatureChecker.isValidSignatureNowCalldata(node, digest, consent)) revert BadConsent();
        _nodes[node] = Slot({operator: operator, stake: uint56(amount), pool: 0, frozen: 0});
        emit NodeRegistered(node, operator, amount);
        token.safeTransferFrom(msg.sender, address(this), amount);
    }

    /// @dev Of a free stake: first to its sponsor, up to the loan, then to its operator.
    function _withdraw(address node, uint256 amount) private {
        Slot storage slot = _nodes[node];
        if (slot.pool != 0) revert InPool(slot.pool);
        uint256 releaseAt = _exits[node].releaseAt;
        if (block.timestamp < releaseAt || slot.frozen != 0) revert StakeLocked(releaseAt, slot.frozen);
        if (amount > slot.stake) revert StakeTooLow(slot.stake, amount);
        (address sponsor, uint256 loan) = loanOf(node);
        uint256 repaid = amount < loan ? amount : loan;
        uint256 stake = slot.stake - amount;
        slot.stake = uint56(stake);
        emit StakeWithdrawn(node, slot.operator, amount, stake);
        if (repaid != 0) {
            _loans[node].amount = uint56(loan - repaid);
            emit LoanRepaid(node, sponsor, repaid);
            token.safeTransfer(sponsor, repaid);
        }
        if (amount != repaid) token.safeTransfer(slot.operator, amount - repaid);
    }

    /// @dev What of a penalty nobody gets waits to be burnt, in bulk; but for the share of whoever collects it.
    function _discard(address node, uint256 amount, address collector) private {
        if (amount == 0) return;
        uint256 share = collector == address(0) ? 0 : SplitLib.collected(amount);
        unburnt += amount - share;
        if (collector == address(0)) return;
        emit Collected(node, collector, share);
        token.safeTransfer(collector, share);
    }

    function _release(address node) private {
        uint256 frozen = _nodes[node].frozen;
        if (frozen != type(uint16).max) _nodes[node].frozen = uint16(--frozen);
        emit NodeReleased(node, frozen);
    }

    function _unbind(address node, uint256 releaseAt) private {
        uint24 pool = _nodes[node].pool;
        _nodes[node].pool = 0;
        _exits[node] = Exit({releaseAt: uint40(releaseAt), lastPool: pool});
        emit NodeUnbound(node, pool, releaseAt);
    }
}
