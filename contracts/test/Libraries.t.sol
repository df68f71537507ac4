// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {AccountSlot} from "../src/libraries/AccountSlot.sol";
import {Checkpoint} from "../src/libraries/Checkpoint.sol";
import {Codes} from "../src/libraries/Codes.sol";
import {FileSlot} from "../src/libraries/FileSlot.sol";
import {Lottery} from "../src/libraries/Lottery.sol";
import {Reckoning} from "../src/libraries/Reckoning.sol";
import {Voting} from "../src/libraries/Voting.sol";
import {History} from "./helpers/History.sol";
import {PRBTest} from "@prb/test/PRBTest.sol";

contract LibrariesTest is PRBTest {
    using Lottery for Lottery.Urn;
    using Checkpoint for uint256;
    using AccountSlot for uint256;

    function testFuzz_lotteryIsAPermutation(bytes32 seed, uint8 size) public pure {
        uint256 n = 1 + size % 40;
        Lottery.Urn memory urn = Lottery.Urn(seed, n, 0, new uint256[](n));
        uint256 seen;
        for (uint256 i = 0; i < n; ++i) {
            uint256 x = urn.take();
            require(x < n && seen & (1 << x) == 0, "repeated");
            seen |= 1 << x;
        }
    }

    function test_lotteryIsUniform() public pure {
        uint256[10] memory hits;
        for (uint256 i = 0; i < 2_000; ++i) {
            Lottery.Urn memory urn = Lottery.Urn(keccak256(abi.encode(i)), 10, 0, new uint256[](3));
            for (uint256 j = 0; j < 3; ++j) {
                ++hits[urn.take()];
            }
        }
        for (uint256 i = 0; i < 10; ++i) {
            require(hits[i] > 510 && hits[i] < 690, "biased"); // 600 expected, sigma 20
        }
    }

    /// Against a plain array of values by epoch.
    function testFuzz_checkpoint(uint256 seed) public pure {
        uint256 word;
        uint256[] memory truth = new uint256[](40);
        uint256 value;
        for (uint256 epoch = 1; epoch < 38; ++epoch) {
            uint256 changes = uint256(keccak256(abi.encode(seed, epoch))) % 3;
            for (uint256 i = 0; i < changes; ++i) {
                value = uint256(keccak256(abi.encode(seed, epoch, i))) & 0xffff;
                word = word.write(value, epoch + 1);
            }
            truth[epoch + 1] = value;
            require(word.latest() == value, "latest");
            require(word.read(epoch + 1) == truth[epoch + 1], "next");
            require(word.read(epoch) == truth[epoch], "current");
            for (uint256 back = 1; back <= 3 && back < epoch; ++back) {
                require(word.read(epoch - back) == truth[epoch - back], "earlier");
            }
        }
    }

    function test_historyBeyond256Blocks() public {
        vm.roll(10_000);
        require(Voting.hashOf(9_999) == blockhash(9_999) && Voting.hashOf(9_999) != 0, "recent");
        require(Voting.hashOf(9_000) == 0, "unknown without EIP-2935");
        vm.etch(Voting.HISTORY, address(new History()).code);
        require(Voting.hashOf(9_000) == keccak256(abi.encode(uint256(9_000))), "history");
        require(Voting.hashOf(10_000) == 0, "the block that is being made");
        require(Voting.hashOf(10_001) == 0, "future");
    }

    function _outcome(uint256 a, uint256 b, uint256 c) private pure returns (uint256) {
        uint256[] memory votes = new uint256[](3);
        (votes[0], votes[1], votes[2]) = (a, b, c);
        return Reckoning.outcome(votes, 0, 3);
    }

    function test_tallyTable() public pure {
        require(_outcome(1, 2, 3) == Codes.ACCEPT, "unsure counts");
        require(_outcome(3, 4, 1) == 3, "two fraud reasons, lowest named");
        require(_outcome(4, 4, 3) == 4, "most named");
        require(_outcome(3, 10, 1) == 10, "the more lenient");
        require(_outcome(3, 11, 1) == Codes.UNDECIDED, "one vote decides nothing");
        require(_outcome(1, 11, 11) == 11, "a majority could not get it");
        require(_outcome(10, 10, 11) == 10, "one vote has nothing paid");
        require(_outcome(3, 11, 4) == 3, "a majority of fraud votes");
        require(_outcome(10, 11, 3) == 10, "fraud or malformed, so not to be paid");
        require(_outcome(1, 3, 0) == Codes.UNDECIDED, "no majority");
        require(_outcome(12, 13, 15) == Codes.UNDECIDED, "not votes");
    }

    /// No code wins, and nobody is slashed, against the majority of a committee.
    function testFuzz_tally(uint64 a, uint64 b, uint64 c) public pure {
        uint256[] memory votes = new uint256[](3);
        (votes[0], votes[1], votes[2]) = (a, b, c);
        for (uint256 place = 0; place < 16; ++place) {
            uint256 code = Reckoning.outcome(votes, place, 3);
            uint256 accepts;
            uint256 rejects;
            uint256 absent;
            for (uint256 i = 0; i < 3; ++i) {
                uint256 vote = Codes.get(votes[i], place);
                if (Codes.kind(vote) == Codes.KIND_ACCEPT) ++accepts;
                if (Codes.isReject(vote)) ++rejects;
                if (vote == Codes.UNAVAILABLE) ++absent;
            }
            require((code == Codes.UNAVAILABLE) == (absent >= 2), "unavailable");
            require((code == Codes.ACCEPT) == (accepts >= 2), "accept");
            require(Codes.isReject(code) == (rejects >= 2), "reject");
        }
    }

    function testFuzz_reckoning(uint64 votes, uint64 outcomes, uint32 fee) public pure {
        (uint256 paid, uint256 burnt, uint256 penalty) = Reckoning.member(votes, outcomes, fee, 1e9, 2e9);
        uint256 due;
        uint256 present;
        for (uint256 place = 0; place < 16; ++place) {
            uint256 code = Codes.get(outcomes, place);
            if (code != 0) (present, due) = (present + 1, due + fee);
        }
        require(paid + burnt == due, "every reserved fee is paid or burnt");
        (,, uint256 absent) = Reckoning.member(0, outcomes, fee, 1e9, 2e9);
        require(absent == present * 2e9 && penalty <= absent, "absence costs most");
        require(Reckoning.has(outcomes, outcomes & 15), "has");
    }

    function testFuzz_hasFindsEveryCodeAndNoOther(uint64 codes, uint8 code) public pure {
        code &= 15;
        bool found;
        for (uint256 place = 0; place < 16; ++place) {
            if (Codes.get(codes, place) == code) found = true;
        }
        require(Reckoning.has(codes, code) == found, "has");
    }

    function testFuzz_split(uint56 stake, uint64 amount, uint40 kept, uint40 fees, uint64 reward, uint16 bps)
        public
        pure
    {
        uint256 share = bps % 2_001;
        (uint256 taken, uint256 f, uint256 r) = Reckoning.split(stake, amount, kept, fees, reward, share);
        require(taken <= stake && taken <= amount && f + r <= taken, "never more than there is");
        require(taken == 0 || stake - taken >= kept, "what is kept stays");
        require(f <= fees && r <= reward && r * 10_000 <= taken * share, "bounds");
    }

    function testFuzz_accountFreezes(uint8 n, uint32 time) public pure {
        uint256 w;
        time = time == 0 ? 1 : time;
        for (uint256 i = 0; i < n; ++i) {
            w = w.frozenMore(uint256(time) + i & 0xffffffff);
        }
        for (uint256 i = 0; i < n; ++i) {
            require(w.barrier() == time && w.frozen() == n - i, "earliest");
            w = w.frozenLess();
        }
        require(w == 0, "clean");
    }

    function test_accountCountSticks() public pure {
        uint256 w = uint256(0).frozenMore(7) | (AccountSlot.MAX_COUNT << 244);
        require(w.frozenMore(9) == w && w.frozenLess() == w, "sticks");
        uint256 s = uint256(0).slashedAt(50).frozenMore(60);
        require(s.barrier() == 50 && s.slashedAt(70) == s && s.slashedAt(40).barrier() == 40, "earliest slash");
        require(s.frozenLess().barrier() == 50, "a slash stays");
        require(uint256(0).frozenMore(60).slashedAt(80).barrier() == 60, "earlier freeze");
    }

    function fileId(uint256 pool, uint256 sequence) external pure returns (uint256) {
        return FileSlot.idOf(pool, sequence);
    }

    /// The last pool and the last place have numbers, and whatever is beyond either has none.
    function test_fileNumbersEndWithTheirFields() public {
        (uint256 pool, uint256 sequence) = ((1 << 24) - 1, (1 << 28) - 1);
        assertEq(this.fileId(pool, sequence), 0xffffff0fffffff);
        assertEq(this.fileId(0, 0), 0);
        uint256[2][4] memory beyond =
            [[pool + 1, sequence], [pool, sequence + 1], [uint256(1) << 255, 0], [uint256(0), uint256(1) << 255]];
        for (uint256 i = 0; i < 4; ++i) {
            vm.expectRevert(abi.encodeWithSelector(FileSlot.NoSuchFile.selector, beyond[i][0], beyond[i][1]));
            this.fileId(beyond[i][0], beyond[i][1]);
        }
    }
}
