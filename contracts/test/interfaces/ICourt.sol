// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileRef} from "../../src/libraries/Types.sol";
import {IParams} from "./IParams.sol";
import {PoolTerms} from "../../src/libraries/Types.sol";
import {Receipt} from "../../src/libraries/Types.sol";

/// @notice contracts/src/Court.sol for the tests, written by contracts/tools/abi.mjs.
interface ICourt {
    struct Opening {
        uint256 member;
        uint256 codes;
        bytes32 verdictHash;
        bytes32 salt;
    }
    error AlreadyClosed();
    error AlreadyCommitted();
    error AlreadyDrawn();
    error AlreadyRevealed();
    error AlreadySettled();
    error BadReceipt();
    error BadTerms(string field);
    error CommitOver(uint256 time);
    error DrawNotOpen(uint256 firstBlock);
    error DrawOver(uint256 lastBlock);
    error EmptyCommitment();
    error NoSuchLane();
    error NotCommitted();
    error NotDrawn();
    error NotOwner();
    error NotPermitted();
    error NotSettleable(uint256 time);
    error NotSettled();
    error NotVoter();
    error NotYet(uint256 time);
    error PayAboveBonds(uint256 pay, uint256 bonds);
    error ReentrancyGuardReentrantCall();
    error RevealNotOpen(uint256 time);
    error RevealOver(uint256 time);
    error SeedNotMined(uint256 seedBlock);
    error TooFewSeats(uint256 seats);
    error TooSoon(uint256 time);
    error WrongAddress(address expected, address actual);
    error WrongReveal();
    event CommitteeDrawn(uint256 which, uint256 seedBlock, uint256 drawn);
    event LaneRedrawn(uint256 indexed pool, uint256 indexed lane, uint256 seedBlock);
    event LaneSettled(uint256 which, uint256 codes);
    event LaneSubmitted(uint256 indexed pool, uint256 indexed lane, uint256 files, uint256 seedBlock);
    event MemberAbsent(uint256 ballot, uint256 penalty);
    event MemberClosed(uint256 ballot, uint256 paid, uint256 burnt, uint256 penalty);
    event MirrorAnnounced(uint256 indexed pool, uint256 indexed sequence, address indexed sender, string uri);
    event OutcomeSet(uint256 indexed pool, uint256 indexed lane, uint256 place, uint256 round, uint256 code);
    event ServiceAnnounced(uint256 indexed pool, string url);
    event ServiceSet(uint256 indexed pool, address service, uint256 previousUntil);
    event VoteCommitted(uint256 ballot, bytes32 commitment);
    event VoteRevealed(uint256 ballot, uint256 codes, bytes32 verdictHash);
    function RECEIPT_TYPEHASH() external view returns (bytes32);
    function SEED_TAG() external view returns (bytes32);
    function announceMirror(uint256 pool, uint256 sequence, string calldata uri) external;
    function announceService(uint256 pool, string calldata url) external;
    function ballotOf(uint256 ballot) external view returns (bytes32);
    function checkReceipt(uint256 pool, address node, bytes32 fileHash, Receipt calldata receipt) external view;
    function closeCommittee(uint256 pool, uint256 lane, uint256 round) external;
    function committeeOf(uint256 pool, uint256 lane, uint256 round) external view returns (uint256[] memory members, address[] memory voters, bytes32 seed, bool drawn);
    function commit(uint256 pool, uint256 lane, uint256 round, uint256 member, bytes32 commitment) external;
    function decisionOf(uint256 pool, uint256 sequence) external view returns (uint256 round, uint256[] memory members, uint256[] memory votes, bytes32 seed, uint256 code);
    function draw(uint256 pool, uint256 lane, uint256 round) external;
    function epochBlocks() external view returns (uint256);
    function isService(uint256 pool, address who) external view returns (bool);
    function openLane(uint256 pool, uint256 lane, uint256 files) external;
    function params() external view returns (IParams);
    function registerPool(uint256 pool, PoolTerms calldata terms) external returns (uint256 unbonding);
    function revealAndSettle(uint256 pool, uint256 lane, uint256 round, Opening calldata vote_, FileRef[] calldata files) external;
    function reveal(uint256 pool, uint256 lane, uint256 round, uint256 member, uint256 codes, bytes32 verdictHash, bytes32 salt) external;
    function roundOf(uint256 pool, uint256 lane, uint256 round) external view returns (uint256);
    function serviceOf(uint256 pool) external view returns (address current, address previous, uint40 previousUntil);
    function setOutcome(uint256 pool, uint256 sequence, uint256 code) external;
    function setService(uint256 pool, address service) external;
    function settle(uint256 pool, uint256 lane, uint256 round, FileRef[] calldata files) external;
    function staffed(uint256 pool) external view returns (bool);
    function termsOf(uint256 pool) external view returns (PoolTerms memory);
    function vote(uint256 pool, uint256 lane, uint256 round, uint256 member, uint256 codes, bytes32 verdictHash) external;
}
