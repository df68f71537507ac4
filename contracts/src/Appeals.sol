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
import {FileId} from "./libraries/FileId.sol";
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
    address public immutable canaries;

    /// By FileId.
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
        canaries = suite.canaries;
    }

    /// @inheritdoc IAppeals
    function dispute(uint256 pool, uint256 sequence, FileData calldata file) external nonReentrant {
        PoolTerms memory t = court.termsOf(pool);
        Dispute storage d = _disputes[FileId.checked(pool, sequence)];
        d.code = pools.hold(pool, sequence, file); // reverts unless the outcome is open to disputes
        (, uint256[] memory members,,,) = court.decisionOf(pool, sequence);
        court.setOutcome(pool, sequence, Codes.DISPUTED);
        d.disputer = msg.sender;
        d.openedAt = block.timestamp;
        d.deposit = depositOf(pool, 0);
        d.trial = juries.summon(pool, sequence, t.jury, members, address(0));
        emit Disputed(pool, sequence, msg.sender, d.trial, d.deposit);
        token.safeTransferFrom(msg.sender, address(this), d.deposit);
    }

    /// @inheritdoc IAppeals
    function appeal(uint256 pool, uint256 sequence) external nonReentrant {
        Dispute storage d = _disputes[FileId.checked(pool, sequence)];
        if (d.appealUntil == 0 || d.resolved) revert NoAppeal();
        if (block.timestamp >= d.appealUntil) revert AppealOver(d.appealUntil);
        if (d.appellant != address(0)) revert AlreadyAppealed();
        (, uint256[] memory members,,,) = court.decisionOf(pool, sequence);
        d.appellant = msg.sender;
        d.appealDeposit = depositOf(pool, 1);
        uint256[] memory served = _join(members, juries.seatsOf(d.trial));
        d.appealTrial = juries.summon(pool, sequence, court.termsOf(pool).appealJury, served, address(0));
        emit Appealed(pool, sequence, msg.sender, d.appealTrial, d.appealDeposit);
        token.safeTransferFrom(msg.sender, address(this), d.appealDeposit);
    }

    /// @inheritdoc IAppeals
    function conclude(uint256 pool, uint256 sequence, FileData calldata file) external nonReentrant {
        Dispute storage d = _disputes[FileId.checked(pool, sequence)];
        if (d.disputer == address(0)) revert NoDispute();
        if (d.resolved) revert AlreadyResolved();
        if (d.appealUntil == 0) {
            _first(d, pool, sequence, file);
        } else if (d.appellant == address(0)) {
            if (block.timestamp < d.appealUntil) revert NotYet(d.appealUntil);
            _resolve(pool, sequence, file, d.verdict, false);
        } else {
            (uint256 code, bool replaced) = _verdict(d.appealTrial);
            if (replaced) d.appealTrial = code;
            else if (code == Codes.NONE) _resolve(pool, sequence, file, d.verdict, true);
            else _resolve(pool, sequence, file, _standing(code, d.verdict, d.code), false);
        }
    }

    /// @inheritdoc IAppeals
    function cancel(uint256 pool, uint256 sequence) external nonReentrant returns (uint256 code, uint256 used) {
        if (msg.sender != canaries) revert NotCanaries();
        Dispute storage d = _disputes[FileId.checked(pool, sequence)];
        if (d.disputer == address(0)) revert NoDispute();
        if (d.resolved) revert AlreadyResolved();
        d.resolved = true;
        code = d.code;
        // nobody has appealed: there is no verdict before the window in which a canary can be opened is over
        used = juries.discharge(d.trial);
        emit DisputeCancelled(pool, sequence);
        emit DisputeResolved(pool, sequence, code, false, 0);
        token.safeTransfer(d.disputer, d.deposit);
    }

    /// @inheritdoc IAppeals
    function disputeOf(uint256 pool, uint256 sequence) external view returns (Dispute memory) {
        return _disputes[FileId.checked(pool, sequence)];
    }

    /// @inheritdoc IAppeals
    function depositOf(uint256 pool, uint256 round) public view returns (uint256) {
        PoolTerms memory t = court.termsOf(pool);
        return (uint256(t.jury) * t.juryFee + params.values().delayCompensation) << round;
    }

    /// @dev After the first jury: its verdict, a fresh jury, or the end.
    function _first(Dispute storage d, uint256 pool, uint256 sequence, FileData calldata file) private {
        (uint256 code, bool replaced) = _verdict(d.trial);
        if (replaced) {
            d.trial = code;
            return;
        }
        _awaitCanary(pool, sequence, file);
        if (code == Codes.NONE) {
            d.verdict = d.code;
            d.resolved = true;
            court.setOutcome(pool, sequence, d.code);
            pools.resolve(pool, sequence, file, d.code, 0);
            emit DisputeResolved(pool, sequence, d.code, false, 0);
            token.safeTransfer(d.disputer, d.deposit);
            return;
        }
        d.verdict = _standing(code, d.code, d.code);
        PoolTerms memory t = court.termsOf(pool);
        d.appealUntil = block.timestamp + (t.appealJury == 0 ? 0 : t.appealWindow);
        emit VerdictReached(pool, sequence, d.verdict, d.appealUntil);
        if (t.appealJury == 0) _resolve(pool, sequence, file, d.verdict, false);
        else if (Codes.isReject(d.verdict)) pools.freezeHeld(pool, sequence, file);
    }

    /// @dev A jury's code; or, when it found none, NONE, or the trial of the jury that replaces it.
    function _verdict(uint256 trial) private returns (uint256 code, bool replaced) {
        bool done;
        (done, code) = juries.verdictOf(trial);
        if (!done) revert NotYet(0);
        if (code != Codes.NONE) return (code, false);
        code = juries.replace(trial);
        replaced = code != 0;
    }

    /// @dev An owner's right to open a canary must not be cut short by whoever disputes its file first.
    function _awaitCanary(uint256 pool, uint256 sequence, FileData calldata file) private view {
        if (pools.canaryRootOf(pool, file.step) == 0) return;
        uint256 until = pools.submissionOf(pool, sequence).finalAt;
        if (block.timestamp < until) revert NotYet(until);
    }

    /// @dev The code that stands after a jury's verdict: the earlier one when the jury says the same kind, or when it
    /// could not get a file that was not accepted; a file that neither the committee nor the last jury got is as before.
    function _standing(uint256 code, uint256 standing, uint256 original) private pure returns (uint256) {
        uint256 kind = Codes.kind(code);
        if (kind == Codes.kind(standing)) return standing;
        if (kind == Codes.kind(original)) return original;
        return kind == Codes.KIND_UNAVAILABLE && Codes.kind(standing) != Codes.KIND_ACCEPT ? standing : code;
    }

    struct Money {
        /// Penalties and lost deposits, to be spent.
        uint256 pot;
        /// Penalties only: what a reward is a share of.
        uint256 penalties;
        address winner;
        uint256 stake;
        uint256 reward;
        /// What of the two deposits goes back.
        uint256 back;
        uint256 appealBack;
    }

    /// @dev The final code: outcome, penalties of those whose majority was overturned, deposits, fees, reward.
    /// @param mistrial The second jury found nothing: the first one's verdict stands, the appellant gets its deposit.
    function _resolve(uint256 pool, uint256 sequence, FileData calldata file, uint256 code, bool mistrial) private {
        Dispute storage d = _disputes[FileId.checked(pool, sequence)];
        d.resolved = true;
        Money memory m;
        bool overturned = Codes.kind(code) != Codes.kind(d.code);
        // no seat is to blame for a file that could not be had: its disputer pays the jury, and earns from a slash only
        bool blameless = Codes.kind(d.code) == Codes.KIND_UNAVAILABLE;
        bool appealed = d.appellant != address(0) && !mistrial;
        bool firstWrong = Codes.kind(code) != Codes.kind(d.verdict);
        IParams.Values memory v = params.valuesAt(d.openedAt);

        if (appealed && firstWrong) (m.winner, m.stake) = (d.appellant, d.appealDeposit);
        else if (overturned && (!blameless || Codes.isReject(code))) (m.winner, m.stake) = (d.disputer, d.deposit);

        if (overturned && !blameless) {
            (, uint256[] memory members, uint256[] memory votes,,) = court.decisionOf(pool, sequence);
            m.penalties += _penalise(pool, sequence, members, votes, d.code, _share(pool, file, votes, d.code, v));
        }
        if (firstWrong && Codes.contradict(d.verdict, code)) {
            m.penalties += _penalise(
                pool, sequence, juries.seatsOf(d.trial), juries.votesOf(d.trial), d.verdict, v.overturnPenalty
            );
        }
        court.setOutcome(pool, sequence, code);
        (, uint256 slashReward) = pools.resolve(pool, sequence, file, code, overturned ? m.stake : 0);

        m.pot = m.penalties;
        if (!overturned || blameless) m.pot += d.deposit;
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
        if (overturned && blameless) {
            m.back = m.pot < d.deposit ? m.pot : d.deposit;
            m.pot -= m.back;
        } else if (overturned) {
            m.back = d.deposit;
        }
        if (d.appellant != address(0) && (mistrial || firstWrong)) m.appealBack = d.appealDeposit;
        _settleDeposits(d, m, Codes.kind(code) == Codes.KIND_ACCEPT && !overturned, v.delayCompensation, file.node);
    }

    /// @dev What each seat of an overturned majority pays: together at least what the file would have earned, which who
    /// accepts forged work has paid for nothing, and who rejects honest work has for nothing.
    function _share(
        uint256 pool,
        FileData calldata file,
        uint256[] memory votes,
        uint256 wrong,
        IParams.Values memory v
    ) private view returns (uint256) {
        uint256 liars;
        for (uint256 i = 0; i < votes.length; ++i) {
            if (Codes.kind(votes[i]) == Codes.kind(wrong)) ++liars;
        }
        if (liars == 0) return v.overturnPenalty;
        uint256 share = (uint256(file.units) * court.termsOf(pool).rate + liars - 1) / liars;
        return share > v.overturnPenalty ? share : v.overturnPenalty;
    }

    /// @dev Deposits of those who were right go back; a wrongly delayed operator is compensated; the rest is burnt.
    function _settleDeposits(Dispute storage d, Money memory m, bool delayed, uint256 compensation, address node)
        private
    {
        if (m.back != 0) token.safeTransfer(d.disputer, m.back);
        if (m.appealBack != 0) token.safeTransfer(d.appellant, m.appealBack);
        if (m.reward != 0) token.safeTransfer(m.winner, m.reward);
        if (delayed) {
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

    function _join(uint256[] memory a, uint256[] memory b) private pure returns (uint256[] memory c) {
        c = new uint256[](a.length + b.length);
        for (uint256 i = 0; i < a.length; ++i) {
            c[i] = a[i];
        }
        for (uint256 i = 0; i < b.length; ++i) {
            c[a.length + i] = b[i];
        }
    }
}
