// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPools} from "../interfaces/IPools.sol";
import {World} from "./World.sol";

/// @notice What the pool's owner and governance do.
abstract contract OwnerHandler is World {
    function step() external acts {
        Pool memory p = _pool(pool);
        if (p.steps >= 12 || p.status == IPools.Status.Closing || p.status == IPools.Status.Settled) return;
        _plant();
        _reach("step");
    }

    function fund(uint40 amount) external acts {
        _give(owner, address(pools), amount);
        vm.prank(owner);
        pools.fund(pool, amount);
        _reach("fund");
    }

    function pausePool(uint256 i) external acts {
        IPools.Status status = _pool(pool).status;
        if (status == IPools.Status.Paused) {
            vm.prank(owner);
            pools.resumePool(pool);
            _reach("resume");
        } else if (i % 4 == 0 && status == IPools.Status.Open) {
            vm.prank(owner);
            pools.pausePool(pool);
            _reach("pause");
        } else if (status != IPools.Status.Closing && status != IPools.Status.Settled) {
            pools.reviewSeats(pool);
            _reach("review");
        }
    }

    /// @dev Workers other than the honest one.
    function removeNode(uint256 i) external acts {
        address n = nodes[1 + i % 3];
        if (i % 5 != 0 || _account(pool, n).removed) return;
        vm.prank(owner);
        pools.removeNode(pool, n);
        _reach("remove");
    }

    function pauseAll(uint256 i) external acts {
        (bool ok,) = address(params).call(abi.encodeCall(params.setPaused, (i % 2 == 0)));
        if (ok) _reach("pause all");
    }

    /// @dev A month in which nobody does anything: changes take effect, exits open, draws lapse.
    function month() external acts {
        _blocks(5 * EPOCH);
        _wait(30 days);
        _reach("month");
    }
}
