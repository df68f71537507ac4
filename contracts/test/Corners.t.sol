// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {FileRef, PoolTerms} from "../src/libraries/Types.sol";
import {Voting} from "../src/libraries/Voting.sol";
import {Planting} from "./helpers/Planting.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {IParams} from "./interfaces/IParams.sol";
import {IPools} from "./interfaces/IPools.sol";
import {IStakes} from "./interfaces/IStakes.sol";

/// @notice Rare paths: limits of packed fields, outcomes that change late, the last reveal that settles.
contract CornersTest is Planting {
    function test_lastRevealSettles() public {
        uint256 s = _submit();
        _draw(0, 0);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 0, i, _all(1));
        }
        _reveal(0, 0, 0, _all(1));
        _reveal(0, 0, 1, _all(1));
        (, address[] memory voters,,) = court.committeeOf(pool, 0, 0);
        FileRef[] memory refs = _refs(0);
        vm.prank(voters[2]);
        court.revealAndSettle(pool, 0, 0, ICourt.Opening(2, _all(1), keccak256("verdict"), keccak256("salt")), refs);
        _unpack(0);
        assertEq(_code(s), Codes.ACCEPT);
    }

    /// An acceptance overturned before it vests: its pay is back in the budget already, `forfeit` only tidies up.
    function test_forfeitOfOverturnedFile() public {
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        _juryVotes(_dispute(stranger, s), Codes.REJECT_WEIGHTS);
        _conclude(s);
        assertEq(_pool(pool).free, BUDGET);
        pools.forfeit(pool, s, files[pool][s]);
        assertEq(_pool(pool).free, BUDGET);
        Account memory a = _account(pool, node);
        assertEq(a.earned, 0);
        assertEq(a.spent, 0);
    }

    function test_juryMinorityAndMalformed() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256 trial = _dispute(operator, s);
        _juryVotes(trial, Codes.MALFORMED, 4, Codes.ACCEPT);
        _conclude(s);
        assertEq(_code(s), Codes.MALFORMED); // milder than the committee: a fee, no slash
        assertEq(STAKE - stakes.nodeOf(node).stake, FEES + 1e9);
        uint256[] memory jurors = juries.seatsOf(trial);
        for (uint256 i = 0; i < 5; ++i) {
            juries.closeJuror(trial, i);
        }
        assertEq(seats.seatOf(jurors[4]).bond, BOND - 1e9);
        assertEq(seats.seatOf(jurors[0]).bond, BOND);
    }

    /// An opened canary ends the dispute: who was silent on its jury owes nothing.
    function test_jurorOfAnEndedDisputeOwesNothing() public {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.REJECT_WEIGHTS, 1, 0);
        _openCanary(s);
        uint256 silent = juries.seatsOf(trial)[1];
        juries.closeJuror(trial, 1);
        assertEq(seats.seatOf(silent).bond, BOND);
    }

    /// Pay that vests after a reject was settled stays barred, as from the settlement, when a jury confirms it.
    function test_confirmedRejectBarsFromItsSettlement() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256 settledAt = clock;
        _juryVotes(_dispute(operator, s), Codes.REJECT_WEIGHTS);
        _conclude(s);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        assertEq(_account(pool, node).barrier, settledAt);
    }

    function test_malformedFileFreezesNobody() public {
        _submit();
        _voteAll(0, Codes.MALFORMED);
        assertEq(_account(pool, node).frozen, 0);
        assertEq(stakes.nodeOf(node).frozen, 1); // the penalty's, until it is taken
    }

    /// Only that file's outcome moves.
    function test_verdictChangesOneFileOfItsLane() public {
        uint256 s = _submitLane(3) + 1;
        _voteAll(0, Codes.ACCEPT);
        _juryVotes(_dispute(stranger, s), Codes.REJECT_WEIGHTS);
        assertEq(_round(pool, 0, 0).codes, 0x101 | (Codes.DISPUTED << 4));
        _conclude(s);
        assertEq(_round(pool, 0, 0).codes, 0x101 | (Codes.REJECT_WEIGHTS << 4));
    }

    /// Nobody has a duty in a round that had no committee.
    function test_roundWithoutCommitteeHasNothingToClose() public {
        _submit();
        _blocks(1 + 64 + 1);
        court.settle(pool, 0, 0, _refs(0));
        _unpack(0);
        _passWindow();
        vm.expectRevert(Voting.NotDrawn.selector);
        court.closeCommittee(pool, 0, 0);
    }

    function test_laneThatNobodyBeganCannotSettle() public {
        FileRef[] memory none = new FileRef[](0);
        vm.expectRevert(ICourt.NoSuchLane.selector);
        court.settle(pool, 7, 0, none);
    }

    /// Who joins before the seed of the only step is known works for it.
    function test_nodeThatJoinsBeforeASeedHasItsProblems() public {
        uint256 fresh = _createPool(defaultTerms());
        vm.prank(owner);
        pools.publishStep(fresh, 0, keccak256("manifest"), bytes32(0));
        address early = _register(operator, "early", STAKE);
        address late = _register(operator, "late", STAKE);
        vm.prank(operator);
        pools.join(fresh, early, type(uint256).max, "", "");
        assertEq(_account(fresh, early).joinedStep, 0);
        _blocks(2);
        vm.prank(operator);
        pools.join(fresh, late, type(uint256).max, "", "");
        assertEq(_account(fresh, late).joinedStep, 1);
    }

    function test_packedFieldsEnd() public {
        bytes32 account_ = keccak256(abi.encode((pool << 160) | uint160(node), uint256(4)));
        bytes32 pool_ = keccak256(abi.encode(pool, uint256(1)));
        uint256 a = uint256(vm.load(address(pools), account_));
        uint256 p = uint256(vm.load(address(pools), pool_));
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 1, 1);
        PoolTerms memory terms = defaultTerms();
        vm.store(address(pools), account_, bytes32(a | (((1 << 22) - 1) << 160)));
        _refused(_work(0, (1 << 22) - 1, w), abi.encodePacked(IPools.AmountTooLarge.selector));
        vm.store(address(pools), account_, bytes32(a));
        vm.store(address(pools), pool_, bytes32(p | (((uint256(1) << 24) - 1) << 136)));
        bytes memory relay = _relaying(_work(0, 0, w));
        vm.prank(account("service"));
        (bool ok, bytes memory answer) = address(pools).call(relay);
        assertFalse(ok);
        assertEq(answer, abi.encodeWithSignature("Panic(uint256)", 0x11));
        vm.store(address(pools), pool_, bytes32(p | (((uint256(1) << 20) - 1) << 192)));
        vm.expectRevert(IPools.AmountTooLarge.selector);
        vm.prank(owner);
        pools.publishStep(pool, (1 << 20) - 1, 0, 0);
        vm.store(address(pools), bytes32(uint256(0)), bytes32(uint256(type(uint24).max)));
        vm.prank(owner);
        vm.expectRevert(IPools.AmountTooLarge.selector);
        pools.createPool(terms, 0);
    }

    function test_frozenStakeCannotLeave() public {
        _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        vm.prank(operator);
        pools.leavePool(pool, node, type(uint256).max, "");
        _wait(30 days);
        uint256 releaseAt = stakes.nodeOf(node).releaseAt;
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeLocked.selector, releaseAt, 1));
        vm.prank(operator);
        stakes.withdraw(node, 1);
    }

    function test_partialSlashLocksTheRest() public {
        IParams.Values memory v = defaultValues();
        v.slashBps = 5_000;
        _redeploy(v);
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _passWindow();
        FileRef memory ref = _ref(s);
        pools.finalize(pool, s, ref, _none());
        assertEq(stakes.nodeOf(node).stake, STAKE / 2);
        assertEq(stakes.nodeOf(node).pool, 0);
        uint256 releaseAt = clock + _pool(pool).unbonding;
        assertEq(stakes.nodeOf(node).releaseAt, releaseAt);
        vm.expectRevert(abi.encodeWithSelector(IStakes.StakeLocked.selector, releaseAt, 0));
        vm.prank(operator);
        stakes.withdraw(node, 1);
        _wait(_pool(pool).unbonding);
        vm.prank(operator);
        stakes.withdraw(node, STAKE / 2);
        assertEq(token.balanceOf(operator), STAKE / 2);
    }
}
