// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Accusing} from "../helpers/Accusing.sol";
import {Outcome} from "../helpers/Outcome.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {INodeChallenges} from "../interfaces/INodeChallenges.sol";
import {INodeChallenges} from "../interfaces/INodeChallenges.sol";
import {IPools} from "../interfaces/IPools.sol";
import {IStakes} from "../interfaces/IStakes.sol";

/// @notice Three nodes that work, cheat, leave and come back, two accusers who name whatever they like, and juries that
/// say anything or nothing. Keeps a ledger of its own of the bonds and of whose stake is held.
contract ChallengeCrowd is Accusing {
    address[] internal workers;
    mapping(address n => uint256[]) internal accepted;
    mapping(address n => uint256) internal holds;
    uint256[] internal under;
    mapping(uint256 challenge => uint256) internal filesOf;
    uint256 internal bonds;
    uint256 public upheld;
    uint256 public refuted;
    uint256 public lapsed;
    uint256 public different;
    uint256 public refusals;

    function start() external {
        super.setUp();
        workers.push(node);
        for (uint256 i = 1; i < 3; ++i) {
            workers.push(_register(operator, string.concat("worker ", _text(i)), STAKE));
            vm.prank(operator);
            pools.join(pool, workers[i], type(uint256).max, "", "");
        }
        _step();
        _give(accuser, address(nodeChallenges), 1_000_000e9);
        _give(stranger, address(nodeChallenges), 1_000_000e9);
    }

    modifier acts() {
        vm.warp(clock);
        vm.roll(height);
        _;
    }

    /// @dev A file that is accepted for good, or one in five that is rejected.
    function work(uint256 which, uint256 how) external acts {
        address n = workers[which % 3];
        Account memory a = _account(pool, n);
        if (a.limit == 0 || a.frozen != 0) return;
        bool good = how % 5 != 0;
        uint256 s = _decided(n, good ? Codes.ACCEPT : Codes.REJECT_WEIGHTS);
        _passWindow();
        if (good) accepted[n].push(s);
        else pools.finalize(pool, s, _ref(s), _none());
    }

    /// @dev A run of a node's files, which may have been named before, whose node may be gone.
    function accuse(uint256 which, uint256 first, uint256 count) external acts {
        address n = workers[which % 3];
        uint256[] storage all = accepted[n];
        if (all.length == 0) return;
        first %= all.length;
        count = 1 + count % (all.length - first < 4 ? all.length - first : 4);
        uint256[] memory named = new uint256[](count);
        for (uint256 i = 0; i < count; ++i) {
            named[i] = all[first + i];
        }
        bool slashed = _account(pool, n).slashed;
        bool acquitted = clock < nodeChallenges.acquittedUntil(pool, n);
        bytes32[] memory inners = _inners(named);
        vm.prank(which % 2 == 0 ? accuser : stranger);
        try nodeChallenges.open(pool, n, named, inners, bytes32(0)) returns (uint256 challenge) {
            require(!slashed && !acquitted && stakes.nodeOf(n).stake != 0, "a challenge that cannot be");
            under.push(challenge);
            ++holds[n];
            filesOf[challenge] = count;
            bonds += _bondFor(count);
        } catch {
            ++refusals;
            require(slashed || acquitted || stakes.nodeOf(n).pool == 0, "a challenge that was due");
        }
    }

    /// @dev A jury of one opinion, or of two, or none; then the end, whatever it is.
    function judge(uint256 i, uint256 code, uint256 some) external acts {
        if (under.length == 0) return;
        i %= under.length;
        uint256 challenge = under[i];
        (bool done,) = juries.verdictOf(_current(challenge));
        if (!done) _sit(_current(challenge), code, some);
        uint256 until = juries.caseOf(_trial(challenge)).appealUntil;
        if (until > clock && code % 3 == 0) {
            bonds += juries.appealDepositOf(_trial(challenge));
            _appealTrial(accuser, _trial(challenge));
            return;
        }
        if (until > clock) _wait(until - clock);
        _end(i, challenge);
    }

    /// @dev The jury that judges now.
    function _current(uint256 challenge) private view returns (uint256) {
        return _next(challenge) == 0 ? _trial(challenge) : _next(challenge);
    }

    function _sit(uint256 trial, uint256 code, uint256 some) private {
        uint256[5] memory codes = [Codes.ACCEPT, Codes.REJECT_WEIGHTS, Codes.UNAVAILABLE, Codes.NONE, Codes.DIFFERENT];
        IJuries.Trial memory case_ = juries.caseOf(trial);
        if (case_.time == 0 && height > case_.seedBlock + 250) {
            _blocks(5 * EPOCH); // its seed is too old for this chain
        } else {
            _juryVotes(trial, codes[code % 5], some % 6, codes[(code >> 8) % 5]);
            _wait(case_.commitWindow + case_.revealWindow);
        }
    }

    function _end(uint256 i, uint256 challenge) private {
        INodeChallenges.NodeChallenge memory before = nodeChallenges.challengeOf(challenge);
        uint256 stake = stakes.nodeOf(before.node).stake;
        uint256 had = token.balanceOf(before.accuser);
        nodeChallenges.conclude(challenge);
        Outcome outcome = _outcomeOf(challenge);
        if (outcome == Outcome.Open) return;
        under[i] = under[under.length - 1];
        under.pop();
        --holds[before.node];
        uint256 bond = _bondFor(filesOf[challenge]);
        uint256 deposit;
        if (juries.caseOf(before.trial).appellant != address(0)) deposit = juries.appealDepositOf(before.trial);
        bonds -= bond + deposit;
        uint256 got = token.balanceOf(before.accuser) - had;
        if (before.accuser == accuser && got >= deposit) got -= deposit; // it appealed, and was right
        uint256 left = stakes.nodeOf(before.node).stake;
        if (outcome == Outcome.Upheld) {
            ++upheld;
            require(_account(pool, before.node).slashed, "guilty and a member");
            require(left <= _account(pool, before.node).unsettled * FEES, "guilty and rich");
            require(got <= 2 * bond, "a prize above the bond");
        } else {
            require(left == stake, "a stake lost without a verdict");
        }
        if (outcome == Outcome.Different) {
            ++different;
            require(_account(pool, before.node).limit == 0, "different and a member");
            require(got <= bond, "a prize without a slash");
        }
        if (outcome == Outcome.Refuted) {
            ++refuted;
            require(got == 0, "a false accusation for nothing");
        }
        if (outcome == Outcome.Dismissed || outcome == Outcome.Lapsed) {
            ++lapsed;
            require(got <= bond, "a prize without a verdict");
        }
    }

    function closeJurors(uint256 trial) external acts {
        trial = 1 + trial % (juries.trialCount() + 1);
        if (!juries.caseOf(trial).concluded) return;
        uint256 closed = juries.caseOf(trial).closed;
        for (uint256 i = 0; i < juries.seatsOf(trial).length; ++i) {
            if (closed & (1 << i) == 0) juries.closeJuror(trial, i);
        }
    }

    function leave(uint256 which) external acts {
        address n = workers[which % 3];
        if (_account(pool, n).limit == 0) return;
        vm.prank(operator);
        pools.leavePool(pool, n, type(uint256).max, "");
    }

    /// @dev Stake leaves only when no challenge is open over its node.
    function takeOut(uint256 which) external acts {
        address n = workers[which % 3];
        IStakes.Node memory s = stakes.nodeOf(n);
        vm.prank(operator);
        try stakes.withdraw(n, s.stake) {
            require(holds[n] == 0, "a stake left in the middle of its challenge");
            require(s.pool == 0 && clock >= s.releaseAt, "too early");
        } catch {
            require(holds[n] != 0 || s.pool != 0 || clock < s.releaseAt, "held back");
        }
    }

    function comeBack(uint256 which) external acts {
        address n = workers[which % 3];
        if (_account(pool, n).slashed || stakes.nodeOf(n).pool != 0) return;
        uint256 stake = stakes.nodeOf(n).stake;
        if (stake < STAKE) {
            _give(operator, address(stakes), STAKE - stake);
            vm.prank(operator);
            stakes.deposit(n, STAKE - stake);
        }
        vm.prank(operator);
        pools.join(pool, n, type(uint256).max, "", "");
        _step();
    }

    /// @dev Another node in the place of one that was ejected.
    function succeed(uint256 which) external acts {
        which %= 3;
        if (!_account(pool, workers[which]).slashed || holds[workers[which]] != 0) return;
        workers[which] = _register(operator, string.concat("worker ", _text(clock)), STAKE);
        vm.prank(operator);
        pools.join(pool, workers[which], type(uint256).max, "", "");
        _step();
    }

    function later(uint256 secs) external acts {
        _blocks(1 + secs % 300);
        if (secs % 7 == 0) _wait(_pool(pool).unbonding);
    }

    // What always holds

    function everythingHolds() external view {
        uint256 open;
        uint256 deposits;
        for (uint256 i = 0; i < under.length; ++i) {
            open += _bondFor(filesOf[under[i]]);
            if (juries.caseOf(_trial(under[i])).appellant != address(0)) {
                deposits += juries.appealDepositOf(_trial(under[i]));
            }
        }
        require(token.balanceOf(address(nodeChallenges)) == open, "bonds");
        require(bonds == open + deposits, "open challenges");
        uint256 staked = stakes.unburnt();
        for (uint256 i = 0; i < 3; ++i) {
            IStakes.Node memory s = stakes.nodeOf(workers[i]);
            require(s.frozen == holds[workers[i]], "holds");
            require(holds[workers[i]] == 0 || _withdrawable(workers[i]) == 0, "free while accused");
            staked += s.stake;
        }
        require(token.balanceOf(address(stakes)) >= staked, "stakes");
    }
}
