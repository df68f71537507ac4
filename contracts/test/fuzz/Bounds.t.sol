// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {PoolTerms} from "../../src/libraries/Types.sol";
import {Network} from "../helpers/Network.sol";
import {IParams} from "../interfaces/IParams.sol";

/// @notice Bounds of terms and parameters, and what happens to seats and their bonds, for random values.
contract BoundsTest is Network {
    // Terms and parameters

    /// Terms are refused exactly when one of the written bounds does not hold.
    function testFuzz_termsBounds(uint256 seed) public view {
        PoolTerms memory t = defaultTerms();
        uint256 r = seed >> 16;
        uint256 field = seed % 14;
        if (field == 0) t.rate = uint32(r % 3);
        if (field == 1) t.fee = uint32(r % 4e7);
        if (field == 2) t.juryFee = uint32(r % 4e9);
        if (field == 3) t.minStake = uint56(r % 10e9);
        if (field == 4) t.leverage = uint16(r % 3);
        if (field == 5) t.maxUnits = uint32(r % 3);
        if (field == 6) t.committee = uint8(r % 8);
        if (field == 7) t.jury = uint8(r % 20);
        if (field == 8) t.appealJury = uint8(r % 20);
        if (field == 9) t.maxLag = uint8(r % 20);
        if (field == 10) t.auditRate = uint24(r % 70_000);
        if (field == 11) t.drawBlocks = uint16(r % 20);
        if (field == 12) t.challengeWindow = uint32(r % 33 days);
        if (field == 13) t.group = uint32(r % (1 << 26));
        (bool ok, bytes memory data) = address(params).staticcall(abi.encodeCall(params.checkTerms, (t)));
        uint256 unbonding = _unbonding(t);
        assert(ok == (_allowed(t) && unbonding <= 30 days));
        if (ok) assert(abi.decode(data, (uint256)) == unbonding);
        else assert(bytes4(data) == IParams.BadTerms.selector);
    }

    function _allowed(PoolTerms memory t) private pure returns (bool) {
        bool money = t.rate >= 1 && t.fee >= 2e7 && t.juryFee >= t.fee && t.leverage >= 1 && t.maxUnits >= 1;
        bool stake = t.minStake >= 64 * uint256(t.committee) * t.fee && t.minStake >= uint256(t.jury) * t.juryFee;
        bool first = t.jury > t.committee && t.jury <= 15 && t.jury % 2 == 1;
        bool second = t.appealJury == 0 || (t.appealJury > t.jury && t.appealJury <= 15 && t.appealJury % 2 == 1);
        bool bodies = (t.committee == 3 || t.committee == 5) && first && second;
        bool blocks = t.drawBlocks >= 8;
        bool rest = t.maxLag <= 15 && t.auditRate >= 1 && t.auditRate <= 65_536 && (t.group == 0 || t.group >= 1 << 24);
        return money && stake && bodies && blocks && rest && t.challengeWindow >= 1 && t.challengeWindow <= 30 days;
    }

    function _unbonding(PoolTerms memory t) private pure returns (uint256 sum) {
        sum = 1 + 4 * uint256(t.drawBlocks) + 2 * (60 + 60) + t.challengeWindow + 600 + 2 * (600 + 60 + 60);
        sum += sum / 8;
    }

    function testFuzz_parametersBounds(uint256 seed) public {
        IParams.Values memory v = defaultValues();
        uint256 r = seed >> 16;
        uint256 field = seed % 8;
        if (field == 0) v.slashBps = uint16(r % 12_000);
        if (field == 1) v.rewardBps = uint16(r % 4_000);
        if (field == 2) v.malformedPenalty = uint56(r % 20_000e9);
        if (field == 3) v.minorityPenalty = uint56(r % 4e9);
        if (field == 4) v.withheldPenalty = uint56(r % 20_000e9);
        if (field == 5) v.overturnPenalty = uint56(r % 20_000e9);
        if (field == 6) v.canarySlash = uint56(r % 20_000e9);
        if (field == 7) v.delayCompensation = uint56(r % 20e9);
        bool ok = v.slashBps >= 5_000 && v.slashBps <= 10_000 && v.rewardBps <= 2_000 && v.malformedPenalty > 0
            && v.malformedPenalty <= 10_000e9 && v.minorityPenalty > 0 && v.withheldPenalty > v.minorityPenalty
            && v.withheldPenalty <= 10_000e9 && v.overturnPenalty >= v.minorityPenalty && v.overturnPenalty <= 10_000e9
            && v.canarySlash >= v.withheldPenalty && v.canarySlash <= 10_000e9 && v.delayCompensation <= 10e9;
        (bool done, bytes memory data) = address(this).call(abi.encodeCall(this.makeParams, (v)));
        assertEq(done, ok);
        if (!ok) {
            assertEq(bytes32(bytes4(data)), bytes32(IParams.OutOfBounds.selector));
            return;
        }
        IParams made = IParams(abi.decode(data, (address)));
        assertEq(keccak256(abi.encode(made.values())), keccak256(abi.encode(v)));
    }

    function makeParams(IParams.Values memory v) external returns (address) {
        return _new("Params", abi.encode(address(this), 1, 1, 30 days, v));
    }

    // Seats

    /// A draw has seats of its group only, none excluded, none twice, none of the excluded owner; and all it asks for
    /// where there are enough.
    function testFuzz_drawsAreOfTheClassAndNobodyExcluded(bytes32 seed, uint8 out, uint8 size, uint16 others) public {
        uint256 other = 1 << 25;
        uint256 inside;
        for (uint256 seat = 1; seat <= seats.opened(); ++seat) {
            if (others >> seat & 1 == 0) continue;
            ++inside;
            vm.prank(_seatOwner(seat));
            seats.optIn(seat, other);
        }
        _nextEpoch();
        uint256[] memory excluded = new uint256[](1);
        excluded[0] = 1 + out % seats.opened();
        uint256 wanted = 1 + size % 8;
        address without = _seatOwner(1 + uint256(seed) % seats.opened());
        uint256[] memory drawn = seats.draw(seed, seats.currentEpoch(), other, wanted, excluded, without);
        uint256 seen;
        for (uint256 i = 0; i < drawn.length; ++i) {
            assertTrue(others >> drawn[i] & 1 == 1 && drawn[i] != excluded[0]);
            assertTrue(seats.ownerOf(drawn[i]) != without && seen & (1 << drawn[i]) == 0);
            seen |= 1 << drawn[i];
        }
        uint256 barred = 1 + uint256(seed) % seats.opened();
        uint256 gone = (others >> excluded[0] & 1) + (barred != excluded[0] ? others >> barred & 1 : 0);
        assertEq(drawn.length, wanted < inside - gone ? wanted : inside - gone);
    }

    /// Bonds: what is penalised, topped up and withdrawn is what moves, to the base unit.
    function testFuzz_bondsMoveToTheBaseUnit(uint56 first, uint56 second) public {
        uint256 a = first % (BOND - seats.minBond() + 1);
        vm.prank(address(court));
        assertEq(seats.penalise(1, a, SINK), a);
        assertEq(seats.seatOf(1).bond, BOND - a);
        _give(stranger, address(seats), BOND);
        vm.prank(stranger);
        seats.topUp(1);
        assertEq(token.balanceOf(stranger), BOND - a);
        vm.prank(address(juries));
        uint256 taken = seats.collect(1, second, address(this));
        assertEq(taken, second < BOND ? second : BOND);
        assertEq(token.balanceOf(address(this)), taken / 20);
        assertEq(_burnt(), a + taken - taken / 20);
        bool live = BOND - taken >= seats.minBond();
        assertEq(_isActive(1), live);
        if (!live) return;
        vm.prank(_seatOwner(1));
        seats.leaveSeat(1);
        _blocks(450);
        vm.prank(_seatOwner(1));
        seats.unbondSeat(1);
        _wait(30 days);
        vm.prank(_seatOwner(1));
        seats.withdrawSeat(1);
        assertEq(token.balanceOf(_seatOwner(1)), BOND - taken - BOND / 100);
    }
}
