// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {PoolTerms} from "../../src/libraries/Types.sol";
import {Losses} from "../helpers/Losses.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IPools} from "../interfaces/IPools.sol";

/// @notice Nothing that a caller chooses moves the lot.
contract SeedAttacksTest is Losses {
    function test_addressGrinding() public {
        // a node that joins after a step's seed is known cannot work for that step
        address late = _register(stranger, "late", STAKE);
        vm.prank(stranger);
        pools.join(pool, late, type(uint256).max, "", "");
        assertEq(_account(pool, late).joinedStep, 1);
        _refused(_next(late, 10, 0), abi.encodeWithSelector(IPools.StepOutOfRange.selector, 0, 1, 1));
        _step();
        assertEq(_submitFrom(late, 10), 0); // from the next step on it can
    }

    function test_seedCannotBeGroundByLatePinning() public {
        _submit();
        uint256 seedBlock = _round(pool, 0, 0).time;
        _blocks(seedBlock + 1 - height);
        (uint256[] memory early,, bytes32 seed,) = court.committeeOf(pool, 0, 0);
        _blocks(5);
        (uint256[] memory later,, bytes32 seedLater,) = court.committeeOf(pool, 0, 0);
        assertEq(seed, seedLater); // whoever pins, and whenever within the epoch: the same committee
        assertEq(early, later);
    }

    function test_missedWindowGivesAFreshCommittee() public {
        _submit();
        uint256 seedBlock = _round(pool, 0, 0).time;
        PoolTerms memory t = defaultTerms();
        _blocks(uint256(t.drawBlocks) + 1 + seedBlock - height); // longer than a draw may wait
        vm.expectRevert(abi.encodeWithSelector(ICourt.DrawOver.selector, seedBlock + t.drawBlocks));
        court.draw(pool, 0, 0);
        court.settle(pool, 0, 0, _refs(0)); // the next committee judges it
        _unpack(0);
        _voteRound1();
        assertEq(_code(0), Codes.ACCEPT);
        for (uint256 seat = 1; seat <= SEATS; ++seat) {
            assertEq(seats.seatOf(seat).bond, BOND); // nobody was drawn: nobody is blamed
        }
        _passWindow();
        assertEq(_claim(0), PAY);
    }

    function _voteRound1() private {
        _vote(0, 1, _three(_all(1), _all(1), _all(1)));
    }
}
