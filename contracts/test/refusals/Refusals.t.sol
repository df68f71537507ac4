// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {WrongAddress} from "../../src/libraries/Types.sol";
import {PoolTerms, Suite} from "../../src/libraries/Types.sol";
import {Refusing} from "../helpers/Refusing.sol";
import {IParams} from "../interfaces/IParams.sol";
import {IERC20Metadata} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Metadata.sol";

/// @notice Token, parameters, constructors and terms say no, with the right error.
contract RefusalsTest is Refusing {
    function test_token() public {
        assertEq(IERC20Metadata(address(token)).decimals(), 9);
        assertEq(token.nonces(owner), 0);
        _no(stranger, address(token), abi.encodeCall(token.mint, (stranger, 1)), 0x118cdaa7);
        _yes(address(this), address(token), abi.encodeCall(token.mint, (stranger, 1)));
        assertEq(token.balanceOf(stranger), 1);
    }

    function test_params() public {
        _no(stranger, address(params), abi.encodeCall(params.setPaused, (true)), 0x118cdaa7);
        IParams.Values memory v = defaultValues();
        v.slashBps = 4_999;
        _noParams(v, "slashBps");
        v.slashBps = 10_001;
        _noParams(v, "slashBps");
        v = defaultValues();
        v.rewardBps = 2_001;
        _noParams(v, "rewardBps");
        v = defaultValues();
        v.malformedPenalty = 10_001e9;
        _noParams(v, "malformedPenalty");
        v.malformedPenalty = 0; // being late must cost something
        _noParams(v, "malformedPenalty");
        v = defaultValues();
        v.minorityPenalty = 0;
        _noParams(v, "minorityPenalty");
        v = defaultValues();
        v.withheldPenalty = v.minorityPenalty;
        _noParams(v, "withheldPenalty");
        v.withheldPenalty = 100 * uint56(type(uint32).max) + 1; // no pool could promise a hundredth of it as its fee
        _noParams(v, "withheldPenalty");
        v = defaultValues();
        v.overturnPenalty = 0;
        _noParams(v, "overturnPenalty");
        v.overturnPenalty = 10_000e9 + 1;
        _noParams(v, "overturnPenalty");
        v = defaultValues();
        v.canarySlash = 0;
        _noParams(v, "canarySlash");
        v.canarySlash = 10_000e9 + 1;
        _noParams(v, "canarySlash");
        v = defaultValues();
        v.delayCompensation = 10e9 + 1;
        _noParams(v, "delayCompensation");
        // every bound itself is allowed
        v = IParams.Values(10_000, 2_000, 10_000e9, 1, 100 * uint56(type(uint32).max), 10_000e9, 10_000e9, 10e9);
        _yes(address(this), address(this), abi.encodeCall(this.makeValues, (v)));
        assertEq(params.values().canarySlash, 200e9);
    }

    function _noParams(IParams.Values memory v, string memory name) private {
        _no(address(this), address(this), abi.encodeCall(this.makeValues, (v)), _bounds(name));
    }

    function makeValues(IParams.Values memory v) external {
        _new("Params", abi.encode(address(this), 1, 1, 30 days, v));
    }

    function _bounds(string memory name) internal pure returns (bytes memory) {
        return abi.encodeWithSelector(IParams.OutOfBounds.selector, name);
    }

    function makeParams(uint256 window, uint256 seconds_, uint256 unbonding) external {
        _new("Params", abi.encode(address(this), window, seconds_, unbonding, defaultValues()));
    }

    function makeSeats(uint256 bond, uint256 minBond, uint256 epoch) external {
        Suite memory s;
        s.seats = _at(vm.getNonce(address(this)));
        s.params = address(params);
        _new("Seats", abi.encode(s, bond, minBond, epoch));
    }

    function makeMisplaced(string memory name) external {
        Suite memory s;
        _new(name, abi.encode(s));
    }

    function makeMisplacedSeats() external {
        Suite memory s;
        _new("Seats", abi.encode(s, 10, 5, 100));
    }

    function test_constructors() public {
        address me = address(this);
        _no(me, me, abi.encodeCall(this.makeParams, (0, 1, 1 days)), _bounds("minWindow"));
        _no(me, me, abi.encodeCall(this.makeParams, (2 days, 1, 3 days)), _bounds("minWindow"));
        _no(me, me, abi.encodeCall(this.makeParams, (1, 0, 1 days)), _bounds("blockSeconds"));
        _no(me, me, abi.encodeCall(this.makeParams, (1, 61, 1 days)), _bounds("blockSeconds"));
        _no(me, me, abi.encodeCall(this.makeParams, (10, 1, 1)), _bounds("unbonding"));
        _no(me, me, abi.encodeCall(this.makeParams, (10, 1, 91 days)), _bounds("unbonding"));
        _no(me, me, abi.encodeCall(this.makeSeats, (0, 1, 100)), _bounds("bond"));
        _no(me, me, abi.encodeCall(this.makeSeats, (1 << 60, 1, 100)), _bounds("bond"));
        _no(me, me, abi.encodeCall(this.makeSeats, (10, 0, 100)), _bounds("minBond"));
        _no(me, me, abi.encodeCall(this.makeSeats, (10, 11, 100)), _bounds("minBond"));
        _no(me, me, abi.encodeCall(this.makeSeats, (10, 5, 1)), _bounds("epochBlocks"));
        _no(me, me, abi.encodeCall(this.makeSeats, (10, 5, 2001)), _bounds("epochBlocks"));
        string[6] memory names = ["Stakes", "Pools", "Court", "Juries", "Appeals", "Canaries"];
        for (uint256 i = 0; i < 6; ++i) {
            _no(me, me, abi.encodeCall(this.makeMisplaced, (names[i])), WrongAddress.selector);
        }
        _no(me, me, abi.encodeCall(this.makeMisplacedSeats, ()), WrongAddress.selector);
    }

    function test_everyBoundOfAConstructorIsAllowed() public {
        this.makeParams(1, 1, 1);
        this.makeParams(1 days, 60, 90 days);
        this.makeSeats(1, 1, 2);
        this.makeSeats(type(uint56).max, type(uint56).max, 2000);
    }

    function _badTerms(PoolTerms memory t, string memory field) internal {
        bytes memory reason = abi.encodeWithSelector(IParams.BadTerms.selector, field);
        _no(owner, address(params), abi.encodeCall(params.checkTerms, (t)), reason);
    }

    function test_terms() public {
        PoolTerms memory t;
        t = defaultTerms();
        t.rate = 0;
        _badTerms(t, "rate");
        t = defaultTerms();
        t.fee = 0;
        _badTerms(t, "fee");
        t = defaultTerms();
        t.juryFee = 1;
        _badTerms(t, "juryFee");
        t = defaultTerms();
        t.leverage = 0;
        _badTerms(t, "leverage");
        t = defaultTerms();
        t.minStake = 0;
        _badTerms(t, "juryFee");
        t = defaultTerms();
        t.maxUnits = 0;
        _badTerms(t, "maxUnits");
        t = defaultTerms();
        t.committee = 4;
        _badTerms(t, "committee");
        t = defaultTerms();
        t.jury = 3;
        _badTerms(t, "jury");
        t.jury = 17;
        _badTerms(t, "jury");
        t.jury = 6;
        _badTerms(t, "jury");
        t = defaultTerms();
        t.appealJury = 5;
        _badTerms(t, "appealJury");
        t.appealJury = 17;
        _badTerms(t, "appealJury");
        t.appealJury = 8;
        _badTerms(t, "appealJury");
        t = defaultTerms();
        t.maxLag = 16;
        _badTerms(t, "maxLag");
        t = defaultTerms();
        t.auditRate = 0;
        _badTerms(t, "auditRate");
        t.auditRate = 65537;
        _badTerms(t, "auditRate");
        t = defaultTerms();
        t.drawBlocks = 7;
        _badTerms(t, "drawBlocks");
        t = defaultTerms();
        t.commitWindow = 0;
        _badTerms(t, "commitWindow");
        t = defaultTerms();
        t.receiptWindow = 31 days;
        _badTerms(t, "receiptWindow");
        t = defaultTerms();
        t.challengeWindow = 29 days;
        _badTerms(t, "unbonding"); // longer than validators' bonds stay
        // nine eighths of: blocks of the seed and four draws, two rounds, the challenge, a receipt's life,
        // two juries
        uint256 sum = (1 + 4 * 64) + 2 * 120 + 3600 + 600 + 2 * (600 + 120);
        assertEq(params.checkTerms(defaultTerms()), sum + sum / 8);
    }
}
