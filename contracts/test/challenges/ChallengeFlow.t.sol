// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Voting} from "../../src/libraries/Voting.sol";
import {Accusing} from "../helpers/Accusing.sol";
import {Outcome} from "../helpers/Outcome.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {INodeChallenges} from "../interfaces/INodeChallenges.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IPools} from "../interfaces/IPools.sol";
import {IStakes} from "../interfaces/IStakes.sol";

/// @notice A node challenge from its opening to its end, for every end.
contract ChallengeFlowTest is Accusing {
    function test_upheld() public {
        uint256[] memory named = _history(node, 3);
        uint256 open = _accepted(node); // its pay has not vested
        uint256 challenge = _accuse(node, named);
        assertEq(token.balanceOf(accuser), 1_000e9 - _bondFor(3));
        assertEq(stakes.nodeOf(node).frozen, 1);
        _judged(challenge, Codes.REJECT_WEIGHTS);

        _is(challenge, Outcome.Upheld);
        uint256 share = _bondFor(3); // less than a twentieth of the stake
        assertEq(token.balanceOf(accuser), 1_000e9 + share);
        assertEq(stakes.unburnt(), STAKE - _juryFor(3) - share);
        assertEq(token.balanceOf(address(juries)), _juryFor(3));
        IStakes.Node memory left = stakes.nodeOf(node);
        assertEq(left.stake + left.frozen + left.pool, 0);
        Account memory a = _account(pool, node);
        assertTrue(a.slashed);
        assertEq(a.limit, 0);

        // what had vested is paid, and nothing that had not
        assertEq(_claim(named[2]), 3 * PAY);
        _passWindow();
        bytes32 inner = _inner(open);
        bytes memory late = abi.encodeCall(pools.claim, (pool, node, open, inner, new uint256[](0)));
        _no(stranger, address(pools), late, IPools.IsFrozen.selector);
        pools.forfeit(pool, open, files[pool][open]);
        _no(
            operator,
            address(pools),
            abi.encodeCall(pools.join, (pool, node, type(uint256).max, "", "")),
            IPools.Removed.selector
        );
        _empty(_trial(challenge));
    }

    /// As a rejected file does: the slash of the same share, and the rest stays locked as long.
    function test_aPartOfTheStake() public {
        IStakes.Node memory byFile = _afterHalf(true);
        IStakes.Node memory byChallenge = _afterHalf(false);
        assertEq(byFile.stake, byChallenge.stake);
        assertEq(byChallenge.stake, STAKE / 2);
        assertEq(byFile.pool + byChallenge.pool, 0);
    }

    /// @dev The node after the slash of a half, which leaves the rest locked for the pool's unbonding period.
    function _afterHalf(bool byFile) private returns (IStakes.Node memory n) {
        Accusing.setUp();
        _redeploy(_half());
        _step();
        if (byFile) {
            uint256 s = _decided(node, Codes.REJECT_WEIGHTS);
            _passWindow();
            pools.finalize(pool, s, _ref(s), _none());
        } else {
            _judged(_accuse(node, _history(node, 1)), Codes.REJECT_WEIGHTS);
        }
        n = stakes.nodeOf(node);
        assertEq(n.lastPool, pool);
        assertEq(n.releaseAt, clock + _pool(pool).unbonding);
    }

    function _half() private pure returns (IParams.Values memory v) {
        v = defaultValues();
        v.slashBps = 5_000;
    }

    function test_refuted() public {
        uint256[] memory named = _history(node, 2);
        uint256 before = token.balanceOf(operator);
        uint256 challenge = _accuse(node, named);
        _judged(challenge, Codes.ACCEPT);

        _is(challenge, Outcome.Refuted);
        assertEq(token.balanceOf(accuser), 1_000e9 - _bondFor(2));
        assertEq(token.balanceOf(operator) - before, 5e9);
        assertEq(token.balanceOf(address(juries)), _juryFor(2));
        assertEq(stakes.nodeOf(node).frozen, 0);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        _submit(); // it works on
        _empty(_trial(challenge));
    }

    /// Jurors who were wrong are not paid: what they would have had is burnt.
    function test_refutedByThreeOfFive() public {
        uint256 challenge = _accuse(node, _history(node, 1));
        uint256 trial = _trial(challenge);
        _juryVotes(trial, Codes.ACCEPT, 3, Codes.REJECT_SAMPLING);
        _ends(challenge, 0);
        assertEq(token.balanceOf(SINK), 2 * 5e8);
        uint256 wrong = juries.seatsOf(trial)[4];
        _empty(trial);
        assertEq(_loss(wrong), defaultValues().minorityPenalty);
    }

    /// A juror that could not judge has a quarter of the fee of one file, however many were named.
    function test_dismissed() public {
        uint256[] memory named = _history(node, 2);
        uint256 challenge = _accuse(node, named);
        _judged(challenge, Codes.UNAVAILABLE);

        _is(challenge, Outcome.Dismissed);
        assertEq(token.balanceOf(accuser), 1_000e9 - 10 * 5e8 / 4);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(stakes.nodeOf(node).frozen, 0);
        _close(_next(challenge));
        _empty(_trial(challenge));
        _judged(_accuse(node, named), Codes.REJECT_WEIGHTS); // with the files at hand
        assertEq(stakes.nodeOf(node).stake, 0);
    }

    /// Nobody votes, nor does the second jury.
    function test_lapsedBySilence() public {
        uint256[] memory named = _history(node, 1);
        uint256 challenge = _accuse(node, named);
        uint256 first = _trial(challenge);
        _drawJury(first);
        _no(
            stranger,
            address(nodeChallenges),
            abi.encodeCall(nodeChallenges.conclude, (challenge)),
            IJuries.Undecided.selector
        );
        _wait(60);
        nodeChallenges.conclude(challenge);
        _is(challenge, Outcome.Open);
        uint256 second = _next(challenge);
        assertEq(second, first + 1);
        _drawJury(second);
        _wait(60);
        nodeChallenges.conclude(challenge);
        _lapsed(challenge);
        _empty(first);
        _empty(second);
    }

    function test_lapsedWithoutADraw() public {
        uint256 challenge = _accuse(node, _history(node, 1));
        _lapses(challenge);
        _lapsed(challenge);
    }

    function _lapsed(uint256 challenge) private {
        _is(challenge, Outcome.Lapsed);
        assertEq(token.balanceOf(accuser), 1_000e9);
        assertEq(stakes.nodeOf(node).stake, STAKE);
        assertEq(stakes.nodeOf(node).frozen, 0);
        assertEq(nodeChallenges.acquittedUntil(pool, node), 0);
    }

    /// The rows that jurors measure follow from the hash of a block that is later than the challenge.
    function test_theSeedIsLater() public {
        uint256 challenge = _accuse(node, _history(node, 1));
        assertEq(juries.caseOf(_trial(challenge)).seedBlock, height + 2);
        bytes memory early = abi.encodeCall(juries.juryOf, (_trial(challenge)));
        (bool ok,) = address(juries).call(early);
        assertFalse(ok);
        _blocks(3);
        (,, bytes32 seed,) = juries.juryOf(_trial(challenge));
        assertTrue(seed != 0);
    }

    // Many files

    /// Every further file is a committee's fee for each juror, every sixteen of them a committee's window.
    function test_feeAndTimeGrowWithTheFiles() public {
        uint256[] memory named = _longHistory(node, 34);
        uint256[5] memory counts = [uint256(1), 2, 17, 18, 34];
        uint256[5] memory windows = [uint256(60), 120, 120, 180, 240];
        for (uint256 i = 0; i < counts.length; ++i) {
            uint256[] memory some = _first(named, counts[i]);
            assertEq(juries.depositOf(pool, counts[i]), _bondFor(counts[i]));
            IJuries.Trial memory jury = juries.caseOf(_trial(_accuse(node, some)));
            assertEq(jury.fee, 5e8 + (counts[i] - 1) * FEE);
            assertEq(jury.commitWindow, windows[i]);
            assertEq(jury.revealWindow, 60);
        }
    }

    /// Jurors may commit until the longer window is over, and the jury in the place of a silent one has the same.
    function test_theLongerWindowHolds() public {
        uint256 challenge = _accuse(node, _longHistory(node, 18));
        for (uint256 i = 0; i < 2; ++i) {
            uint256 trial = _trial(challenge) + i;
            _drawJury(trial);
            (, address[] memory voters,,) = juries.juryOf(trial);
            _wait(179);
            bytes memory conclude = abi.encodeCall(nodeChallenges.conclude, (challenge));
            _no(stranger, address(nodeChallenges), conclude, IJuries.Undecided.selector);
            if (i == 1) _yes(voters[0], address(juries), abi.encodeCall(juries.commit, (trial, 0, keccak256("vote"))));
            _wait(1);
            bytes memory late = abi.encodeCall(juries.commit, (trial, 1, keccak256("vote")));
            _no(voters[1], address(juries), late, Voting.CommitOver.selector);
            if (i == 0) nodeChallenges.conclude(challenge);
            assertEq(juries.caseOf(trial).fee, 5e8 + 17 * FEE);
        }
    }

    /// The largest challenge: its fees have more than 32 bits.
    function test_mostFiles() public {
        uint256[] memory named = _longHistory(node, MOST_FILES);
        uint256 before = token.balanceOf(operator);
        uint256 challenge = _accuse(node, named);
        assertEq(token.balanceOf(accuser), 1_000e9 - _bondFor(MOST_FILES));
        _judged(challenge, Codes.ACCEPT);
        _is(challenge, Outcome.Refuted);
        assertEq(token.balanceOf(accuser), 1_000e9 - _bondFor(MOST_FILES));
        assertEq(token.balanceOf(operator) - before, 5e9);
        uint256 trial = _trial(challenge);
        uint256 voter = juries.seatsOf(trial)[0];
        uint256 had = token.balanceOf(seats.ownerOf(voter));
        juries.closeJuror(trial, 0);
        assertEq(token.balanceOf(seats.ownerOf(voter)) - had, 5e8 + 255 * FEE);
        for (uint256 i = 1; i < 5; ++i) {
            juries.closeJuror(trial, i);
        }
        assertEq(token.balanceOf(address(juries)), 0);
        assertEq(token.balanceOf(address(nodeChallenges)), 0);
    }

    function test_mostFilesUpheld() public {
        uint256 challenge = _accuse(node, _longHistory(node, MOST_FILES));
        _judged(challenge, Codes.REJECT_SAMPLING);
        assertEq(token.balanceOf(accuser), 1_000e9 + _bondFor(MOST_FILES));
        assertEq(stakes.nodeOf(node).stake, 0);
        _empty(_trial(challenge));
    }

    function test_mostFilesDismissed() public {
        uint256 challenge = _accuse(node, _longHistory(node, MOST_FILES));
        uint256 trial = _trial(challenge);
        for (uint256 i = 0; i < 2; ++i) {
            _juryVotes(trial + i, Codes.UNAVAILABLE, 3, Codes.ACCEPT);
            nodeChallenges.conclude(challenge);
        }
        _is(challenge, Outcome.Dismissed);
        assertEq(token.balanceOf(accuser), 1_000e9 - 6 * 5e8 / 4);
        _close(trial + 1);
        _empty(trial);
    }

    /// What a wrong or a missing vote costs grows as the fee does: a vote that nobody measured for never pays the more.
    function test_penaltiesGrowWithTheFee() public {
        uint256 challenge = _accuse(node, _longHistory(node, 34));
        uint256 trial = _trial(challenge);
        uint256[] memory votes = new uint256[](5);
        for (uint256 i = 0; i < 3; ++i) {
            votes[i] = Codes.ACCEPT;
        }
        votes[3] = Codes.REJECT_SAMPLING; // and the fifth is absent
        _juryVotes(trial, votes);
        _wait(60);
        _ends(challenge, 0);
        uint256[] memory jurors = juries.seatsOf(trial);
        _empty(trial);
        assertEq(_loss(jurors[3]), uint256(defaultValues().minorityPenalty) * (5e8 + 33 * FEE) / 5e8);
        assertEq(_loss(jurors[4]), uint256(defaultValues().withheldPenalty) * (5e8 + 33 * FEE) / 5e8);
    }

    function _first(uint256[] memory all, uint256 count) private pure returns (uint256[] memory some) {
        some = new uint256[](count);
        for (uint256 i = 0; i < count; ++i) {
            some[i] = all[i];
        }
    }
}
