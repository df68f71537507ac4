// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Crowd} from "./Crowd.sol";
import {PRBTest} from "@prb/test/PRBTest.sol";

/// @notice Random campaigns of everybody's actions; after each of them every rule still holds.
abstract contract Campaign is PRBTest {
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    Crowd internal crowd;

    function setUp() public {
        crowd = new Crowd();
        crowd.start();
    }

    function targetContracts() public view returns (address[] memory list) {
        list = new address[](1);
        list[0] = address(crowd);
    }

    function targetSelectors() public view returns (FuzzSelector[] memory list) {
        list = new FuzzSelector[](1);
        list[0] = FuzzSelector(address(crowd), crowd.actions());
    }
}

/// @notice Where the money is.
contract MoneyInvariants is Campaign {
    function invariant_tokensAreConserved() public view {
        crowd.tokensAreConserved();
    }

    function invariant_escrowIsWhatCameInLessWhatWentOut() public view {
        crowd.escrowIsWhatCameInLessWhatWentOut();
    }

    function invariant_escrowIsOwedToSomebody() public view {
        crowd.escrowIsOwedToSomebody();
    }

    function invariant_stakesAndBondsAreBalances() public view {
        crowd.stakesAndBondsAreBalances();
    }

    function invariant_depositsAreOpenCases() public view {
        crowd.depositsAreOpenCases();
    }

    function invariant_nobodyIsOverpaid() public view {
        crowd.nobodyIsOverpaid();
    }

    function invariant_stakeCoversOpenFiles() public view {
        crowd.stakeCoversOpenFiles();
    }
}

/// @notice What an indexer knows is what the contracts store.
contract EventInvariants is Campaign {
    function invariant_accountsAreTheEvents() public view {
        crowd.accountsAreTheEvents();
    }

    function invariant_filesAreTheEvents() public view {
        crowd.filesAreTheEvents();
    }

    function invariant_roundsAreTheEvents() public view {
        crowd.roundsAreTheEvents();
    }

    function invariant_trialsAreTheEvents() public view {
        crowd.trialsAreTheEvents();
    }

    function invariant_seatsAreTheEvents() public view {
        crowd.seatsAreTheEvents();
    }

    function invariant_classesAreTheEvents() public {
        crowd.classesAreTheEvents();
    }
}

/// @notice Whom the rules may hurt.
contract ConductInvariants is Campaign {
    function invariant_eventsFollowTheRules() public view {
        crowd.eventsFollowTheRules();
    }

    function invariant_honestMajoritiesAreNeverWrong() public view {
        crowd.honestMajoritiesAreNeverWrong();
    }

    function invariant_honestWorkersLoseOnlyToCapturedBodies() public view {
        crowd.honestWorkersLoseOnlyToCapturedBodies();
    }

    function invariant_canariesSlashOncePerSeatAndLane() public view {
        crowd.canariesSlashOncePerSeatAndLane();
    }

    function invariant_seatsAreFrozenForOpenDutiesOnly() public view {
        crowd.seatsAreFrozenForOpenDutiesOnly();
    }

    function invariant_bodiesAreWholeAndFresh() public view {
        crowd.bodiesAreWholeAndFresh();
    }
}

/// @notice However a campaign went, keepers can bring everything to its end.
contract EndInvariants is Campaign {
    function invariant_everythingEnds() public view {
        crowd.eventsFollowTheRules();
    }

    function afterInvariant() public {
        crowd.windUp();
        crowd.nothingIsLeft();
    }
}

/// @notice The campaigns reach what they are about: the same random actions, counted.
contract ReachTest is Campaign {
    string[58] internal wanted = [
        "submit",
        "arrive",
        "claim",
        "submit with receipt",
        "submit after leaving",
        "present",
        "finalize",
        "forfeit",
        "leave",
        "rejoin",
        "deposit",
        "withdraw",
        "burn",
        "blocks",
        "pass",
        "attest",
        "judge",
        "judge again",
        "settle",
        "neglect",
        "outcome 1",
        "outcome 3",
        "outcome 4",
        "outcome 10",
        "outcome 11",
        "outcome 12",
        "outcome 13",
        "outcome 16",
        "overturned",
        "overturned to pay",
        "close member",
        "dispute",
        "canary",
        "canary before dispute",
        "canary beside another",
        "conclude dispute",
        "conclude canary",
        "appeal",
        "jury",
        "close juror",
        "seat opens",
        "opt in",
        "opt out",
        "seat leaves",
        "unbond",
        "seat withdraws",
        "seat reopens",
        "top up",
        "rotate",
        "step",
        "fund",
        "pause",
        "resume",
        "review",
        "remove",
        "govern",
        "pause all",
        "month"
    ];
    mapping(string name => uint256) internal count;

    function test_everyHandlerIsReached() public {
        vm.pauseGasMetering(); // ten worlds are more than a block's gas
        for (uint256 world = 0; world < 10; ++world) {
            if (world != 0) setUp();
            _run(world, 300);
            crowd.everythingHolds();
            crowd.windUp();
            crowd.everythingHolds();
            crowd.nothingIsLeft();
            for (uint256 i = 0; i < wanted.length; ++i) {
                count[wanted[i]] += crowd.reached(wanted[i]);
            }
        }
        string memory missing;
        for (uint256 i = 0; i < wanted.length; ++i) {
            if (count[wanted[i]] == 0) missing = string.concat(missing, " ", wanted[i]);
        }
        require(bytes(missing).length == 0, string.concat("never reached:", missing));
    }

    /// @dev No action is refused: what a handler tries is what the rules allow.
    function _run(uint256 world, uint256 steps) private {
        bytes4[] memory actions = crowd.actions();
        for (uint256 i = 0; i < steps; ++i) {
            uint256 r = uint256(keccak256(abi.encode("reach", world, i)));
            bytes4 action = actions[r % actions.length];
            (bool ok, bytes memory why) =
                address(crowd).call(abi.encodePacked(action, (r >> 8) % 1_000, (r >> 64) % 1_000));
            if (ok) continue;
            assembly ("memory-safe") {
                revert(add(why, 32), mload(why))
            }
        }
    }
}
