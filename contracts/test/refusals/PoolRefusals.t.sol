// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, FileRef, PoolTerms, Receipt} from "../../src/libraries/Types.sol";
import {Refusing} from "../helpers/Refusing.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IPools} from "../interfaces/IPools.sol";

/// @notice Pools says no, with the right error, to who may not make a call or at the wrong time.
contract PoolRefusalsTest is Refusing {
    function test_poolOwner() public {
        address p = address(pools);
        PoolTerms memory t = defaultTerms();
        params.setPaused(true);
        _no(owner, p, abi.encodeCall(pools.createPool, (t, 0)), IPools.Paused.selector);
        _no(
            account("x"),
            p,
            abi.encodeCall(pools.join, (pool, account("x"), type(uint256).max, "", "")),
            IPools.Paused.selector
        );
        params.setPaused(false);
        t.jury = 7;
        assertEq(uint256(_pool(_createPool(t)).status), uint256(IPools.Status.Understaffed));
        t = defaultTerms();
        _no(owner, p, abi.encodeCall(pools.createPool, (t, 1 << 64)), IPools.AmountTooLarge.selector);
        _no(owner, p, abi.encodeCall(pools.fund, (99, 1)), IPools.NoSuchPool.selector);
        _no(owner, p, abi.encodeCall(pools.fund, (pool, type(uint64).max)), IPools.AmountTooLarge.selector);
        _give(stranger, p, 7e9);
        _yes(stranger, p, abi.encodeCall(pools.fund, (pool, 7e9)));
        assertEq(_pool(pool).free, BUDGET + 7e9);
        _no(stranger, p, abi.encodeCall(pools.publishStep, (pool, 1, 0, 0)), IPools.NotOwner.selector);
        _no(owner, p, abi.encodeCall(pools.publishStep, (pool, 2, 0, 0)), IPools.StepMismatch.selector);
        _no(owner, p, abi.encodeCall(pools.resumePool, (pool)), IPools.WrongStatus.selector);
        _yes(owner, p, abi.encodeCall(pools.pausePool, (pool)));
        _no(owner, p, _relaying(_next(node, 1, 0)), IPools.WrongStatus.selector);
        _no(
            stranger,
            p,
            abi.encodeCall(pools.join, (pool, stranger, type(uint256).max, "", "")),
            IPools.WrongStatus.selector
        );
        _yes(owner, p, abi.encodeCall(pools.publishStep, (pool, 1, 0, 0)));
        _yes(owner, p, abi.encodeCall(pools.resumePool, (pool)));
        _no(owner, p, abi.encodeCall(pools.settlePool, (pool)), IPools.WrongStatus.selector);
        _yes(owner, p, abi.encodeCall(pools.closePool, (pool)));
        _no(owner, p, abi.encodeCall(pools.closePool, (pool)), IPools.WrongStatus.selector);
        _no(owner, p, abi.encodeCall(pools.publishStep, (pool, 2, 0, 0)), IPools.WrongStatus.selector);
        _no(owner, p, abi.encodeCall(pools.settlePool, (pool)), IPools.NotYet.selector);
        _wait(30 days);
        _yes(owner, p, abi.encodeCall(pools.settlePool, (pool)));
        assertEq(token.balanceOf(owner), BUDGET + 7e9);
        _yes(owner, p, abi.encodeCall(pools.settlePool, (pool))); // nothing left, no harm
        assertEq(uint256(_pool(pool).status), uint256(IPools.Status.Settled));
        assertEq(pools.ownerOf(pool), owner);
    }

    function test_poolMembers() public {
        address p = address(pools);
        _no(node, p, abi.encodeCall(pools.join, (pool, node, type(uint256).max, "", "")), IPools.AlreadyMember.selector);
        _no(
            stranger,
            p,
            abi.encodeCall(pools.leavePool, (pool, node, type(uint256).max, "")),
            IPools.NotOperatorOrNode.selector
        );
        _no(
            stranger,
            p,
            abi.encodeCall(pools.leavePool, (pool, stranger, type(uint256).max, "")),
            IPools.NotMember.selector
        );
        _no(stranger, p, abi.encodeCall(pools.refresh, (pool, stranger)), IPools.NotMember.selector);
        _give(stranger, address(stakes), STAKE);
        _yes(stranger, address(stakes), abi.encodeCall(stakes.deposit, (node, STAKE)));
        _yes(stranger, p, abi.encodeCall(pools.refresh, (pool, node)));
        assertEq(_account(pool, node).limit, 8 * STAKE / 1e6);
        _no(stranger, p, abi.encodeCall(pools.removeNode, (pool, node)), IPools.NotOwner.selector);
        _yes(owner, p, abi.encodeCall(pools.removeNode, (pool, node)));
        _no(owner, p, abi.encodeCall(pools.removeNode, (pool, node)), IPools.Removed.selector);
        _no(node, p, abi.encodeCall(pools.join, (pool, node, type(uint256).max, "", "")), IPools.Removed.selector);
        address unborn = account("unborn");
        _yes(owner, p, abi.encodeCall(pools.removeNode, (pool, unborn)));
        address other = _register(stranger, "other", STAKE);
        _no(
            owner,
            p,
            abi.encodeCall(pools.join, (pool, other, type(uint256).max, "", "")),
            IPools.NotOperatorOrNode.selector
        );
        PoolTerms memory t = defaultTerms();
        (t.rate, t.minStake, t.leverage, t.maxUnits) = (type(uint32).max, 4e9, 1, 1);
        // a member's stake always allows a unit
        bytes memory reason = abi.encodeWithSelector(IParams.BadTerms.selector, "minStake");
        _no(owner, p, abi.encodeCall(pools.createPool, (t, 0)), reason);
        (t.rate, t.leverage) = (1, 10_000);
        uint256 cheap = _createPool(t);
        address rich = _register(stranger, "rich", 2_000_000e9);
        _yes(rich, p, abi.encodeCall(pools.join, (cheap, rich, type(uint256).max, "", "")));
        assertEq(_account(cheap, rich).limit, (uint256(1) << 34) - 1);
        // a join between publication and seed block counts for that step
        vm.prank(owner);
        pools.publishStep(pool, 1, 0, 0);
        vm.prank(other);
        pools.join(pool, other, type(uint256).max, "", "");
        assertEq(_account(pool, other).joinedStep, 1);
    }

    function test_poolWork() public {
        address p = address(pools);
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 1, 1);
        nodeKeys[stranger] = key("stranger");
        _refused(_work(stranger, 0, 0, w), abi.encodePacked(IPools.NotMember.selector));
        _refused(_work(0, 1, w), abi.encodeWithSelector(IPools.CounterMismatch.selector, 1, 0));
        _refused(_work(1, 0, w), abi.encodeWithSelector(IPools.StepOutOfRange.selector, 1, 0, 1));
        w.units = 0;
        _refused(_work(0, 0, w), abi.encodeWithSelector(IPools.BadUnits.selector, 0, 100_000));
        w.units = 100_001;
        _refused(_work(0, 0, w), abi.encodeWithSelector(IPools.BadUnits.selector, 100_001, 100_000));
        w.units = 1;
        w.rows = 0;
        _refused(_work(0, 0, w), abi.encodePacked(IPools.BadRows.selector));
        w.rows = 1;
        _no(stranger, p, _relaying(_work(0, 0, w)), IPools.NotService.selector);
        _no(node, p, _relaying(_work(0, 0, w)), IPools.NotService.selector);
        FileData[] memory lane = new FileData[](17);
        bytes memory call =
            abi.encodeCall(pools.submitLane, (pool, lane, new bytes[](17), new Receipt[](0), _anchor(), _anchorHash()));
        _no(owner, p, call, IPools.BadCount.selector);
        assembly ("memory-safe") {
            mstore(lane, 2)
        }
        (lane[0], lane[1]) = (_work(0, 0, w), _work(0, 1, w));
        bytes[] memory signatures = _signatures(lane);
        call = abi.encodeCall(
            pools.submitLane, (pool, new FileData[](0), new bytes[](0), new Receipt[](0), _anchor(), _anchorHash())
        );
        _no(owner, p, call, IPools.BadCount.selector);
        call =
            abi.encodeCall(pools.submitLane, (pool, lane, new bytes[](1), new Receipt[](0), _anchor(), _anchorHash()));
        _no(owner, p, call, IPools.BadCount.selector);
        call = abi.encodeCall(pools.submitLane, (pool, lane, signatures, new Receipt[](1), _anchor(), _anchorHash()));
        _no(owner, p, call, IPools.BadCount.selector);
        _yes(
            owner,
            p,
            abi.encodeCall(pools.submitLane, (pool, lane, signatures, new Receipt[](0), _anchor(), _anchorHash()))
        );
        assertEq(_account(pool, node).counter, 2);
        assertEq(_pool(pool).lanes, 1);
        assertEq(_round(pool, 0, 0).codes, Codes.spread(3, Codes.UNDECIDED));
        assertEq(_relay(_one(_work(0, 2, w))), 16); // a lane is complete with its call
        for (uint256 i = 0; i < 4; ++i) {
            _step();
        }
        _refused(_work(1, 3, w), abi.encodeWithSelector(IPools.StepOutOfRange.selector, 1, 0, 5));
        _relay(_one(_work(2, 3, w)));
        _yes(node, address(court), abi.encodeCall(court.announceMirror, (pool, 17, "https://mirror")));
        assertEq(court.termsOf(pool).rate, 1e6);
        assertEq(pools.canaryRootOf(pool, 0), bytes32(0));
    }

    function test_poolVerdicts() public {
        address p = address(pools);
        uint256[] memory none = new uint256[](0);
        uint256 s = _submit();
        FileData memory f = files[pool][s];
        FileRef memory ref = _ref(s);
        _no(
            stranger, p, abi.encodeCall(pools.settleLane, (pool, 0, 1, 1, 3600, _refs(0))), IPools.NotPermitted.selector
        );
        _no(stranger, p, abi.encodeCall(pools.payFees, (1, 1, 1)), IPools.NotPermitted.selector);
        _no(stranger, p, abi.encodeCall(pools.hold, (pool, s, f)), IPools.NotPermitted.selector);
        _no(stranger, p, abi.encodeCall(pools.freezeHeld, (pool, s, f)), IPools.NotPermitted.selector);
        _no(stranger, p, abi.encodeCall(pools.resolve, (pool, s, f, 1, 0, 0)), IPools.NotPermitted.selector);
        address b = address(appeals);
        // before its lane is settled no file has a word that anything but its settlement could read
        _no(b, p, abi.encodeCall(pools.hold, (pool, s, f)), IPools.WrongFile.selector);
        _no(b, p, abi.encodeCall(pools.freezeHeld, (pool, s, f)), IPools.WrongFile.selector);
        _no(b, p, abi.encodeCall(pools.resolve, (pool, s, f, 1, 0, 0)), IPools.WrongFile.selector);
        _no(stranger, p, abi.encodeCall(pools.finalize, (pool, s, ref, _none())), IPools.WrongFile.selector);
        _no(stranger, p, abi.encodeCall(pools.forfeit, (pool, s, f)), IPools.WrongFile.selector);
        _no(stranger, p, abi.encodeCall(pools.claim, (pool, node, s, ref.inner, none)), IPools.WrongFile.selector);
        _no(stranger, p, abi.encodeCall(pools.claim, (pool, node, 99, ref.inner, none)), IPools.WrongFile.selector);
        uint256[] memory words = _pendingWords(0);
        _no(stranger, p, abi.encodeCall(pools.claim, (pool, node, s, ref.inner, words)), IPools.NothingToClaim.selector);
        _no(stranger, p, abi.encodeCall(pools.unpack, (pool, 0, words, 1)), IPools.WrongPhase.selector);
        _vote0();
        (uint256 units,) = _claimable(s);
        assertEq(units, 0);
        _no(stranger, p, abi.encodeCall(pools.finalize, (pool, s, ref, _none())), IPools.WrongPhase.selector);
        _passWindow();
        (units,) = _claimable(s);
        assertEq(units, 1_000);
        _no(b, p, abi.encodeCall(pools.hold, (pool, s, f)), IPools.WindowOver.selector);
        _no(b, p, abi.encodeCall(pools.freezeHeld, (pool, s, f)), IPools.WrongPhase.selector);
        _no(b, p, abi.encodeCall(pools.resolve, (pool, s, f, 1, 0, 0)), IPools.WrongPhase.selector);
        _no(stranger, p, abi.encodeCall(pools.forfeit, (pool, s, f)), IPools.WrongPhase.selector);
        _claim(s);
        _no(stranger, p, abi.encodeCall(pools.claim, (pool, node, s, ref.inner, none)), IPools.NothingToClaim.selector);
        address c = address(court);
        _no(c, p, abi.encodeCall(pools.settleLane, (pool, 0, 1, 1, 3600, _refs(0))), IPools.WrongFile.selector);
        _no(c, p, abi.encodeCall(pools.settleLane, (pool, 0, 1, 1, 3600, new FileRef[](0))), IPools.WrongFile.selector);
    }

    function _vote0() internal {
        _voteAll(0, Codes.ACCEPT);
    }

    function test_frozenNodeWaits() public {
        uint256 s = _submit();
        _voteAll(0, 3);
        _refused(_next(node, 1, 0), abi.encodePacked(IPools.NodeIsFrozen.selector));
        FileRef memory ref = _ref(s);
        _no(stranger, address(pools), abi.encodeCall(pools.finalize, (pool, s, ref, _none())), IPools.NotYet.selector);
    }

    function test_fullLaneAndWrongCount() public {
        _submitLane(16);
        _draw(0, 0);
        for (uint256 i = 0; i < 3; ++i) {
            _commit(0, 0, i, _all(1));
        }
        for (uint256 i = 0; i < 3; ++i) {
            _reveal(0, 0, i, _all(1));
        }
        FileRef[] memory refs = _refs(0);
        assertEq(refs.length, 16);
        FileRef[] memory fewer = new FileRef[](15);
        for (uint256 i = 0; i < 15; ++i) {
            fewer[i] = refs[i];
        }
        address c = address(court);
        _no(stranger, c, abi.encodeCall(court.settle, (pool, 0, 0, fewer)), IPools.WrongFile.selector);
        _no(stranger, c, abi.encodeCall(court.settle, (pool, 0, 0, new FileRef[](17))), IPools.WrongFile.selector);
        (fewer[0], refs[0]) = (refs[0], refs[1]);
        _no(stranger, c, abi.encodeCall(court.settle, (pool, 0, 0, refs)), IPools.WrongFile.selector);
        refs[0] = fewer[0];
        _yes(stranger, c, abi.encodeCall(court.settle, (pool, 0, 0, refs)));
    }
}
