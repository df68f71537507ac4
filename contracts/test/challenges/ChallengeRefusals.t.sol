// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileSlot} from "../../src/libraries/FileSlot.sol";
import {WrongAddress} from "../../src/libraries/Types.sol";
import {Suite} from "../../src/libraries/Types.sol";
import {Accusing} from "../helpers/Accusing.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {INodeChallenges} from "../interfaces/INodeChallenges.sol";
import {INodeChallenges} from "../interfaces/INodeChallenges.sol";
import {IPools} from "../interfaces/IPools.sol";
import {IStakes} from "../interfaces/IStakes.sol";

/// @notice Refuses what may not be challenged, with the right error.
contract ChallengeRefusalsTest is Accusing {
    function _refused(address n, uint256[] memory sequences, bytes4 selector) private {
        _no(accuser, address(nodeChallenges), _opening(n, sequences), selector);
    }

    function test_counts() public {
        uint256[] memory named = _longHistory(node, MOST_FILES + 1);
        _refused(node, new uint256[](0), INodeChallenges.BadCount.selector);
        _refused(node, named, INodeChallenges.BadCount.selector);
        bytes32[] memory inners = new bytes32[](1);
        bytes memory short = abi.encodeCall(nodeChallenges.open, (pool, node, _list(named[0], named[1]), inners, 0));
        _no(accuser, address(nodeChallenges), short, INodeChallenges.BadCount.selector);
        _refused(node, _list(named[1], named[1]), INodeChallenges.NotAscending.selector);
        _refused(node, _list(named[1], named[0]), INodeChallenges.NotAscending.selector);
        uint256[] memory most = new uint256[](MOST_FILES);
        for (uint256 i = 0; i < MOST_FILES; ++i) {
            most[i] = named[i];
        }
        _accuse(node, most);
        assertEq(nodeChallenges.MAX_FILES(), MOST_FILES);
    }

    function test_anothersFiles() public {
        address other = _other();
        uint256[] memory named = _history(node, 1);
        uint256 theirs = _history(other, 1)[0];
        bytes memory reason = abi.encodeWithSelector(IPools.WrongFile.selector, theirs);
        _no(accuser, address(nodeChallenges), _opening(node, _list(named[0], theirs)), reason);
        // the right node with another inner hash
        bytes32[] memory inners = new bytes32[](1);
        inners[0] = _inner(theirs);
        bytes memory wrong = abi.encodeCall(nodeChallenges.open, (pool, node, named, inners, 0));
        _no(accuser, address(nodeChallenges), wrong, IPools.WrongFile.selector);
    }

    function test_anotherPoolsFiles() public {
        uint256[] memory named = _history(node, 1);
        bytes32[] memory inners = _inners(named);
        uint256 second = _createPool(defaultTerms());
        bytes memory there = abi.encodeCall(nodeChallenges.open, (second, node, named, inners, 0));
        _no(accuser, address(nodeChallenges), there, INodeChallenges.NotAccepted.selector);
        // a number that would stand for this pool's file, if its bits ran over
        there = abi.encodeCall(nodeChallenges.open, (0, node, _list((pool << 32) | named[0]), inners, 0));
        _no(accuser, address(nodeChallenges), there, FileSlot.NoSuchFile.selector);
    }

    function test_filesThatAreNotAcceptedForGood() public {
        bytes4 no = INodeChallenges.NotAccepted.selector;
        uint256 s = _submit();
        _refused(node, _list(s), no); // pending
        _voteAll(s >> 4, Codes.ACCEPT);
        _refused(node, _list(s), no); // open to disputes
        _dispute(stranger, s);
        _passWindow();
        _refused(node, _list(s), no); // before a jury
        _juryVotes(appeals.disputeOf(pool, s).trial, Codes.ACCEPT);
        _conclude(s);
        _accuse(node, _list(s)); // disputed, and accepted all the same

        uint256 missing = _decided(node, Codes.UNAVAILABLE);
        uint256 unreadable = _decided(node, Codes.MALFORMED);
        uint256 unlike = _submit();
        _vote(unlike >> 4, 0, _three(_all(Codes.ACCEPT), _all(Codes.REJECT_REWARD), _all(Codes.UNAVAILABLE)));
        _vote(unlike >> 4, 1, _three(_all(Codes.ACCEPT), _all(Codes.REJECT_REWARD), _all(Codes.UNAVAILABLE)));
        assertEq(_code(unlike), Codes.VOID);
        _passWindow();
        _refused(node, _list(missing), no);
        _refused(node, _list(unreadable), no);
        _refused(node, _list(unlike), no);
    }

    function test_nothingAtStake() public {
        uint256[] memory named = _history(node, 1);
        _leave();
        _wait(_pool(pool).unbonding);
        _refused(node, named, INodeChallenges.NothingAtStake.selector); // it could have left
        uint256 second = _createPool(defaultTerms());
        vm.prank(operator);
        pools.join(second, node, type(uint256).max, "", "");
        _refused(node, named, INodeChallenges.NothingAtStake.selector); // it stands for another pool
        vm.prank(operator);
        pools.leavePool(second, node, type(uint256).max, "");
        _refused(node, named, INodeChallenges.NothingAtStake.selector);
    }

    function test_theBond() public {
        uint256[] memory named = _history(node, 1);
        _no(stranger, address(nodeChallenges), _opening(node, named), bytes4(0xfb8f41b2)); // no allowance
        assertEq(nodeChallenges.opened(), 0);
        _accuse(node, named);
        assertEq(nodeChallenges.opened(), 1);
    }

    function test_hooks() public {
        uint256[] memory none = new uint256[](0);
        bytes memory call = abi.encodeCall(juries.summon, (pool, 0, 1, none, address(0)));
        _no(stranger, address(juries), call, IJuries.NotPermitted.selector);
        call = abi.encodeCall(pools.expel, (pool, node));
        _no(stranger, address(pools), call, IPools.NotPermitted.selector);
        _no(owner, address(pools), call, IPools.NotPermitted.selector);
        _no(address(appeals), address(pools), call, IPools.NotPermitted.selector);
        _no(stranger, address(stakes), abi.encodeCall(stakes.freeze, (node)), IStakes.NotPermitted.selector);
        _no(stranger, address(stakes), abi.encodeCall(stakes.release, (node)), IStakes.NotPermitted.selector);
        IStakes.Slash memory order;
        _no(stranger, address(stakes), abi.encodeCall(stakes.slash, (node, order)), IStakes.NotPermitted.selector);
        call = abi.encodeCall(stakes.bind, (node, pool, 0));
        _no(address(nodeChallenges), address(stakes), call, IStakes.NotPermitted.selector);
        call = abi.encodeCall(stakes.unbind, (node, 0));
        _no(address(nodeChallenges), address(stakes), call, IStakes.NotPermitted.selector);
        // what it may do, and nothing of it moves a file
        _no(
            address(nodeChallenges),
            address(pools),
            abi.encodeCall(pools.hold, (pool, 0, files[pool][0])),
            IPools.NotPermitted.selector
        );
    }

    function test_noSuchChallenge() public {
        bytes memory call = abi.encodeCall(nodeChallenges.conclude, (1));
        _no(stranger, address(nodeChallenges), call, INodeChallenges.NoSuchChallenge.selector);
        uint256 challenge = _accuse(node, _history(node, 1));
        call = abi.encodeCall(nodeChallenges.conclude, (challenge));
        _no(stranger, address(nodeChallenges), call, IJuries.Undecided.selector);
    }

    /// It is in nobody's suite but where the suite says.
    function test_itsPlace() public {
        Suite memory s;
        s.nodeChallenges = stranger;
        bytes memory code = abi.encodePacked(vm.getCode("NodeChallenges.sol:NodeChallenges"), abi.encode(s));
        address made;
        bytes4 answer;
        assembly ("memory-safe") {
            made := create(0, add(code, 0x20), mload(code))
            returndatacopy(0, 0, 4)
            answer := mload(0)
        }
        assertEq(made, address(0));
        assertEq(bytes32(answer), bytes32(WrongAddress.selector));
    }
}
