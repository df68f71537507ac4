// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {FileData, PoolTerms, Receipt} from "../../src/libraries/Types.sol";
import {Planting} from "../helpers/Planting.sol";
import {IPools} from "../interfaces/IPools.sol";

/// @notice What the shipped networks and pools fix; windows in seconds, amounts in base units.
struct Rules {
    uint256 rate;
    uint256 fee;
    uint256 juryFee;
    uint256 minStake;
    uint256 leverage;
    uint256 committee;
    uint256 jury;
    uint256 appealJury;
    uint256 auditRate;
    uint256 challengeWindow;
    uint256 commitWindow;
    uint256 revealWindow;
    uint256 maxUnits;
    /// What a check of one file of the plan's size costs a seat.
    uint256 check;
}

/// @notice One point of the coalition's choices; benchmarks/economy.py draws and explains them.
struct Strategy {
    uint256 seed;
    uint256 lanes;
    uint256 seats;
    uint256 files;
    uint256 others;
    uint256 rows;
    uint256 units;
    bool owner;
    uint256 forged;
    uint256 served;
    uint256 ownVote;
    uint256 otherVote;
    uint256 when;
    uint256 ownJury;
    uint256 otherJury;
    uint256 dispute;
    bool appeal;
    uint256 canary;
    uint256 service;
    bool halt;
    bool carried;
}

/// @notice A network with one coalition in it, and everybody else: who owns what, and lanes from an equal start.
/// Neither side's tokens are made or destroyed between lanes but by the contracts, so that wealth can be compared.
abstract contract Market is Planting {
    uint256 internal constant CLASS_SEATS = 100;
    uint256 internal constant RICHES = 1e9 * 1e9;

    Rules internal rules;
    Strategy internal plan;

    address internal coalition = account("coalition");
    address internal everybody = account("everybody else");
    address internal coalitionVoter = account("the coalition's voter");
    address internal honestVoter = account("the honest voter");
    uint256[] internal coalitionSeats;
    uint256[] private _touched;
    mapping(uint256 seat => bool) private _replaced;

    uint256 internal rotations;
    /// When this lane's files lay in the pool's storage.
    uint256 internal uploadedAt;
    address internal coalitionNode;
    address internal honestNode;
    uint256 private _nodes;
    /// What slashed nodes of the coalition still have at stake.
    uint256 private _leftStake;

    // Beginning

    function _found() internal {
        height = 10_000 + plan.seed % 1_000_000_000;
        _start(address(0));
        address[3] memory who = [coalition, everybody, owner];
        address[6] memory spenders =
            [address(stakes), address(seats), address(pools), address(juries), address(appeals), address(canaries)];
        for (uint256 i = 0; i < who.length; ++i) {
            token.mint(who[i], RICHES);
            for (uint256 j = 0; j < spenders.length; ++j) {
                vm.prank(who[i]);
                token.approve(spenders[j], type(uint256).max);
            }
        }
        for (uint256 i = 0; i < CLASS_SEATS; ++i) {
            _openSeat(i < plan.seats);
        }
        _blocks(2 * seats.epochBlocks());
        PoolTerms memory terms = _terms();
        vm.prank(owner);
        pool = pools.createPool(terms, RICHES / 100);
        vm.prank(owner);
        court.setService(pool, account(_serviceName()));
        coalitionNode = _newNode(coalition, plan.files);
        honestNode = _newNode(everybody, plan.others);
    }

    /// @dev The key that the pool's owner has named last.
    function _serviceName() internal view returns (string memory) {
        return string.concat("service ", _text(rotations));
    }

    function _terms() private view returns (PoolTerms memory t) {
        t = defaultTerms();
        t.rate = uint32(rules.rate);
        t.fee = uint32(rules.fee);
        t.juryFee = uint32(rules.juryFee);
        t.minStake = uint56(rules.minStake);
        t.leverage = uint16(rules.leverage);
        t.maxUnits = uint32(rules.maxUnits);
        t.committee = uint8(rules.committee);
        t.jury = uint8(rules.jury);
        t.appealJury = uint8(rules.appealJury);
        t.auditRate = uint24(rules.auditRate);
        t.challengeWindow = uint32(rules.challengeWindow);
        if (t.drawBlocks > 3 * seats.epochBlocks()) t.drawBlocks = uint16(3 * seats.epochBlocks());
        (t.commitWindow, t.revealWindow) = (uint32(rules.commitWindow), uint32(rules.revealWindow));
    }

    function _openSeat(bool ours) private {
        vm.prank(ours ? coalition : everybody);
        uint256 seat = seats.openSeat(0, ours ? coalitionVoter : honestVoter, _classes(FAMILY));
        if (ours) coalitionSeats.push(seat);
    }

    /// @dev A stake that just carries `files` files under the pool's leverage.
    function _stakeFor(uint256 files) private view returns (uint256 stake) {
        stake = (files * plan.units * rules.rate + rules.leverage - 1) / rules.leverage;
        if (stake < rules.minStake) stake = rules.minStake;
    }

    function _newNode(address op, uint256 files) private returns (address n) {
        string memory name = string.concat("node ", _text(++_nodes));
        n = account(name);
        nodeKeys[n] = key(name);
        bytes memory consent = _sign(key(name), _consentDigest(n, op, op, clock + 60));
        vm.prank(op);
        stakes.registerNode(n, op, 0, _stakeFor(files), clock + 60, consent);
        vm.prank(op);
        pools.join(pool, n, type(uint256).max, "", "");
    }

    // Between lanes

    function _touch(uint256[] memory used) internal {
        for (uint256 i = 0; i < used.length; ++i) {
            _touched.push(used[i]);
        }
    }

    /// @dev Full stakes again, and bonds unless the coalition carries its own on until a seat is evicted, out of their
    /// owners' pockets, and a new step.
    function _restore(bool plant) internal {
        bool opened;
        for (uint256 i = 0; i < _touched.length; ++i) {
            uint256 seat = _touched[i];
            bool ours = _ours(seat);
            if (_isActive(seat)) {
                if (ours && plan.carried) continue;
                vm.prank(ours ? coalition : everybody);
                seats.topUp(seat);
            } else if (!_replaced[seat]) {
                (opened, _replaced[seat]) = (true, true);
                _openSeat(ours);
            }
        }
        delete _touched;
        if (opened) _blocks(seats.epochBlocks());
        address before = coalitionNode;
        coalitionNode = _restored(coalitionNode, coalition, plan.files);
        if (coalitionNode != before) _leftStake += stakes.nodeOf(before).stake;
        honestNode = _restored(honestNode, everybody, plan.others);
        address[] memory who = new address[](plant ? 1 : 0);
        if (plant) who[0] = plan.canary == 0 ? honestNode : coalitionNode;
        _plantStep(who);
    }

    function _restored(address n, address op, uint256 files) private returns (address) {
        Account memory a = _account(pool, n);
        if (a.slashed || a.removed) return _newNode(op, files);
        uint256 stake = stakes.nodeOf(n).stake;
        if (stake < _stakeFor(files)) {
            uint256 missing = _stakeFor(files) - stake;
            vm.prank(op);
            stakes.deposit(n, missing);
        }
        if (a.limit == 0) {
            vm.prank(op);
            pools.join(pool, n, type(uint256).max, "", "");
        } else {
            pools.refresh(pool, n);
        }
        return n;
    }

    // Who has what

    function _ours(uint256 seat) internal view returns (bool) {
        return seats.ownerOf(seat) == coalition;
    }

    function _count(uint256[] memory members) internal view returns (uint256 ours) {
        for (uint256 i = 0; i < members.length; ++i) {
            if (_ours(members[i])) ++ours;
        }
    }

    /// @dev Tokens, bonds, stakes and the owner's escrow of the coalition and of everybody else.
    function _wealth() internal view returns (int256 ours, int256 theirs) {
        uint256 bonds;
        for (uint256 i = 0; i < coalitionSeats.length; ++i) {
            bonds += seats.seatOf(coalitionSeats[i]).bond;
        }
        uint256 stake = stakes.nodeOf(coalitionNode).stake + _leftStake;
        ours = int256(token.balanceOf(coalition) + bonds + stake);
        theirs = int256(
            token.balanceOf(everybody) + token.balanceOf(address(seats)) - bonds + token.balanceOf(address(stakes))
                - stake
        );
        int256 escrow = int256(token.balanceOf(owner) + _pool(pool).free);
        if (plan.owner) ours += escrow;
        else theirs += escrow;
    }

    // Work

    /// @dev The node's file after `ahead` others.
    function _made(address n, uint256 ahead) internal view returns (FileData memory) {
        uint256 counter = _account(pool, n).counter + ahead;
        bytes32 row = keccak256(abi.encode(n, counter));
        Draft memory d = Draft(keccak256(abi.encode(row)), row, uint32(plan.units), uint16(plan.rows));
        return _work(n, _pool(pool).steps - 1, counter, d);
    }

    function _receipt(string memory signer, address n, bytes32 fileHash) internal view returns (Receipt memory) {
        bytes32 digest = _receiptDigest(pool, n, fileHash, 1, uploadedAt);
        return Receipt(1, uint40(uploadedAt), _sign(key(signer), digest));
    }
}
