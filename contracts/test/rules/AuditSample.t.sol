// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Network} from "../helpers/Network.sol";

/// @notice The audit sample is the protocol's, at every size.
contract AuditSampleTest is Network {
    function test_auditSample() public {
        uint256 inside;
        for (uint256 row = 0; row < 7; ++row) {
            if (canaries.inSample(keccak256("seed"), 5, 7, 1, row)) ++inside;
        }
        assertEq(inside, 1); // one row always
        assertTrue(canaries.inSample(keccak256("seed"), 5, 7, 65536, 6));
        assertFalse(canaries.inSample(keccak256("seed"), 5, 7, 65536, 7));
    }

    function sample(uint256 rows, uint256 rate, uint256 row) external view returns (bool) {
        return canaries.inSample(keccak256("seed"), 7, rows, rate, row);
    }

    function test_largestFilesSampleFitsABlockTenTimes() public {
        uint256 before = gasleft();
        this.sample(type(uint16).max, 16384, type(uint16).max - 1);
        assertLt(before - gasleft(), 3_000_000 / 100);
    }

    /// Against the protocol's text, for every row: each by its own hash, and one row always.
    function testFuzz_sampleIsTheProtocols(bytes32 seed, uint256 sequence, uint16 rows, uint24 rate) public view {
        rate = 1 + rate % 65536;
        if (rows == 0) rows = 1;
        uint256 always = uint256(keccak256(abi.encode(keccak256("muster/audit-one/1"), seed, sequence))) % rows;
        require(canaries.inSample(seed, sequence, rows, rate, always), "one row always");
        for (uint256 row = 0; row < rows && row < 40; ++row) {
            bytes32 hash = keccak256(abi.encode(keccak256("muster/audit/1"), seed, sequence, row));
            bool own = uint256(hash) % 65536 < rate;
            require(canaries.inSample(seed, sequence, rows, rate, row) == (own || row == always), "sample");
        }
        require(!canaries.inSample(seed, sequence, rows, rate, rows), "no such row");
    }

    function test_sampleHasTheRatesSize() public view {
        uint256 inside;
        for (uint256 row = 0; row < 4_000; ++row) {
            if (canaries.inSample(keccak256("seed"), 5, 4_000, 16384, row)) ++inside;
        }
        require(inside > 890 && inside < 1_110, "a quarter"); // 1,000 expected, sigma 27
    }

    /// The sixteen bits of a row are below the rate, or the row is not in the sample.
    function test_rowWhoseBitsAreTheRateIsNotInTheSample() public view {
        bytes32 seed = keccak256("seed");
        uint256 always = uint256(keccak256(abi.encode(keccak256("muster/audit-one/1"), seed, uint256(5)))) % 32;
        for (uint256 row = 0; row < 32; ++row) {
            if (row == always) continue;
            uint256 bits = uint16(uint256(keccak256(abi.encode(keccak256("muster/audit/1"), seed, uint256(5), row))));
            require(!canaries.inSample(seed, 5, 32, bits, row), "at the rate");
            require(canaries.inSample(seed, 5, 32, bits + 1, row), "below the rate");
        }
    }

    function testFuzz_sampleIsTheSameForWhoeverAsksAndGrowsWithTheRate(bytes32 seed, uint32 sequence, uint16 rows)
        public
        view
    {
        if (rows == 0) rows = 1;
        uint256 few;
        uint256 half;
        uint256 asked = rows < 64 ? rows : 64;
        for (uint256 row = 0; row < asked; ++row) {
            bool small = canaries.inSample(seed, sequence, rows, 4_096, row);
            bool large = canaries.inSample(seed, sequence, rows, 32_768, row);
            require(!small || large, "a larger rate keeps every row");
            require(canaries.inSample(seed, sequence, rows, 65_536, row), "everything");
            if (small) ++few;
            if (large) ++half;
        }
        require(few <= half && half <= asked, "nested");
        require(!canaries.inSample(seed, sequence, rows, 65_536, rows), "no such row");
        if (asked == 64) require(half > 8 && half < 56, "about a half"); // 32 expected, sigma 4
    }
}
