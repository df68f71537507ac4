// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Deployer} from "./helpers/Deploy.sol";
import {IDilocoRuns} from "./interfaces/IDilocoRuns.sol";

contract DilocoRunsTest is Deployer {
    IDilocoRuns internal runs;
    address internal coordinator = address(0xC0);
    bytes32 internal constant DOCUMENT = keccak256("document");
    bytes32 internal constant START = keccak256("start");
    bytes32 internal constant STATE = keccak256("state");
    bytes32 internal constant ENTRY = keccak256("entry");

    function setUp() public {
        runs = IDilocoRuns(_new("DilocoRuns", ""));
    }

    function _open() internal returns (uint256) {
        vm.prank(coordinator);
        return runs.open(DOCUMENT, START);
    }

    function _contributions(uint256 count) internal pure returns (IDilocoRuns.Contribution[] memory list) {
        list = new IDilocoRuns.Contribution[](count);
        for (uint256 i = 0; i < count; ++i) {
            list[i] = IDilocoRuns.Contribution(address(uint160(i + 1)), uint64(1e9 / count), keccak256(abi.encode(i)));
        }
    }

    function test_open_makes_the_caller_the_coordinator() public {
        vm.expectEmit();
        emit IDilocoRuns.RunOpened(1, DOCUMENT, coordinator, START);
        uint256 run = _open();
        IDilocoRuns.Run memory opened = runs.runOf(run);
        assertEq(opened.document, DOCUMENT);
        assertEq(opened.start, START);
        assertEq(opened.coordinator, coordinator);
        assertEq(uint256(opened.steps), 0);
        assertEq(runs.opened(), 1);
        assertEq(_open(), 2);
    }

    function test_record_emits_the_step_and_remembers_its_block() public {
        uint256 run = _open();
        vm.roll(77);
        vm.expectEmit();
        emit IDilocoRuns.StepRecorded(run, 0, STATE, 9, ENTRY, _contributions(3));
        vm.prank(coordinator);
        runs.record(run, 0, STATE, 9, ENTRY, _contributions(3));
        assertEq(runs.blockOf(run, 0), 77);
        assertEq(runs.blockOf(run, 1), 0);
        assertEq(uint256(runs.runOf(run).steps), 1);
    }

    function test_only_the_coordinator_records() public {
        uint256 run = _open();
        vm.expectRevert(IDilocoRuns.NotCoordinator.selector);
        runs.record(run, 0, STATE, 9, ENTRY, _contributions(1));
        vm.prank(coordinator);
        vm.expectRevert(IDilocoRuns.NotCoordinator.selector); // of a run that does not exist
        runs.record(run + 1, 0, STATE, 9, ENTRY, _contributions(1));
    }

    function test_steps_are_recorded_in_order_and_once() public {
        uint256 run = _open();
        vm.startPrank(coordinator);
        vm.expectRevert(abi.encodeWithSelector(IDilocoRuns.WrongStep.selector, 0));
        runs.record(run, 1, STATE, 9, ENTRY, _contributions(1));
        runs.record(run, 0, STATE, 9, ENTRY, _contributions(1));
        vm.expectRevert(abi.encodeWithSelector(IDilocoRuns.WrongStep.selector, 1));
        runs.record(run, 0, keccak256("another state"), 9, ENTRY, _contributions(1));
        runs.record(run, 1, STATE, 12, ENTRY, _contributions(0));
    }

    function test_empty_hashes_are_refused() public {
        vm.expectRevert(IDilocoRuns.EmptyHash.selector);
        runs.open(0, START);
        vm.expectRevert(IDilocoRuns.EmptyHash.selector);
        runs.open(DOCUMENT, 0);
        uint256 run = _open();
        vm.startPrank(coordinator);
        vm.expectRevert(IDilocoRuns.EmptyHash.selector);
        runs.record(run, 0, 0, 9, ENTRY, _contributions(1));
        vm.expectRevert(IDilocoRuns.EmptyHash.selector);
        runs.record(run, 0, STATE, 9, 0, _contributions(1));
    }
}
