// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Network} from "./Network.sol";

interface VmGas {
    struct Gas {
        uint64 gasLimit;
        uint64 gasTotalUsed;
        uint64 gasMemoryUsed;
        int64 gasRefunded;
        uint64 gasRemaining;
    }

    function lastCallGas() external view returns (Gas memory);
}

/// @notice Gas of the last call, and a list of what was measured.
contract Measuring is Network {
    VmGas internal constant GAS = VmGas(address(uint160(uint256(keccak256("hevm cheat code")))));
    string internal constant OUT = "gas";
    string internal json;

    function _used() internal view returns (uint256) {
        VmGas.Gas memory g = GAS.lastCallGas();
        return g.gasTotalUsed; // after refunds
    }

    function _note(string memory name, uint256 value) internal {
        json = vm.serializeUint(OUT, name, value);
    }
}
