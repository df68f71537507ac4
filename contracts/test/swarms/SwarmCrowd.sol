// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISwarms} from "../../src/interfaces/ISwarms.sol";
import {Swarming} from "../helpers/Swarming.sol";

/// @notice Honest, lying and careless members of two swarms, and provers who show whatever they have, true or not. Keeps
/// a ledger of its own of who signed what and who paid what.
contract SwarmCrowd is Swarming {
    uint256 internal constant KEYS = 6;
    uint256 internal constant ROUNDS = 3;

    struct Known {
        bool joined;
        bool left;
        bool ejected;
        bool withdrawn;
        uint256 paid;
        uint256 lost;
        uint256 returned;
        uint256 releaseAt;
        uint256 next;
    }

    mapping(uint256 swarm => mapping(address member => Known)) internal known;
    /// Roots that a key signed for a round, as bits of content 0 to 3.
    mapping(uint256 swarm => mapping(address member => mapping(uint256 round => uint256))) internal signed;
    uint256 internal minted;
    uint256 internal rewarded;
    uint256 public accusations;
    uint256 public refusals;

    function start() external {
        Swarming.setUp();
        swarms.open(keccak256("second document"), 7, 1 hours);
        for (uint256 i = 0; i < 2; ++i) {
            address member = i == 0 ? alice : bob;
            known[1][member].joined = true;
            known[1][member].paid = SWARM_STAKE;
        }
        minted = 2 * SWARM_STAKE;
    }

    function _name(uint256 i) internal pure returns (string memory) {
        if (i % KEYS == 0) return "alice";
        if (i % KEYS == 1) return "bob";
        return string.concat("member ", _text(i % KEYS));
    }

    function _swarm(uint256 i) internal pure returns (uint256) {
        return 1 + i % 2;
    }

    function enter(uint256 which, uint256 where) external {
        (address member, uint256 place) = (account(_name(which)), _swarm(where));
        Known storage k = known[place][member];
        uint256 stake = swarms.swarmOf(place).stake;
        token.mint(member, stake);
        minted += stake;
        vm.prank(member);
        token.approve(address(swarms), type(uint256).max);
        vm.prank(member);
        try swarms.join(place, member, 0, "") {
            require(!k.joined, "joined twice");
            (k.joined, k.paid) = (true, stake);
        } catch {
            require(k.joined, "kept out");
        }
    }

    function exit(uint256 which, uint256 where) external {
        (address member, uint256 place) = (account(_name(which)), _swarm(where));
        Known storage k = known[place][member];
        vm.prank(member);
        try swarms.leave(place, member) {
            require(k.joined && !k.left && !k.ejected, "left twice");
            (k.left, k.releaseAt) = (true, clock + swarms.swarmOf(place).delay);
        } catch {
            require(!k.joined || k.left || k.ejected, "held in");
        }
    }

    function takeOut(uint256 which, uint256 where) external {
        (address member, uint256 place) = (account(_name(which)), _swarm(where));
        Known storage k = known[place][member];
        uint256 before = token.balanceOf(member);
        vm.prank(member);
        try swarms.withdraw(place, member) {
            require((k.left || k.ejected) && !k.withdrawn && clock >= k.releaseAt, "free too early");
            k.withdrawn = true;
            k.returned = token.balanceOf(member) - before;
        } catch {
            require(!(k.left || k.ejected) || k.withdrawn || clock < k.releaseAt, "held back");
        }
    }

    function sign(uint256 which, uint256 where, uint256 what) external {
        signed[_swarm(where)][account(_name(which))][what % ROUNDS] |= 1 << (what / ROUNDS % 4);
    }

    function note(uint256 which, uint256 where, uint256 first) external {
        (address member, uint256 place) = (account(_name(which)), _swarm(where));
        Known storage k = known[place][member];
        first = k.next + first % 3;
        vm.prank(member);
        try swarms.record(place, first, first + 1, 2, ROOT_A) {
            require(k.joined && !k.ejected && !k.withdrawn, "a stranger records");
            k.next = first + 2;
        } catch {
            require(!k.joined || k.ejected || k.withdrawn, "kept from recording");
        }
    }

    /// @dev Shows two roots of a round, each with what the key signed of it, or with a signature of something else.
    function show(uint256 which, uint256 where, uint256 what) external {
        (string memory name, uint256 place) = (_name(which), _swarm(where));
        address member = account(name);
        uint256 round = what % ROUNDS;
        (uint256 a, uint256 b) = (what / ROUNDS % 4, what / 16 % 4);
        uint256 had = signed[place][member][round];
        bool guilty = a != b && had & (1 << a) != 0 && had & (1 << b) != 0;
        Known storage k = known[place][member];
        bool due = guilty && k.joined && !k.ejected && !k.withdrawn;
        uint256 before = token.balanceOf(stranger);
        bytes memory first = _shown(place, name, round, a);
        bytes memory second = _shown(place, name, round, b);
        vm.prank(stranger);
        try swarms.accuse(place, member, round, bytes32(a + 1), first, bytes32(b + 1), second) {
            require(due, "slashed somebody innocent");
            ++accusations;
            k.lost = k.paid / 2;
            rewarded += token.balanceOf(stranger) - before;
            if (!k.left) k.releaseAt = clock + swarms.swarmOf(place).delay;
            k.ejected = true;
        } catch {
            require(!due, "a breach goes unpunished");
            ++refusals;
        }
    }

    /// @dev What a prover has: the member's signature of that root, or the best forgery without one.
    function _shown(uint256 place, string memory name, uint256 round, uint256 content)
        internal
        view
        returns (bytes memory)
    {
        address member = account(name);
        bool own = signed[place][member][round] & (1 << content) != 0;
        bytes32 digest = swarms.envelopeDigest(place, member, round, bytes32(content + 1));
        if (own) return _sign(key(name), digest);
        // of another swarm, which it may have signed as well; else by another key
        if (signed[3 - place][member][round] & (1 << content) == 0) return _sign(key("stranger"), digest);
        return _sign(key(name), swarms.envelopeDigest(3 - place, member, round, bytes32(content + 1)));
    }

    function later(uint256 secs) external {
        _blocks(1 + secs % 20 hours);
    }

    // ---- What always holds

    function everyMember(bool money) external view {
        uint256 locked;
        for (uint256 place = 1; place <= 2; ++place) {
            for (uint256 i = 0; i < KEYS; ++i) {
                address member = account(_name(i));
                Known storage k = known[place][member];
                ISwarms.Member memory one = swarms.memberOf(place, member);
                uint256 stake = k.withdrawn ? 0 : k.paid - k.lost;
                require(one.stake == stake, "stake");
                require(!k.withdrawn || k.returned == k.paid - k.lost, "what came back");
                require(one.ejected == k.ejected && one.nextRound == k.next, "state");
                require(one.releaseAt == k.releaseAt, "release");
                require((one.owner != address(0)) == k.joined, "owner");
                require(swarms.isMember(place, member) == (k.joined && !k.left && !k.ejected), "membership");
                locked += stake;
            }
        }
        if (money) require(token.balanceOf(address(swarms)) == locked, "locked");
    }

    function tokensAreConserved() external view {
        uint256 sum = token.balanceOf(address(swarms)) + token.balanceOf(SINK) + token.balanceOf(stranger);
        for (uint256 i = 0; i < KEYS; ++i) {
            sum += token.balanceOf(account(_name(i)));
        }
        require(sum == minted && token.totalSupply() == minted, "tokens");
        require(token.balanceOf(stranger) == rewarded, "rewards");
        require(rewarded * 9 <= token.balanceOf(SINK) + 9, "a tenth");
    }
}
