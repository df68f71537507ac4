// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, Receipt} from "../../src/libraries/Types.sol";
import {Phase} from "../helpers/Phase.sol";
import {IPools} from "../interfaces/IPools.sol";
import {World} from "./World.sol";

/// @notice What workers and whoever collects for them do.
abstract contract WorkHandler is World {
    function submit(uint256 who, uint32 units) external acts {
        _work(who % 4, units);
    }

    /// @dev A lane of several nodes' files.
    function submitSome(uint256 who, uint32 units) external acts {
        units = 1 + units % 20_000;
        FileData[] memory lane = new FileData[](8);
        uint256 count;
        for (uint256 i = 0; i < 8; ++i) {
            address n = nodes[(who + i) % 4];
            if (_mayWork(n, units, i / 4)) lane[count++] = _next(n, units, i / 4);
        }
        if (count == 0) return;
        assembly ("memory-safe") {
            mstore(lane, count)
        }
        _relay(lane);
        _reach("submit some");
    }

    /// @dev Work that the service took at most a window ago: also while the pool is paused, or the node out of it.
    function submitLate(uint256 who, uint256 age) external acts {
        _workLate(nodes[who % 4], age % 600, age % 6);
    }

    function _workLate(address n, uint256 age, uint256 lag) private {
        uint256 steps = _pool(pool).steps;
        Account memory a = _account(pool, n);
        uint256 step = steps - 1 > lag ? steps - 1 - lag : 0;
        if (step < a.joinedStep) step = a.joinedStep;
        FileData[] memory lane = _one(_next(n, 1_000, 0));
        lane[0].step = uint24(step);
        Receipt[] memory receipts = new Receipt[](1);
        receipts[0] = _receipt(n, lane[0].fileHash, clock - age);
        bytes[] memory signatures = _signatures(lane);
        vm.prank(watcher);
        try pools.submitLane(pool, lane, signatures, receipts, _anchor(), _anchorHash()) returns (uint256 number) {
            files[pool][number << 4] = lane[0];
            _expect(a.frozen == 0 && !a.slashed, "a frozen node's work was taken");
            _reach(a.limit == 0 ? "submit after leaving" : "submit with receipt");
        } catch (bytes memory reason) {
            bool in_ = _mayWork(n, 1_000, 0) && step < steps && age == 0;
            _expect(!in_ || bytes4(reason) == IPools.ReceiptOutOfTime.selector, "a receipt was refused");
        }
    }

    function _receipt(address n, bytes32 fileHash, uint256 time) internal view returns (Receipt memory) {
        bytes32 digest = _receiptDigest(pool, n, fileHash, 1, time);
        return Receipt(1, uint40(time), _sign(key("service"), digest));
    }

    /// @dev Where a worker was ejected or removed, another of its kind comes.
    function arrive(uint256 who) external acts {
        IPools.Status status = _pool(pool).status;
        if (params.paused() || (status != IPools.Status.Open && status != IPools.Status.Understaffed)) return;
        for (uint256 i = 0; i < 4 && everyNode.length <= 12; ++i) {
            uint256 kind = (who % 4 + i) % 4;
            Account memory a = _account(pool, nodes[kind]);
            if (!a.slashed && !a.removed) continue;
            nodes[kind] = _arrive(kind);
            return _reach("arrive");
        }
    }

    function claim(uint256 i) external acts {
        for (uint256 k = 0; k < sequences.length; ++k) {
            uint256 sequence = sequences[(i % sequences.length + k) % sequences.length];
            if (_claimFor(files[pool][sequence].node, sequence)) return;
        }
    }

    function finalize(uint256 i) external acts {
        for (uint256 k = 0; k < sequences.length; ++k) {
            uint256 sequence = sequences[(i % sequences.length + k) % sequences.length];
            if (_finalizable(sequence)) {
                _finalize(sequence);
                return _reach("finalize");
            }
        }
    }

    function forfeit(uint256 i) external acts {
        for (uint256 k = 0; k < sequences.length; ++k) {
            uint256 sequence = sequences[(i % sequences.length + k) % sequences.length];
            if (_forfeitable(sequence)) {
                _unpack(sequence >> 4);
                pools.forfeit(pool, sequence, files[pool][sequence]);
                return _reach("forfeit");
            }
        }
    }

    function leavePool(uint256 who) external acts {
        address n = nodes[who % 4];
        if (_account(pool, n).limit == 0) return;
        vm.prank(n);
        pools.leavePool(pool, n, type(uint256).max, "");
        _reach("leave");
        if (who % 3 != 0) _workLate(n, 0, 0); // what it had uploaded before
    }

    function rejoin(uint256 who) external acts {
        IPools.Status status = _pool(pool).status;
        if (params.paused() || (status != IPools.Status.Open && status != IPools.Status.Understaffed)) return;
        for (uint256 i = 0; i < 4; ++i) {
            address n = nodes[(who % 4 + i) % 4];
            Account memory a = _account(pool, n);
            if (a.limit != 0 || a.removed || a.slashed || stakes.nodeOf(n).stake < defaultTerms().minStake) continue;
            vm.prank(n);
            pools.join(pool, n, type(uint256).max, "", "");
            return _reach("rejoin");
        }
    }

    function deposit(uint256 who, uint40 amount) external acts {
        address n = nodes[who % 4];
        address op = stakes.operatorOf(n);
        _give(op, address(stakes), amount);
        vm.prank(op);
        stakes.deposit(n, amount);
        if (_account(pool, n).limit != 0) pools.refresh(pool, n);
        _reach("deposit");
    }

    function burn() external acts {
        if (stakes.unburnt() < 2) return;
        stakes.burn();
        _expect(stakes.unburnt() == 1, "what was taken was not burnt");
        _reach("burn");
    }

    function withdraw(uint256 who) external acts {
        address n;
        uint256 most;
        for (uint256 i = 0; i < everyNode.length && most == 0; ++i) {
            n = everyNode[(who % everyNode.length + i) % everyNode.length];
            most = _withdrawable(n);
        }
        if (most == 0) return;
        for (uint256 i = 0; i < sequences.length; ++i) {
            GhostFile storage f = ghostFiles[sequences[i]];
            if (f.node != n) continue;
            _expect(f.phase != Phase.Disputed, "stake left before a dispute's end");
            bool open = f.phase == Phase.Settled && (!Codes.isPaid(f.code) || clock < f.time);
            // U outlasts every lane that somebody settles; a stake may leave a lane that nobody touched for as long
            if (!open || _settledAt(f.time) >= stakes.nodeOf(n).releaseAt) continue;
            _expect(false, "stake left before an outcome was final");
        }
        address op = stakes.operatorOf(n);
        vm.prank(op);
        stakes.withdraw(n, (most + 1) / 2);
        _reach("withdraw");
    }

    function _work(uint256 who, uint32 units) internal {
        units = 1 + units % 20_000;
        if (!_mayWork(nodes[who], units, 0)) return;
        _submitFrom(nodes[who], units);
        _reach("submit");
    }

    /// @dev Whether the pool takes a file of a node after `ahead` others of as many units.
    function _mayWork(address n, uint256 units, uint256 ahead) private view returns (bool) {
        Account memory a = _account(pool, n);
        Pool memory p = _pool(pool);
        if (p.status != IPools.Status.Open || a.limit == 0 || a.frozen != 0 || a.unsettled + ahead >= 64) return false;
        return a.earned - a.spent + a.pending + units * (ahead + 1) <= a.limit && a.joinedStep < p.steps;
    }

    function _claimFor(address n, uint256 sequence) internal returns (bool) {
        (uint256 units, uint256 amount) = _claimable(sequence);
        if (units == 0) return false;
        uint256 before = token.balanceOf(stakes.operatorOf(n));
        _expect(_claim(sequence) == amount, "another pay than what was claimable");
        _expect(token.balanceOf(stakes.operatorOf(n)) - before == amount, "pay went elsewhere");
        _reach("claim");
        return true;
    }

    function _finalizable(uint256 sequence) internal view returns (bool) {
        GhostFile storage f = ghostFiles[sequence];
        return f.phase == Phase.Settled && clock >= f.time && !Codes.isPaid(f.code);
    }

    function _forfeitable(uint256 sequence) internal view returns (bool) {
        GhostFile storage f = ghostFiles[sequence];
        GhostAccount storage a = ghostAccounts[f.node];
        bool open = f.phase == Phase.Disputed || (f.phase == Phase.Settled && clock < f.time);
        return f.upTo != 0 && !open && a.slashed && f.time > a.barrier;
    }
}
