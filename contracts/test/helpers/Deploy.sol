// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {PoolTerms, Suite} from "../../src/libraries/Types.sol";
import {IAppeals} from "../interfaces/IAppeals.sol";
import {ICanaries} from "../interfaces/ICanaries.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {IMusterToken} from "../interfaces/IMusterToken.sol";
import {INodeChallenges} from "../interfaces/INodeChallenges.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IPools} from "../interfaces/IPools.sol";
import {ISeats} from "../interfaces/ISeats.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {PRBTest} from "@prb/test/PRBTest.sol";

/// @notice Deploys a whole suite the way the deploy command does: addresses computed from nonces beforehand.
contract Deployer is PRBTest {
    IMusterToken public token;
    IParams public params;
    IStakes public stakes;
    ISeats public seats;
    IPools public pools;
    ICourt public court;
    IJuries public juries;
    IAppeals public appeals;
    ICanaries public canaries;
    INodeChallenges public nodeChallenges;

    uint256 internal constant BOND = 1_000e9;
    uint256 internal constant EPOCH = 100;
    /// Per seat and file: the least that the penalty for silence allows.
    uint256 internal constant FEE = 2e7;
    /// Per file: a committee's.
    uint256 internal constant FEES = 3 * FEE;
    /// The seats that judge the tests' pools.
    uint32 internal constant FAMILY = uint32(uint256(keccak256("test family"))) | (1 << 31);

    /// @notice What is fixed at deployment.
    struct Setting {
        uint256 minWindow;
        uint256 blockSeconds;
        uint256 unbonding;
        uint256 bond;
        uint256 minBond;
        uint256 epochBlocks;
        IParams.Values values;
    }

    IParams.Values internal penalties = defaultValues();

    function _setting() internal view virtual returns (Setting memory) {
        return Setting(1, 1, 30 days, BOND, BOND * 4 / 5, EPOCH, penalties);
    }

    function _at(uint256 nonce) internal view returns (address) {
        // nonces below 128 only
        return address(uint160(uint256(keccak256(abi.encodePacked(bytes2(0xd694), address(this), uint8(nonce))))));
    }

    /// @dev From the artifact: naming the contract with `new` would compile it again for every test.
    function _new(string memory name, bytes memory args) internal returns (address made) {
        bytes memory code = abi.encodePacked(vm.getCode(string.concat(name, ".sol:", name)), args);
        assembly ("memory-safe") {
            made := create(0, add(code, 0x20), mload(code))
            if iszero(made) {
                returndatacopy(0, 0, returndatasize())
                revert(0, returndatasize())
            }
        }
    }

    /// @param first The nonce of this contract's next CREATE.
    /// @param other A token to use instead of MusterToken, or zero.
    function _deploy(uint256 first, address other) internal {
        uint256 n = first;
        token = IMusterToken(_new("MusterToken", abi.encode(address(this))));
        Suite memory s = Suite({
            token: other == address(0) ? address(token) : other,
            params: _at(n + 1),
            stakes: _at(n + 2),
            seats: _at(n + 3),
            pools: _at(n + 4),
            court: _at(n + 5),
            juries: _at(n + 6),
            appeals: _at(n + 7),
            canaries: _at(n + 8),
            nodeChallenges: _at(n + 9)
        });
        Setting memory c = _setting();
        params = IParams(_new("Params", abi.encode(address(this), c.minWindow, c.blockSeconds, c.unbonding, c.values)));
        stakes = IStakes(_new("Stakes", abi.encode(s)));
        seats = ISeats(_new("Seats", abi.encode(s, c.bond, c.minBond, c.epochBlocks)));
        pools = IPools(_new("Pools", abi.encode(s)));
        court = ICourt(_new("Court", abi.encode(s)));
        juries = IJuries(_new("Juries", abi.encode(s)));
        appeals = IAppeals(_new("Appeals", abi.encode(s)));
        canaries = ICanaries(_new("Canaries", abi.encode(s)));
        nodeChallenges = INodeChallenges(_new("NodeChallenges", abi.encode(s)));
    }

    function defaultValues() public pure returns (IParams.Values memory) {
        return IParams.Values({
            slashBps: 10_000,
            rewardBps: 2_000,
            malformedPenalty: 1e9,
            minorityPenalty: 1e9,
            withheldPenalty: 2e9,
            overturnPenalty: 50e9,
            canarySlash: 200e9,
            delayCompensation: 5e9
        });
    }

    function defaultTerms() public pure returns (PoolTerms memory) {
        return PoolTerms({
            rate: 1e6,
            fee: uint32(FEE),
            juryFee: 5e8,
            minStake: 100e9,
            leverage: 4,
            maxUnits: 100_000,
            committee: 3,
            jury: 5,
            appealJury: 0,
            maxLag: 2,
            auditRate: 65536,
            drawBlocks: 64,
            commitWindow: 60,
            revealWindow: 60,
            challengeWindow: 3600,
            appealWindow: 600,
            juryCommitWindow: 60,
            juryRevealWindow: 60,
            receiptWindow: 600,
            group: FAMILY,
            inviteOnly: false,
            configHash: keccak256("config")
        });
    }
}
