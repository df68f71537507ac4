// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IAppeals} from "./interfaces/IAppeals.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {IJuries} from "./interfaces/IJuries.sol";
import {IParams} from "./interfaces/IParams.sol";
import {IPools} from "./interfaces/IPools.sol";
import {ISeats} from "./interfaces/ISeats.sol";
import {IStakes} from "./interfaces/IStakes.sol";
import {Codes} from "./libraries/Codes.sol";
import {SuiteLib} from "./libraries/SuiteLib.sol";
import {FileData, PoolTerms, Suite} from "./libraries/Types.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @title Appeals
contract Appeals is IAppeals, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    IERC20 public immutable token;
    IParams public immutable params;
    IStakes public immutable stakes;
    ISeats public immutable seats;
    IPools public immutable pools;
    ICourt public immutable court;
    IJuries public immutable juries;

    /// By pool << 32 | sequence.
    mapping(uint256 id => Dispute) private _disputes;

    constructor(Suite memory suite) {
        SuiteLib.checkPlace(suite.appeals);
        token = IERC20(suite.token);
        params = IParams(suite.params);
        stakes = IStakes(suite.stakes);
        seats = ISeats(suite.seats);
        pools = IPools(suite.pools);
        court = ICourt(suite.court);
        juries = IJuries(suite.juries);
    }

    /// @inheritdoc IAppeals
    function dispute(uint256 pool, uint256 sequence, FileData calldata file) external nonReentrant {
        PoolTerms memory t = pools.termsOf(pool);
        Dispute storage d = _disputes[_id(pool, sequence)];
        d.code = pools.hold(pool, sequence, file); // reverts unless the outcome is open to disputes
        (, uint256[] memory members,,,) = court.decisionOf(pool, sequence);
        court.setOutcome(pool, sequence, Codes.DISPUTED);
        d.disputer = msg.sender;
        d.deposit = depositOf(pool, 0);
        d.trial = _summon(pool, sequence, t.jury, t, members);
        emit Disputed(pool, sequence, msg.sender, d.trial, d.deposit);
        token.safeTransferFrom(msg.sender, address(this), d.deposit);
    }

    /// @inheritdoc IAppeals
    function appeal(uint256 pool, uint256 sequence) external nonReentrant {
        Dispute storage d = _disputes[_id(pool, sequence)];
        if (d.appealUntil == 0 || d.resolved) revert NoAppeal();
        if (block.timestamp >= d.appealUntil) revert AppealOver(d.appealUntil);
        if (d.appellant != address(0)) revert AlreadyAppealed();
        PoolTerms memory t = pools.termsOf(pool);
        (, uint256[] memory members,,,) = court.decisionOf(pool, sequence);
        d.appellant = msg.sender;
        d.appealDeposit = depositOf(pool, 1);
        d.appealTrial = _summon(pool, sequence, t.appealJury, t, _join(members, juries.seatsOf(d.trial)));
        emit Appealed(pool, sequence, msg.sender, d.appealTrial, d.appealDeposit);
        token.safeTransferFrom(msg.sender, address(this), d.appealDeposit);
    }

    /// @inheritdoc IAppeals
    function conclude(uint256 pool, uint256 sequence, FileData calldata file) external nonReentrant {
        Dispute storage d = _disputes[_id(pool, sequence)];
        if (d.disputer == address(0)) revert NoDispute();
        if (d.resolved) revert AlreadyResolved();
        if (d.appealUntil == 0) {
            d.verdict = _standing(d.trial, d.code, d.code);
            PoolTerms memory t = pools.termsOf(pool);
            if (t.appealJury == 0) {
                d.appealUntil = block.timestamp;
                emit VerdictReached(pool, sequence, d.verdict, block.timestamp);
                _resolve(pool, sequence, file, d.verdict);
            } else {
                d.appealUntil = block.timestamp + t.appealWindow;
                emit VerdictReached(pool, sequence, d.verdict, d.appealUntil);
                if (Codes.isReject(d.verdict)) pools.freezeHeld(pool, sequence, file);
            }
        } else if (d.appellant == address(0)) {
            if (block.timestamp < d.appealUntil) revert NotYet(d.appealUntil);
            _resolve(pool, sequence, file, d.verdict);
        } else {
            _resolve(pool, sequence, file, _standing(d.appealTrial, d.verdict, d.code));
        }
    }

    /// @inheritdoc IAppeals
    function disputeOf(uint256 pool, uint256 sequence) external view returns (Dispute memory) {
        return _disputes[_id(pool, sequence)];
    }

    /// @inheritdoc IAppeals
    function depositOf(uint256 pool, uint256 round) public view returns (uint256) {
        PoolTerms memory t = pools.termsOf(pool);
        return (uint256(t.jury) * t.juryFee + params.values().delayCompensation) << round;
    }

    /// @dev The code that stands after a jury: the earlier one when the jury has no majority, could not get the file, or
    /// says the same kind.
    function _standing(uint256 trial, uint256 standing, uint256 original) private view returns (uint256) {
        (bool done, uint256 code) = juries.verdictOf(trial);
        if (!done) revert NotYet(0);
        uint256 kind = Codes.kind(code);
        if (kind == Codes.KIND_NONE || kind == Codes.KIND_UNAVAILABLE || kind == Codes.kind(standing)) return standing;
        return kind == Codes.kind(original) ? original : code;
    }

    struct Money {
        /// Penalties and lost deposits, to be spent.
        uint256 pot;
        /// Penalties only: what a reward is a share of.
        uint256 penalties;
        address winner;
        uint256 stake;
        uint256 reward;
    }

    /// @dev The final code: outcome, penalties of those whose majority was overturned, deposits, fees, reward.
    function _resolve(uint256 pool, uint256 sequence, FileData calldata file, uint256 code) private {
        Dispute storage d = _disputes[_id(pool, sequence)];
        d.resolved = true;
        Money memory m;
        bool overturned = Codes.kind(code) != Codes.kind(d.code);
        bool appealed = d.appellant != address(0);
        bool firstWrong = Codes.kind(code) != Codes.kind(d.verdict);
        IParams.Values memory v = params.values();

        if (appealed && firstWrong) (m.winner, m.stake) = (d.appellant, d.appealDeposit);
        else if (overturned) (m.winner, m.stake) = (d.disputer, d.deposit);

        if (overturned) {
            (, uint256[] memory members, uint256[] memory votes,,) = court.decisionOf(pool, sequence);
            m.penalties += _penalise(pool, sequence, members, votes, d.code, v.overturnPenalty);
        }
        if (firstWrong) {
            m.penalties += _penalise(
                pool, sequence, juries.seatsOf(d.trial), juries.votesOf(d.trial), d.verdict, v.overturnPenalty
            );
        }
        court.setOutcome(pool, sequence, code);
        (, uint256 slashReward) = pools.resolve(pool, sequence, file, code, overturned ? m.stake : 0);

        m.pot = m.penalties;
        if (!overturned) m.pot += d.deposit;
        if (appealed && !firstWrong) m.pot += d.appealDeposit;
        m.pot -= _payJury(d.trial, code, m.pot);
        if (appealed) m.pot -= _payJury(d.appealTrial, code, m.pot);

        if (m.winner != address(0)) {
            uint256 share = m.penalties * v.rewardBps / 10_000;
            if (share > m.pot) share = m.pot;
            if (slashReward + share > m.stake) share = m.stake - slashReward;
            m.reward = slashReward + share;
            m.pot -= share;
        }
        emit DisputeResolved(pool, sequence, code, overturned, m.reward);
        _settleDeposits(d, m, code, overturned, v.delayCompensation, file.node);
    }

    /// @dev Deposits of those who were right go back; a wrongly delayed operator is compensated; the rest is burnt.
    function _settleDeposits(
        Dispute storage d,
        Money memory m,
        uint256 code,
        bool overturned,
        uint256 compensation,
        address node
    ) private {
        if (overturned) token.safeTransfer(d.disputer, d.deposit);
        if (d.appellant != address(0) && Codes.kind(code) != Codes.kind(d.verdict)) {
            token.safeTransfer(d.appellant, d.appealDeposit);
        }
        if (m.reward != 0) token.safeTransfer(m.winner, m.reward);
        if (Codes.kind(code) == Codes.KIND_ACCEPT && !overturned) {
            if (compensation > m.pot) compensation = m.pot;
            m.pot -= compensation;
            if (compensation != 0) token.safeTransfer(stakes.operatorOf(node), compensation);
        }
        if (m.pot != 0) token.safeTransfer(SuiteLib.SINK, m.pot);
    }

    /// @dev A jury that could not get the file, or had no majority, is judged by its own result; any other by the final
    /// code.
    function _payJury(uint256 trial, uint256 code, uint256 funds) private returns (uint256 used) {
        (, uint256 own) = juries.verdictOf(trial);
        uint256 kind = Codes.kind(own);
        if (kind == Codes.KIND_NONE || kind == Codes.KIND_UNAVAILABLE) code = own;
        used = juries.conclude(trial, code, funds);
        if (used != 0) token.safeTransfer(address(juries), used);
    }

    /// @dev Takes `amount` from each seat that voted the kind of `wrong`.
    function _penalise(
        uint256 pool,
        uint256 sequence,
        uint256[] memory members,
        uint256[] memory votes,
        uint256 wrong,
        uint256 amount
    ) private returns (uint256 sum) {
        for (uint256 i = 0; i < members.length; ++i) {
            if (Codes.kind(votes[i]) != Codes.kind(wrong)) continue;
            uint256 taken = seats.penalise(members[i], amount, address(this));
            sum += taken;
            emit MemberPenalised(pool, sequence, members[i], taken);
        }
    }

    function _summon(uint256 pool, uint256 sequence, uint256 size, PoolTerms memory t, uint256[] memory excluded)
        private
        returns (uint256)
    {
        return
            juries.summon(pool, sequence, size, t.juryFee, t.juryCommitWindow, t.juryRevealWindow, excluded, address(0));
    }

    function _join(uint256[] memory a, uint256[] memory b) private pure returns (uint256[] memory c) {
        c = new uint256[](a.length + b.length);
        for (uint256 i = 0; i < a.length; ++i) {
            c[i] = a[i];
        }
        for (uint256 i = 0; i < b.length; ++i) {
            c[a.length + i] = b[i];
        }
    }

    function _id(uint256 pool, uint256 sequence) private pure returns (uint256) {
        return (pool << 32) | sequence;
    }
}
