// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISiteRuns} from "../../src/interfaces/ISiteRuns.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {MeasuringCases} from "./MeasuringCases.sol";

/// @notice What runs of sites cost on chain.
contract MeasuringSites is MeasuringCases {
    /// @dev A run's life: opened, joined, steps of four and of 64 sites recorded, one disputed, a site found out.
    function _siteRun(string memory s) internal {
        address keeper = account(string.concat("site keeper", s));
        _give(keeper, address(siteRuns), STAKE);
        bytes32 document = keccak256("run document");
        vm.prank(keeper);
        uint256 run =
            siteRuns.open(ISiteRuns.Terms(document, keccak256("start"), pool, keeper, STAKE / 4, STAKE, 1 days), 0, "");
        _note(string.concat("site_open", s), _used());
        ISiteRuns.Contribution[] memory all = _joined(run, s);
        ISiteRuns.Contribution[] memory four = new ISiteRuns.Contribution[](4);
        for (uint256 i = 0; i < 4; ++i) {
            four[i] = all[i];
        }
        ISiteRuns.Entry memory entry = ISiteRuns.Entry(keccak256("previous"), keccak256("body"));
        vm.prank(keeper);
        siteRuns.record(run, 0, keccak256("state"), 10, entry, four);
        _note(string.concat("site_record_4", s), _used());
        vm.prank(keeper);
        siteRuns.record(run, 1, keccak256("state"), 900, entry, all);
        _note(string.concat("site_record_64", s), _used());
        _challenge(run, s);
        _contradict(run, s, string.concat("site", s, "1"));
    }

    /// @dev 64 sites, ascending; the contributions that they make.
    function _joined(uint256 run, string memory s) private returns (ISiteRuns.Contribution[] memory all) {
        all = new ISiteRuns.Contribution[](64);
        for (uint256 i = 0; i < 64; ++i) {
            address site = account(string.concat("site", s, _text(i)));
            _give(site, address(siteRuns), STAKE);
            vm.prank(site);
            siteRuns.join(run, site, 0, "");
            if (i == 63) _note(string.concat("site_join", s), _used());
            uint256 at = i;
            for (; at > 0 && all[at - 1].site > site; --at) {
                all[at] = all[at - 1];
            }
            all[at] = ISiteRuns.Contribution(site, 1e9 / 64, keccak256(abi.encode(i)));
        }
    }

    function _challenge(uint256 run, string memory s) private {
        _give(account("accuser"), address(siteRuns), 1_000e9);
        vm.prank(account("accuser"));
        uint256 number = siteRuns.dispute(run, 1);
        _note(string.concat("site_dispute", s), _used());
        _juryVotes(siteRuns.disputeOf(number).trial, Codes.REJECT_WEIGHTS);
        siteRuns.conclude(number);
        _note(string.concat("site_upheld", s), _used());
    }

    function _contradict(uint256 run, string memory s, string memory name) private {
        address site = account(name);
        ISiteRuns.Note memory a = ISiteRuns.Note(1, keccak256("one"), keccak256("a"));
        ISiteRuns.Note memory b = ISiteRuns.Note(2, keccak256("other"), keccak256("b"));
        bytes memory signedA = _sign(key(name), siteRuns.noteDigest(run, site, 3, 1, a));
        bytes memory signedB = _sign(key(name), siteRuns.noteDigest(run, site, 3, 1, b));
        vm.prank(node);
        siteRuns.accuseSite(run, site, 3, 1, a, signedA, b, signedB);
        _note(string.concat("site_accuse", s), _used());
    }
}
