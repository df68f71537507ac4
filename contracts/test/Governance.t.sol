// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {WrongAddress} from "../src/libraries/Types.sol";
import {Network} from "./helpers/Network.sol";
import {IParams} from "./interfaces/IParams.sol";
import {ISeats} from "./interfaces/ISeats.sol";
import {ITimelock} from "./interfaces/ITimelock.sol";
import {IAccessControl} from "@openzeppelin/contracts/access/IAccessControl.sol";
import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {TimelockController} from "@openzeppelin/contracts/governance/TimelockController.sol";
import {IERC20Errors} from "@openzeppelin/contracts/interfaces/draft-IERC6093.sol";

/// @notice Governance as `muster deploy` sets it up: a timelock owns the pause, a guardian may pause; and who can
/// make the tokens that seats cost.
contract GovernanceTest is Network {
    uint256 internal constant DELAY = 2 days;
    bytes32 internal constant GUARDIAN = keccak256("GUARDIAN_ROLE");

    TimelockController internal timelock;
    address internal governor = account("governor");
    address internal guardian = account("guardian");

    function setUp() public override {
        super.setUp();
        Ownable2Step(address(params)).transferOwnership(_at(vm.getNonce(address(this))));
        vm.prank(Ownable2Step(address(params)).pendingOwner());
        Ownable2Step(address(params)).acceptOwnership();
        timelock = TimelockController(payable(_new("Timelock", _arguments(governor))));
    }

    function _arguments(address who) internal view returns (bytes memory) {
        return abi.encode(params, DELAY, who, guardian);
    }

    function _schedule(bytes memory data) internal returns (bytes32 id) {
        vm.prank(governor);
        timelock.schedule(address(params), 0, data, 0, 0, DELAY);
        return timelock.hashOperation(address(params), 0, data, 0, 0);
    }

    function _execute(bytes memory data) internal {
        vm.prank(governor);
        timelock.execute(address(params), 0, data, 0, 0);
    }

    function _unexpected(bytes32 id, TimelockController.OperationState wanted) internal pure returns (bytes memory) {
        return abi.encodeWithSelector(
            TimelockController.TimelockUnexpectedOperationState.selector, id, bytes32(1 << uint256(wanted))
        );
    }

    function _denied(address who, bytes32 role) internal pure returns (bytes memory) {
        return abi.encodeWithSelector(IAccessControl.AccessControlUnauthorizedAccount.selector, who, role);
    }

    function test_nobodyButTheTimelockPauses() public {
        address[4] memory others = [governor, guardian, address(this), stranger];
        for (uint256 i = 0; i < others.length; ++i) {
            bytes memory no = abi.encodeWithSelector(Ownable.OwnableUnauthorizedAccount.selector, others[i]);
            vm.startPrank(others[i]);
            vm.expectRevert(no);
            params.setPaused(true);
            vm.expectRevert(no);
            Ownable2Step(address(params)).transferOwnership(others[i]);
            vm.expectRevert(no);
            Ownable2Step(address(params)).renounceOwnership();
            vm.stopPrank();
        }
        vm.prank(address(timelock));
        params.setPaused(true);
        assertTrue(params.paused());
    }

    function test_nobodyButTheGovernorProposesExecutesOrCancels() public {
        bytes memory data = abi.encodeCall(IParams.setPaused, (true));
        address[3] memory others = [guardian, address(this), stranger];
        bytes32[3] memory roles = [timelock.PROPOSER_ROLE(), timelock.CANCELLER_ROLE(), timelock.EXECUTOR_ROLE()];
        bytes32 id = _schedule(data);
        _wait(DELAY);
        for (uint256 i = 0; i < others.length; ++i) {
            vm.startPrank(others[i]);
            vm.expectRevert(_denied(others[i], roles[0]));
            timelock.schedule(address(params), 0, data, 0, bytes32("other"), DELAY);
            vm.expectRevert(_denied(others[i], roles[1]));
            timelock.cancel(id);
            vm.expectRevert(_denied(others[i], roles[2]));
            timelock.execute(address(params), 0, data, 0, 0);
            vm.stopPrank();
        }
        _execute(data);
        assertTrue(timelock.isOperationDone(id));
    }

    function test_aScheduledChangeWaitsForItsDelay() public {
        bytes memory data = abi.encodeCall(IParams.setPaused, (true));
        vm.prank(governor);
        vm.expectRevert(abi.encodeWithSelector(TimelockController.TimelockInsufficientDelay.selector, DELAY - 1, DELAY));
        timelock.schedule(address(params), 0, data, 0, 0, DELAY - 1);
        bytes32 id = _schedule(data);
        _wait(DELAY - 1);
        vm.expectRevert(_unexpected(id, TimelockController.OperationState.Ready));
        vm.prank(governor);
        timelock.execute(address(params), 0, data, 0, 0);
        assertFalse(params.paused());
        _wait(1);
        _execute(data);
        assertTrue(params.paused());
        vm.expectRevert(_unexpected(id, TimelockController.OperationState.Ready));
        vm.prank(governor);
        timelock.execute(address(params), 0, data, 0, 0); // not twice
    }

    function test_aCancelledChangeIsNeverMade() public {
        bytes memory data = abi.encodeCall(IParams.setPaused, (true));
        bytes32 id = _schedule(data);
        vm.prank(governor);
        timelock.cancel(id);
        _wait(DELAY);
        vm.expectRevert(_unexpected(id, TimelockController.OperationState.Ready));
        vm.prank(governor);
        timelock.execute(address(params), 0, data, 0, 0);
        _schedule(data);
        _wait(DELAY);
        _execute(data);
        assertTrue(params.paused());
    }

    function test_aGuardianPausesAtOnceAndDoesNothingElse() public {
        vm.prank(governor);
        vm.expectRevert(_denied(governor, GUARDIAN));
        ITimelock(address(timelock)).pause();
        vm.prank(guardian);
        ITimelock(address(timelock)).pause();
        assertTrue(params.paused());
        vm.expectRevert(ISeats.Paused.selector);
        seats.openSeat(0, stranger, _classes(FAMILY));
        _wait(6 days);
        vm.prank(guardian);
        vm.expectRevert(abi.encodeWithSelector(IParams.TooSoon.selector, clock + 8 days));
        ITimelock(address(timelock)).pause(); // cannot be prolonged
        _wait(1 days);
        assertFalse(params.paused());
        _openSeats(1);
        _wait(7 days - 1);
        vm.prank(guardian);
        vm.expectRevert(abi.encodeWithSelector(IParams.TooSoon.selector, clock + 1));
        ITimelock(address(timelock)).pause(); // half of all time stays open
        _wait(1);
        vm.prank(guardian);
        ITimelock(address(timelock)).pause();
        assertTrue(params.paused());
    }

    function test_theTimelockEndsAPauseEarlyAndReplacesAGuardian() public {
        bytes memory open = abi.encodeCall(IParams.setPaused, (false));
        bytes memory dismiss = abi.encodeCall(timelock.revokeRole, (GUARDIAN, guardian));
        _schedule(open);
        vm.prank(governor);
        timelock.schedule(address(timelock), 0, dismiss, 0, 0, DELAY);
        _wait(DELAY);
        vm.prank(guardian);
        ITimelock(address(timelock)).pause();
        _execute(open);
        assertFalse(params.paused());
        vm.prank(governor);
        timelock.execute(address(timelock), 0, dismiss, 0, 0);
        _wait(14 days);
        vm.prank(guardian);
        vm.expectRevert(_denied(guardian, GUARDIAN));
        ITimelock(address(timelock)).pause();
    }

    function test_theTimelockHasNoAdministratorButItself() public {
        bytes32 admin = timelock.DEFAULT_ADMIN_ROLE();
        bytes32 proposer = timelock.PROPOSER_ROLE();
        assertTrue(timelock.hasRole(admin, address(timelock)));
        address[4] memory others = [governor, guardian, address(this), address(0)];
        for (uint256 i = 0; i < others.length; ++i) {
            assertFalse(timelock.hasRole(admin, others[i]));
            assertEq(timelock.hasRole(timelock.EXECUTOR_ROLE(), others[i]), others[i] == governor);
            vm.startPrank(others[i]);
            vm.expectRevert(_denied(others[i], admin));
            timelock.grantRole(proposer, stranger);
            vm.expectRevert(abi.encodeWithSelector(TimelockController.TimelockUnauthorizedCaller.selector, others[i]));
            timelock.updateDelay(0);
            vm.stopPrank();
        }
    }

    function test_noProposalShortensTheDelay() public {
        bytes memory shorter = abi.encodeCall(TimelockController.updateDelay, (DELAY - 1));
        bytes memory longer = abi.encodeCall(TimelockController.updateDelay, (DELAY + 1));
        vm.startPrank(governor);
        timelock.schedule(address(timelock), 0, shorter, 0, 0, DELAY);
        timelock.schedule(address(timelock), 0, longer, 0, 0, DELAY);
        _wait(DELAY);
        vm.expectRevert(abi.encodeWithSelector(ITimelock.DelayTooShort.selector, DELAY));
        timelock.execute(address(timelock), 0, shorter, 0, 0);
        timelock.execute(address(timelock), 0, longer, 0, 0);
        vm.stopPrank();
        assertEq(timelock.getMinDelay(), DELAY + 1);
        assertEq(ITimelock(address(timelock)).shortestDelay(), DELAY);
    }

    function test_accountsThatCostNothingGetNoSeats() public {
        uint256 supply = token.totalSupply();
        uint256 opened = seats.opened();
        for (uint256 i = 0; i < 20; ++i) {
            address free = account(string.concat("free ", _text(i)));
            vm.startPrank(free);
            (bool ok,) = address(token).call(abi.encodeWithSignature("faucet(uint256)", BOND));
            assertFalse(ok);
            vm.expectRevert(abi.encodeWithSelector(Ownable.OwnableUnauthorizedAccount.selector, free));
            token.mint(free, BOND);
            token.approve(address(seats), BOND);
            vm.expectRevert(abi.encodeWithSelector(IERC20Errors.ERC20InsufficientBalance.selector, free, 0, BOND));
            seats.openSeat(0, free, _classes(FAMILY));
            vm.stopPrank();
        }
        assertEq(token.totalSupply(), supply);
        assertEq(seats.opened(), opened);
    }

    function test_whatTheOwnerMintedBondsASeat() public {
        uint256 supply = token.totalSupply();
        token.mint(guardian, BOND + 1);
        vm.startPrank(guardian);
        token.transfer(stranger, BOND);
        vm.stopPrank();
        vm.startPrank(stranger);
        token.approve(address(seats), BOND);
        uint256 seat = seats.openSeat(0, stranger, _classes(FAMILY));
        vm.stopPrank();
        assertEq(seats.seatOf(seat).bond, BOND);
        assertEq(token.balanceOf(stranger), 0);
        assertEq(token.totalSupply(), supply + BOND + 1);
    }

    function test_aTimelockThatOwnsTheTokenMintsAfterItsDelay() public {
        Ownable2Step(address(token)).transferOwnership(address(timelock));
        bytes memory accept = abi.encodeCall(Ownable2Step.acceptOwnership, ());
        bytes memory data = abi.encodeCall(token.mint, (stranger, BOND));
        vm.startPrank(governor);
        timelock.schedule(address(token), 0, accept, 0, 0, DELAY);
        timelock.schedule(address(token), 0, data, 0, 0, DELAY);
        vm.expectRevert(abi.encodeWithSelector(Ownable.OwnableUnauthorizedAccount.selector, governor));
        token.mint(governor, BOND);
        _wait(DELAY);
        timelock.execute(address(token), 0, accept, 0, 0);
        timelock.execute(address(token), 0, data, 0, 0);
        vm.stopPrank();
        assertEq(token.balanceOf(stranger), BOND);
        vm.expectRevert(abi.encodeWithSelector(Ownable.OwnableUnauthorizedAccount.selector, address(this)));
        token.mint(stranger, BOND);
    }

    /// Built by hand: `expectRevert` would take the address computation for the call that has to fail.
    function _fails(bytes memory arguments, bytes memory why) internal {
        (bool ok, bytes memory data) = address(this).call(abi.encodeCall(this.create, (arguments)));
        assertFalse(ok);
        assertEq(data, why);
    }

    function create(bytes memory arguments) external returns (address) {
        return _new("Timelock", arguments);
    }

    function test_aTimelockThatOwnsNothingCannotBeMade() public {
        address made = _at(vm.getNonce(address(this)));
        _fails(_arguments(governor), abi.encodeWithSelector(WrongAddress.selector, address(timelock), made));
        vm.prank(address(timelock));
        Ownable2Step(address(params)).transferOwnership(made);
        vm.prank(made);
        Ownable2Step(address(params)).acceptOwnership();
        _fails(_arguments(address(0)), abi.encodeWithSelector(ITimelock.NoGovernor.selector));
        assertEq(this.create(_arguments(governor)), made);
    }
}
