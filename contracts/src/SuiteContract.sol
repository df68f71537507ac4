// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Params} from "./Params.sol";
import {NotPermitted, Suite, WrongAddress} from "./libraries/Types.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @title SuiteContract
/// @notice What the contracts of a suite share: one another's addresses, the penalties, and how they move tokens.
abstract contract SuiteContract is ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    /// Where burnt tokens go: works with any ERC-20 and stays visible.
    address internal constant SINK = 0x000000000000000000000000000000000000dEaD;
    /// Share of a penalty that goes to the account that collects it, in 1/10000.
    uint256 internal constant COLLECTOR_BPS = 500;

    IERC20 internal immutable token;
    /// Public, so that clients see that every contract has the penalties that the suite states.
    Params public immutable params;
    address internal immutable stakes;
    address internal immutable seats;
    address internal immutable pools;
    address internal immutable court;
    address internal immutable juries;
    address internal immutable appeals;
    address internal immutable canaries;
    address internal immutable nodeChallenges;
    uint256 internal immutable slashBps;
    uint256 internal immutable rewardBps;
    uint256 internal immutable malformedPenalty;
    uint256 internal immutable minorityPenalty;
    uint256 internal immutable withheldPenalty;
    uint256 internal immutable overturnPenalty;
    uint256 internal immutable canarySlash;
    uint256 internal immutable delayCompensation;

    modifier onlyFrom(address one, address other) {
        _onlyFrom(one, other);
        _;
    }

    /// @param place Where the suite says that this contract is.
    constructor(Suite memory suite, address place) {
        if (place != address(this)) revert WrongAddress(place, address(this));
        token = IERC20(suite.token);
        params = Params(suite.params);
        stakes = suite.stakes;
        seats = suite.seats;
        pools = suite.pools;
        court = suite.court;
        juries = suite.juries;
        appeals = suite.appeals;
        canaries = suite.canaries;
        nodeChallenges = suite.nodeChallenges;
        Params.Values memory values = params.values();
        slashBps = values.slashBps;
        rewardBps = values.rewardBps;
        malformedPenalty = values.malformedPenalty;
        minorityPenalty = values.minorityPenalty;
        withheldPenalty = values.withheldPenalty;
        overturnPenalty = values.overturnPenalty;
        canarySlash = values.canarySlash;
        delayCompensation = values.delayCompensation;
    }

    /// @dev A modifier is copied wherever it stands; what this one checks stands here once.
    function _onlyFrom(address one, address other) internal view {
        if (msg.sender != one && msg.sender != other) revert NotPermitted();
    }

    /// @dev From the caller, who approved it before.
    function _receive(uint256 amount) internal {
        token.safeTransferFrom(msg.sender, address(this), amount);
    }

    function _send(address to, uint256 amount) internal {
        if (amount != 0) token.safeTransfer(to, amount);
    }
}
