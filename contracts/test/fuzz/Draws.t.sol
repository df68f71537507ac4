// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Lottery} from "../../src/libraries/Lottery.sol";
import {Voting} from "../../src/libraries/Voting.sol";
import {PRBTest} from "@prb/test/PRBTest.sol";

/// @notice Draws, the blocks that seed them, and when a drawn body may vote.
contract DrawsTest is PRBTest {
    using Lottery for Lottery.Urn;

    /// Against a list of all numbers that are left, with the same random ranks.
    function testFuzz_lotteryTakesOneOfThoseLeft(bytes32 seed, uint8 size, uint8 taken) public pure {
        uint256 count = 1 + size % 60;
        uint256 most = 1 + taken % count;
        uint256[] memory left = new uint256[](count);
        for (uint256 i = 0; i < count; ++i) {
            left[i] = i;
        }
        Lottery.Urn memory urn = Lottery.Urn(seed, count, 0, new uint256[](most));
        for (uint256 i = 0; i < most; ++i) {
            uint256 rank = uint256(keccak256(abi.encode(seed, i))) % (count - i);
            require(urn.take() == left[rank], "another number");
            for (uint256 j = rank + 1; j < count - i; ++j) {
                left[j - 1] = left[j];
            }
        }
    }

    /// Every number is as likely as any other in every position, whatever the seeds begin with.
    function testFuzz_lotteryIsUniform(bytes32 base, uint8 size) public pure {
        uint256 count = 3 + size % 6;
        uint256 draws = 100 * count;
        uint256[] memory hits = new uint256[](count * 3);
        for (uint256 i = 0; i < draws; ++i) {
            Lottery.Urn memory urn = Lottery.Urn(keccak256(abi.encode(base, i)), count, 0, new uint256[](3));
            for (uint256 j = 0; j < 3; ++j) {
                ++hits[3 * urn.take() + j];
            }
        }
        for (uint256 i = 0; i < hits.length; ++i) {
            require(hits[i] > 50 && hits[i] < 155, "biased"); // 100 expected, sigma at most 10
        }
    }

    /// Until a draw is over, what it needs is known: its epoch's seats, and its seed block's hash of 8,191.
    function testFuzz_drawIsOverWithinTheHistory(uint32 seedBlock, uint16 size, uint16 later) public pure {
        uint256 epoch = 2 + size % 1_999;
        uint256 now_ = uint256(seedBlock) + 1 + later;
        bool over = Voting.over(seedBlock, epoch, now_);
        require(over == (now_ / epoch > uint256(seedBlock) / epoch + 3), "the third epoch after its own");
        require(over || now_ - seedBlock <= 8_191, "within the history");
        if (later < 3 * epoch) require(!over, "as long as a pool may let it wait");
    }

    function checkCommit(Voting.Body memory body, uint256 member) external view {
        Voting.checkCommit(body, member);
    }

    function checkReveal(Voting.Body memory body, uint256 member) external view {
        Voting.checkReveal(body, member);
    }

    function _body(uint256 size, uint256 committed, uint256 revealed) private pure returns (Voting.Body memory b) {
        b = Voting.Body(size, committed & ((1 << size) - 1), 0, 1_000, 60, 90);
        b.revealed = revealed & b.committed;
    }

    function testFuzz_commitsEndWithTheirWindow(uint8 votes, uint8 who, uint16 time) public {
        Voting.Body memory b = _body(5, votes, 0);
        uint256 member = who % 5;
        vm.warp(1_000 + uint256(time));
        if (b.committed >> member & 1 == 1) vm.expectRevert(Voting.AlreadyCommitted.selector);
        else if (time >= 60) vm.expectRevert(abi.encodeWithSelector(Voting.CommitOver.selector, 1_060));
        this.checkCommit(b, member);
    }

    function testFuzz_revealsHaveTheirWindow(uint8 votes, uint8 shown, uint8 who, uint8 time) public {
        Voting.Body memory b = _body(3, votes, shown);
        uint256 member = who % 4;
        vm.warp(1_000 + uint256(time));
        bool all = b.committed == 7;
        if (b.committed >> member & 1 == 0) vm.expectRevert(Voting.NotCommitted.selector);
        else if (b.revealed >> member & 1 == 1) vm.expectRevert(Voting.AlreadyRevealed.selector);
        else if (!all && time < 60) vm.expectRevert(abi.encodeWithSelector(Voting.RevealNotOpen.selector, 1_060));
        else if (time >= 150) vm.expectRevert(abi.encodeWithSelector(Voting.RevealOver.selector, 1_150));
        this.checkReveal(b, member);
    }

    /// Votes are counted exactly when none can come any more.
    function testFuzz_countedWhenNoVoteCanCome(uint8 votes, uint8 shown, uint8 time) public {
        Voting.Body memory b = _body(3, votes, shown);
        vm.warp(1_000 + uint256(time));
        bool more;
        for (uint256 i = 0; i < 3; ++i) {
            try this.checkCommit(b, i) {
                more = true;
            } catch {}
            try this.checkReveal(b, i) {
                more = true;
            } catch {}
        }
        bool countable = block.timestamp >= Voting.countableFrom(b);
        if (b.revealed == 7) require(countable, "at once");
        else require(countable == !more, "when no vote can come");
    }
}
