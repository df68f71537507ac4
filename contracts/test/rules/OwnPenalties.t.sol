// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Accusing} from "../helpers/Accusing.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IStakes} from "../interfaces/IStakes.sol";

/// @notice Each contract has its own copy of each penalty: with eight different ones, every act costs its own.
contract OwnPenaltiesTest is Accusing {
    uint256 private constant MALFORMED_COST = 3e9;
    uint256 private constant MINORITY = 1.1e9;
    uint256 private constant WITHHELD = 2e9;
    uint256 private constant OVERTURN = 37e9;
    uint256 private constant CANARY_SLASH = 190e9;
    uint256 private constant COMPENSATION = 4e9;

    function _setting() internal view override returns (Setting memory c) {
        c = super._setting();
        c.values = IParams.Values(7_000, 1_500, 3e9, 1.1e9, 2e9, 37e9, 190e9, 4e9);
    }

    function test_aMalformedFile() public {
        uint256 s = _decided(node, Codes.MALFORMED);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        assertEq(stakes.nodeOf(node).stake, STAKE - MALFORMED_COST - FEES);
    }

    /// The rest of the stake is locked for the pool's unbonding time, and the node can come back to no pool of it.
    function test_aRejectedFile() public {
        uint256 s = _decided(node, Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        IStakes.Node memory n = stakes.nodeOf(node);
        assertEq(n.stake, STAKE * 3 / 10);
        assertEq(n.pool, 0);
        assertEq(n.lastPool, pool);
        assertEq(n.frozen, 0);
        assertEq(n.releaseAt, clock + _pool(pool).unbonding);
        assertEq(_withdrawable(node), 0);
    }

    function test_aCommittee() public {
        _submit();
        _vote(0, 0, _three(_all(1), _all(1), _all(3)));
        _submit();
        _vote(1, 0, _three(_all(1), _all(1), 0));
        _passWindow();
        uint256 minority = _loss(_round(pool, 0, 0).seats[2]);
        _closeAll(0, 0);
        assertEq(_loss(_round(pool, 0, 0).seats[2]) - minority, MINORITY);
        assertGte(_loss(_round(pool, 1, 0).seats[2]), WITHHELD);
    }

    /// A wrong rejection: its committee pays for the overturn, a dissenting and a silent juror theirs.
    function test_aDisputeThatIsRight() public {
        uint256 s = _decided(node, Codes.REJECT_WEIGHTS);
        uint256 before = token.balanceOf(stranger);
        _give(stranger, address(appeals), 10_000e9);
        vm.prank(stranger);
        appeals.dispute(pool, s, files[pool][s]);
        assertEq(token.balanceOf(stranger) - before, 10_000e9 - JURY - COMPENSATION);
        uint256 trial = appeals.disputeOf(pool, s).trial;
        uint256[] memory votes = new uint256[](5);
        (votes[0], votes[1], votes[2], votes[3]) = (1, 1, 1, Codes.REJECT_WEIGHTS);
        _juryVotes(trial, votes);
        _conclude(s);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(_committee()[i]), OVERTURN);
        }
        // 15% of three times 37, but no more than the deposit
        assertEq(token.balanceOf(stranger) - before, 10_000e9 + JURY + COMPENSATION);
        uint256[] memory jurors = juries.seatsOf(trial);
        uint256 dissent = _loss(jurors[3]);
        uint256 silence = _loss(jurors[4]);
        _close(trial);
        assertEq(_loss(jurors[3]) - dissent, MINORITY);
        assertEq(_loss(jurors[4]) - silence, WITHHELD);
    }

    function test_aDisputeThatIsWrong() public {
        uint256 s = _accepted(node);
        uint256 trial = _dispute(stranger, s);
        _juryVotes(trial, 1);
        uint256 before = token.balanceOf(operator);
        _conclude(s);
        assertEq(token.balanceOf(operator) - before, COMPENSATION);
    }

    function test_aCanary() public {
        uint256 s = _submitPlanted();
        _voteAll(s >> 4, Codes.ACCEPT);
        uint256[] memory accused = _committee();
        _openCanary(s);
        assertEq(token.balanceOf(address(canaries)), 3 * CANARY_SLASH + JURY);
        uint256 trial = canaries.canaryOf(pool, s).trial;
        _juryVotes(trial, Codes.REJECT_WEIGHTS);
        canaries.conclude(pool, s, files[pool][s]);
        if (!canaries.canaryOf(pool, s).concluded) {
            _wait(defaultTerms().appealWindow);
            canaries.conclude(pool, s, files[pool][s]);
        }
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_loss(accused[i]), CANARY_SLASH);
        }
    }

    function test_aNodeChallenge() public {
        uint256[] memory named = _history(node, 2);
        assertEq(juries.depositOf(pool, 1), JURY + COMPENSATION);
        uint256 refuted = _accuse(node, _list(named[0]));
        uint256 upheld = _accuse(node, _list(named[1]));
        uint256 before = token.balanceOf(operator);
        _judged(refuted, Codes.ACCEPT);
        assertEq(token.balanceOf(operator) - before, COMPENSATION);
        _judged(upheld, Codes.REJECT_WEIGHTS);
        assertEq(stakes.nodeOf(node).stake, STAKE * 3 / 10);
    }

    /// A first jury of two whose majority the second one overturns.
    function test_anOverturnedJury() public {
        _moveToTwoJuries();
        uint256 s = _accepted(node);
        uint256 trial = _dispute(stranger, s);
        _juryVotes(trial, Codes.REJECT_WEIGHTS);
        _conclude(s);
        uint256 next = _appeal(operator, s);
        uint256[] memory jurors = juries.seatsOf(trial);
        uint256 before = _loss(jurors[0]);
        _juryVotes(next, 1);
        _conclude(s);
        assertEq(_loss(jurors[0]) - before, OVERTURN);
        _close(trial);
        assertEq(_loss(jurors[0]) - before, OVERTURN + MINORITY);
    }
}
