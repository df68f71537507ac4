// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {INodeCases} from "../../src/interfaces/INodeCases.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {Accusing} from "../helpers/Accusing.sol";
import {CaseCrowd} from "./CaseCrowd.sol";
import {PRBTest} from "@prb/test/PRBTest.sol";

/// @notice Random campaigns of accusers, juries and the accused: no bond is made or lost, no stake leaves in the middle of
/// its case, and none is slashed without a verdict.
contract CaseInvariants is PRBTest {
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    CaseCrowd internal crowd;

    function setUp() public {
        crowd = new CaseCrowd();
        crowd.start();
    }

    function targetContracts() public view returns (address[] memory list) {
        list = new address[](1);
        list[0] = address(crowd);
    }

    function targetSelectors() public view returns (FuzzSelector[] memory list) {
        list = new FuzzSelector[](1);
        list[0] = FuzzSelector(address(crowd), _actions());
    }

    function _actions() private view returns (bytes4[] memory list) {
        list = new bytes4[](12);
        (list[0], list[1], list[2]) = (crowd.work.selector, crowd.accuse.selector, crowd.judge.selector);
        (list[3], list[4], list[5]) = (crowd.leave.selector, crowd.takeOut.selector, crowd.comeBack.selector);
        (list[6], list[7], list[8]) = (crowd.succeed.selector, crowd.later.selector, crowd.closeJurors.selector);
        (list[9], list[10], list[11]) = (crowd.work.selector, crowd.accuse.selector, crowd.judge.selector);
    }

    function invariant_everythingHolds() public view {
        crowd.everythingHolds();
    }

    /// The campaigns do reach every end, and refusals; and no action is refused that the rules allow.
    function test_reach() public {
        vm.pauseGasMetering();
        bytes4[] memory list = _actions();
        for (uint256 i = 0; i < 500; ++i) {
            uint256 r = uint256(keccak256(abi.encode("case reach", i)));
            bytes memory arguments = abi.encode((r >> 8) % 1_000, (r >> 64) % 1_000_000, (r >> 128) % 1_000);
            (bool ok, bytes memory why) = address(crowd).call(abi.encodePacked(list[r % 12], arguments));
            if (!ok) {
                assembly ("memory-safe") {
                    revert(add(why, 32), mload(why))
                }
            }
            crowd.everythingHolds();
        }
        require(crowd.upheld() > 2 && crowd.refuted() > 2 && crowd.lapsed() > 2 && crowd.refusals() > 2, "not reached");
    }
}

/// @notice Whatever five jurors say, the outcome is their majority's, and every grain is somebody's.
contract CaseFuzzTest is Accusing {
    function testFuzz_verdicts(uint256 votes) public {
        uint256[] memory named = _history(node, 2);
        uint256 supply = token.totalSupply();
        uint256 before = token.balanceOf(accuser) + token.balanceOf(operator) + _burnt();
        uint256 nodeCase = _accuse(node, named);
        uint256 trial = _trial(nodeCase);
        _drawJury(trial);
        (, address[] memory voters,,) = juries.juryOf(trial);
        uint256[] memory kinds = new uint256[](5);
        for (uint256 i = 0; i < 5; ++i) {
            uint256 code = 1 + (votes >> (8 * i)) % 11;
            ++kinds[Codes.kind(code)];
            bytes32 hash = juries.ballotHash(trial, voters[i], code, keccak256("verdict"), keccak256("salt"));
            vm.prank(voters[i]);
            juries.commit(trial, i, hash);
        }
        for (uint256 i = 0; i < 5; ++i) {
            vm.prank(voters[i]);
            juries.reveal(trial, i, 1 + (votes >> (8 * i)) % 11, keccak256("verdict"), keccak256("salt"));
        }
        nodeCases.conclude(nodeCase);
        INodeCases.Outcome outcome = nodeCases.caseOf(nodeCase).outcome;
        bool guilty = kinds[Codes.KIND_REJECT] >= 3;
        bool innocent = !guilty && (kinds[Codes.KIND_ACCEPT] >= 3 || kinds[2] + kinds[Codes.KIND_MALFORMED] >= 3);
        if (guilty) assertEq(uint256(outcome), uint256(INodeCases.Outcome.Upheld));
        else if (innocent) assertEq(uint256(outcome), uint256(INodeCases.Outcome.Refuted));
        else if (kinds[Codes.KIND_UNAVAILABLE] >= 3) assertEq(uint256(outcome), uint256(INodeCases.Outcome.Dismissed));
        else assertEq(uint256(outcome), uint256(INodeCases.Outcome.Open)); // a second jury
        assertEq(stakes.stakeOf(node), guilty ? 0 : STAKE);
        assertEq(token.totalSupply(), supply);
        uint256 held = outcome == INodeCases.Outcome.Open ? CASE_BOND : 0;
        assertEq(token.balanceOf(address(nodeCases)), held);
        uint256 now_ = token.balanceOf(accuser) + token.balanceOf(operator) + _burnt();
        assertEq(now_ + held + token.balanceOf(address(juries)), before + (guilty ? STAKE : 0));
    }
}
