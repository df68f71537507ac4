// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SuiteContract} from "./SuiteContract.sol";
import {IStakes} from "./interfaces/IStakes.sol";
import {SplitLib} from "./libraries/SplitLib.sol";
import {TypedData} from "./libraries/TypedData.sol";
import {Suite} from "./libraries/Types.sol";

/// @title Stakes
contract Stakes is IStakes, SuiteContract {
    bytes32 public constant CONSENT_TYPEHASH = keccak256("Consent(address node,address operator,uint256 expiry)");
    bytes32 public constant SPONSORSHIP_TYPEHASH =
        keccak256("Sponsorship(address node,address operator,address sponsor,uint256 expiry)");
    uint256 public constant MAX_STAKE = type(uint56).max;

    /// @dev A slash takes of the stake alone: what is left of a loan is at most the stake.
    struct Loan {
        address sponsor;
        uint56 amount;
        uint24 pool;
    }

    /// @inheritdoc IStakes
    uint256 public unburnt;
    mapping(address node => Node) private _nodes;
    mapping(address node => Loan) private _loans;

    modifier onlyPools() {
        if (msg.sender != address(pools)) revert NotPools();
        _;
    }

    modifier onlyJudges() {
        if (msg.sender != address(pools) && msg.sender != nodeChallenges) revert NotPools();
        _;
    }

    constructor(Suite memory suite) SuiteContract(suite, suite.stakes) {}

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
        Node storage slot = _nodes[node];
        if (slot.operator == address(0)) revert UnknownNode();
        uint256 stake = slot.stake + amount;
        if (stake > MAX_STAKE) revert AmountTooLarge();
        // what a slash took of the loan is not to be paid back out of this
        if (_loans[node].amount > slot.stake) _loans[node].amount = slot.stake;
        slot.stake = uint56(stake);
        emit StakeDeposited(node, amount, stake);
        _receive(amount);
    }

    /// @inheritdoc IStakes
    function withdraw(address node, uint256 amount) external nonReentrant {
        if (_nodes[node].operator != msg.sender) revert NotOperator();
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
        _send(SINK, amount);
    }

    /// @inheritdoc IStakes
    function bind(address node, uint256 pool, uint256 minStake)
        external
        onlyPools
        returns (address operator, uint256 stake)
    {
        Node storage slot = _nodes[node];
        (operator, stake) = (slot.operator, slot.stake);
        if (operator == address(0)) revert UnknownNode();
        if (slot.pool != 0) revert InPool(slot.pool);
        if (stake < minStake) revert StakeTooLow(stake, minStake);
        // in a pool of its own seats and prices a borrower could have its stake paid out to itself
        if (_loans[node].amount != 0 && _loans[node].pool != pool) revert LentFor(_loans[node].pool);
        if (slot.lastPool != pool && (block.timestamp < slot.releaseAt || slot.frozen != 0)) {
            revert StakeLocked(slot.releaseAt, slot.frozen);
        }
        slot.pool = uint24(pool);
        emit NodeBound(node, pool);
    }

    /// @inheritdoc IStakes
    function unbind(address node, uint256 releaseAt) external onlyPools {
        _unbind(node, releaseAt);
    }

    /// @inheritdoc IStakes
    function freeze(address node) external onlyJudges {
        uint256 frozen = _nodes[node].frozen;
        if (frozen != type(uint16).max) _nodes[node].frozen = uint16(++frozen);
        emit NodeFrozen(node, frozen);
    }

    /// @inheritdoc IStakes
    function release(address node) external onlyJudges {
        emit NodeReleased(node, _release(node));
    }

    /// @inheritdoc IStakes
    function slash(address node, Slash calldata order)
        external
        onlyJudges
        nonReentrant
        returns (uint256 taken, uint256 feesPaid, uint256 rewardPaid, uint256 left)
    {
        Node storage slot = _nodes[node];
        uint256 stake = slot.stake;
        uint256 amount = order.bps == 0 ? order.amount : stake * order.bps / 10_000;
        (taken, feesPaid, rewardPaid) =
            SplitLib.slash(stake, amount, order.kept, order.fees, order.reward, order.rewardBps);
        left = stake - taken;
        slot.stake = uint56(left);
        uint256 frozen = _release(node);
        if (left < order.minStake && slot.pool != 0) {
            // nothing is left to lock when all of it was taken
            if (left == 0) slot.pool = 0;
            else _unbind(node, order.lockedUntil);
        }
        emit NodeSlashed(node, taken, feesPaid, rewardPaid, left, frozen);
        _send(msg.sender, feesPaid);
        _send(msg.sender == nodeChallenges ? nodeChallenges : address(appeals), rewardPaid);
        _discard(node, taken - feesPaid - rewardPaid, order.collector);
    }

    /// @inheritdoc IStakes
    function nodeOf(address node) external view returns (Node memory) {
        return _nodes[node];
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
        Node storage slot = _nodes[node];
        bool locked = slot.pool != 0 || slot.frozen != 0 || block.timestamp < slot.releaseAt;
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
        if (!TypedData.signedBy(node, digest, consent)) revert BadConsent();
        (_nodes[node].operator, _nodes[node].stake) = (operator, uint56(amount));
        emit NodeRegistered(node, operator, amount);
        _receive(amount);
    }

    /// @dev Of a free stake: first to its sponsor, up to the loan, then to its operator.
    function _withdraw(address node, uint256 amount) private {
        Node storage slot = _nodes[node];
        if (slot.pool != 0) revert InPool(slot.pool);
        if (block.timestamp < slot.releaseAt || slot.frozen != 0) revert StakeLocked(slot.releaseAt, slot.frozen);
        if (amount > slot.stake) revert StakeTooLow(slot.stake, amount);
        (address sponsor, uint256 loan) = loanOf(node);
        uint256 repaid = amount < loan ? amount : loan;
        uint256 stake = slot.stake - amount;
        slot.stake = uint56(stake);
        emit StakeWithdrawn(node, slot.operator, amount, stake);
        if (repaid != 0) {
            _loans[node].amount = uint56(loan - repaid);
            emit LoanRepaid(node, sponsor, repaid);
            _send(sponsor, repaid);
        }
        _send(slot.operator, amount - repaid);
    }

    /// @dev What of a penalty nobody gets waits to be burnt, in bulk; but for the share of whoever collects it.
    function _discard(address node, uint256 amount, address collector) private {
        if (amount == 0) return;
        uint256 share = collector == address(0) ? 0 : amount * COLLECTOR_BPS / 10_000;
        unburnt += amount - share;
        if (collector == address(0)) return;
        emit Collected(node, collector, share);
        _send(collector, share);
    }

    /// @return frozen How many freezes are left.
    function _release(address node) private returns (uint256 frozen) {
        frozen = _nodes[node].frozen;
        if (frozen != type(uint16).max) _nodes[node].frozen = uint16(--frozen);
    }

    function _unbind(address node, uint256 releaseAt) private {
        Node storage slot = _nodes[node];
        uint24 pool = slot.pool;
        (slot.pool, slot.releaseAt, slot.lastPool) = (0, uint40(releaseAt), pool);
        emit NodeUnbound(node, pool, releaseAt);
    }
}
