// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {IPools} from "../interfaces/IPools.sol";
import {BenchHandler} from "./BenchHandler.sol";
import {CommitteeHandler} from "./CommitteeHandler.sol";
import {ConductChecks} from "./ConductChecks.sol";
import {MoneyChecks} from "./MoneyChecks.sol";
import {OwnerHandler} from "./OwnerHandler.sol";
import {SeatHandler} from "./SeatHandler.sol";
import {StateChecks} from "./StateChecks.sol";

/// @notice Everybody at once on one suite; and keepers who bring everything to its end.
contract Crowd is CommitteeHandler, BenchHandler, SeatHandler, OwnerHandler, MoneyChecks, StateChecks, ConductChecks {
    /// @notice What a campaign calls; the commonest actions more than once.
    function actions() external pure returns (bytes4[] memory list) {
        bytes4[30] memory once = [
            this.submit.selector,
            this.submitLate.selector,
            this.arrive.selector,
            this.forfeit.selector,
            this.leavePool.selector,
            this.rejoin.selector,
            this.deposit.selector,
            this.withdraw.selector,
            this.blocks.selector,
            this.pass.selector,
            this.settle.selector,
            this.neglect.selector,
            this.neglect.selector,
            this.closeCommittee.selector,
            this.withdrawFees.selector,
            this.closeJuror.selector,
            this.seatOpens.selector,
            this.seatOpts.selector,
            this.seatLeaves.selector,
            this.seatWithdraws.selector,
            this.seatWithdraws.selector,
            this.burn.selector,
            this.topUp.selector,
            this.rotate.selector,
            this.step.selector,
            this.fund.selector,
            this.pausePool.selector,
            this.removeNode.selector,
            this.pauseAll.selector,
            this.month.selector
        ];
        bytes4[7] memory often = [
            this.submitSome.selector,
            this.finalize.selector,
            this.claim.selector,
            this.judge.selector,
            this.dispute.selector,
            this.openCanary.selector,
            this.hear.selector
        ];
        list = new bytes4[](once.length + 4 * often.length);
        for (uint256 i = 0; i < list.length; ++i) {
            list[i] = i < once.length ? once[i] : often[(i - once.length) % often.length];
        }
    }

    /// @notice Keepers do all that is due until nothing is: every lane settles, every case ends, everybody is paid.
    function windUp() external acts {
        _endLanes();
        _endCases();
        _wait(defaultTerms().challengeWindow);
        for (uint256 i = 0; i < sequences.length; ++i) {
            if (_finalizable(sequences[i])) _finalize(sequences[i]);
        }
        _fold(vm.getRecordedLogs());
        for (uint256 i = 0; i < sequences.length; ++i) {
            if (!_forfeitable(sequences[i])) continue;
            _unpack(sequences[i] >> 4);
            pools.forfeit(pool, sequences[i], files[pool][sequences[i]]);
        }
        for (uint256 i = sequences.length; i > 0; --i) {
            _claimFor(files[pool][sequences[i - 1]].node, sequences[i - 1]);
        }
        for (uint256 i = 0; i < rounds.length; ++i) {
            if (_closable(rounds[i])) court.closeCommittee(pool, rounds[i] >> 1, rounds[i] & 1);
        }
        for (uint256 seat = 1; seat <= seats.opened(); ++seat) {
            pools.withdrawFees(seat);
        }
        uint256 count = juries.trialCount();
        for (uint256 trial = 1; trial <= count; ++trial) {
            GhostTrial storage j = ghostTrials[trial];
            for (uint256 juror = 0; juror < j.jurors.length; ++juror) {
                if (j.closed & (1 << juror) == 0) juries.closeJuror(trial, juror);
            }
        }
        vm.prank(owner);
        pools.closePool(pool);
        _wait(_pool(pool).unbonding);
        vm.prank(owner);
        pools.settlePool(pool);
    }

    /// @notice Nothing is frozen, held or owed any more.
    function nothingIsLeft() external view {
        require(bytes(violation).length == 0, violation);
        for (uint256 seat = 1; seat <= seats.opened(); ++seat) {
            require(seats.seatOf(seat).frozen == 0, "a seat stays frozen");
        }
        for (uint256 i = 0; i < everyNode.length; ++i) {
            address n = everyNode[i];
            Account memory a = _account(pool, n);
            require(stakes.nodeOf(n).frozen == 0, "a stake stays frozen");
            require(a.frozen == 0 && a.unsettled == 0 && a.pending == 0, "a file stays open");
            require(a.earned == a.spent, "pay is left");
            require(ghostAccounts[n].claimed == _vested(n), "accepted work was not paid exactly once");
        }
        require(token.balanceOf(address(appeals)) == 0, "deposits are left");
        require(token.balanceOf(address(canaries)) == 0, "canaries' deposits are left");
        require(token.balanceOf(address(juries)) == 0, "jurors' fees are left");
        require(token.balanceOf(address(pools)) == _pool(1).free, "escrow is left");
    }

    /// @notice All checks at once.
    function everythingHolds() external {
        this.tokensAreConserved();
        this.escrowIsWhatCameInLessWhatWentOut();
        this.escrowIsOwedToSomebody();
        this.stakesAndBondsAreBalances();
        this.depositsAreOpenCases();
        this.nobodyIsOverpaid();
        this.stakeCoversOpenFiles();
        this.accountsAreTheEvents();
        this.filesAreTheEvents();
        this.roundsAreTheEvents();
        this.trialsAreTheEvents();
        this.seatsAreTheEvents();
        this.classesAreTheEvents();
        this.eventsFollowTheRules();
        this.honestMajoritiesAreNeverWrong();
        this.honestWorkersLoseOnlyToCapturedBodies();
        this.canariesSlashOncePerSeatAndLane();
        this.seatsAreFrozenForOpenDutiesOnly();
        this.bodiesAreWholeAndFresh();
    }

    function _endLanes() private {
        for (uint256 i = 0; i < 200; ++i) {
            _fold(vm.getRecordedLogs());
            (bool any, uint256 lane, uint256 round) = _pickLane(0);
            if (!any) return;
            if (_settleLane(lane, round)) continue;
            if (_drawLane(lane, round)) _voteLane(lane, round);
            if (_settleLane(lane, round)) continue;
            _pastLane();
            _expect(_settleLane(lane, round), "a lane stays unsettled");
        }
        _expect(false, "lanes never end");
    }

    function _endCases() private {
        for (uint256 i = 0; i < 400; ++i) {
            _fold(vm.getRecordedLogs());
            (bool any, uint256 sequence) = _pickCase(0);
            if (!any) return;
            _hear(sequence, false);
        }
        _expect(false, "cases never end");
    }
}
