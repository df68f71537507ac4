// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Accusing} from "../helpers/Accusing.sol";
import {Campaign} from "../helpers/Campaign.sol";
import {Outcome} from "../helpers/Outcome.sol";
import {INodeChallenges} from "../interfaces/INodeChallenges.sol";
import {ChallengeCrowd} from "./ChallengeCrowd.sol";

/// @notice Random campaigns of accusers, juries and the accused: no bond is made or lost, no stake leaves in the middle of
/// its challenge, and none is slashed without a verdict.
contract ChallengeInvariants is Campaign {
    ChallengeCrowd internal crowd;

    function setUp() public {
        crowd = new ChallengeCrowd();
        crowd.start();
    }

    function _crowd() internal view override returns (address) {
        return address(crowd);
    }

    function _actions() internal view override returns (bytes4[] memory list) {
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
        for (uint256 i = 0; i < 500; ++i) {
            _act(uint256(keccak256(abi.encode("challenge reach", i))), 1_000_000);
            crowd.everythingHolds();
        }
        require(
            crowd.upheld() > 2 && crowd.refuted() > 2 && crowd.lapsed() > 2 && crowd.different() > 2
                && crowd.refusals() > 2,
            "not reached"
        );
    }
}

/// @notice Whatever five jurors say, the outcome is their majority's, and every base unit is somebody's.
contract ChallengeFuzzTest is Accusing {
    function testFuzz_verdicts(uint256 votes) public {
        uint256[] memory named = _history(node, 2);
        uint256 supply = token.totalSupply();
        uint256 before = token.balanceOf(accuser) + token.balanceOf(operator) + _burnt() + _pool(pool).free;
        uint256 challenge = _accuse(node, named);
        uint256 trial = _trial(challenge);
        uint256[] memory kinds = _juryVotesAnything(trial, votes);
        nodeChallenges.conclude(challenge);
        if (_next(challenge) == 0) {
            _wait(defaultTerms().appealWindow);
            nodeChallenges.conclude(challenge);
        }
        Outcome outcome = _outcomeOf(challenge);
        bool guilty = kinds[Codes.KIND_REJECT] >= 3;
        if (guilty) {
            assertEq(uint256(outcome), uint256(Outcome.Upheld));
        } else if (kinds[Codes.KIND_REJECT] + kinds[Codes.KIND_MALFORMED] >= 3) {
            assertEq(uint256(outcome), uint256(Outcome.Different));
        } else if (kinds[Codes.KIND_ACCEPT] >= 3) {
            assertEq(uint256(outcome), uint256(Outcome.Refuted));
        } else {
            assertEq(uint256(outcome), uint256(Outcome.Open)); // a second jury
        }
        bool out = guilty || outcome == Outcome.Different;
        assertEq(_account(pool, node).limit == 0, out);
        assertEq(stakes.nodeOf(node).stake, guilty ? 0 : STAKE);
        assertEq(token.totalSupply(), supply);
        uint256 held = outcome == Outcome.Open ? _bondFor(2) : 0;
        assertEq(token.balanceOf(address(nodeChallenges)), held);
        uint256 now_ = token.balanceOf(accuser) + token.balanceOf(operator) + _burnt() + _pool(pool).free;
        assertEq(now_ + held + token.balanceOf(address(juries)), before + (guilty ? STAKE : 0));
    }
}
