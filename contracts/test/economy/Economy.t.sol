// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IParams} from "../interfaces/IParams.sol";
import {Coalition} from "./Coalition.sol";
import {Rules, Strategy} from "./Market.sol";

/// @notice Plays strategies against the suite; `python -m benchmarks economy` writes them and reads what they gained.
contract EconomyTest is Coalition {
    struct Case {
        Setting setting;
        Rules rules;
        Strategy plan;
    }

    Setting private _chosen;

    function setUp() public override {}

    function test_economy() public {
        string memory path = vm.envOr("MUSTER_ECONOMY", string(""));
        if (bytes(path).length == 0) return; // only under benchmarks/economy.py
        Case[] memory list = abi.decode(vm.readFileBinary(path), (Case[]));
        int256[2][][] memory gains = new int256[2][][](list.length);
        for (uint256 i = 0; i < list.length; ++i) {
            uint256 start = vm.snapshot();
            gains[i] = this.run(list[i]);
            vm.revertTo(start);
        }
        vm.writeFileBinary(string.concat(path, ".out"), abi.encode(gains));
    }

    /// @notice Gain and harm of every lane; of four lanes two are not watched, one is, one has an honest canary.
    function run(Case calldata c) external returns (int256[2][] memory gains) {
        (_chosen, rules, plan) = (c.setting, c.rules, c.plan);
        _found();
        gains = new int256[2][](plan.lanes);
        for (uint256 i = 0; i < plan.lanes; ++i) {
            (gains[i][0], gains[i][1]) = this.play(i % 4 >= 2, i % 4 == 3 && !plan.owner && plan.others != 0);
        }
    }

    function _setting() internal view override returns (Setting memory) {
        return _chosen;
    }
}
