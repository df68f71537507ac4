// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {PoolTerms} from "../../src/libraries/Types.sol";
import {Losses} from "../helpers/Losses.sol";
import {IPools} from "../interfaces/IPools.sol";
import {IStakes} from "../interfaces/IStakes.sol";

/// @notice What another showed or signed is of no use to anybody else, nor twice.
contract ReplayAttacksTest is Losses {
    function test_frontRunCommitment() public {
        address thief = _register(stranger, "thief", STAKE);
        vm.prank(stranger);
        pools.join(pool, thief, type(uint256).max, "", "");
        _step();
        // the thief copies root and hash out of the mempool and gets in first
        Draft memory w = Draft(keccak256("root"), keccak256("file"), 1_000, 8);
        uint256 stolen = _relay(_one(_work(thief, 1, 0, w)));
        uint256 own = _relay(_one(_work(1, 0, w))); // it keeps nobody out
        // and binds its own address: the stored digests differ, the bytes' header and noise name the true author
        assertTrue(_submission(stolen).digest != _submission(own).digest);
        bytes32 lie = _innerOf(stolen, _work(1, 0, w));
        vm.expectRevert(abi.encodeWithSelector(IPools.WrongFile.selector, stolen));
        pools.claim(pool, node, stolen, lie, new uint256[](0));
        // each is paid for its own place, and only there
        _voteAll(stolen / 16, Codes.REJECT_COMMITMENT);
        _voteAll(own / 16, Codes.ACCEPT);
        _passWindow();
        assertEq(_claim(own), PAY);
        assertEq(token.balanceOf(operator), PAY);
    }

    function test_replayedInvite() public {
        PoolTerms memory t = defaultTerms();
        t.inviteOnly = true;
        uint256 other = _createPool(t);
        uint256 invited = _createPool(t);
        address n = _register(stranger, "invitee", STAKE);
        bytes memory invite = _sign(key("owner"), _inviteDigest(invited, n, clock + 10));
        vm.prank(n);
        vm.expectRevert(IPools.BadInvite.selector);
        pools.join(other, n, clock + 10, "", invite); // another pool
        vm.chainId(999);
        vm.prank(n);
        vm.expectRevert(IPools.BadInvite.selector);
        pools.join(invited, n, clock + 10, "", invite); // another chain
        vm.chainId(31337);
        vm.prank(n);
        vm.expectRevert(IPools.BadInvite.selector);
        pools.join(invited, n, type(uint256).max, "", "");
        vm.prank(n);
        pools.join(invited, n, clock + 10, "", invite);
        vm.prank(owner);
        pools.removeNode(invited, n);
        vm.prank(n);
        vm.expectRevert(IPools.Removed.selector);
        pools.join(invited, n, clock + 10, "", invite); // after removal
        _wait(11);
        vm.prank(n);
        vm.expectRevert(IPools.SignatureExpired.selector);
        pools.join(invited, n, clock - 1, "", invite);
    }

    function test_replayedConsent() public {
        address n = account("consenting");
        bytes memory consent = _sign(key("consenting"), _consentDigest(n, operator, operator, clock + 60));
        _give(stranger, address(stakes), STAKE);
        vm.prank(stranger);
        vm.expectRevert(IStakes.BadSignature.selector);
        stakes.registerNode(n, stranger, 0, STAKE, clock + 60, consent); // another operator
        vm.chainId(999);
        vm.prank(operator);
        vm.expectRevert(IStakes.BadSignature.selector);
        stakes.registerNode(n, operator, 0, STAKE, clock + 60, consent); // another chain
        vm.chainId(31337);
        vm.prank(operator);
        vm.expectRevert(IStakes.BadSignature.selector);
        stakes.registerNode(n, operator, 0, STAKE, clock + 61, consent); // another expiry
        _give(operator, address(stakes), 2 * STAKE);
        vm.startPrank(operator);
        stakes.registerNode(n, operator, 0, STAKE, clock + 60, consent);
        vm.expectRevert(IStakes.AlreadyRegistered.selector);
        stakes.registerNode(n, operator, 0, STAKE, clock + 60, consent); // twice
        vm.stopPrank();
    }
}
