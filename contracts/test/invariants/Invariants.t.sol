// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Campaign} from "../helpers/Campaign.sol";
import {Crowd} from "./Crowd.sol";

/// @notice Everybody's actions.
abstract contract Everybody is Campaign {
    Crowd internal crowd;

    function setUp() public {
        crowd = new Crowd();
        crowd.start();
    }

    function _crowd() internal view override returns (address) {
        return address(crowd);
    }

    function _actions() internal view override returns (bytes4[] memory) {
        return crowd.actions();
    }
}

/// @notice Where the money is.
contract MoneyInvariants is Everybody {
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
contract EventInvariants is Everybody {
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
contract ConductInvariants is Everybody {
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
contract EndInvariants is Everybody {
    function invariant_everythingEnds() public view {
        crowd.eventsFollowTheRules();
    }

    function afterInvariant() public {
        crowd.windUp();
        crowd.nothingIsLeft();
    }
}

/// @notice The campaigns reach what they are about: the same random actions, counted.
contract ReachTest is Everybody {
    string[55] internal wanted = [
        "submit",
        "arrive",
        "claim",
        "submit with receipt",
        "submit after leaving",
        "finalize",
        "forfeit",
        "leave",
        "rejoin",
        "deposit",
        "withdraw",
        "burn",
        "blocks",
        "pass",
        "submit some",
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
        "overturned",
        "overturned to pay",
        "close committee",
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
        "pause all",
        "month"
    ];
    mapping(string name => uint256) internal count;

    function test_everyHandlerIsReached() public {
        vm.pauseGasMetering(); // ten worlds are more than a block's gas
        for (uint256 world = 0; world < 10; ++world) {
            if (world != 0) setUp();
            for (uint256 i = 0; i < 300; ++i) {
                _act(uint256(keccak256(abi.encode("reach", world, i))), 1_000);
            }
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
}
