// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "./IParams.sol";

/// @notice contracts/src/Stakes.sol for the tests, written by contracts/tools/abi.mjs.
interface IStakes {
    struct Node {
        address operator;
        uint56 stake;
        uint24 pool;
        uint16 frozen;
        uint40 releaseAt;
        uint24 lastPool;
    }
    struct Slash {
        uint256 bps;
        uint256 amount;
        uint256 kept;
        uint256 fees;
        uint256 reward;
        uint256 rewardBps;
        address collector;
    }
    error AlreadyRegistered();
    error AmountTooLarge();
    error BadSignature();
    error InPool(uint256 pool);
    error LentFor(uint256 pool);
    error NotOperator();
    error NotPermitted();
    error NothingToBurn();
    error Paused();
    error ReentrancyGuardReentrantCall();
    error SafeERC20FailedOperation(address token);
    error SignatureExpired();
    error StakeLocked(uint256 releaseAt, uint256 frozen);
    error StakeTooLow(uint256 stake, uint256 needed);
    error UnknownNode();
    error WrongAddress(address expected, address actual);
    event Collected(address indexed node, address indexed collector, uint256 amount);
    event LoanRepaid(address indexed node, address indexed sponsor, uint256 amount);
    event NodeBound(address indexed node, uint256 indexed pool);
    event NodeFrozen(address indexed node, uint256 frozen);
    event NodeRegistered(address indexed node, address indexed operator, uint256 stake);
    event NodeReleased(address indexed node, uint256 frozen);
    event NodeSlashed(address indexed node, uint256 amount, uint256 fees, uint256 reward, uint256 stake, uint256 frozen);
    event NodeUnbound(address indexed node, uint256 indexed pool, uint256 releaseAt);
    event StakeDeposited(address indexed node, uint256 amount, uint256 stake);
    event StakeLent(address indexed node, address indexed sponsor, uint256 amount);
    event StakeWithdrawn(address indexed node, address indexed operator, uint256 amount, uint256 stake);
    function CONSENT_TYPEHASH() external view returns (bytes32);
    function MAX_STAKE() external view returns (uint256);
    function bind(address node, uint256 pool, uint256 minStake) external returns (address operator, uint256 stake);
    function burn() external;
    function deposit(address node, uint256 amount) external;
    function freeze(address node) external;
    function loanOf(address node) external view returns (address sponsor, uint256 amount);
    function nodeOf(address node) external view returns (Node memory);
    function operatorOf(address node) external view returns (address);
    function params() external view returns (IParams);
    function registerNode(address node, address operator, uint24 pool, uint256 amount, uint256 expiry, bytes calldata consent) external;
    function release(address node) external;
    function slash(address node, Slash calldata order) external returns (uint256 taken, uint256 feesPaid, uint256 rewardPaid, uint256 left, uint256 pool);
    function unbind(address node, uint256 releaseAt) external;
    function unburnt() external view returns (uint256);
    function withdraw(address node, uint256 amount) external;
}
