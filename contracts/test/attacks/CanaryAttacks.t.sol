// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData} from "../../src/libraries/Types.sol";
import {Losses} from "../helpers/Losses.sol";
import {ICanaries} from "../interfaces/ICanaries.sol";
import {IPools} from "../interfaces/IPools.sol";

/// @notice Who is caught by a canary, and what an owner gains by a false one: nothing.
contract CanaryAttacksTest is Losses {
    /// Expected value of accepting blindly at rate q of canaries: fee − q · slash < 0 above q = fee / slash.
    function test_lazyValidatorWithCanaries() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 s = _submit();
        _voteAll(s / 16, Codes.ACCEPT); // three lazy validators
        uint256 ownerBefore = token.balanceOf(owner) + 100_000e9; // _openCanary gives it that much
        _openCanary(s);
        _juryVotes(canaries.canaryOf(pool, s).trial, Codes.REJECT_WEIGHTS);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.CANARY);
        _passWindow();
        vm.expectRevert(IPools.NothingToClaim.selector);
        this.claimOut(s);
        _closeAll(s / 16, 0);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(BOND - _bondOf(s / 16, i), 200e9);
        }
        assertEq(_pool(pool).free, BUDGET - FEES); // no pay; the fees were the owner's cost, burnt here
        assertEq(_burnt(), 3 * 200e9 + FEES - 5 * 5e8); // the slashed pay the jury
        assertEq(token.balanceOf(owner), ownerBefore);
        assertEq(stakes.nodeOf(node).stake, STAKE); // the decoy node is free
        // at one canary in 5,000 files laziness loses twice what it earns: measured on an ordinary file
        uint256 lost = BOND - _bondOf(s / 16, 0);
        _blocks(4);
        vm.prank(owner);
        pools.publishStep(pool, 2, keccak256("manifest"), bytes32(0));
        _blocks(2);
        uint256 plain = _submit();
        _voteAll(plain / 16, Codes.ACCEPT);
        _passWindow();
        address paid = _seatOwner(_round(pool, plain / 16, 0).seats[0]);
        uint256 before = token.balanceOf(paid);
        _closeAll(plain / 16, 0);
        assertEq(lost, 2 * 5_000 * (token.balanceOf(paid) - before));
    }

    function test_ownerForgesCanary() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 s = _submit(); // honest work that the owner pretends to have planted
        _voteAll(s / 16, Codes.ACCEPT);
        uint256 before = token.balanceOf(owner) + 100_000e9;
        _openCanary(s);
        _juryVotes(canaries.canaryOf(pool, s).trial, Codes.ACCEPT);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.ACCEPT);
        // the framer loses what it put at stake, and the jury's fees; the framed lose nothing, though nobody watched
        assertEq(before - token.balanceOf(owner), 3 * 200e9 + 5 * 5e8);
        _passWindow();
        assertEq(_claim(s), PAY);
        _closeAll(s / 16, 0);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_bondOf(s / 16, i), BOND);
        }
    }

    function test_ownerOpensWhatWasNotPlanted() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 last = _submitLane(16) + 15;
        uint256 s = _submit(); // counter 16: only 0 to 15 are planted
        _voteAll(s / 16, Codes.ACCEPT);
        FileData memory f = files[pool][s];
        ICanaries.Planted memory p = _openingAt(f, 0);
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        vm.expectRevert(ICanaries.NotPlanted.selector);
        vm.prank(owner);
        canaries.open(pool, s, f, p, r, 3);
        // the last of those that were planted can be
        assertEq(files[pool][last].counter, 15);
        _voteAll(last / 16, Codes.ACCEPT);
        _openCanary(last);
        assertEq(canaries.canaryOf(pool, last).accused.length, 3);
    }

    /// A proof has the tree's depth: an inner node, or a lone leaf as the root, is no planted file.
    function test_canaryProofsHaveTheTreesDepth() public {
        bytes32 leaf = _leafOf(_salt(1, 0), pool, 1, node, 0);
        bytes32 side = keccak256("side");
        bytes32 deep = _chain(_leafOf(_salt(2, 0), pool, 2, node, 1), side, canaries.DEPTH() + 1);
        bytes32 right = _chain(_leafOf(_salt(3, 0), pool, 3, node, 2), side, canaries.DEPTH());
        vm.startPrank(owner);
        pools.publishStep(pool, 1, keccak256("manifest"), leaf);
        pools.publishStep(pool, 2, keccak256("manifest"), deep);
        pools.publishStep(pool, 3, keccak256("manifest"), right);
        vm.stopPrank();
        _blocks(2);
        FileData[] memory lane = new FileData[](3);
        for (uint256 i = 0; i < 3; ++i) {
            lane[i] = _next(node, 1_000, i);
            lane[i].step = uint24(1 + i);
        }
        _relay(lane);
        _voteAll(0, Codes.ACCEPT);
        _refusesDepth(0, 0);
        _refusesDepth(1, canaries.DEPTH() + 1);
        FileData memory f = files[pool][2];
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        ICanaries.Planted memory p =
            ICanaries.Planted(_salt(3, 0), _repeat(side, canaries.DEPTH()), _consent(f, _salt(3, 0)));
        _give(owner, address(canaries), 100_000e9);
        vm.prank(owner);
        canaries.open(pool, 2, f, p, r, 3);
        assertEq(canaries.canaryOf(pool, 2).accused.length, 3);
    }

    function _refusesDepth(uint256 s, uint256 depth) private {
        FileData memory f = files[pool][s];
        bytes32 salt = _salt(f.step, 0);
        ICanaries.Planted memory p = ICanaries.Planted(salt, _repeat(keccak256("side"), depth), _consent(f, salt));
        ICanaries.Rollout memory r = ICanaries.Rollout(0, _rowHash(f), new bytes32[](0));
        vm.expectRevert(ICanaries.NotPlanted.selector);
        vm.prank(owner);
        canaries.open(pool, s, f, p, r, 3);
    }

    function _repeat(bytes32 side, uint256 n) private pure returns (bytes32[] memory proof) {
        proof = new bytes32[](n);
        for (uint256 i = 0; i < n; ++i) {
            proof[i] = side;
        }
    }

    function _chain(bytes32 leaf, bytes32 side, uint256 depth) private pure returns (bytes32) {
        for (uint256 i = 0; i < depth; ++i) {
            leaf = _pair(leaf, side);
        }
        return leaf;
    }
}
