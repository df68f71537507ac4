// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {FileData, Receipt} from "../../src/libraries/Types.sol";
import {Planting} from "../helpers/Planting.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IPools} from "../interfaces/IPools.sol";

/// @notice Amounts, limits and windows of whole calls, with random sizes, orders and times.
contract MoneyTest is Planting {
    // Pay

    /// Whatever order claims come in, each accepted file is paid once, and not before it vests.
    function testFuzz_claimsInAnyOrderPayEachFileOnce(uint24[6] memory units, uint256 order) public {
        uint256 sum;
        FileData[] memory lane = new FileData[](6);
        for (uint256 i = 0; i < 6; ++i) {
            units[i] = 1 + units[i] % 50_000;
            lane[i] = _next(node, units[i], i);
            sum += units[i];
        }
        _relay(lane);
        _voteAll(0, Codes.ACCEPT);
        _passWindow();
        uint256 paid;
        for (uint256 i = 0; i < 20; ++i) {
            uint256 sequence = uint256(keccak256(abi.encode(order, i))) % 6;
            (uint256 due, uint256 amount) = _claimable(sequence);
            if (due == 0) {
                bytes32 inner = _inner(sequence);
                vm.expectRevert(IPools.NothingToClaim.selector);
                pools.claim(pool, node, sequence, inner, new uint256[](0));
                continue;
            }
            assertEq(_claim(sequence), amount);
            paid += due;
        }
        (uint256 rest,) = _claimable(5);
        assertEq(paid + rest, sum);
        if (rest != 0) _claim(5);
        assertEq(token.balanceOf(operator), sum * 1e6);
        assertEq(_account(pool, node).spent, sum);
    }

    function testFuzz_nothingVestsBeforeItsTime(uint32 units, uint16 early) public {
        units = 1 + units % 100_000;
        uint256 s = _submitFrom(node, units);
        _voteAll(0, Codes.ACCEPT);
        uint256 finalAt = clock + 3_600;
        uint256 wait = early % 3_600;
        _wait(wait);
        bytes32 inner = _inner(s);
        vm.expectRevert(abi.encodeWithSelector(IPools.NotYet.selector, finalAt));
        pools.claim(pool, node, s, inner, new uint256[](0));
        _wait(3_600 - wait);
        assertEq(_claim(s), uint256(units) * 1e6);
    }

    /// A file under way takes its pay and the fees of two committees out of the free budget; void, all of it is gone.
    function testFuzz_reservationOfAVoidFileIsSpent(uint32 units) public {
        units = 1 + units % 100_000;
        uint256 s = _submitFrom(node, units);
        uint256 left = BUDGET - uint256(units) * 1e6 - 2 * FEES;
        assertEq(_pool(pool).free, left);
        _vote(0, 0, _three(_all(1), _all(3), 0));
        assertEq(_pool(pool).free, left);
        _vote(0, 1, _three(_all(1), _all(10), 0));
        assertEq(_code(s), Codes.VOID);
        _passWindow();
        assertEq(_claim(s), uint256(units) * 1e6);
        _closeAll(0, 0);
        _closeAll(0, 1);
        assertEq(_pool(pool).free, left);
        assertEq(token.balanceOf(address(pools)), left);
    }

    function testFuzz_limitIsLeverageTimesStake(uint56 more, uint32 units) public {
        more = more % (1_000_000e9);
        units = 1 + units % 100_000;
        _give(operator, address(stakes), more);
        vm.prank(operator);
        stakes.deposit(node, more);
        pools.refresh(pool, node);
        uint256 limit = 4 * (STAKE + more) / 1e6;
        assertEq(_account(pool, node).limit, limit);
        uint256 open;
        for (uint256 i = 0; i < 64 && open + units <= limit; ++i) {
            _submitFrom(node, units);
            open += units;
        }
        if (open + units <= limit) return; // sixty-four files are under way: another bound
        bytes memory reason = abi.encodeWithSelector(IPools.OverLimit.selector, open + units, limit);
        if (open / units == 64) reason = abi.encodeWithSelector(IPools.TooManyUnsettled.selector, 64);
        _refused(_next(node, units, 0), reason);
    }

    // Penalties

    function testFuzz_rejectTakesItsShareOfTheStake(uint16 bps, uint8 others) public {
        IParams.Values memory v = defaultValues();
        v.slashBps = 5_000 + bps % 5_001;
        _redeploy(v);
        uint256 n = others % 15;
        _submitLane(n + 1);
        uint256 codes = Codes.set(_all(Codes.MALFORMED), 0, Codes.REJECT_WEIGHTS);
        _vote(0, 0, _three(codes, codes, codes));
        _passWindow();
        pools.finalize(pool, 0, _ref(0), _none());
        uint256 taken = STAKE * v.slashBps / 10_000;
        uint256 most = STAKE - n * FEES; // what the others may cost their committees stays
        if (taken > most) taken = most;
        assertEq(STAKE - stakes.nodeOf(node).stake, taken);
        uint256 share = (taken - FEES) / 20;
        assertEq(token.balanceOf(address(this)), share);
        assertEq(_burnt(), taken - FEES - share);
        assertEq(token.balanceOf(address(pools)), BUDGET + FEES);
    }

    function testFuzz_malformedCostsItsPenaltyAndFees(uint56 penalty, uint8 files_) public {
        IParams.Values memory v = defaultValues();
        v.malformedPenalty = uint56(1 + penalty % 500e9);
        _redeploy(v);
        uint256 n = 1 + files_ % 3;
        _submitLane(n);
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        uint256 left = STAKE;
        for (uint256 i = 0; i < n; ++i) {
            pools.finalize(pool, i, _ref(i), _none());
            uint256 kept = (n - 1 - i) * FEES;
            uint256 cost = v.malformedPenalty + FEES;
            left -= cost < left - kept ? cost : left - kept;
            assertEq(stakes.nodeOf(node).stake, left);
        }
        assertEq(_pool(pool).free, BUDGET);
        assertEq(token.balanceOf(address(pools)), BUDGET + n * FEES); // the committees' fees, paid by the node
    }

    /// Who accepted a forged file pays its pay together, and no less than the penalty each.
    function testFuzz_overturnedAcceptersPayTheFilesPay(uint32 units) public {
        units = 1 + units % 100_000;
        IParams.Values memory v = defaultValues();
        v.overturnPenalty = 10e9;
        _redeploy(v);
        uint256 s = _submitFrom(node, units);
        _vote(0, 0, _three(_all(1), _all(2), _all(3)));
        _juryVotes(_dispute(stranger, s), Codes.REJECT_WEIGHTS);
        _conclude(s);
        uint256 each = (uint256(units) * 1e6 + 1) / 2;
        if (each < 10e9) each = 10e9;
        uint256[] memory drawn = _round(pool, 0, 0).seats;
        assertEq(BOND - seats.seatOf(drawn[0]).bond, each);
        assertEq(BOND - seats.seatOf(drawn[1]).bond, each);
        assertEq(BOND - seats.seatOf(drawn[2]).bond, 0);
    }

    // Deposits

    function testFuzz_disputesDepositIsTheJurysFeesAndTheDelay(uint56 compensation, bool right) public {
        IParams.Values memory v = defaultValues();
        v.delayCompensation = uint56(compensation % (10e9 + 1));
        _redeploy(v);
        uint256 s = _submit();
        _voteAll(0, Codes.ACCEPT);
        uint256 deposit = 5 * 5e8 + v.delayCompensation;
        assertEq(juries.depositOf(pool, 1), deposit);
        uint256 trial = _dispute(stranger, s);
        assertEq(juries.appealDepositOf(trial), 2 * deposit);
        assertEq(token.balanceOf(address(appeals)), deposit);
        assertEq(token.balanceOf(stranger), 10_000e9 - deposit);
        _juryVotes(trial, right ? Codes.REJECT_WEIGHTS : Codes.ACCEPT);
        _conclude(s);
        assertEq(token.balanceOf(address(appeals)), 0);
        assertEq(token.balanceOf(address(juries)), 5 * 5e8);
        // right: the deposit and as much again; wrong: gone, to the jury and to whom it delayed
        assertEq(token.balanceOf(stranger), right ? 10_000e9 + deposit : 10_000e9 - deposit);
        assertEq(token.balanceOf(operator), right ? 0 : v.delayCompensation);
    }

    /// @dev A canary's file that the members with a bit of `votes` accept and the others reject.
    function _plantedFile(uint256 votes) private returns (uint256 s, uint256 accused) {
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
        s = _submit();
        uint256[] memory codes = new uint256[](3);
        for (uint256 i = 0; i < 3; ++i) {
            bool accepts = votes >> i & 1 == 1;
            codes[i] = _all(accepts ? Codes.ACCEPT : Codes.REJECT_WEIGHTS);
            if (accepts) ++accused;
        }
        _vote(s / 16, 0, codes);
    }

    function testFuzz_canarysDepositIsWhatItPutsAtStake(uint8 votes, uint56 slash) public {
        IParams.Values memory v = defaultValues();
        v.canarySlash = uint56(v.withheldPenalty + slash % 400e9);
        _redeploy(v);
        (uint256 s, uint256 accused) = _plantedFile(votes);
        uint256 before = token.balanceOf(owner) + 100_000e9;
        _openCanary(s);
        uint256 deposit = accused * v.canarySlash + 5 * 5e8;
        assertEq(before - token.balanceOf(owner), deposit);
        assertEq(token.balanceOf(address(canaries)), deposit);
        if (accused != 0) _juryVotes(canaries.canaryOf(pool, s).trial, Codes.REJECT_WEIGHTS);
        canaries.conclude(pool, s, files[pool][s]);
        // a true one costs nothing where the slashed can pay the jury
        uint256 slashed = accused * v.canarySlash;
        uint256 cost = accused == 0 || slashed > 5 * 5e8 ? 0 : 5 * 5e8 - slashed;
        assertEq(before - token.balanceOf(owner), cost);
        uint256[] memory drawn = _round(pool, s / 16, 0).seats;
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(BOND - seats.seatOf(drawn[i]).bond, votes >> i & 1 == 1 ? v.canarySlash : 0);
        }
    }

    // Receipts

    /// With a receipt of the last window work is taken while the pool is paused; before or after it is not.
    function testFuzz_receiptsHaveTheirWindow(uint16 age, uint16 since, bool paused) public {
        uint256 issued = clock;
        _wait(since % 700);
        if (paused) {
            vm.prank(owner);
            pools.pausePool(pool);
        }
        uint256 pausedAt = clock;
        _wait(age % 700);
        Draft memory w = Draft(keccak256("r"), keccak256("f"), 10, 1);
        bytes32 digest = _receiptDigest(pool, node, w.fileHash, 5, issued);
        Receipt memory receipt = Receipt(5, uint40(issued), _sign(key("service"), digest));
        uint256 last = paused ? pausedAt : clock;
        bool fresh = issued + 600 >= clock;
        if (!fresh) {
            vm.expectRevert(abi.encodeWithSelector(IPools.ReceiptOutOfTime.selector, clock - 600, last));
        }
        this.present(_work(0, 0, w), receipt);
        assertEq(_account(pool, node).counter, fresh ? 1 : 0);
    }

    function present(FileData calldata file, Receipt calldata receipt) external {
        Receipt[] memory receipts = new Receipt[](1);
        receipts[0] = receipt;
        pools.submitLane(pool, _one(file), _signatures(_one(file)), receipts, _anchor(), _anchorHash());
    }
}
