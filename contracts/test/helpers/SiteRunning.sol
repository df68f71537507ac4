// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IOneJury} from "../../src/interfaces/IOneJury.sol";
import {ISiteRuns} from "../../src/interfaces/ISiteRuns.sol";
import {Losses} from "./Losses.sol";
import {Refusing} from "./Refusing.sol";

/// @notice A run with a keeper and three sites, and what they sign.
contract SiteRunning is Losses, Refusing {
    uint256 internal constant SITE_STAKE = 40e9;
    uint256 internal constant KEEPER_STAKE = 200e9;
    uint256 internal constant DELAY = 1 days;
    bytes32 internal constant DOCUMENT = keccak256("run document");
    /// Of a dispute in the default pool: five jurors' fees and the compensation.
    uint256 internal constant JURY = 5 * 5e8;
    uint256 internal constant STEP_BOND = JURY + 5e9;

    uint256 internal run;
    address internal keeper = account("keeper");
    address internal keeperOwner = account("keeper owner");
    address internal disputer = account("disputer");
    string[3] internal names = ["site a", "site b", "site c"];

    function setUp() public virtual override {
        super.setUp();
        run = _openRun(pool);
        for (uint256 i = 0; i < 3; ++i) {
            _enter(names[i]);
        }
        _give(disputer, address(siteRuns), 1_000e9);
    }

    function _terms(uint256 judging) internal view returns (ISiteRuns.Terms memory) {
        return ISiteRuns.Terms(DOCUMENT, keccak256("start"), judging, keeper, SITE_STAKE, KEEPER_STAKE, DELAY);
    }

    /// @dev By the owner of the stake, with the keeper's consent.
    function _openRun(uint256 judging) internal returns (uint256) {
        _give(keeperOwner, address(siteRuns), KEEPER_STAKE);
        bytes memory consent = _consent("keeper", keeperOwner);
        vm.prank(keeperOwner);
        return siteRuns.open(_terms(judging), clock + 60, consent);
    }

    function _consent(string memory name, address owner_) internal view returns (bytes memory) {
        return _sign(key(name), siteRuns.consentDigest(DOCUMENT, account(name), owner_, clock + 60));
    }

    /// @dev With a key that is its own owner.
    function _enter(string memory name) internal returns (address site) {
        site = account(name);
        _give(site, address(siteRuns), SITE_STAKE);
        vm.prank(site);
        siteRuns.join(run, site, 0, "");
    }

    function _leave(address site) internal {
        vm.prank(site);
        siteRuns.leave(run, site);
    }

    function _close() internal {
        vm.prank(keeperOwner);
        siteRuns.close(run);
    }

    // ---- Steps

    function _entry(uint256 step) internal pure returns (ISiteRuns.Entry memory) {
        return ISiteRuns.Entry(keccak256(abi.encode("previous", step)), keccak256(abi.encode("body", step)));
    }

    /// @dev Of all three sites, ascending by address, a third each.
    function _contributions() internal view returns (ISiteRuns.Contribution[] memory list) {
        list = new ISiteRuns.Contribution[](3);
        for (uint256 i = 0; i < 3; ++i) {
            list[i] = ISiteRuns.Contribution(account(names[i]), 333_333_333, keccak256(bytes(names[i])));
        }
        for (uint256 i = 0; i < 2; ++i) {
            for (uint256 j = 0; j < 2; ++j) {
                if (list[j].site > list[j + 1].site) (list[j], list[j + 1]) = (list[j + 1], list[j]);
            }
        }
    }

    function _recording(uint256 step) internal view returns (bytes memory) {
        return abi.encodeCall(
            siteRuns.record, (run, step, keccak256(abi.encode(step)), 10 * step, _entry(step), _contributions())
        );
    }

    function _record() internal returns (uint256 step) {
        step = siteRuns.runOf(run).steps;
        _yes(keeper, address(siteRuns), _recording(step));
    }

    // ---- Contradictions

    function _note(uint256 number, string memory document) internal pure returns (ISiteRuns.Note memory) {
        return ISiteRuns.Note(number, keccak256(bytes(document)), keccak256(abi.encode("note", number, document)));
    }

    function _signedNote(string memory name, uint256 step, uint256 attempt, ISiteRuns.Note memory note)
        internal
        view
        returns (bytes memory)
    {
        return _sign(key(name), siteRuns.noteDigest(run, account(name), step, attempt, note));
    }

    /// @dev That the site signed `a` and `b` to one attempt.
    function _accusing(string memory name, ISiteRuns.Note memory a, ISiteRuns.Note memory b)
        internal
        view
        returns (bytes memory)
    {
        (bytes memory signedA, bytes memory signedB) = (_signedNote(name, 3, 1, a), _signedNote(name, 3, 1, b));
        return abi.encodeCall(siteRuns.accuseSite, (run, account(name), 3, 1, a, signedA, b, signedB));
    }

    function _accuseSite(string memory name) internal {
        _yes(stranger, address(siteRuns), _accusing(name, _note(1, "one"), _note(2, "other")));
    }

    function _signedEntry(uint256 number, ISiteRuns.Entry memory entry) internal view returns (bytes memory) {
        return _sign(key("keeper"), siteRuns.entryDigest(run, number, entry));
    }

    function _accusingKeeper(uint256 number, ISiteRuns.Entry memory a, ISiteRuns.Entry memory b)
        internal
        view
        returns (bytes memory)
    {
        (bytes memory signedA, bytes memory signedB) = (_signedEntry(number, a), _signedEntry(number, b));
        return abi.encodeCall(siteRuns.accuseKeeper, (run, number, a, signedA, b, signedB));
    }

    function _accuseKeeper() internal {
        _yes(stranger, address(siteRuns), _accusingKeeper(7, _entry(1), _entry(2)));
    }

    // ---- Disputes

    function _disputeStep(uint256 step) internal returns (uint256) {
        vm.prank(disputer);
        return siteRuns.dispute(run, step);
    }

    /// @dev The jury votes one code, and anybody concludes.
    function _judged(uint256 number, uint256 code) internal {
        _juryVotes(siteRuns.disputeOf(number).trial, code);
        siteRuns.conclude(number);
    }

    function _is(uint256 number, IOneJury.Outcome outcome) internal {
        assertEq(uint256(siteRuns.disputeOf(number).outcome), uint256(outcome));
    }

    function _closeJurors(uint256 trial) internal {
        for (uint256 i = 0; i < juries.seatsOf(trial).length; ++i) {
            juries.closeJuror(trial, i);
        }
    }
}
