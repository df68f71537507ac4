// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Losses} from "../helpers/Losses.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IStakes} from "../interfaces/IStakes.sol";

/// @notice A sponsor lends a node its stake: what is left of it comes back to the sponsor, and the rest of the stake is
/// the operator's.
contract SponsorAttacksTest is Losses {
    address internal sponsor = account("sponsor");
    address internal lent = account("lent");

    function setUp() public override {
        super.setUp();
        nodeKeys[lent] = key("lent");
        _give(sponsor, address(stakes), STAKE);
        bytes memory consent = _consent(operator, sponsor);
        vm.prank(sponsor);
        stakes.registerNode(lent, operator, uint24(pool), STAKE, clock + 60, consent);
    }

    function _consent(address op, address who) private view returns (bytes memory) {
        return _sign(key("lent"), _consentDigest(lent, op, who, clock + 60));
    }

    function _isLent(uint256 amount) private {
        (address who, uint256 left) = stakes.loanOf(lent);
        assertEq(who, sponsor);
        assertEq(left, amount);
    }

    function _joinPool() private {
        bytes memory join = _sign(key("lent"), _memberDigest("Join", pool, lent, 0, clock + 60));
        pools.join(pool, lent, clock + 60, join, "");
        _step();
    }

    function _free() private {
        if (stakes.nodeOf(lent).pool != 0) {
            vm.prank(operator);
            pools.leavePool(pool, lent, type(uint256).max, "");
        }
        _wait(30 days);
    }

    /// A node that never had ether or a token is registered, joins, works, is paid and leaves by its key alone.
    function test_nodeWithoutAnythingIsPaid() public {
        _joinPool();
        uint256 s = _submitFrom(lent, 1_000);
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(s), PAY);
        assertEq(token.balanceOf(operator), PAY);
        bytes memory leave = _sign(key("lent"), _memberDigest("Leave", pool, lent, 1, clock + 60));
        pools.leavePool(pool, lent, clock + 60, leave);
        _wait(30 days);
        vm.prank(sponsor);
        stakes.withdraw(lent, type(uint256).max);
        assertEq(token.balanceOf(sponsor), STAKE);
        assertEq(token.balanceOf(operator), PAY);
        _isLent(0);
    }

    /// A node that names its sponsor as its operator would have a stake to lose that is no loan.
    function test_aSponsorNamedAsOperatorStillLends() public {
        lent = account("second");
        _give(sponsor, address(stakes), STAKE);
        bytes memory consent = _sign(key("second"), _consentDigest(lent, sponsor, sponsor, clock + 60));
        vm.prank(sponsor);
        stakes.registerNode(lent, sponsor, uint24(pool), STAKE, clock + 60, consent);
        _isLent(STAKE);
    }

    /// The consent names the sponsor: nobody else can use it up with another amount.
    function test_consentIsForOneSponsor() public {
        lent = account("second");
        bytes memory consent = _sign(key("second"), _consentDigest(lent, operator, sponsor, clock + 60));
        vm.expectRevert(IStakes.BadSignature.selector);
        vm.prank(stranger);
        stakes.registerNode(lent, operator, uint24(pool), 0, clock + 60, consent);
        vm.expectRevert(IStakes.BadSignature.selector);
        vm.prank(operator);
        stakes.registerNode(lent, operator, 0, 0, clock + 60, consent);
        vm.expectRevert(IStakes.BadSignature.selector);
        vm.prank(sponsor);
        stakes.registerNode(lent, stranger, uint24(pool), 0, clock + 60, consent); // nor for another operator
        vm.expectRevert(IStakes.NotOperator.selector);
        vm.prank(sponsor);
        stakes.registerNode(lent, address(0), uint24(pool), 0, clock + 60, consent);
        vm.expectRevert(IStakes.AmountTooLarge.selector);
        vm.prank(sponsor);
        stakes.registerNode(lent, operator, uint24(pool), 1 << 56, clock + 60, consent);
        vm.prank(sponsor);
        stakes.registerNode(lent, operator, uint24(pool), 0, clock + 60, consent);
        vm.expectRevert(IStakes.AlreadyRegistered.selector);
        vm.prank(sponsor);
        stakes.registerNode(lent, operator, uint24(pool), 0, clock + 60, consent);
    }

    /// Anybody else could take a node its stake before it joins.
    function test_onlyTheSponsorCallsTheLoan() public {
        address[2] memory others = [lent, stranger];
        for (uint256 i = 0; i < 2; ++i) {
            vm.expectRevert(IStakes.NotOperator.selector);
            vm.prank(others[i]);
            stakes.withdraw(lent, type(uint256).max);
        }
        vm.expectRevert(IStakes.NotOperator.selector);
        vm.prank(sponsor);
        stakes.withdraw(node, type(uint256).max); // which nobody sponsors
        vm.prank(sponsor);
        stakes.withdraw(lent, type(uint256).max);
        assertEq(token.balanceOf(sponsor), STAKE);
    }

    /// The sponsor has its loan back and nothing of what the operator staked itself, however often it asks.
    function test_sponsorTakesNoMoreThanTheLoan() public {
        _give(operator, address(stakes), 300e9);
        vm.prank(operator);
        stakes.deposit(lent, 300e9);
        vm.startPrank(sponsor);
        stakes.withdraw(lent, STAKE + 1);
        assertEq(token.balanceOf(sponsor), STAKE);
        _isLent(0);
        stakes.withdraw(lent, 300e9);
        vm.stopPrank();
        assertEq(token.balanceOf(sponsor), STAKE);
        assertEq(stakes.nodeOf(lent).stake, 300e9);
    }

    /// Whoever lends to itself has staked, and owes itself nothing.
    function test_operatorsOwnStakeIsNoLoan() public {
        (address who, uint256 left) = stakes.loanOf(node);
        assertEq(who, address(0));
        assertEq(left, 0);
    }

    /// In a pool of its own terms and seats a borrower would have its stake paid out as fees, or hold it for good.
    function test_loanIsForOnePool() public {
        uint256 own = _createPool(defaultTerms());
        bytes memory join = _sign(key("lent"), _memberDigest("Join", own, lent, 0, clock + 60));
        bytes memory elsewhere = abi.encodeWithSelector(IStakes.LentFor.selector, pool);
        vm.expectRevert(elsewhere);
        pools.join(own, lent, clock + 60, join, "");
        _give(operator, address(stakes), STAKE);
        vm.startPrank(operator);
        stakes.deposit(lent, STAKE);
        vm.expectRevert(elsewhere); // what it staked itself does not make the loan its own
        pools.join(own, lent, type(uint256).max, "", "");
        stakes.withdraw(lent, STAKE - 1);
        vm.expectRevert(elsewhere);
        pools.join(own, lent, type(uint256).max, "", "");
        stakes.withdraw(lent, 1);
        pools.join(own, lent, type(uint256).max, "", "");
        vm.stopPrank();
        assertEq(token.balanceOf(sponsor), STAKE);
    }

    function test_loanIsLockedLikeAnyStake() public {
        _joinPool();
        vm.expectRevert(abi.encodeWithSelector(IStakes.InPool.selector, pool));
        vm.prank(sponsor);
        stakes.withdraw(lent, type(uint256).max);
        vm.prank(operator);
        pools.leavePool(pool, lent, type(uint256).max, "");
        uint256 releaseAt = clock + _pool(pool).unbonding;
        _wait(releaseAt - clock - 1);
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeLocked.selector, releaseAt, 0));
        vm.prank(sponsor);
        stakes.withdraw(lent, type(uint256).max);
        _wait(1);
        vm.prank(sponsor);
        stakes.withdraw(lent, type(uint256).max);
    }

    /// The operator has nothing of the loan, and everything of what it staked itself.
    function test_withdrawalsRepayFirst() public {
        _give(operator, address(stakes), 300e9);
        vm.prank(operator);
        stakes.deposit(lent, 300e9);
        vm.startPrank(operator);
        stakes.withdraw(lent, 400e9);
        assertEq(token.balanceOf(sponsor), 400e9);
        assertEq(token.balanceOf(operator), 0);
        _isLent(STAKE - 400e9);
        vm.expectEmit(address(stakes));
        emit IStakes.LoanRepaid(lent, sponsor, STAKE - 400e9);
        stakes.withdraw(lent, STAKE - 400e9 + 100e9);
        vm.stopPrank();
        assertEq(token.balanceOf(sponsor), STAKE);
        assertEq(token.balanceOf(operator), 100e9);
        _isLent(0);
        vm.prank(operator);
        stakes.withdraw(lent, 200e9);
        assertEq(token.balanceOf(operator), 300e9);
    }

    /// @dev Half of the stake is slashed.
    function _slashHalf() private {
        IParams.Values memory v = defaultValues();
        v.slashBps = 5_000;
        _redeploy(v);
        _joinPool();
        uint256 s = _submitFrom(lent, 1_000);
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        assertEq(stakes.nodeOf(lent).stake, STAKE / 2);
    }

    /// A slash burns what was lent: nothing that comes later pays it back.
    function test_slashBurnsTheLoan() public {
        _slashHalf();
        _isLent(STAKE / 2);
        _give(operator, address(stakes), STAKE);
        vm.prank(operator);
        stakes.deposit(lent, STAKE);
        _isLent(STAKE / 2);
        _free();
        vm.prank(sponsor);
        stakes.withdraw(lent, type(uint256).max);
        assertEq(token.balanceOf(sponsor), STAKE / 2);
        vm.prank(operator);
        stakes.withdraw(lent, STAKE);
        assertEq(token.balanceOf(operator), STAKE);
    }

    /// The operator's own part of a stake goes before the loan does.
    function test_slashTakesTheOperatorsPartFirst() public {
        IParams.Values memory v = defaultValues();
        v.slashBps = 6_000;
        _redeploy(v);
        _give(operator, address(stakes), STAKE);
        vm.prank(operator);
        stakes.deposit(lent, STAKE);
        _joinPool();
        uint256 s = _submitFrom(lent, 1_000);
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        _isLent(2 * STAKE * 4 / 10);
        _free();
        vm.prank(operator);
        stakes.withdraw(lent, 2 * STAKE * 4 / 10);
        assertEq(token.balanceOf(sponsor), 2 * STAKE * 4 / 10);
        assertEq(token.balanceOf(operator), 0);
    }
}
