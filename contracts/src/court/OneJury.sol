// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICourt} from "../interfaces/ICourt.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {IOneJury} from "../interfaces/IOneJury.sol";
import {IParams} from "../interfaces/IParams.sol";
import {Codes} from "../libraries/Codes.sol";
import {JuryTerms} from "../libraries/JuryTerms.sol";
import {SuiteLib} from "../libraries/SuiteLib.sol";
import {PoolTerms, Suite} from "../libraries/Types.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @title OneJury
/// @notice Summoning one jury, hearing it, and its pay. It keeps nothing: what is judged, and its bond, is the bench's.
abstract contract OneJury is IOneJury, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    IERC20 public immutable token;
    IParams public immutable params;
    ICourt public immutable court;
    IJuries public immutable juries;

    constructor(Suite memory suite) {
        token = IERC20(suite.token);
        params = IParams(suite.params);
        court = ICourt(suite.court);
        juries = IJuries(suite.juries);
    }

    /// @dev To judge `files` files, the last at `sequence`; 1 where it judges none.
    function _summon(uint256 pool, uint256 sequence, uint256 files) internal returns (uint256 trial) {
        return juries.summon(pool, sequence, files, _size(court.termsOf(pool)), new uint256[](0), address(0));
    }

    /// @dev What the jury found, once it is done; of no majority `next`, the jury in its place, 0 where it was replaced
    /// before.
    function _heard(uint256 trial) internal returns (uint256 code, uint256 next) {
        bool done;
        (done, code) = juries.verdictOf(trial);
        if (!done) revert Undecided();
        if (code == Codes.NONE) next = juries.replace(trial);
    }

    function _outcome(uint256 code) internal pure returns (Outcome) {
        if (code == Codes.NONE) return Outcome.Lapsed;
        if (code == Codes.UNAVAILABLE) return Outcome.Dismissed;
        return Codes.isReject(code) ? Outcome.Upheld : Outcome.Refuted;
    }

    /// @dev Pays who voted `code` its fees, as far as `funds` last.
    function _payJury(uint256 trial, uint256 code, uint256 funds) internal returns (uint256 used) {
        used = juries.conclude(trial, code, funds);
        _send(address(juries), used);
    }

    /// @dev The bond of who was wrong: the jury, then whoever's stake it held since `openedAt`; the rest is burnt.
    function _forfeit(uint256 trial, uint256 code, uint256 bond, uint256 openedAt, address injured) internal {
        uint256 pot = bond - _payJury(trial, code, bond);
        uint256 compensation = params.valuesAt(openedAt).delayCompensation;
        if (compensation > pot) compensation = pot;
        _send(injured, compensation);
        _send(SuiteLib.SINK, pot - compensation);
    }

    /// @dev The jury's fees, and the compensation of who is accused without reason.
    function _bond(uint256 pool, uint256 files) internal view returns (uint256) {
        return _fees(pool, files) + params.values().delayCompensation;
    }

    function _fees(uint256 pool, uint256 files) internal view returns (uint256) {
        PoolTerms memory terms = court.termsOf(pool);
        return _size(terms) * JuryTerms.fee(terms, files);
    }

    function _send(address to, uint256 amount) internal {
        if (amount != 0) token.safeTransfer(to, amount);
    }

    function _size(PoolTerms memory terms) private pure returns (uint256) {
        return terms.appealJury == 0 ? terms.jury : terms.appealJury;
    }
}
