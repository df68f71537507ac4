// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {FileRef, PoolTerms} from "../src/libraries/Types.sol";
import {Planting} from "./helpers/Planting.sol";
import {IParams} from "./interfaces/IParams.sol";
import {IPools} from "./interfaces/IPools.sol";

/// @notice What is allowed up to its last value, and bodies that need every seat there is.
contract BoundariesTest is Planting {
    function test_mostStakeIsAllowed() public {
        uint256 most = type(uint56).max;
        address rich = _register(operator, "rich", most);
        assertEq(stakes.nodeOf(rich).stake, most);
    }

    function test_termsMayBeAtTheirBounds() public view {
        PoolTerms memory t = defaultTerms();
        t.maxLag = 15;
        params.checkTerms(t);
        // the least stake allows one unit, and no more
        (t.leverage, t.minStake, t.rate, t.maxUnits) = (1, 4e9, 4e9, 1);
        params.checkTerms(t);
    }

    function test_bodyMayNeedEverySeat() public {
        uint256[] memory none = new uint256[](0);
        uint256[] memory drawn = seats.draw(keccak256("seed"), seats.currentEpoch(), FAMILY, SEATS, none, address(0));
        assertEq(drawn.length, SEATS);
        uint256 seen;
        for (uint256 i = 0; i < SEATS; ++i) {
            seen |= 1 << drawn[i];
        }
        assertEq(seen, ((1 << SEATS) - 1) << 1);
    }

    /// A jury is known before it is drawn, and each juror's ballot is its own.
    function test_juryAndItsBallotsAreShown() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _blocks(3);
        (uint256[] memory expected,,, bool drawn) = juries.juryOf(trial);
        assertFalse(drawn);
        _drawTrial(trial);
        uint256[] memory jurors;
        (jurors,,, drawn) = juries.juryOf(trial);
        assertTrue(drawn);
        assertEq(jurors, expected);
        _juryVotes(trial, Codes.ACCEPT, 3, 0);
        assertEq(juries.caseOf(trial).revealed, 7);
        for (uint256 i = 0; i < 5; ++i) {
            assertEq(uint256(juries.ballotOf((trial << 4) | i)), i < 3 ? Codes.ACCEPT : 0);
        }
    }

    /// A rejection that a jury confirms rewards nobody: of the slash nothing goes to the appeals.
    function test_confirmedRejectionPaysNoReward() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256 trial = _dispute(operator, s);
        _juryVotes(trial, Codes.REJECT_WEIGHTS);
        _conclude(s);
        assertEq(token.balanceOf(address(appeals)), 0);
        assertEq(token.balanceOf(operator), 10_000e9 - juries.depositOf(pool, 1));
    }

    /// What a pool takes late from a node that has gone to another leaves too little there: it is out, and what is left
    /// of its stake is locked for as long as that pool may need it.
    function test_stakeThatShrinksElsewhereEndsTheMembership() public {
        uint256 first = pool;
        uint256 s = _submit(); // and nobody settles its lane for long
        PoolTerms memory t = defaultTerms();
        t.minStake = uint56(STAKE);
        _moveTo(t);
        uint256 second = pool;
        assertTrue(_account(second, node).limit != 0);
        pool = first;
        _blocks(66);
        court.settle(first, 0, 0, _refs(0));
        _unpack(0);
        _vote(0, 1, _three(_all(10), _all(10), _all(10)));
        _passWindow();
        FileRef memory ref = _ref(s);
        vm.expectEmit(address(pools));
        emit IPools.NodeLeft(second, node, false);
        pools.finalize(first, s, ref, _none());
        assertEq(stakes.nodeOf(node).stake, STAKE - 1e9 - FEES);
        assertEq(_account(second, node).limit, 0);
        assertEq(stakes.nodeOf(node).releaseAt, clock + _pool(second).unbonding);
    }

    /// A count of frozen files that reached its end stays there: the stake is never freed by mistake.
    function test_fullCountOfFrozenFilesStays() public {
        uint256 s = _submit();
        _voteAll(0, Codes.MALFORMED);
        bytes32 place;
        for (uint256 slot = 0; uint160(uint256(vm.load(address(stakes), place))) != uint160(operator); ++slot) {
            place = keccak256(abi.encode(node, slot));
        }
        uint256 word = uint256(vm.load(address(stakes), place));
        vm.store(address(stakes), place, bytes32(word | (uint256(type(uint16).max) << 240)));
        assertEq(stakes.nodeOf(node).frozen, type(uint16).max);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        assertEq(stakes.nodeOf(node).frozen, type(uint16).max);
    }

    /// What two committees leave undecided is under way no more.
    function test_voidFileIsUnderWayNoMore() public {
        uint256 s = _submit();
        assertEq(_account(pool, node).unsettled, 1);
        _vote(0, 0, _three(0, 0, 0));
        _vote(0, 1, _three(0, 0, 0));
        assertEq(_code(s), Codes.VOID);
        assertEq(_account(pool, node).unsettled, 0);
        assertEq(_account(pool, node).pending, 0);
    }
}
