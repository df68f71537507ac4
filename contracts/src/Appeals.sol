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
        PoolTerms memory terms = court.termsOf(pool);
        Dispute storage dispute_ = _disputes[FileId.checked(pool, sequence)];
        dispute_.code = pools.hold(pool, sequence, file); // reverts unless the outcome is open to disputes
        (, uint256[] memory members,,,) = court.decisionOf(pool, sequence);
        court.setOutcome(pool, sequence, Codes.DISPUTED);
        dispute_.disputer = msg.sender;
        dispute_.openedAt = block.timestamp;
        dispute_.deposit = depositOf(pool, 0);
        dispute_.trial = juries.summon(pool, sequence, 1, terms.jury, members, address(0));
        emit Disputed(pool, sequence, msg.sender, dispute_.trial, dispute_.deposit);
        token.safeTransferFrom(msg.sender, address(this), dispute_.deposit);
    }

    /// @inheritdoc IAppeals
    function appeal(uint256 pool, uint256 sequence) external nonReentrant {
        Dispute storage dispute_ = _disputes[FileId.checked(pool, sequence)];
        if (dispute_.appealUntil == 0 || dispute_.resolved) revert NoAppeal();
        if (block.timestamp >= dispute_.appealUntil) revert AppealOver(dispute_.appealUntil);
        if (dispute_.appellant != address(0)) revert AlreadyAppealed();
        (, uint256[] memory members,,,) = court.decisionOf(pool, sequence);
        dispute_.appellant = msg.sender;
        dispute_.appealDeposit = depositOf(pool, 1);
        uint256[] memory served = _join(members, juries.seatsOf(dispute_.trial));
        dispute_.appealTrial = juries.summon(pool, sequence, 1, court.termsOf(pool).appealJury, served, address(0));
        emit Appealed(pool, sequence, msg.sender, dispute_.appealTrial, dispute_.appealDeposit);
        token.safeTransferFrom(msg.sender, address(this), dispute_.appealDeposit);
    }

    /// @inheritdoc IAppeals
    function conclude(uint256 pool, uint256 sequence, FileData calldata file) external nonReentrant {
        Dispute storage dispute_ = _disputes[FileId.checked(pool, sequence)];
        if (dispute_.disputer == address(0)) revert NoDispute();
        if (dispute_.resolved) revert AlreadyResolved();
        if (dispute_.appealUntil == 0) {
            _first(dispute_, pool, sequence, file);
        } else if (dispute_.appellant == address(0)) {
            if (block.timestamp < dispute_.appealUntil) revert NotYet(dispute_.appealUntil);
            _resolve(pool, sequence, file, dispute_.verdict, false);
        } else {
            (uint256 code, bool replaced) = _verdict(dispute_.appealTrial);
            if (replaced) dispute_.appealTrial = code;
            else if (code == Codes.NONE) _resolve(pool, sequence, file, dispute_.verdict, true);
            else _resolve(pool, sequence, file, _standing(code, dispute_.verdict, dispute_.code), false);
        }
    }

    /// @inheritdoc IAppeals
    function cancel(uint256 pool, uint256 sequence) external nonReentrant returns (uint256 code, uint256 used) {
        if (msg.sender != canaries) revert NotCanaries();
        Dispute storage dispute_ = _disputes[FileId.checked(pool, sequence)];
        if (dispute_.disputer == address(0)) revert NoDispute();
        if (dispute_.resolved) revert AlreadyResolved();
        dispute_.resolved = true;
        code = dispute_.code;
        // nobody has appealed: there is no verdict before the window in which a canary can be opened is over
        used = juries.discharge(dispute_.trial);
        emit DisputeCancelled(pool, sequence);
        emit DisputeResolved(pool, sequence, code, false, 0);
        token.safeTransfer(dispute_.disputer, dispute_.deposit);
    }

    /// @inheritdoc IAppeals
    function disputeOf(uint256 pool, uint256 sequence) external view returns (Dispute memory) {
        return _disputes[FileId.checked(pool, sequence)];
    }

    /// @inheritdoc IAppeals
    function depositOf(uint256 pool, uint256 round) public view returns (uint256) {
        PoolTerms memory terms = court.termsOf(pool);
        return (uint256(terms.jury) * terms.juryFee + params.values().delayCompensation) << round;
    }

    /// @dev After the first jury: its verdict, a fresh jury, or the end.
    function _first(Dispute storage dispute_, uint256 pool, uint256 sequence, FileData calldata file) private {
        (uint256 code, bool replaced) = _verdict(dispute_.trial);
        if (replaced) {
            dispute_.trial = code;
            return;
        }
        _awaitCanary(pool, sequence, file);
        if (code == Codes.NONE) {
            dispute_.verdict = dispute_.code;
            dispute_.resolved = true;
            court.setOutcome(pool, sequence, dispute_.code);
            pools.resolve(pool, sequence, file, dispute_.code, 0);
            emit DisputeResolved(pool, sequence, dispute_.code, false, 0);
            token.safeTransfer(dispute_.disputer, dispute_.deposit);
            return;
        }
        dispute_.verdict = _standing(code, dispute_.code, dispute_.code);
        PoolTerms memory terms = court.termsOf(pool);
        dispute_.appealUntil = block.timestamp + (terms.appealJury == 0 ? 0 : terms.appealWindow);
        emit VerdictReached(pool, sequence, dispute_.verdict, dispute_.appealUntil);
        if (terms.appealJury == 0) _resolve(pool, sequence, file, dispute_.verdict, false);
        else if (Codes.isReject(dispute_.verdict)) pools.freezeHeld(pool, sequence, file);
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
    /// could not get a file that was not accepted; a file that neither the committee nor the last jury got is as
    /// before.
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
        Dispute storage dispute_ = _disputes[FileId.checked(pool, sequence)];
        dispute_.resolved = true;
        Money memory money;
        bool overturned = Codes.kind(code) != Codes.kind(dispute_.code);
        // no seat is to blame for a file that could not be had: its disputer pays the jury, and earns from a slash only
        bool blameless = Codes.kind(dispute_.code) == Codes.KIND_UNAVAILABLE;
        bool appealed = dispute_.appellant != address(0) && !mistrial;
        bool firstWrong = Codes.kind(code) != Codes.kind(dispute_.verdict);
        IParams.Values memory values = params.valuesAt(dispute_.openedAt);

        if (appealed && firstWrong) {
            (money.winner, money.stake) = (dispute_.appellant, dispute_.appealDeposit);
        } else if (overturned && (!blameless || Codes.isReject(code))) {
            (money.winner, money.stake) = (dispute_.disputer, dispute_.deposit);
        }

        if (overturned && !blameless) {
            (, uint256[] memory members, uint256[] memory votes,,) = court.decisionOf(pool, sequence);
            money.penalties += _penalise(
                pool, sequence, members, votes, dispute_.code, _share(pool, file, votes, dispute_.code, values)
            );
        }
        if (firstWrong && Codes.contradict(dispute_.verdict, code)) {
            money.penalties += _penalise(
                pool,
                sequence,
                juries.seatsOf(dispute_.trial),
                juries.votesOf(dispute_.trial),
                dispute_.verdict,
                values.overturnPenalty
            );
        }
        court.setOutcome(pool, sequence, code);
        (, uint256 slashReward) = pools.resolve(pool, sequence, file, code, overturned ? money.stake : 0);

        money.pot = money.penalties;
        if (!overturned || blameless) money.pot += dispute_.deposit;
        if (appealed && !firstWrong) money.pot += dispute_.appealDeposit;
        money.pot -= _payJury(dispute_.trial, code, money.pot);
        if (appealed) money.pot -= _payJury(dispute_.appealTrial, code, money.pot);

        if (money.winner != address(0)) {
            uint256 share = money.penalties * values.rewardBps / 10_000;
            if (share > money.pot) share = money.pot;
            if (slashReward + share > money.stake) share = money.stake - slashReward;
            money.reward = slashReward + share;
            money.pot -= share;
        }
        emit DisputeResolved(pool, sequence, code, overturned, money.reward);
        if (overturned && blameless) {
            money.back = money.pot < dispute_.deposit ? money.pot : dispute_.deposit;
            money.pot -= money.back;
        } else if (overturned) {
            money.back = dispute_.deposit;
        }
        if (dispute_.appellant != address(0) && (mistrial || firstWrong)) money.appealBack = dispute_.appealDeposit;
        _settleDeposits(
            dispute_, money, Codes.kind(code) == Codes.KIND_ACCEPT && !overturned, values.delayCompensation, file.node
        );
    }

    /// @dev What each seat of an overturned majority pays: together at least what the file would have earned, which who
    /// accepts forged work has paid for nothing, and who rejects honest work has for nothing.
    function _share(
        uint256 pool,
        FileData calldata file,
        uint256[] memory votes,
        uint256 wrong,
        IParams.Values memory values
    ) private view returns (uint256) {
        uint256 liars;
        for (uint256 i = 0; i < votes.length; ++i) {
            if (Codes.kind(votes[i]) == Codes.kind(wrong)) ++liars;
        }
        if (liars == 0) return values.overturnPenalty;
        uint256 share = (uint256(file.units) * court.termsOf(pool).rate + liars - 1) / liars;
        return share > values.overturnPenalty ? share : values.overturnPenalty;
    }

    /// @dev Deposits of those who were right go back; a wrongly delayed operator is compensated; the rest is burnt.
    function _settleDeposits(
        Dispute storage dispute_,
        Money memory money,
        bool delayed,
        uint256 compensation,
        address node
    ) private {
        if (money.back != 0) token.safeTransfer(dispute_.disputer, money.back);
        if (money.appealBack != 0) token.safeTransfer(dispute_.appellant, money.appealBack);
        if (money.reward != 0) token.safeTransfer(money.winner, money.reward);
        if (delayed) {
            if (compensation > money.pot) compensation = money.pot;
            money.pot -= compensation;
            if (compensation != 0) token.safeTransfer(stakes.operatorOf(node), compensation);
        }
        if (money.pot != 0) token.safeTransfer(SuiteLib.SINK, money.pot);
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

    function _join(uint256[] memory first, uint256[] memory second) private pure returns (uint256[] memory joined) {
        joined = new uint256[](first.length + second.length);
        for (uint256 i = 0; i < first.length; ++i) {
            joined[i] = first[i];
        }
        for (uint256 i = 0; i < second.length; ++i) {
            joined[first.length + i] = second[i];
        }
    }
}
