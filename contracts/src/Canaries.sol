// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICanaries} from "./interfaces/ICanaries.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {IJuries} from "./interfaces/IJuries.sol";
import {IParams} from "./interfaces/IParams.sol";
import {IPools} from "./interfaces/IPools.sol";
import {ISeats} from "./interfaces/ISeats.sol";
import {Audit} from "./libraries/Audit.sol";
import {Codes} from "./libraries/Codes.sol";
import {SuiteLib} from "./libraries/SuiteLib.sol";
import {FileData, PoolTerms, Suite} from "./libraries/Types.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";

/// @title Canaries
contract Canaries is ICanaries, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    /// @inheritdoc ICanaries
    uint256 public constant DEPTH = 4;

    IERC20 public immutable token;
    IParams public immutable params;
    ISeats public immutable seats;
    IPools public immutable pools;
    ICourt public immutable court;
    IJuries public immutable juries;

    /// By pool << 32 | sequence.
    mapping(uint256 id => Canary) private _canaries;
    /// Seats already accused in a lane, by pool << 32 | lane: one slash per validator and lane.
    mapping(uint256 id => mapping(uint256 seat => bool)) private _accused;

    constructor(Suite memory suite) {
        SuiteLib.checkPlace(suite.canaries);
        token = IERC20(suite.token);
        params = IParams(suite.params);
        seats = ISeats(suite.seats);
        pools = IPools(suite.pools);
        court = ICourt(suite.court);
        juries = IJuries(suite.juries);
    }

    /// @inheritdoc ICanaries
    function open(
        uint256 pool,
        uint256 sequence,
        FileData calldata file,
        Planted calldata planted,
        Rollout calldata rollout,
        uint256 reason
    ) external nonReentrant {
        if (pools.ownerOf(pool) != msg.sender) revert NotPoolOwner();
        if (!Codes.isReject(reason)) revert BadReason();
        PoolTerms memory t = pools.termsOf(pool);
        _checkPlanted(pool, file, planted);
        _checkRollout(pool, sequence, file, rollout, t.auditRate);

        Canary storage c = _canaries[_id(pool, sequence)];
        c.code = pools.hold(pool, sequence, file); // reverts unless settled and within the window
        c.owner = msg.sender;
        c.reason = reason;
        c.slash = params.values().canarySlash;
        c.contestUntil = block.timestamp + t.contestWindow;
        _accuse(c, pool, sequence);
        c.deposit = c.accused.length * c.slash + uint256(t.jury) * t.juryFee;
        court.setOutcome(pool, sequence, Codes.DISPUTED);
        emit CanaryOpened(pool, sequence, rollout.row, reason, c.accused, c.deposit, c.contestUntil);
        token.safeTransferFrom(msg.sender, address(this), c.deposit);
    }

    /// @inheritdoc ICanaries
    function contest(uint256 pool, uint256 sequence) external nonReentrant {
        Canary storage c = _canaries[_id(pool, sequence)];
        if (c.owner == address(0)) revert NotOpened();
        if (c.contester != address(0)) revert AlreadyContested();
        if (block.timestamp >= c.contestUntil) revert ContestOver(c.contestUntil);
        PoolTerms memory t = pools.termsOf(pool);
        (, uint256[] memory members,,,) = court.decisionOf(pool, sequence);
        c.contester = msg.sender;
        c.contestDeposit = contestDepositOf(pool);
        c.trial =
            juries.summon(pool, sequence, t.jury, t.juryFee, t.juryCommitWindow, t.juryRevealWindow, members, c.owner);
        emit CanaryContested(pool, sequence, msg.sender, c.trial, c.contestDeposit);
        token.safeTransferFrom(msg.sender, address(this), c.contestDeposit);
    }

    /// @inheritdoc ICanaries
    function conclude(uint256 pool, uint256 sequence, FileData calldata file) external nonReentrant {
        Canary storage c = _canaries[_id(pool, sequence)];
        if (c.owner == address(0)) revert NotOpened();
        if (c.concluded) revert AlreadyConcluded();
        c.concluded = true;
        if (c.contester == address(0)) {
            if (block.timestamp < c.contestUntil) revert NotYet(c.contestUntil);
            _end(c, pool, sequence, file, true, Codes.CANARY);
            _send(c.owner, c.deposit);
            return;
        }
        (bool done, uint256 verdict) = juries.verdictOf(c.trial);
        if (!done) revert NotYet(0);
        uint256 kind = Codes.kind(verdict);
        bool upheld = kind == Codes.KIND_REJECT || kind == Codes.KIND_MALFORMED;
        // A jury that finds the file good restores it; one that cannot tell leaves the committee's outcome.
        uint256 code = upheld ? Codes.CANARY : kind == Codes.KIND_ACCEPT ? Codes.ACCEPT : c.code;
        _end(c, pool, sequence, file, upheld, code);

        if (upheld) {
            // the contester was wrong: its deposit pays the jury, the rest of it is burnt
            uint256 used = _payJury(c.trial, verdict, c.contestDeposit);
            _send(SuiteLib.SINK, c.contestDeposit - used);
            _send(c.owner, c.deposit);
        } else {
            // the owner's deposit pays the jury; the rest is lost when the jury found the file good
            uint256 used = _payJury(c.trial, verdict, c.deposit);
            _send(kind == Codes.KIND_ACCEPT ? SuiteLib.SINK : c.owner, c.deposit - used);
            _send(c.contester, c.contestDeposit);
        }
    }

    /// @inheritdoc ICanaries
    function canaryOf(uint256 pool, uint256 sequence) external view returns (Canary memory) {
        return _canaries[_id(pool, sequence)];
    }

    /// @inheritdoc ICanaries
    function contestDepositOf(uint256 pool) public view returns (uint256) {
        PoolTerms memory t = pools.termsOf(pool);
        return uint256(t.jury) * t.juryFee + params.values().delayCompensation;
    }

    /// @inheritdoc ICanaries
    function inSample(bytes32 seed, uint256 sequence, uint256 rows, uint256 auditRate, uint256 row)
        external
        pure
        returns (bool)
    {
        return Audit.sampled(seed, sequence, rows, auditRate, row);
    }

    /// @inheritdoc ICanaries
    function leafOf(bytes32 salt, uint256 pool, uint256 step, address node, uint256 counter)
        public
        pure
        returns (bytes32)
    {
        return keccak256(bytes.concat(keccak256(abi.encode(salt, pool, step, node, counter))));
    }

    function _checkPlanted(uint256 pool, FileData calldata file, Planted calldata planted) private view {
        bytes32 leaf = leafOf(planted.salt, pool, file.step, file.node, file.counter);
        bytes32 root = pools.canaryRootOf(pool, file.step);
        if (planted.proof.length != DEPTH || !MerkleProof.verifyCalldata(planted.proof, root, leaf)) {
            revert NotPlanted();
        }
    }

    function _checkRollout(
        uint256 pool,
        uint256 sequence,
        FileData calldata file,
        Rollout calldata rollout,
        uint256 rate
    ) private view {
        bytes32 leaf = keccak256(bytes.concat(rollout.rowHash));
        if (!MerkleProof.verifyCalldata(rollout.proof, file.root, leaf)) revert NotInFile();
        (,,, bytes32 seed,) = court.decisionOf(pool, sequence);
        if (!Audit.sampled(seed, sequence, file.rows, rate, rollout.row)) revert NotInSample();
    }

    /// @dev Members whose vote accepted, unless another canary of the lane accuses them already.
    function _accuse(Canary storage c, uint256 pool, uint256 sequence) private {
        (, uint256[] memory members, uint256[] memory votes,,) = court.decisionOf(pool, sequence);
        mapping(uint256 => bool) storage accused = _accused[_id(pool, sequence >> 4)];
        for (uint256 i = 0; i < members.length; ++i) {
            if (Codes.kind(votes[i]) != Codes.KIND_ACCEPT || accused[members[i]]) continue;
            accused[members[i]] = true;
            c.accused.push(members[i]);
            seats.freeze(members[i]);
        }
    }

    /// @dev Frees or slashes the accused, and gives the file its final outcome.
    function _end(Canary storage c, uint256 pool, uint256 sequence, FileData calldata file, bool upheld, uint256 code)
        private
    {
        uint256 lane = _id(pool, sequence >> 4);
        for (uint256 i = 0; i < c.accused.length; ++i) {
            uint256 seat = c.accused[i];
            seats.release(seat);
            if (upheld) emit SeatSlashed(pool, sequence, seat, seats.penalise(seat, c.slash, SuiteLib.SINK));
            else _accused[lane][seat] = false;
        }
        court.setOutcome(pool, sequence, code);
        emit CanaryConcluded(pool, sequence, upheld, code);
        pools.resolve(pool, sequence, file, code, 0);
    }

    function _payJury(uint256 trial, uint256 verdict, uint256 funds) private returns (uint256 used) {
        used = juries.conclude(trial, verdict, funds);
        _send(address(juries), used);
    }

    function _send(address to, uint256 amount) private {
        if (amount != 0) token.safeTransfer(to, amount);
    }

    function _id(uint256 pool, uint256 low) private pure returns (uint256) {
        return (pool << 32) | low;
    }
}
