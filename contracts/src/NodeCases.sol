// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {OneJury} from "./court/OneJury.sol";
import {INodeCases} from "./interfaces/INodeCases.sol";
import {IPools} from "./interfaces/IPools.sol";
import {IStakes} from "./interfaces/IStakes.sol";
import {Codes} from "./libraries/Codes.sol";
import {SuiteLib} from "./libraries/SuiteLib.sol";
import {PoolTerms, Suite} from "./libraries/Types.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// @title NodeCases
contract NodeCases is INodeCases, OneJury {
    using SafeERC20 for IERC20;

    /// @inheritdoc INodeCases
    uint256 public constant MAX_FILES = 256;
    /// Holds of a stake beyond which no case is opened: half of what `Stakes` can count, whose end is for good.
    uint256 private constant MAX_HOLDS = 1 << 15;

    IStakes public immutable stakes;
    IPools public immutable pools;

    /// @inheritdoc INodeCases
    uint256 public opened;
    mapping(uint256 nodeCase => NodeCase) private _cases;
    /// By pool and files: a file has one node.
    mapping(bytes32 key => uint256 nodeCase) private _tried;

    constructor(Suite memory suite) OneJury(suite) {
        SuiteLib.checkPlace(suite.nodeCases);
        stakes = IStakes(suite.stakes);
        pools = IPools(suite.pools);
    }

    /// @inheritdoc INodeCases
    function open(uint256 pool, address node, uint256[] calldata sequences, bytes32[] calldata inners, bytes32 evidence)
        external
        nonReentrant
        returns (uint256 nodeCase)
    {
        _checkFiles(pool, node, sequences, inners);
        _checkStake(pool, node);
        bytes32 files = keccak256(abi.encode(sequences));
        bytes32 key = keccak256(abi.encode(pool, files));
        if (_tried[key] != 0) revert AlreadyTried(_tried[key]);

        nodeCase = ++opened;
        _tried[key] = nodeCase;
        NodeCase storage case_ = _cases[nodeCase];
        (case_.pool, case_.node, case_.accuser, case_.files) = (pool, node, msg.sender, files);
        (case_.outcome, case_.openedAt) = (Outcome.Open, block.timestamp);
        case_.bond = bondOf(pool, sequences.length);
        case_.trial = _summon(pool, sequences[sequences.length - 1], sequences.length);
        emit CaseOpened(nodeCase, pool, node, msg.sender, case_.trial, case_.bond, sequences, evidence);
        stakes.freeze(node);
        token.safeTransferFrom(msg.sender, address(this), case_.bond);
    }

    /// @inheritdoc INodeCases
    function conclude(uint256 nodeCase) external nonReentrant {
        NodeCase storage case_ = _cases[nodeCase];
        if (case_.outcome == Outcome.None) revert NoSuchCase();
        if (case_.outcome != Outcome.Open) revert AlreadyConcluded();
        (uint256 code, uint256 next) = _heard(case_.trial);
        if (next != 0) {
            case_.trial = next;
            return;
        }
        case_.outcome = _outcome(code);
        uint256 slashed;
        uint256 back = case_.bond;
        if (case_.outcome == Outcome.Upheld) (slashed, back) = _uphold(case_, code);
        else stakes.release(case_.node);
        if (case_.outcome == Outcome.Refuted) {
            back = 0;
            _forfeit(case_.trial, code, case_.bond, case_.openedAt, stakes.operatorOf(case_.node));
        }
        if (case_.outcome == Outcome.Dismissed) back -= _payJury(case_.trial, code, _unmeasured(case_, code));
        // nothing was found: the same files can be brought again
        if (code == Codes.NONE || case_.outcome == Outcome.Dismissed) delete _tried[_key(case_)];
        emit CaseConcluded(nodeCase, case_.pool, case_.node, case_.outcome, code, slashed, back);
        _send(case_.accuser, back);
    }

    /// @inheritdoc INodeCases
    function caseOf(uint256 nodeCase) external view returns (NodeCase memory) {
        return _cases[nodeCase];
    }

    /// @inheritdoc INodeCases
    function triedIn(uint256 pool, uint256[] calldata sequences) external view returns (uint256 nodeCase) {
        return _tried[keccak256(abi.encode(pool, keccak256(abi.encode(sequences))))];
    }

    /// @inheritdoc INodeCases
    function bondOf(uint256 pool, uint256 files) public view returns (uint256) {
        if (files == 0 || files > MAX_FILES) revert BadCount();
        return _bond(pool, files);
    }

    /// @dev Every file is this node's, of this pool, and accepted for good.
    function _checkFiles(uint256 pool, address node, uint256[] calldata sequences, bytes32[] calldata inners)
        private
        view
    {
        uint256 count = sequences.length;
        if (count == 0 || count > MAX_FILES || count != inners.length) revert BadCount();
        for (uint256 i = 0; i < count; ++i) {
            uint256 sequence = sequences[i];
            if (i != 0 && sequence <= sequences[i - 1]) revert NotAscending(sequence);
            IPools.Submission memory file = pools.submissionOf(pool, sequence);
            bool ended = file.phase == IPools.Phase.Settled || file.phase == IPools.Phase.Final;
            if (!ended || Codes.kind(file.code) != Codes.KIND_ACCEPT || block.timestamp < file.finalAt) {
                revert NotAccepted(sequence);
            }
            if (file.digest != pools.digestOf(inners[i], node)) revert NotThisFile(sequence);
        }
    }

    /// @dev A stake that was free to leave stands for this pool's files no more, nor does one that went to another pool.
    /// Nor does one whose time is up and that other cases hold: cheap ones in turn would hold it for good.
    function _checkStake(uint256 pool, address node) private view {
        if (pools.accountOf(pool, node).slashed) revert AlreadyEjected();
        IStakes.Node memory staked = stakes.nodeOf(node);
        bool left = staked.pool == 0 && staked.lastPool == pool;
        bool here = staked.pool == pool || (left && block.timestamp < staked.releaseAt);
        if (!here || staked.stake == 0) revert NothingAtStake();
        if (staked.frozen >= MAX_HOLDS) revert TooManyCases();
    }

    /// @dev Slashes and ejects as a rejected file does, with the jury's fees in the place of a committee's; the accuser is
    /// the collector. What the stake cannot pay the jury any more, because other files cost it, the bond does.
    function _uphold(NodeCase storage case_, uint256 code) private returns (uint256 slashed, uint256 back) {
        (uint256 pool, address node) = (case_.pool, case_.node);
        back = case_.bond;
        uint256 fees;
        uint256 in_ = stakes.nodeOf(node).pool;
        pools.expel(pool, node);
        if (in_ == 0 || in_ == pool) {
            (slashed, fees,,) = stakes.slash(node, _order(case_, code));
        } else {
            // other files took all of its stake meanwhile: what it staked anew stands for another pool
            stakes.release(node);
        }
        back -= _payJury(case_.trial, code, back + fees) - fees;
    }

    function _order(NodeCase storage case_, uint256 code) private view returns (IStakes.Slash memory order) {
        PoolTerms memory terms = court.termsOf(case_.pool);
        uint256 open_ = pools.accountOf(case_.pool, case_.node).unsettled;
        order.bps = params.valuesAt(case_.openedAt).slashBps;
        order.kept = open_ * terms.committee * terms.fee;
        order.fees = juries.costOf(case_.trial, code);
        order.minStake = type(uint256).max;
        order.lockedUntil = block.timestamp + pools.poolOf(case_.pool).unbonding;
        order.collector = case_.accuser;
    }

    /// @dev What a jury gets that says it could not judge: as for one file, however many were named, or it would earn the
    /// more by looking at nothing the larger the case is.
    function _unmeasured(NodeCase storage case_, uint256 code) private view returns (uint256) {
        uint256 jurors = juries.costOf(case_.trial, code) / juries.caseOf(case_.trial).fee;
        return jurors * court.termsOf(case_.pool).juryFee;
    }

    function _key(NodeCase storage case_) private view returns (bytes32) {
        return keccak256(abi.encode(case_.pool, case_.files));
    }
}
