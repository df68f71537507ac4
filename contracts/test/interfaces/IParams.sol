// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {PoolTerms} from "../../src/libraries/Types.sol";

/// @notice contracts/src/Params.sol for the tests, written by contracts/tools/abi.mjs.
interface IParams {
    struct Values {
        uint16 slashBps;
        uint16 rewardBps;
        uint56 malformedPenalty;
        uint56 minorityPenalty;
        uint56 withheldPenalty;
        uint56 overturnPenalty;
        uint56 canarySlash;
        uint56 delayCompensation;
    }
    error BadTerms(string field);
    error OutOfBounds(string name);
    error OwnableInvalidOwner(address owner);
    error OwnableUnauthorizedAccount(address account);
    error TooSoon(uint256 time);
    event OwnershipTransferStarted(address indexed previousOwner, address indexed newOwner);
    event OwnershipTransferred(address indexed previousOwner, address indexed newOwner);
    event PausedUntil(uint256 time);
    event ValuesSet(Values values);
    function MAX_COMPENSATION() external view returns (uint256);
    function MAX_PAUSE() external view returns (uint256);
    function MAX_PENALTY() external view returns (uint256);
    function acceptOwnership() external;
    function blockSeconds() external view returns (uint256);
    function checkTerms(PoolTerms calldata terms) external view returns (uint256 period);
    function minWindow() external view returns (uint256);
    function owner() external view returns (address);
    function pausedUntil() external view returns (uint256);
    function paused() external view returns (bool);
    function pendingOwner() external view returns (address);
    function renounceOwnership() external;
    function setPaused(bool paused_) external;
    function transferOwnership(address newOwner) external;
    function unbonding() external view returns (uint256);
    function values() external view returns (Values memory);
}
