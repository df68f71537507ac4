// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../src/interfaces/IPools.sol";
import {PackedWork} from "../src/libraries/PackedWork.sol";
import {Work} from "../src/libraries/Types.sol";
import {Network} from "./helpers/Network.sol";

/// @notice The word that a submission carries names one pool, and no place in it: that is the contract's to give.
contract PlacesTest is Network {
    function _draft() private pure returns (Draft memory) {
        return Draft(keccak256("root"), keccak256("file"), 1_000, 8);
    }

    function _refused(Work memory work, bytes memory reason) private {
        vm.expectRevert(reason);
        vm.prank(node);
        pools.submit(work);
    }

    /// @dev What a step of `step` is refused with.
    function _notAStep(uint256 step) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IPools.StepOutOfRange.selector, step, 0, 1);
    }

    function test_workGoesToThePoolThatItNames() public {
        uint256 other = _createPool(defaultTerms());
        vm.prank(owner);
        pools.publishStep(other, 0, keccak256("manifest"), bytes32(0));
        Work memory work = _work(0, 0, _draft());
        work.packed = PackedWork.pack(other, 0, 0, 1_000, 8);
        _refused(work, abi.encodeWithSelector(IPools.NotMember.selector));
        work.packed |= 1 << 152; // a pool above 24 bits would stand for another
        _refused(work, abi.encodeWithSelector(IPools.NoSuchPool.selector));
        vm.prank(node);
        assertEq(pools.submit(_work(0, 0, _draft())), 0);
        assertEq(pools.poolOf(other).sequence, 0);
        assertEq(pools.poolOf(pool).sequence, 1);
    }

    function test_noWorkNamesItsOwnPlace() public {
        for (uint256 bit = 96; bit < 128; ++bit) {
            Work memory work = _work(0, 0, _draft());
            work.packed |= 1 << bit;
            _refused(work, _notAStep(1 << (bit - 64)));
        }
    }

    function test_filesOfOneCallGoToOnePool() public {
        uint256 other = _createPool(defaultTerms());
        Work[] memory works = new Work[](2);
        works[0] = _work(0, 0, _draft());
        works[1] = _work(0, 1, _draft());
        works[1].packed = PackedWork.pack(other, 0, 1, 1_000, 8);
        vm.expectRevert(_notAStep((pool ^ other) << 64));
        vm.prank(node);
        pools.submitMany(works);
        works[1] = _work(0, 1, _draft());
        vm.prank(node);
        (uint256 first, uint256 last) = pools.submitMany(works);
        assertEq(first, 0);
        assertEq(last, 1);
    }
}
