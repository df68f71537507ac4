// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Court} from "./Court.sol";
import {Juries} from "./Juries.sol";
import {Pools} from "./Pools.sol";
import {Seats} from "./Seats.sol";
import {Stakes} from "./Stakes.sol";
import {SuiteContract} from "./SuiteContract.sol";
import {Codes} from "./libraries/Codes.sol";
import {FileSlot} from "./libraries/FileSlot.sol";
import {AlreadyConcluded, FileData, NotYet, Suite} from "./libraries/Types.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @title Appeals
/// @notice Disputes of a committee's outcome, as cases of Juries. A disputer that has it overturned gets its deposit
/// back, unless the file was paid and still is: then, and where no jury found a verdict, the deposit pays the jurors
/// and the rest goes back. Without a verdict the committee's outcome stands, or the first jury's, if that is better for
/// the node: a jury that cannot get a file, or cannot agree, convicts nobody and fines nobody.
contract Appeals is SuiteContract {
    struct Dispute {
        /// Who disputed the committee's outcome.
        address disputer;
        uint256 deposit;
        /// The committee's outcome.
        uint256 code;
        /// The case's first jury.
        uint256 trial;
        bool resolved;
    }

    event Disputed(
        uint256 indexed pool, uint256 indexed sequence, address indexed disputer, uint256 trial, uint256 deposit
    );
    /// @notice `code` is final. `reward` went to a disputer that was right.
    event DisputeResolved(
        uint256 indexed pool, uint256 indexed sequence, uint256 code, bool overturned, uint256 reward
    );
    /// @notice A member of an overturned majority lost `amount`.
    event MemberPenalised(uint256 indexed pool, uint256 indexed sequence, uint256 indexed seat, uint256 amount);

    error NoDispute();

    /// By `FileSlot.idOf`.
    mapping(uint256 id => Dispute) private _disputes;

    constructor(Suite memory suite) SuiteContract(suite, suite.appeals) {}

    /// @notice Disputes the outcome of a file within its challenge window; takes `Juries.depositOf(pool, 1)` (approved
    /// before). The disputer must make the file's bytes available to the jury.
    function dispute(uint256 pool, uint256 sequence, FileData calldata file) external nonReentrant {
        Dispute storage dispute_ = _disputes[FileSlot.idOf(pool, sequence)];
        dispute_.code = Pools(pools).hold(pool, sequence, file); // reverts unless the outcome is open to disputes
        (, uint256[] memory members,,,) = Court(court).decisionOf(pool, sequence);
        Court(court).setOutcome(pool, sequence, Codes.DISPUTED);
        dispute_.disputer = msg.sender;
        dispute_.deposit = Juries(juries).depositOf(pool, 1);
        dispute_.trial = Juries(juries).summon(pool, sequence, 1, members, address(0));
        emit Disputed(pool, sequence, msg.sender, dispute_.trial, dispute_.deposit);
        _receive(dispute_.deposit);
    }

    /// @notice Takes the dispute's case on (`Juries.proceed`), and resolves it once that has ended. Anyone may call. A
    /// file that may be a canary waits until its challenge window is over.
    function conclude(uint256 pool, uint256 sequence, FileData calldata file) external nonReentrant {
        Dispute storage dispute_ = _disputes[FileSlot.idOf(pool, sequence)];
        if (dispute_.disputer == address(0)) revert NoDispute();
        if (dispute_.resolved) revert AlreadyConcluded();
        // a dispute must not cut short the owner's time to open its file as a canary
        if (Pools(pools).canaryRootOf(pool, file.step) != 0) {
            uint256 until = FileSlot.finalAt(Pools(pools).wordOf(pool, sequence));
            if (block.timestamp < until) revert NotYet(until);
        }
        (uint256 verdict, bool ended) = Juries(juries).proceed(dispute_.trial);
        if (ended) _resolve(dispute_, pool, sequence, file, verdict);
        else if (Codes.isReject(verdict)) Pools(pools).freezeHeld(pool, sequence, file);
    }

    /// @notice Ends a dispute of a file that is opened as a canary. Canaries only. `code` is the committee's outcome,
    /// `used` the fees of jurors who had revealed, to be sent to Juries.
    function cancel(uint256 pool, uint256 sequence) external nonReentrant returns (uint256 code, uint256 used) {
        _onlyFrom(canaries, canaries);
        Dispute storage dispute_ = _disputes[FileSlot.idOf(pool, sequence)];
        if (dispute_.disputer == address(0)) revert NoDispute();
        if (dispute_.resolved) revert AlreadyConcluded();
        dispute_.resolved = true;
        code = dispute_.code;
        // there is one jury: nothing is done with it before the window in which a canary can be opened is over
        used = Juries(juries).discharge(dispute_.trial);
        emit DisputeResolved(pool, sequence, code, false, 0);
        _send(dispute_.disputer, dispute_.deposit);
    }

    function disputeOf(uint256 pool, uint256 sequence) external view returns (Dispute memory) {
        return _disputes[FileSlot.idOf(pool, sequence)];
    }

    /// @dev The file's outcome, after what a case's juries found: the committee's where they say the same kind; where
    /// the last one found nothing, the committee's or the first jury's, whichever is better for the node.
    function _outcome(Dispute storage dispute_, uint256 verdict) private view returns (uint256) {
        if (Codes.isVerdict(verdict)) {
            return Codes.kind(verdict) == Codes.kind(dispute_.code) ? dispute_.code : verdict;
        }
        (, verdict) = Juries(juries).verdictOf(dispute_.trial);
        return Codes.lenient(dispute_.code, verdict);
    }

    /// @dev The end of a dispute. A disputer whose case moves pay or stake has uncovered a wrong outcome and gets its whole
    /// deposit back: those who were wrong pay the juries, and the pool pays the rest. A disputer that was wrong loses its
    /// deposit. In between (no jury found a verdict, or a file that was paid is paid) it pays the juries.
    function _resolve(Dispute storage dispute_, uint256 pool, uint256 sequence, FileData calldata file, uint256 verdict)
        private
    {
        dispute_.resolved = true;
        uint256 before = dispute_.code;
        uint256 code = _outcome(dispute_, verdict);
        bool decided = Codes.isVerdict(verdict);
        bool overturned = decided && Codes.kind(code) != Codes.kind(before);
        bool right = overturned && !(Codes.isPaid(before) && Codes.isPaid(code));

        // `pot`: penalties, lost deposits, and what the pool pays the juries
        (uint256 pot, uint256 cost) = Juries(juries).judge(dispute_.trial, decided ? code : verdict);
        uint256 penalties = overturned ? _penalise(dispute_, pool, sequence, file) : 0;
        uint256 reward;
        uint256 back;
        pot += penalties;
        Court(court).setOutcome(pool, sequence, code);
        if (right) {
            uint256 fees = cost > pot ? cost - pot : 0;
            reward = Pools(pools).resolve(pool, sequence, file, code, dispute_.deposit, fees);
            pot += Pools(pools).payJury(pool, fees);
        } else {
            Pools(pools).resolve(pool, sequence, file, code, 0, 0);
            pot += dispute_.deposit;
        }
        uint256 used = Juries(juries).pay(dispute_.trial, pot);
        pot -= used;
        _send(juries, used);
        if (right) {
            uint256 share = penalties * rewardBps / 10_000;
            share = Math.min(Math.min(share, pot), dispute_.deposit - reward);
            pot -= share;
            (reward, back) = (reward + share, dispute_.deposit);
        } else if (overturned || !decided) {
            back = Math.min(pot, dispute_.deposit);
            pot -= back;
        } else if (Codes.kind(code) == Codes.KIND_ACCEPT) {
            uint256 compensation = Math.min(delayCompensation, pot);
            pot -= compensation;
            _send(Stakes(stakes).operatorOf(file.node), compensation);
        }
        emit DisputeResolved(pool, sequence, code, overturned, reward);
        _send(dispute_.disputer, back + reward);
        _send(SINK, pot);
    }

    /// @dev Takes from each seat of a committee's overturned majority: together at least what the file would have
    /// earned, which who accepts forged work has paid for nothing, and who rejects honest work has for nothing. Nobody
    /// is to blame for a file that could not be had.
    function _penalise(Dispute storage dispute_, uint256 pool, uint256 sequence, FileData calldata file)
        private
        returns (uint256 sum)
    {
        if (!Codes.isVerdict(dispute_.code)) return 0;
        (, uint256[] memory members, uint256[] memory votes,,) = Court(court).decisionOf(pool, sequence);
        uint256 kind = Codes.kind(dispute_.code);
        uint256 liars;
        for (uint256 i = 0; i < votes.length; ++i) {
            if (Codes.kind(votes[i]) == kind) ++liars;
        }
        if (liars == 0) return 0;
        uint256 amount = Math.ceilDiv(uint256(file.units) * Court(court).termsOf(pool).rate, liars);
        amount = Math.max(amount, overturnPenalty);
        for (uint256 i = 0; i < members.length; ++i) {
            if (Codes.kind(votes[i]) != kind) continue;
            uint256 taken = Seats(seats).penalise(members[i], amount, address(this));
            sum += taken;
            emit MemberPenalised(pool, sequence, members[i], taken);
        }
    }
}
