// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Losses} from "../helpers/Losses.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @notice A token that calls back into the suite on every transfer.
contract CallingToken is ERC20("Calling", "CALL") {
    address internal target;
    bytes internal data;
    bool public called;
    bool public succeeded;
    bytes4 public answer;

    function decimals() public pure override returns (uint8) {
        return 9;
    }

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function arm(address target_, bytes calldata data_) external {
        (target, data) = (target_, data_);
        (called, succeeded, answer) = (false, false, 0);
    }

    function _update(address from, address to, uint256 amount) internal override {
        super._update(from, to, amount);
        if (target != address(0)) {
            address t = target;
            target = address(0);
            called = true;
            bytes memory out;
            (succeeded, out) = t.call(data);
            answer = bytes4(out);
        }
    }
}

/// @notice A token that calls back finds the guard closed, or the penalty taken.
contract ReentrancyTest is Losses {
    function test_reentrancyThroughTheToken() public {
        CallingToken evil = new CallingToken();
        _start(address(evil));
        for (uint256 i = 0; i < SEATS; ++i) {
            uint256 seat = seats.opened() + 1;
            _fund(evil, _seatOwner(seat), address(seats));
            vm.prank(_seatOwner(seat));
            seats.openSeat(0, _voter(seat), _classes(FAMILY));
        }
        _nextEpoch();
        _fund(evil, owner, address(pools));
        vm.prank(owner);
        pool = pools.createPool(defaultTerms(), BUDGET);
        _serve(pool);
        _fund(evil, operator, address(stakes));
        bytes memory consent = _sign(key("node"), _consentDigest(node, operator, operator, clock + 60));
        vm.prank(operator);
        stakes.registerNode(node, operator, 0, STAKE, clock + 60, consent);
        vm.prank(operator);
        pools.join(pool, node, type(uint256).max, "", "");
        _step();
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        bytes32 inner = _inner(s);
        evil.arm(address(pools), abi.encodeCall(pools.claim, (pool, node, s, inner, new uint256[](0))));
        uint256 before = evil.balanceOf(operator);
        pools.claim(pool, node, s, inner, new uint256[](0));
        assertEq(evil.balanceOf(operator) - before, PAY); // once
        _refusedInside(evil);
        evil.arm(address(seats), abi.encodeCall(seats.topUp, (1)));
        vm.prank(_seatOwner(1));
        seats.topUp(1);
        _refusedInside(evil);
        _everyGuard(evil);
    }

    /// Penalties have no guard: an owner who is called back can take out only what is left of the bond.
    function test_penaltyIsTakenBeforeItsTokensMove() public {
        CallingToken evil = new CallingToken();
        _start(address(evil));
        _fund(evil, address(evil), address(seats));
        for (uint256 seat = 1; seat <= 4; ++seat) {
            vm.startPrank(address(evil));
            seats.openSeat(0, _voter(seat), _classes(FAMILY));
            if (seat != 4) seats.leaveSeat(seat);
            vm.stopPrank();
        }
        _blocks(450);
        for (uint256 seat = 1; seat <= 3; ++seat) {
            vm.prank(address(evil));
            seats.unbondSeat(seat);
        }
        _wait(30 days);
        _penalty(evil, 1, abi.encodeCall(seats.penalise, (1, 1e9, stranger)));
        _penalty(evil, 2, abi.encodeCall(seats.collect, (2, 1e9, stranger)));
        _penalty(evil, 3, abi.encodeCall(seats.fine, (3, 1e9, stranger)));
        assertEq(evil.balanceOf(address(seats)), BOND); // the fourth's, whole
    }

    function _penalty(CallingToken evil, uint256 seat, bytes memory penalty) private {
        uint256 before = evil.balanceOf(address(seats));
        evil.arm(address(seats), abi.encodeCall(seats.withdrawSeat, (seat)));
        vm.prank(address(court));
        (bool done,) = address(seats).call(penalty);
        assertTrue(done);
        assertTrue(evil.succeeded());
        assertEq(seats.seatOf(seat).bond, 0);
        assertEq(before - evil.balanceOf(address(seats)), BOND);
    }

    /// Deposits, withdrawals and claims refuse to be called while tokens move.
    function _everyGuard(CallingToken evil) private {
        bytes[] memory inside = new bytes[](3);
        inside[0] = abi.encodeCall(pools.fund, (pool, 1));
        inside[1] = abi.encodeCall(pools.createPool, (defaultTerms(), 0));
        inside[2] = abi.encodeCall(pools.claim, (pool, node, 0, 0, new uint256[](0)));
        for (uint256 i = 0; i < inside.length; ++i) {
            evil.arm(address(pools), inside[i]);
            vm.prank(owner);
            pools.fund(pool, 1);
            _refusedInside(evil);
        }
        evil.arm(address(pools), inside[0]);
        vm.prank(address(appeals));
        pools.payJury(pool, 1);
        _refusedInside(evil);
        inside = new bytes[](5);
        inside[0] = abi.encodeCall(stakes.deposit, (node, 1));
        inside[1] = abi.encodeCall(stakes.withdraw, (node, 1));
        inside[2] = abi.encodeCall(stakes.registerNode, (stranger, operator, 0, 1, clock, ""));
        inside[3] = abi.encodeCall(stakes.registerNode, (stranger, operator, uint24(1), 1, clock, ""));
        inside[4] = abi.encodeCall(stakes.withdraw, (node, 2));
        for (uint256 i = 0; i < inside.length; ++i) {
            evil.arm(address(stakes), inside[i]);
            vm.prank(operator);
            stakes.deposit(node, 1);
            _refusedInside(evil);
        }
        inside = new bytes[](4);
        inside[0] = abi.encodeCall(seats.topUp, (1));
        inside[1] = abi.encodeCall(seats.withdrawSeat, (1));
        inside[2] = abi.encodeCall(seats.openSeat, (0, stranger, _classes(FAMILY)));
        inside[3] = abi.encodeCall(seats.openSeat, (1, stranger, _classes(FAMILY)));
        for (uint256 i = 0; i < inside.length; ++i) {
            evil.arm(address(seats), inside[i]);
            vm.prank(_seatOwner(1));
            seats.topUp(1);
            _refusedInside(evil);
        }
    }

    function _refusedInside(CallingToken evil) private {
        assertTrue(evil.called());
        assertFalse(evil.succeeded());
        assertEq(bytes32(evil.answer()), bytes32(ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector));
    }

    function _fund(CallingToken evil, address who, address spender) private {
        evil.mint(who, 10_000_000e9);
        vm.prank(who);
        evil.approve(spender, type(uint256).max);
    }
}
