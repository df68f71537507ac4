// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../../src/interfaces/IPools.sol";
import {Codes} from "../../src/libraries/Codes.sol";
import {World} from "./World.sol";

/// @notice What workers and whoever collects for them do.
abstract contract WorkHandler is World {
    function submit(uint256 who, uint24 units) external acts {
        _work(who % 4, units);
    }

    /// @dev Several files of one node at once, so that lanes fill up.
    function submitSome(uint256 who, uint24 units) external acts {
        for (uint256 i = 0; i < 5; ++i) {
            _work(who % 4, units);
        }
    }

    /// @dev Where a worker was ejected or removed, another of its kind comes.
    function arrive(uint256 who) external acts {
        uint256 kind = who % 4;
        IPools.Account memory a = pools.accountOf(pool, nodes[kind]);
        IPools.Status status = pools.poolOf(pool).status;
        if ((!a.slashed && !a.removed) || params.paused() || everyNode.length > 10) return;
        if (status != IPools.Status.Open && status != IPools.Status.Understaffed) return;
        nodes[kind] = _arrive(kind);
        _reach("arrive");
    }

    function claim(uint256 i) external acts {
        (bool any, uint256 sequence) = _pick(i);
        if (!any) return;
        _claimFor(files[pool][sequence].node, sequence);
    }

    function finalize(uint256 i) external acts {
        for (uint256 k = 0; k < sequences.length; ++k) {
            uint256 sequence = sequences[(i % sequences.length + k) % sequences.length];
            if (_finalizable(sequence)) {
                pools.finalize(pool, sequence, _ref(sequence));
                return _reach("finalize");
            }
        }
    }

    function forfeit(uint256 i) external acts {
        for (uint256 k = 0; k < sequences.length; ++k) {
            uint256 sequence = sequences[(i % sequences.length + k) % sequences.length];
            if (_forfeitable(sequence)) {
                pools.forfeit(pool, sequence, files[pool][sequence]);
                return _reach("forfeit");
            }
        }
    }

    function leave(uint256 who) external acts {
        address n = nodes[who % 4];
        if (who % 3 != 0 || pools.accountOf(pool, n).limit == 0) return;
        vm.prank(n);
        pools.leavePool(pool, n);
        _reach("leave");
    }

    function rejoin(uint256 who) external acts {
        address n = nodes[who % 4];
        IPools.Account memory a = pools.accountOf(pool, n);
        IPools.Status status = pools.poolOf(pool).status;
        if (a.limit != 0 || a.removed || a.slashed || params.paused()) return;
        if (status != IPools.Status.Open && status != IPools.Status.Understaffed) return;
        if (stakes.stakeOf(n) < defaultTerms().minStake) return;
        vm.prank(n);
        pools.join(pool, n);
        _reach("rejoin");
    }

    function deposit(uint256 who, uint40 amount) external acts {
        address n = nodes[who % 4];
        address op = stakes.operatorOf(n);
        _give(op, address(stakes), amount);
        vm.prank(op);
        stakes.deposit(n, amount);
        if (pools.accountOf(pool, n).limit != 0) pools.refresh(pool, n);
        _reach("deposit");
    }

    function withdraw(uint256 who) external acts {
        address n = nodes[who % 4];
        uint256 most = stakes.withdrawable(n);
        if (most == 0) return;
        for (uint256 i = 0; i < sequences.length; ++i) {
            GhostFile storage f = ghostFiles[sequences[i]];
            if (f.node != n) continue;
            _expect(f.phase != IPools.Phase.Disputed, "stake left before a dispute's end");
            bool open = f.phase == IPools.Phase.Settled && (!Codes.isPaid(f.code) || clock < f.time);
            _expect(!open, "stake left before an outcome was final");
        }
        address op = stakes.operatorOf(n);
        vm.prank(op);
        stakes.withdraw(n, most / 2);
        _reach("withdraw");
    }

    function _work(uint256 who, uint24 units) internal {
        address n = nodes[who];
        units = 1 + units % 20_000;
        IPools.Account memory a = pools.accountOf(pool, n);
        IPools.Pool memory p = pools.poolOf(pool);
        if (p.status != IPools.Status.Open || a.limit == 0 || a.frozen != 0 || a.unsettled >= 64) return;
        if (a.earned - a.spent + a.pending + units > a.limit || a.joinedStep >= p.steps) return;
        uint256 sequence = _submitFrom(n, units);
        if (who == LATE && a.counter % 4 == 2) withheld[sequence] = true;
        _reach("submit");
    }

    function _claimFor(address n, uint256 sequence) internal {
        (uint256 units, uint256 amount) = pools.claimable(pool, n, sequence);
        if (units == 0) return;
        uint256 before = token.balanceOf(stakes.operatorOf(n));
        _expect(_claim(sequence) == amount, "another pay than what was claimable");
        _expect(token.balanceOf(stakes.operatorOf(n)) - before == amount, "pay went elsewhere");
        _reach("claim");
    }

    function _finalizable(uint256 sequence) internal view returns (bool) {
        GhostFile storage f = ghostFiles[sequence];
        return f.phase == IPools.Phase.Settled && clock >= f.time && Codes.kind(f.code) != Codes.KIND_ACCEPT;
    }

    function _forfeitable(uint256 sequence) internal view returns (bool) {
        GhostFile storage f = ghostFiles[sequence];
        GhostAccount storage a = ghostAccounts[f.node];
        return f.upTo != 0 && f.phase != IPools.Phase.Disputed && a.slashed && f.time > a.barrier;
    }
}
