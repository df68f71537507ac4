// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title IStakes
/// @notice Operators' stake, one per node. A node key belongs for ever to the operator that registered it with the
/// key's consent. Stake can be withdrawn when the node is in no pool, its last pool's windows are over, and nothing of
/// it is frozen. Only Pools binds nodes. Only Pools and NodeChallenges freeze and slash, on verdicts and open
/// challenges.
interface IStakes {
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
        /// Below this, the node leaves its pool; what stake is left stays locked until `lockedUntil`.
        uint256 minStake;
        uint256 lockedUntil;
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
    event NodeUnbound(address indexed node, uint256 indexed pool, uint256 releaseAt);
    event NodeFrozen(address indexed node, uint256 frozen);
    event NodeReleased(address indexed node, uint256 frozen);
    /// @notice `fees` went to Pools for the committee or to NodeChallenges for its jury, `reward` to Appeals
    /// or NodeChallenges, a share to the collector, and the rest waits to be burnt. `frozen` freezes are left. A node without stake is in no pool.
    /// A node that leaves its pool with stake left is unbound (`NodeUnbound`).
    event NodeSlashed(
        address indexed node, uint256 amount, uint256 fees, uint256 reward, uint256 stake, uint256 frozen
    );

    /// @notice `collector` got its share of a penalty.
    event Collected(address indexed node, address indexed collector, uint256 amount);

    error NotOperator();
    error NotSponsor();
    error NothingLent();
    /// @notice What is lent of the node's stake is for this pool only.
    error LentFor(uint256 pool);
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
    /// Consent(address node,address operator,uint256 expiry), domain {name "muster-stakes", version "1", chainId,
    /// this}.
    function registerNode(address node, uint256 amount, uint256 expiry, bytes calldata consent) external;

    /// @notice Registers `node` under `operator`; the stake is a loan of the caller. It goes back to the caller before
    /// the operator can withdraw anything. Until then the node can join `pool` only. A slash takes of it like of any
    /// stake.
    /// @param consent The node key's signature of Sponsorship(address node,address operator,address sponsor,uint256
    /// expiry), same domain.
    function registerFor(
        address node,
        address operator,
        uint24 pool,
        uint256 amount,
        uint256 expiry,
        bytes calldata consent
    ) external;

    /// @notice Sends a free stake back to its sponsor, up to the loan. Sponsor only: anybody else could take a node its
    /// stake before it joins.
    function repay(address node) external;

    /// @notice Adds stake; anyone may pay. The limit in a pool grows after `Pools.refresh`.
    function deposit(address node, uint256 amount) external;

    /// @notice Sends stake to its operator, but what is lent of it to its sponsor first. Operator only; see
    /// `withdrawable`.
    function withdraw(address node, uint256 amount) external;

    /// @notice Burns what slashes took and nobody gets; anyone may call. One base unit stays, so that the next slash
    /// does not pay for a fresh storage word.
    function burn() external;

    // Hooks of Pools, and the last three of NodeChallenges.
    function bind(address node, uint256 pool, uint256 minStake) external returns (address operator, uint256 stake);
    function unbind(address node, uint256 releaseAt) external;
    function freeze(address node) external;
    function release(address node) external;
    /// @notice Takes part of a node's stake and ends one freeze. First come the fees, then the reward, then the
    /// collector's share; the rest waits for `burn`. `left` base units stay at stake.
    function slash(address node, Slash calldata order)
        external
        returns (uint256 taken, uint256 feesPaid, uint256 rewardPaid, uint256 left);

    function nodeOf(address node) external view returns (Node memory);
    function operatorOf(address node) external view returns (address);
    function stakeOf(address node) external view returns (uint256);
    function withdrawable(address node) external view returns (uint256);
    /// @notice Base units that were taken and are not burnt yet.
    function unburnt() external view returns (uint256);
    /// @notice Who lent of the node's stake, and how much of it is left.
    function loanOf(address node) external view returns (address sponsor, uint256 amount);
    function sponsorshipDigest(address node, address operator, address sponsor, uint256 expiry)
        external
        view
        returns (bytes32);
    /// @notice The EIP-712 digest that the node key signs.
    function consentDigest(address node, address operator, uint256 expiry) external view returns (bytes32);
}
