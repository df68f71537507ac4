// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title IStakes
/// @notice Operators' stake, one stake per node. A node key belongs for ever to the operator that registered it first
/// with the key's own consent. Stake leaves only when the node is in no pool, its last pool's windows have passed, and
/// none of its files is frozen. Only Pools can bind, and only
/// Pools and NodeChallenges can freeze or slash, which they do only on verdicts and for challenges that are open.
interface IStakes {
    struct Permit {
        uint256 deadline;
        uint8 v;
        bytes32 r;
        bytes32 s;
    }

    struct Node {
        /// Who owns the stake and receives pay; zero when unknown.
        address operator;
        /// Base units at stake.
        uint256 stake;
        /// The pool it is in, or 0.
        uint256 pool;
        /// The pool it was in last.
        uint256 lastPool;
        /// Rejected files that are not final yet, and node challenges that are open.
        uint256 frozen;
        /// Stake can be withdrawn from this time on (when pool and frozen are 0).
        uint256 releaseAt;
    }

    struct Slash {
        /// Share of the stake to take, in 1/10000; when 0, `amount` is taken instead.
        uint256 bps;
        uint256 amount;
        /// What the node's other files may still cost: never taken for this one.
        uint256 kept;
        /// Most that goes to the caller, first: Pools or NodeChallenges.
        uint256 fees;
        /// Most that goes to Appeals, and its bound as a share of what is taken, in 1/10000.
        uint256 reward;
        uint256 rewardBps;
        /// Below this, the node leaves its pool; what stake is left stays locked until `lockedUntil`.
        uint256 minStake;
        uint256 lockedUntil;
        /// Who made the penalty due, and gets a share of what would be burnt; zero: nobody.
        address collector;
    }

    event NodeRegistered(address indexed node, address indexed operator, uint256 stake);
    event StakeDeposited(address indexed node, uint256 amount, uint256 stake);
    event StakeWithdrawn(address indexed node, address indexed operator, uint256 amount, uint256 stake);
    event NodeBound(address indexed node, uint256 indexed pool);
    event NodeUnbound(address indexed node, uint256 indexed pool, uint256 releaseAt);
    event NodeFrozen(address indexed node, uint256 frozen);
    event NodeReleased(address indexed node, uint256 frozen);
    /// @notice `fees` went to the pool (it pays the committee from them) or to NodeChallenges (its jury), `reward` to Appeals, a share to the collector, if
    /// there is one, and the rest is to be burnt. The file counts as frozen no more: `frozen` are left. A slashed node
    /// without stake is in no pool any more; one that leaves its pool with a rest of stake is unbound (`NodeUnbound`).
    event NodeSlashed(
        address indexed node, uint256 amount, uint256 fees, uint256 reward, uint256 stake, uint256 frozen
    );

    /// @notice `collector` got its share of a penalty.
    event Collected(address indexed node, address indexed collector, uint256 amount);

    error NotOperator();
    error NotPools();
    error Paused();
    error AlreadyRegistered();
    error UnknownNode();
    error BadConsent();
    error ConsentExpired();
    error AmountTooLarge();
    error StakeTooLow(uint256 stake, uint256 needed);
    error InPool(uint256 pool);
    error StakeLocked(uint256 releaseAt, uint256 frozen);
    error NothingToBurn();

    /// @notice Registers `node` under the caller and stakes `amount` (the caller approved it before).
    /// @param expiry Last second at which the consent may be used.
    /// @param consent The node key's EIP-712 signature of
    /// Consent(address node,address operator,uint256 expiry), domain {name "muster-stakes", version "1", chainId, this}.
    function registerNode(address node, uint256 amount, uint256 expiry, bytes calldata consent) external;

    /// @notice The same in one transaction with an ERC-2612 permit of exactly `amount`.
    function registerNodeWithPermit(
        address node,
        uint256 amount,
        uint256 expiry,
        bytes calldata consent,
        Permit calldata permit
    ) external;

    /// @notice Adds stake; anyone may pay. The limit in a pool grows after `Pools.refresh`.
    function deposit(address node, uint256 amount) external;

    /// @notice Takes stake out, to the operator. Operator only; see `withdrawable`.
    function withdraw(address node, uint256 amount) external;

    /// @notice Sends what slashes took and nobody gets to where nobody can have it; anyone may call. A base unit stays, so that
    /// the next slash finds the count in use.
    function burn() external;

    // Hooks of Pools, and the last three of NodeChallenges.
    function bind(address node, uint256 pool, uint256 minStake) external returns (address operator, uint256 stake);
    function unbind(address node, uint256 releaseAt) external;
    function freeze(address node) external;
    function release(address node) external;
    /// @notice Takes part of a node's stake: first the fees, then the reward, then the collector's share; the rest waits
    /// for `burn`. Ends one freeze.
    /// `left` base units are still at stake.
    function slash(address node, Slash calldata order)
        external
        returns (uint256 taken, uint256 feesPaid, uint256 rewardPaid, uint256 left);

    function nodeOf(address node) external view returns (Node memory);
    function operatorOf(address node) external view returns (address);
    function stakeOf(address node) external view returns (uint256);
    function withdrawable(address node) external view returns (uint256);
    /// @notice Base units of this contract that are nobody's stake: taken, and not burnt yet.
    function unburnt() external view returns (uint256);
    /// @notice The EIP-712 digest that the node key signs.
    function consentDigest(address node, address operator, uint256 expiry) external view returns (bytes32);
}
