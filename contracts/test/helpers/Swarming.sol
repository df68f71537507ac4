// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISwarms} from "../../src/interfaces/ISwarms.sol";
import {Network} from "./Network.sol";

/// @notice A swarm with members, and what they sign.
contract Swarming is Network {
    uint256 internal constant SWARM_STAKE = 40e9;
    uint256 internal constant DELAY = 1 days;
    bytes32 internal constant DOCUMENT = keccak256("swarm document");
    bytes32 internal constant ROOT_A = keccak256("one envelope");
    bytes32 internal constant ROOT_B = keccak256("another envelope");

    ISwarms internal swarms;
    uint256 internal swarm;
    address internal alice = account("alice");
    address internal bob = account("bob");

    function setUp() public virtual override {
        _start(address(0));
        swarms = ISwarms(_new("Swarms", abi.encode(token, params)));
        swarm = swarms.open(DOCUMENT, SWARM_STAKE, DELAY);
        _enter("alice");
        _enter("bob");
    }

    /// @dev With a key that is its own owner.
    function _enter(string memory name) internal returns (address member) {
        member = account(name);
        _give(member, address(swarms), SWARM_STAKE);
        vm.prank(member);
        swarms.join(swarm, member, 0, "");
    }

    function _leave(address member) internal {
        vm.prank(member);
        swarms.leave(swarm, member);
    }

    function _withdraw(address member) internal {
        vm.prank(member);
        swarms.withdraw(swarm, member);
    }

    function _sealed(string memory name, uint256 round, bytes32 root) internal view returns (bytes memory) {
        return _sign(key(name), swarms.envelopeDigest(swarm, account(name), round, root));
    }

    /// @dev A true accusation by `prover`.
    function _accuse(address prover, string memory name, uint256 round) internal {
        bytes memory a = _sealed(name, round, ROOT_A);
        bytes memory b = _sealed(name, round, ROOT_B);
        vm.prank(prover);
        swarms.accuse(swarm, account(name), round, ROOT_A, a, ROOT_B, b);
    }

    function _of(address member) internal view returns (ISwarms.Member memory) {
        return swarms.memberOf(swarm, member);
    }
}
