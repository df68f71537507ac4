// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../src/libraries/Codes.sol";
import {FileData} from "../src/libraries/Types.sol";
import {Planting} from "./helpers/Planting.sol";
import {IMusterToken} from "./interfaces/IMusterToken.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// @notice A token that refuses to move nothing, as some do.
contract ThriftyToken is ERC20("Thrifty", "THRIFT") {
    error NothingToMove();

    function decimals() public pure override returns (uint8) {
        return 9;
    }

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function _update(address from, address to, uint256 amount) internal override {
        if (amount == 0) revert NothingToMove();
        super._update(from, to, amount);
    }
}

/// @notice No call depends on a transfer of nothing: every way in which a case ends is open with a token that refuses it.
contract TransfersTest is Planting {
    function setUp() public override {
        ThriftyToken thrifty = new ThriftyToken();
        _start(address(thrifty));
        token = IMusterToken(address(thrifty));
        _openSeats(SEATS);
        _nextEpoch();
        pool = _createPool(defaultTerms());
        _register(operator, "node", STAKE);
        vm.prank(operator);
        pools.join(pool, node, type(uint256).max, "", "");
        address[] memory who = new address[](1);
        who[0] = node;
        _plantStep(who);
    }

    function _closeJurors(uint256 trial) private {
        for (uint256 i = 0; i < 5; ++i) {
            juries.closeJuror(trial, i);
        }
    }

    /// Nothing is left of it but the budget, the stakes and the bonds.
    function _ended(uint256 stake) private {
        assertEq(token.balanceOf(address(appeals)), 0);
        assertEq(token.balanceOf(address(canaries)), 0);
        assertEq(token.balanceOf(address(juries)), 0);
        assertEq(stakes.nodeOf(node).stake, stake);
        assertEq(token.balanceOf(address(stakes)), stake + stakes.unburnt());
        if (stakes.unburnt() > 1) stakes.burn();
        assertLte(token.balanceOf(address(stakes)), stake + 1); // the word of what is to be burnt never becomes zero again
    }

    function test_membersOfAllKindsAreClosed() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(1), _all(1), _all(3)));
        _passWindow();
        _closeAll(0, 0); // two are paid, one is fined and its fee burnt
        _claim(s);
        _blocks(4);
        s = _submit();
        _vote(1, 0, _three(_all(1), _all(1), 0));
        _passWindow();
        _closeAll(1, 0); // the third was fined when it did not reveal
        _claim(s);
        _ended(STAKE);
        assertEq(token.balanceOf(address(pools)), BUDGET - 2 * (1e9 + FEES));
    }

    function test_notPaidFilesAreFinalised() public {
        uint256 s = _submit();
        _voteAll(0, Codes.MALFORMED);
        _passWindow();
        pools.finalize(pool, s, _ref(s), _none());
        _closeAll(0, 0);
        _blocks(4);
        uint256 bad = _submit();
        _voteAll(1, Codes.REJECT_WEIGHTS);
        _passWindow();
        pools.finalize(pool, bad, _ref(bad), _none());
        _closeAll(1, 0);
        _ended(0);
        assertEq(_pool(pool).free, BUDGET);
        assertEq(token.balanceOf(address(pools)), BUDGET);
    }

    function test_disputesOfAllOutcomesEnd() public {
        uint256[3] memory verdicts = [Codes.ACCEPT, Codes.UNAVAILABLE, Codes.REJECT_WEIGHTS];
        for (uint256 i = 0; i < 3; ++i) {
            uint256 s = _submit();
            _voteAll(s / 16, Codes.ACCEPT);
            uint256 trial = _dispute(stranger, s);
            _juryVotes(trial, verdicts[i]);
            _passWindow();
            _conclude(s);
            if (verdicts[i] == Codes.UNAVAILABLE) {
                _juryVotes(_second(s), Codes.UNAVAILABLE);
                _conclude(s);
                _closeJurors(_second(s));
            }
            _closeJurors(trial);
            _closeAll(s / 16, 0);
            _blocks(4);
        }
        _ended(0);
    }

    function test_disputeThatNobodyJudgesEnds() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        uint256 before = token.balanceOf(operator);
        uint256 trial = _dispute(operator, s);
        _blocks(500);
        _passWindow();
        _conclude(s); // no jury was drawn in time
        _blocks(500);
        _conclude(s);
        assertEq(token.balanceOf(operator) - before, 10_000e9);
        assertEq(juries.caseOf(trial).concluded, true);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        _closeAll(0, 0);
        _ended(0);
    }

    function test_canariesOfAllVerdictsEnd() public {
        uint256[3] memory verdicts = [Codes.REJECT_WEIGHTS, Codes.ACCEPT, Codes.UNAVAILABLE];
        for (uint256 i = 0; i < 3; ++i) {
            uint256 s = _submit();
            _voteAll(s / 16, Codes.ACCEPT);
            _openCanary(s);
            uint256 trial = canaries.canaryOf(pool, s).trial;
            _juryVotes(trial, verdicts[i]);
            FileData memory f = files[pool][s];
            canaries.conclude(pool, s, f);
            if (verdicts[i] == Codes.UNAVAILABLE) {
                _juryVotes(trial + 1, Codes.UNAVAILABLE);
                canaries.conclude(pool, s, f);
                _closeJurors(trial + 1);
            }
            _closeJurors(trial);
            _passWindow();
            _closeAll(s / 16, 0);
            _blocks(4);
        }
        _ended(STAKE);
    }

    function test_canaryThatNobodyAcceptedEnds() public {
        uint256 s = _submit();
        _voteAll(0, Codes.REJECT_WEIGHTS);
        _openCanary(s);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.CANARY);
        _passWindow();
        _closeAll(0, 0);
        _ended(STAKE);
    }

    /// A jury that cannot tell leaves the committee's reject, whose slash owes nobody a reward.
    function test_canaryThatNobodyCanJudgeOwesNoReward() public {
        uint256 s = _submit();
        _vote(0, 0, _three(_all(1), _all(3), _all(3)));
        _openCanary(s);
        uint256 trial = canaries.canaryOf(pool, s).trial;
        _juryVotes(trial, Codes.UNAVAILABLE);
        canaries.conclude(pool, s, files[pool][s]);
        _juryVotes(trial + 1, Codes.UNAVAILABLE);
        canaries.conclude(pool, s, files[pool][s]);
        assertEq(_code(s), Codes.REJECT_WEIGHTS);
        _closeJurors(trial);
        _closeJurors(trial + 1);
        _passWindow();
        _closeAll(0, 0);
        _ended(0);
    }
}
