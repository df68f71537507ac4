// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileData} from "../../src/libraries/Types.sol";
import {FileRef} from "../../src/libraries/Types.sol";
import {IParams} from "./IParams.sol";
import {PoolTerms} from "../../src/libraries/Types.sol";
import {Receipt} from "../../src/libraries/Types.sol";

/// @notice contracts/src/Pools.sol for the tests, written by contracts/tools/abi.mjs.
interface IPools {
    enum Status {
        None,
        Open,
        Paused,
        Closing,
        Settled,
        Understaffed
    }
    struct Intake {
        uint64 free;
        uint32 rate;
        uint40 fees;
        uint24 lanes;
        uint32 maxUnits;
        uint24 steps;
        uint8 maxLag;
        Status status;
    }
    struct Desk {
        address owner;
        uint32 seedBlock;
        uint32 since;
        uint32 unbonding;
        uint56 minStake;
        uint16 leverage;
        uint32 challengeWindow;
        uint32 receiptWindow;
        bool inviteOnly;
    }
    error AlreadyMember();
    error AmountTooLarge();
    error BadCount();
    error BadInvite();
    error BadRows();
    error BadSignature();
    error BadUnits(uint256 units, uint256 most);
    error CounterMismatch(uint256 expected, uint256 actual);
    error EscrowExhausted(uint256 needed, uint256 free);
    error FileRefused(uint256 index, bytes reason);
    error IsFrozen(uint256 barrier);
    error NoSuchFile(uint256 pool, uint256 sequence);
    error NoSuchPool();
    error NodeIsFrozen();
    error NotMember();
    error NotOperatorOrNode();
    error NotOwner();
    error NotPermitted();
    error NotService();
    error NotYet(uint256 time);
    error NothingToClaim();
    error OtherChain();
    error OverLimit(uint256 units, uint256 limit);
    error Paused();
    error ReceiptOutOfTime(uint256 first, uint256 last);
    error ReentrancyGuardReentrantCall();
    error Removed();
    error SafeERC20FailedOperation(address token);
    error SignatureExpired();
    error StepMismatch(uint256 expected, uint256 actual);
    error StepOutOfRange(uint256 step, uint256 first, uint256 last);
    error TooManyUnsettled(uint256 most);
    error WindowOver(uint256 time);
    error WrongAddress(address expected, address actual);
    error WrongFile(uint256 sequence);
    error WrongPhase(uint256 sequence, uint256 phase);
    error WrongStatus(Status status);
    event Claimed(uint256 pool, address node, uint256 units, uint256 amount);
    event FeesWithdrawn(uint256 indexed seat, address indexed owner, uint256 amount);
    event FileFinalized(uint256 file, uint256 code, uint256 slashed);
    event FileForfeited(uint256 indexed pool, address indexed node, uint256 indexed sequence, uint256 amount);
    event FileResolved(uint256 indexed pool, address indexed node, uint256 indexed sequence, uint256 code, uint256 time);
    event FilesSettled(uint256 file, uint256[] words);
    event FilesUnpacked(uint256 file, uint256 places);
    event JuryPaid(uint256 indexed pool, address indexed to, uint256 amount);
    event LeftoverTaken(uint256 indexed pool, address indexed owner, uint256 amount);
    event LimitSet(uint256 indexed pool, address indexed node, uint256 limit);
    event NodeExpelled(uint256 indexed pool, address indexed node);
    event NodeFrozen(uint256 indexed pool, address indexed node, uint256 frozenAt);
    event NodeJoined(uint256 indexed pool, address indexed node, address indexed operator, uint256 joinedStep, uint256 limit);
    event NodeLeft(uint256 indexed pool, address indexed node, bool removed);
    event PoolCreated(uint256 indexed pool, address indexed owner, bytes32 indexed configHash, PoolTerms terms, uint256 unbonding);
    event PoolFunded(uint256 indexed pool, address indexed from, uint256 amount);
    event StatusSet(uint256 indexed pool, Status status);
    event StepPublished(uint256 indexed pool, uint256 indexed step, bytes32 manifestHash, bytes32 canaryRoot, uint256 seedBlock);
    event WorkSubmitted(address node, uint256 placed, bytes32 root, bytes32 fileHash);
    function accountOf(uint256 pool, address node) external view returns (uint256);
    function canaryRootOf(uint256 pool, uint256 step) external view returns (bytes32);
    function claim(uint256 pool, address node, uint256 sequence, bytes32 inner, uint256[] calldata words) external returns (uint256 amount);
    function closePool(uint256 pool) external;
    function createPool(PoolTerms calldata terms, uint256 budget) external returns (uint256 pool);
    function expel(uint256 pool, address node) external;
    function feesOf(uint256 seat) external view returns (uint256);
    function finalize(uint256 pool, uint256 sequence, FileRef calldata file, uint256[] calldata words) external;
    function forfeit(uint256 pool, uint256 sequence, FileData calldata file) external;
    function freezeHeld(uint256 pool, uint256 sequence, FileData calldata file) external;
    function fund(uint256 pool, uint256 amount) external;
    function hold(uint256 pool, uint256 sequence, FileData calldata file) external returns (uint256 code);
    function join(uint256 pool, address node, uint256 expiry, bytes calldata signature, bytes calldata invite) external;
    function leavePool(uint256 pool, address node, uint256 expiry, bytes calldata signature) external;
    function nonceOf(address node) external view returns (uint256);
    function openFees(uint256 seat) external;
    function ownerOf(uint256 pool) external view returns (address);
    function params() external view returns (IParams);
    function pausePool(uint256 pool) external;
    function payFees(uint256 seat, uint256 paid, uint256 burnt) external;
    function payJury(uint256 pool, uint256 amount) external returns (uint256 paid);
    function poolCount() external view returns (uint256);
    function poolOf(uint256 pool) external view returns (Intake memory, Desk memory);
    function publishStep(uint256 pool, uint256 step, bytes32 manifestHash, bytes32 canaryRoot) external;
    function refresh(uint256 pool, address node) external;
    function removeNode(uint256 pool, address node) external;
    function resolve(uint256 pool, uint256 sequence, FileData calldata file, uint256 code, uint256 reward, uint256 juryFees) external returns (uint256 rewardPaid);
    function resumePool(uint256 pool) external;
    function reviewSeats(uint256 pool) external;
    function settleLane(uint256 pool, uint256 lane, uint256 codes, uint256 rounds, uint256 window, FileRef[] calldata files) external;
    function settlePool(uint256 pool) external returns (uint256 amount);
    function submitLane(uint256 pool, FileData[] calldata files, bytes[] calldata signatures, Receipt[] calldata receipts, uint256 anchor, bytes32 anchorHash) external returns (uint256 lane);
    function unpack(uint256 pool, uint256 lane, uint256[] calldata words, uint256 places) external;
    function withdrawFees(uint256 seat) external returns (uint256 amount);
    function wordOf(uint256 pool, uint256 sequence) external view returns (uint256);
}
