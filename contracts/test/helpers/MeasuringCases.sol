// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Codes} from "../../src/libraries/Codes.sol";
import {Measuring} from "./Measuring.sol";

/// @notice What cases against nodes cost.
contract MeasuringCases is Measuring {
    /// @dev Cases against a node: by one file, refuted; and by as many as a case may name, upheld.
    function _cases(string memory s) internal {
        address op = account(string.concat("accused op", s));
        address n = _register(op, string.concat("accused", s), STAKE);
        _give(account("accuser"), address(nodeCases), 1_000e9);
        _give(op, address(stakes), 1); // the compensation finds an account in use
        vm.prank(n);
        pools.join(pool, n);
        _step();
        uint256[] memory sequences = new uint256[](16);
        for (uint256 i = 0; i < 16; ++i) {
            sequences[i] = _submitFrom(n, 10);
        }
        _voteAll(sequences[0] / 16, Codes.ACCEPT);
        _passWindow();
        uint256[] memory one = new uint256[](1);
        one[0] = sequences[15];
        (uint256 opening,, uint256 ending) = _case(n, one, Codes.ACCEPT);
        _note(string.concat("case_open_one", s), opening);
        _note(string.concat("case_refuted", s), ending);
        uint256 judging;
        (opening, judging, ending) = _case(n, sequences, Codes.REJECT_WEIGHTS);
        _note(string.concat("case_open_16", s), opening);
        _note(string.concat("case_jury", s), judging);
        _note(string.concat("case_upheld", s), ending);
        _blocks(4);
    }

    /// @dev The gas of a case's opening, of its jury's draw and votes, and of its end.
    function _case(address n, uint256[] memory sequences, uint256 code)
        internal
        returns (uint256 opening, uint256 judging, uint256 ending)
    {
        bytes32[] memory inners = new bytes32[](sequences.length);
        for (uint256 i = 0; i < inners.length; ++i) {
            inners[i] = _inner(sequences[i]);
        }
        vm.prank(account("accuser"));
        uint256 opened = nodeCases.open(pool, n, sequences, inners, keccak256("evidence"));
        opening = _used();
        uint256 trial = nodeCases.caseOf(opened).trial;
        _blocks(juries.caseOf(trial).seedBlock + 1 - height);
        juries.draw(trial);
        judging = _used();
        (uint256[] memory jurors, address[] memory voters,,) = juries.juryOf(trial);
        for (uint256 i = 0; i < jurors.length; ++i) {
            bytes32 hash = juries.ballotHash(trial, voters[i], code, keccak256("verdict"), keccak256("salt"));
            vm.prank(voters[i]);
            juries.commit(trial, i, hash);
            judging += _used();
        }
        for (uint256 i = 0; i < jurors.length; ++i) {
            vm.prank(voters[i]);
            juries.reveal(trial, i, code, keccak256("verdict"), keccak256("salt"));
            judging += _used();
        }
        nodeCases.conclude(opened);
        ending = _used();
    }
}
