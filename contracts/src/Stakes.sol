// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SuiteContract} from "./SuiteContract.sol";
import {Reckoning} from "./libraries/Reckoning.sol";
import {TypedData} from "./libraries/TypedData.sol";
import {AmountTooLarge, Paused, SignatureExpired, Suite} from "./libraries/Types.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @title Stakes
/// @notice Operators' stake, one per node. A node key always belongs to the operator that registered it with the
/// key's consent. Stake can be withdrawn when the node is in no pool, its last pool's windows are over, and nothing of
/// it is frozen. Only Pools binds nodes. Only Pools and NodeChallenges freeze and slash, on verdicts and open
/// challenges.
contract Stakes is SuiteContract {
    struct Node {
        /// The owner of the stake, who receives the pay; zero for an unknown node.
        address operator;
        /// Base units at stake.
        uint56 stake;
        /// The pool it is in, or 0.
        uint24 pool;
        /// Rejected files that are not final yet, and node challenges that are open. A count that has reached its end
        /// stays there: the stake is then locked for good, never free too early.
        uint16 frozen;
        /// When the stake can be withdrawn, if `pool` and `frozen` are 0.
        uint40 releaseAt;
        /// The pool it was in last.
        uint24 lastPool;
    }

    struct Slash {
        /// Share of the stake to take, in 1/10000; when 0, `amount` is taken instead.
        uint256 bps;
        uint256 amount;
        /// What the node's other files may still cost, and is not taken.
        uint256 kept;
        /// Most that goes to the caller, first: Pools or NodeChallenges.
        uint256 fees;
        /// Most that goes to Appeals for Pools, and to NodeChallenges for itself; and its bound as a share of what is
        /// taken, in 1/10000.
        uint256 reward;
        uint256 rewardBps;
        /// Who gets a share of what would be burnt, for making the penalty due; or zero.
        address collector;
    }

    event NodeRegistered(address indexed node, address indexed operator, uint256 stake);
    event StakeLent(address indexed node, address indexed sponsor, uint256 amount);
    /// @notice Part of a withdrawal went to the sponsor.
    event LoanRepaid(address indexed node, address indexed sponsor, uint256 amount);
    event StakeDeposited(address indexed node, uint256 amount, uint256 stake);
    event StakeWithdrawn(address indexed node, address indexed operator, uint256 amount, uint256 stake);
    event NodeBound(address indexed node, uint256 indexed pool);
    /// @notice `releaseAt` is when its stake unlocks, if it has any.
    event NodeUnbound(address indexed node, uint256 indexed pool, uint256 releaseAt);
    event NodeFrozen(address indexed node, uint256 frozen);
    event NodeReleased(address indexed node, uint256 frozen);
    /// @notice `fees` went to Pools for the committee or to NodeChallenges for its jury, `reward` to Appeals or
    /// NodeChallenges, and a share to the collector. The rest waits to be burnt. `frozen` freezes are left.
    event NodeSlashed(
        address indexed node, uint256 amount, uint256 fees, uint256 reward, uint256 stake, uint256 frozen
    );
    /// @notice `collector` got its share of a penalty.
    event Collected(address indexed node, address indexed collector, uint256 amount);

    error NotOperator();
    /// @notice What is lent of the node's stake is for this pool only.
    error LentFor(uint256 pool);
    error AlreadyRegistered();
    error UnknownNode();
    error StakeTooLow(uint256 stake, uint256 needed);
    error InPool(uint256 pool);
    error StakeLocked(uint256 releaseAt, uint256 frozen);
    error NothingToBurn();

    bytes32 public constant CONSENT_TYPEHASH =
        keccak256("Consent(address node,address operator,address sponsor,uint256 expiry)");
    uint256 public constant MAX_STAKE = type(uint56).max;

    /// @dev A slash takes of the stake alone: what is left of a loan is at most the stake.
    struct Loan {
        address sponsor;
        uint56 amount;
        uint24 pool;
    }

    /// @notice Base units that were taken and are not burnt yet.
    uint256 public unburnt;
    mapping(address node => Node) private _nodes;
    mapping(address node => Loan) private _loans;

    constructor(Suite memory suite) SuiteContract(suite, suite.stakes) {}

    /// @notice Registers `node` under `operator` and stakes `amount` of the caller's (approved before). What a caller
    /// stakes for another operator, or for one `pool`, is a loan: it goes back to the caller before the operator can
    /// withdraw anything, and until then the node can join `pool` only. A slash takes it after the operator's own part.
    /// @param consent The node key's EIP-712 signature of Consent(address node,address operator,address sponsor,uint256
    /// expiry), domain {name "muster-stakes", version "1", chainId, this}; the caller is the sponsor.
    /// @param expiry Last second at which the consent may be used.
    function registerNode(
        address node,
        address operator,
        uint24 pool,
        uint256 amount,
        uint256 expiry,
        bytes calldata consent
    ) external nonReentrant {
        if (operator == address(0)) revert NotOperator();
        if (params.paused()) revert Paused();
        if (_nodes[node].operator != address(0)) revert AlreadyRegistered();
        if (amount > MAX_STAKE) revert AmountTooLarge();
        if (block.timestamp > expiry) revert SignatureExpired();
        bytes32 hash = keccak256(abi.encode(CONSENT_TYPEHASH, node, operator, msg.sender, expiry));
        TypedData.check(node, keccak256("muster-stakes"), hash, consent);
        (_nodes[node].operator, _nodes[node].stake) = (operator, uint56(amount));
        emit NodeRegistered(node, operator, amount);
        // the node key chose both accounts: the consent names them
        if (msg.sender != operator || pool != 0) {
            _loans[node] = Loan(msg.sender, uint56(amount), pool);
            emit StakeLent(node, msg.sender, amount);
        }
        _receive(amount);
    }

    /// @notice Adds stake; anyone may pay. The limit in a pool grows after `Pools.refresh`.
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

    /// @notice Repays the sponsor's loan out of the free stake, and sends the rest to the operator. Only these two may
    /// call, the sponsor for its loan alone: anybody else could empty a node's stake before it joins.
    function withdraw(address node, uint256 amount) external nonReentrant {
        Node storage slot = _nodes[node];
        (address sponsor, uint256 loan) = loanOf(node);
        if (msg.sender != slot.operator) {
            if (msg.sender != sponsor) revert NotOperator();
            amount = Math.min(amount, loan);
        }
        if (slot.pool != 0) revert InPool(slot.pool);
        if (block.timestamp < slot.releaseAt || slot.frozen != 0) revert StakeLocked(slot.releaseAt, slot.frozen);
        if (amount > slot.stake) revert StakeTooLow(slot.stake, amount);
        uint256 repaid = Math.min(amount, loan);
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

    /// @notice Burns what slashes took and nobody gets; anyone may call. One base unit stays, so that the next slash
    /// does not pay for a fresh storage word.
    function burn() external nonReentrant {
        if (unburnt < 2) revert NothingToBurn();
        uint256 amount = unburnt - 1;
        unburnt = 1;
        _send(SINK, amount);
    }

    function bind(address node, uint256 pool, uint256 minStake)
        external
        onlyFrom(pools, pools)
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

    /// @notice Ends a node's membership. Its stake is locked until `releaseAt`; where all was taken, nothing is.
    function unbind(address node, uint256 releaseAt) external onlyFrom(pools, pools) {
        Node storage slot = _nodes[node];
        uint24 pool = slot.pool;
        slot.pool = 0;
        if (slot.stake != 0) (slot.releaseAt, slot.lastPool) = (uint40(releaseAt), pool);
        emit NodeUnbound(node, pool, releaseAt);
    }

    function freeze(address node) external onlyFrom(pools, nodeChallenges) {
        uint256 frozen = _nodes[node].frozen;
        if (frozen != type(uint16).max) _nodes[node].frozen = uint16(++frozen);
        emit NodeFrozen(node, frozen);
    }

    function release(address node) external onlyFrom(pools, nodeChallenges) {
        emit NodeReleased(node, _release(node));
    }

    /// @notice Takes part of a node's stake and ends one freeze. First come the fees, then the reward, then the
    /// collector's share; the rest waits for `burn`. `left` base units stay at stake, and the node stays in its `pool`.
    function slash(address node, Slash calldata order)
        external
        onlyFrom(pools, nodeChallenges)
        nonReentrant
        returns (uint256 taken, uint256 feesPaid, uint256 rewardPaid, uint256 left, uint256 pool)
    {
        Node storage slot = _nodes[node];
        uint256 stake = slot.stake;
        uint256 amount = order.bps == 0 ? order.amount : stake * order.bps / 10_000;
        (taken, feesPaid, rewardPaid) =
            Reckoning.split(stake, amount, order.kept, order.fees, order.reward, order.rewardBps);
        (left, pool) = (stake - taken, slot.pool);
        slot.stake = uint56(left);
        uint256 frozen = _release(node);
        emit NodeSlashed(node, taken, feesPaid, rewardPaid, left, frozen);
        _send(msg.sender, feesPaid);
        _send(msg.sender == nodeChallenges ? nodeChallenges : appeals, rewardPaid);
        // the collector gets a share, and the rest waits to be burnt in bulk
        uint256 rest = taken - feesPaid - rewardPaid;
        uint256 share = order.collector == address(0) ? 0 : rest * COLLECTOR_BPS / 10_000;
        if (rest != 0) unburnt += rest - share;
        if (share != 0) emit Collected(node, order.collector, share);
        _send(order.collector, share);
    }

    function nodeOf(address node) external view returns (Node memory) {
        return _nodes[node];
    }

    function operatorOf(address node) external view returns (address) {
        return _nodes[node].operator;
    }

    /// @notice Who lent a part of the node's stake, and how much of the loan is left.
    function loanOf(address node) public view returns (address sponsor, uint256 amount) {
        (sponsor, amount) = (_loans[node].sponsor, Math.min(_loans[node].amount, _nodes[node].stake));
    }

    /// @return frozen How many freezes are left.
    function _release(address node) private returns (uint256 frozen) {
        frozen = _nodes[node].frozen;
        if (frozen != type(uint16).max) _nodes[node].frozen = uint16(--frozen);
    }
}
