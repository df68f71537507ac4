// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJuries} from "../../src/interfaces/IJuries.sol";
import {IOneJury} from "../../src/interfaces/IOneJury.sol";
import {ISiteRuns} from "../../src/interfaces/ISiteRuns.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {SiteRunning} from "../helpers/SiteRunning.sol";

/// @notice Two runs of one keeper key, sites that join, contradict themselves and leave, disputers who are right or not,
/// and juries that say anything or nothing. Keeps a ledger of its own of every stake and bond.
contract SiteCrowd is SiteRunning {
    struct Kept {
        uint256 stake;
        bool over;
        bool ejected;
        uint256 disputes;
    }

    uint256[] internal runs;
    mapping(uint256 r => Kept) internal kept;
    address[] internal members;
    mapping(uint256 r => mapping(address site => uint256 stake)) internal staked;
    uint256[] internal under;
    uint256 internal bonds;
    uint256 public upheld;
    uint256 public refuted;
    uint256 public lapsed;
    uint256 public ejections;
    uint256 public withdrawals;

    function start() external {
        super.setUp();
        runs.push(run);
        runs.push(_openRun(pool));
        (kept[runs[0]].stake, kept[runs[1]].stake) = (KEEPER_STAKE, KEEPER_STAKE);
        for (uint256 i = 0; i < 3; ++i) {
            members.push(account(names[i]));
            staked[run][members[i]] = SITE_STAKE;
        }
        _give(disputer, address(siteRuns), 1_000_000e9);
    }

    modifier acts(uint256 which) {
        vm.warp(clock);
        vm.roll(height);
        run = runs[which % runs.length];
        _;
    }

    function join(uint256 which, uint256 who) external acts(which) {
        address site = members[who % 3];
        bool may = siteRuns.siteOf(run, site).owner == address(0) && !kept[run].over;
        _give(site, address(siteRuns), SITE_STAKE);
        vm.prank(site);
        try siteRuns.join(run, site, 0, "") {
            require(may, "joined twice, or a run that is over");
            staked[run][site] = SITE_STAKE;
        } catch {
            require(!may, "kept out");
        }
    }

    function leaveRun(uint256 which, uint256 who) external acts(which) {
        address site = members[who % 3];
        if (!siteRuns.isSite(run, site)) return;
        _leave(site);
    }

    function takeOut(uint256 which, uint256 who) external acts(which) {
        address site = members[who % 3];
        ISiteRuns.Site memory before = siteRuns.siteOf(run, site);
        uint256 had = token.balanceOf(site);
        bool may = before.releaseAt != 0 && clock >= before.releaseAt && staked[run][site] != 0;
        vm.prank(site);
        try siteRuns.withdraw(run, site) {
            require(may, "too early, or twice");
            require(token.balanceOf(site) - had == staked[run][site], "another stake than its own");
            staked[run][site] = 0;
            ++withdrawals;
        } catch {
            require(!may, "held back");
        }
    }

    function endRun(uint256 which, uint256 how) external acts(which) {
        if (how % 12 == 0 && !kept[run].over) {
            _close();
            kept[run].over = true;
        }
        ISiteRuns.Run memory before = siteRuns.runOf(run);
        uint256 had = token.balanceOf(keeperOwner);
        bool may = kept[run].over && clock >= before.releaseAt && kept[run].disputes == 0 && kept[run].stake != 0;
        vm.prank(keeperOwner);
        try siteRuns.withdrawKeeper(run) {
            require(may, "the keeper's stake left early");
            require(token.balanceOf(keeperOwner) - had == kept[run].stake, "another stake than its own");
            kept[run].stake = 0;
            ++withdrawals;
        } catch {
            require(!may, "the keeper's stake was held back");
        }
        if (!kept[run].over) return;
        // a fresh run beside the one that is over
        run = runs[which % runs.length] = _openRun(pool);
        kept[run].stake = KEEPER_STAKE;
    }

    /// @dev Made of nobody's: whose contributions may be recorded is for other tests.
    function work(uint256 which) external acts(which) {
        uint256 next = siteRuns.runOf(run).steps;
        ISiteRuns.Contribution[] memory none = new ISiteRuns.Contribution[](0);
        vm.prank(keeper);
        try siteRuns.record(run, next, keccak256("state"), next, _entry(next), none) {
            require(!kept[run].over, "recorded after the end");
        } catch {
            require(kept[run].over, "a record refused");
        }
    }

    function contradict(uint256 which, uint256 who) external acts(which) {
        address site = members[who % 3];
        uint256 stake = staked[run][site];
        bool may = stake != 0 && !siteRuns.siteOf(run, site).ejected;
        bytes memory data = _accusing(names[who % 3], _note(1, "one"), _note(2, "other"));
        vm.prank(stranger);
        (bool ok,) = address(siteRuns).call(data);
        require(ok == may, "a contradiction twice, or not at all");
        if (!ok) return;
        staked[run][site] -= stake / 2;
        ++ejections;
    }

    function contradictKeeper(uint256 which, uint256 how) external acts(which) {
        if (how % 16 != 0) return;
        bool may = kept[run].stake != 0 && !kept[run].ejected;
        bytes memory data = _accusingKeeper(7, _entry(1), _entry(2));
        vm.prank(stranger);
        (bool ok,) = address(siteRuns).call(data);
        require(ok == may, "a keeper's contradiction twice, or not at all");
        if (!ok) return;
        uint256 held = kept[run].disputes * JURY;
        uint256 free = kept[run].stake > held ? kept[run].stake - held : 0;
        kept[run].stake -= free / 2;
        (kept[run].over, kept[run].ejected) = (true, true);
        ++ejections;
    }

    function challenge(uint256 which, uint256 step) external acts(which) {
        uint256 steps = siteRuns.runOf(run).steps;
        if (steps == 0) return;
        ISiteRuns.Step memory view_ = siteRuns.stepOf(run, step % steps);
        bool may = view_.dispute == 0 && clock < view_.time + DELAY && kept[run].stake != 0;
        vm.prank(disputer);
        try siteRuns.dispute(run, step % steps) returns (uint256 number) {
            require(may, "a dispute that cannot be");
            under.push(number);
            bonds += STEP_BOND;
            ++kept[run].disputes;
        } catch {
            require(!may, "a dispute that was due");
        }
    }

    /// @dev A jury of one opinion, or of two, or none; then the end, whatever it is.
    function judge(uint256 i, uint256 code, uint256 some) external acts(0) {
        if (under.length == 0) return;
        i %= under.length;
        uint256 number = under[i];
        uint256 trial = siteRuns.disputeOf(number).trial;
        (bool done,) = juries.verdictOf(trial);
        if (!done) _sit(trial, code, some);
        _conclude(i, number);
    }

    function _sit(uint256 trial, uint256 code, uint256 some) private {
        uint256[4] memory codes = [Codes.ACCEPT, Codes.REJECT_WEIGHTS, Codes.UNAVAILABLE, Codes.NONE];
        IJuries.Case memory view_ = juries.caseOf(trial);
        if (view_.time == 0 && height > view_.seedBlock + 250) {
            _blocks(5 * EPOCH); // its seed is too old for this chain
        } else {
            _juryVotes(trial, codes[code % 4], some % 6, codes[(code >> 8) % 4]);
            _wait(120);
        }
    }

    function _conclude(uint256 i, uint256 number) private {
        ISiteRuns.Dispute memory before = siteRuns.disputeOf(number);
        Kept storage keeping = kept[before.run];
        uint256 had = token.balanceOf(disputer);
        siteRuns.conclude(number);
        IOneJury.Outcome outcome = siteRuns.disputeOf(number).outcome;
        if (outcome == IOneJury.Outcome.Open) return;
        under[i] = under[under.length - 1];
        under.pop();
        bonds -= STEP_BOND;
        --keeping.disputes;
        uint256 got = token.balanceOf(disputer) - had;
        if (outcome == IOneJury.Outcome.Upheld) {
            ++upheld;
            uint256 held = keeping.disputes * JURY;
            uint256 taken = keeping.stake > held ? keeping.stake - held : 0;
            keeping.stake -= taken;
            keeping.over = true;
            require(got >= STEP_BOND - JURY && got <= STEP_BOND + taken / 10, "a share above a tenth");
        }
        if (outcome == IOneJury.Outcome.Refuted) {
            ++refuted;
            require(got == 0, "a false dispute for nothing");
        }
        if (outcome == IOneJury.Outcome.Dismissed) require(got < STEP_BOND, "a jury for nothing");
        if (outcome == IOneJury.Outcome.Lapsed) {
            ++lapsed;
            require(got == STEP_BOND, "silence cost the disputer");
        }
    }

    function later(uint256 secs) external acts(0) {
        _blocks(1 + secs % 200);
        if (secs % 9 == 0) _wait(DELAY);
    }

    /// @dev At the end everybody can leave, and every stake and bond does.
    function everybodyLeaves() external acts(0) {
        _blocks(5 * EPOCH);
        while (under.length != 0) {
            _conclude(0, under[0]);
            _blocks(5 * EPOCH);
        }
        for (run = 1; run <= siteRuns.opened(); ++run) {
            if (!kept[run].over) _close();
            for (uint256 i = 0; i < 3; ++i) {
                if (siteRuns.isSite(run, members[i])) _leave(members[i]);
            }
        }
        _wait(DELAY);
        for (run = 1; run <= siteRuns.opened(); ++run) {
            if (kept[run].stake != 0) {
                vm.prank(keeperOwner);
                siteRuns.withdrawKeeper(run);
            }
            for (uint256 i = 0; i < 3; ++i) {
                if (staked[run][members[i]] == 0) continue;
                vm.prank(members[i]);
                siteRuns.withdraw(run, members[i]);
            }
        }
        require(token.balanceOf(address(siteRuns)) == 0, "something stays for ever");
    }

    // ---- What always holds

    function everythingHolds() external view {
        uint256 all = bonds;
        require(bonds == under.length * STEP_BOND, "open disputes");
        for (uint256 r = 1; r <= siteRuns.opened(); ++r) {
            ISiteRuns.Run memory view_ = siteRuns.runOf(r);
            require(view_.stake == kept[r].stake, "the keeper's stake");
            require(view_.disputes == kept[r].disputes, "disputes of a run");
            require((view_.releaseAt != 0) == kept[r].over, "the end of a run");
            all += view_.stake;
            for (uint256 i = 0; i < 3; ++i) {
                uint256 stake = siteRuns.siteOf(r, members[i]).stake;
                require(stake == staked[r][members[i]], "a site's stake");
                all += stake;
            }
        }
        require(token.balanceOf(address(siteRuns)) == all, "tokens that are nobody's, or missing");
    }
}
