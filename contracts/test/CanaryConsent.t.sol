// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {FileData} from "../src/libraries/Types.sol";
import {Phase} from "./helpers/Phase.sol";
import {Planting} from "./helpers/Planting.sol";
import {IAppeals} from "./interfaces/IAppeals.sol";
import {ICanaries} from "./interfaces/ICanaries.sol";
import {IJuries} from "./interfaces/IJuries.sol";
import {IPools} from "./interfaces/IPools.sol";

/// @notice What a decoy node's consent is not: another form of its signature, or a way to take anybody's money but what its
/// own file would have earned.
contract CanaryConsentTest is Planting {
    uint256 private constant ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;

    /// Only the canonical form in 65 bytes: no high s, no compact form, no parity in the place of v, nothing appended.
    function test_anotherFormOfTheDecoysSignatureIsNoConsent() public {
        uint256 s = _submitPlanted();
        _voteAll(s / 16, Codes.ACCEPT);
        FileData memory f = files[pool][s];
        bytes32 digest = _decoyDigest(_leafOf(_opening(f).salt, pool, f.step, node, f.counter));
        (uint8 v, bytes32 r, bytes32 low) = vm.sign(key("node"), digest);
        bytes32 high = bytes32(ORDER - uint256(low));
        bytes32 compact = bytes32(uint256(low) | (uint256(v - 27) << 255));
        _refuses(f, s, abi.encodePacked(r, high, v == 27 ? uint8(28) : uint8(27)));
        _refuses(f, s, abi.encodePacked(r, compact));
        _refuses(f, s, abi.encodePacked(r, low, v - 27));
        _refuses(f, s, abi.encodePacked(r, low, v, uint8(0)));
        _openCanary(s);
        assertEq(canaries.canaryOf(pool, s).accused.length, 3);
    }

    /// What nobody could fetch and nobody accepted needs no jury: the budget gets back the pay alone, and no fee is left
    /// over or missing.
    function test_canaryThatCouldNotBeFetchedLeavesNothingBehind() public {
        uint256 s = _submitPlanted();
        _voteAll(s / 16, Codes.UNAVAILABLE);
        uint256 before = token.balanceOf(owner) + 100_000e9;
        _openCanary(s);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.CANARY);
        assertEq(token.balanceOf(owner), before);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(stakes.nodeOf(node).frozen, 0);
        _passWindow();
        _closeAll(s / 16, 0);
        assertEq(_pool(pool).free, BUDGET - FEES);
        assertEq(token.balanceOf(address(pools)), BUDGET - FEES);
        assertEq(token.balanceOf(address(canaries)), 0);
        for (uint256 i = 0; i < 3; ++i) {
            uint256 seat = _round(pool, s / 16, 0).seats[i];
            assertEq(seats.seatOf(seat).bond, BOND - FEE); // others could have judged it
            assertEq(seats.seatOf(seat).frozen, 0);
        }
    }

    /// A file is opened once, also where no jury had to judge it.
    function test_openedCanaryIsNotOpenedAgain() public {
        uint256 s = _submitPlanted();
        _voteAll(s / 16, Codes.REJECT_WEIGHTS);
        _openCanary(s);
        FileData memory f = files[pool][s];
        ICanaries.Planted memory p = _opening(f);
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        vm.expectRevert(IAppeals.NoDispute.selector); // its file is held, and by no dispute
        vm.prank(owner);
        canaries.open(pool, s, f, p, r, Codes.REJECT_WEIGHTS);
        canaries.conclude(pool, s, f);
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongPhase.selector, s, Phase.Final));
        vm.prank(owner);
        canaries.open(pool, s, f, p, r, Codes.REJECT_WEIGHTS);
        vm.expectRevert(ICanaries.AlreadyConcluded.selector);
        canaries.conclude(pool, s, f);
    }

    /// While an owner can open its canary there is no verdict, and so no appeal that an opening would have to undo.
    function test_nobodyAppealsWhileACanaryCanBeOpened() public {
        uint256 s = _convictedCanary();
        uint256 until = _submission(s).finalAt;
        vm.expectRevert(abi.encodeWithSelector(IAppeals.NotYet.selector, until));
        _conclude(s);
        uint256 trial = appeals.disputeOf(pool, s).trial;
        vm.expectRevert(IJuries.NoAppeal.selector);
        juries.appeal(trial);
        uint256 before = token.balanceOf(stranger);
        uint256 deposit = appeals.disputeOf(pool, s).deposit;
        _openCanary(s);
        assertEq(token.balanceOf(stranger) - before, deposit);
        assertEq(token.balanceOf(address(appeals)), 0);
        vm.expectRevert(IJuries.NoAppeal.selector);
        juries.appeal(trial);
    }

    function test_nobodyOpensACanaryThatCanBeAppealed() public {
        uint256 s = _convictedCanary();
        uint256 until = _submission(s).finalAt;
        _passWindow();
        _conclude(s);
        _appeal(operator, s);
        assertEq(juries.caseOf(appeals.disputeOf(pool, s).trial).appellant, operator);
        _refuses(
            files[pool][s],
            s,
            _opening(files[pool][s]).consent,
            abi.encodeWithSelector(ICanaries.WindowOver.selector, until)
        );
    }

    /// @dev A planted file in a pool with two juries: accepted, disputed, and the first jury has revealed its rejects.
    function _convictedCanary() private returns (uint256 s) {
        _moveToTwoJuries();
        s = _submitPlanted();
        _voteAll(s / 16, Codes.ACCEPT);
        _juryVotes(_dispute(stranger, s), Codes.REJECT_WEIGHTS);
    }

    function _refuses(FileData memory f, uint256 s, bytes memory consent) private {
        _refuses(f, s, consent, abi.encodeWithSelector(ICanaries.BadSignature.selector));
    }

    function _refuses(FileData memory f, uint256 s, bytes memory consent, bytes memory reason) private {
        ICanaries.Planted memory p = _opening(f);
        p.consent = consent;
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        vm.expectRevert(reason);
        vm.prank(owner);
        canaries.open(pool, s, f, p, r, Codes.REJECT_WEIGHTS);
    }
}
