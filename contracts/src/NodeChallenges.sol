// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ICourt} from "./interfaces/ICourt.sol";
import {IJuries} from "./interfaces/IJuries.sol";
import {INodeChallenges} from "./interfaces/INodeChallenges.sol";
import {IParams} from "./interfaces/IParams.sol";
import {IPools} from "./interfaces/IPools.sol";
import {IStakes} from "./interfaces/IStakes.sol";
import {Codes} from "./libraries/Codes.sol";
import {FileDigest} from "./libraries/FileDigest.sol";
import {JuryTerms} from "./libraries/JuryTerms.sol";
import {SuiteLib} from "./libraries/SuiteLib.sol";
import {PoolTerms, Suite} from "./libraries/Types.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @title NodeChallenges
contract NodeChallenges is INodeChallenges, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    /// @inheritdoc INodeChallenges
    uint256 public constant MAX_FILES = 256;
    /// Holds of a stake beyond which no challenge is opened: half of what `Stakes` can count, whose end is for good.
    uint256 private constant MAX_HOLDS = 1 << 15;

    IERC20 public immutable token;
    IParams public immutable params;
    IStakes public immutable stakes;
    IPools public immutable pools;
    ICourt public immutable court;
    IJuries public immutable juries;

    /// @inheritdoc INodeChallenges
    uint256 public opened;
    mapping(uint256 challenge => NodeChallenge) private _challenges;
    /// By pool and files: a file has one node.
    mapping(bytes32 key => uint256 challenge) private _tried;

    constructor(Suite memory suite) {
        SuiteLib.checkPlace(suite.nodeChallenges);
        token = IERC20(suite.token);
        params = IParams(suite.params);
        stakes = IStakes(suite.stakes);
        pools = IPools(suite.pools);
        court = ICourt(suite.court);
        juries = IJuries(suite.juries);
    }

    /// @inheritdoc INodeChallenges
    function open(uint256 pool, address node, uint256[] calldata sequences, bytes32[] calldata inners, bytes32 evidence)
        external
        nonReentrant
        returns (uint256 challenge)
    {
        _checkFiles(pool, node, sequences, inners);
        _checkStake(pool, node);
        bytes32 files = keccak256(abi.encode(sequences));
        bytes32 key = keccak256(abi.encode(pool, files));
        if (_tried[key] != 0) revert AlreadyTried(_tried[key]);

        challenge = ++opened;
        _tried[key] = challenge;
        NodeChallenge storage challenge_ = _challenges[challenge];
        (challenge_.pool, challenge_.node, challenge_.accuser, challenge_.files) = (pool, node, msg.sender, files);
        (challenge_.outcome, challenge_.openedAt) = (Outcome.Open, block.timestamp);
        challenge_.bond = bondOf(pool, sequences.length);
        uint256 size = _jurySize(court.termsOf(pool));
        challenge_.trial =
            juries.summon(pool, sequences[sequences.length - 1], sequences.length, size, new uint256[](0), address(0));
        emit ChallengeOpened(challenge, pool, node, msg.sender, challenge_.trial, challenge_.bond, sequences, evidence);
        stakes.freeze(node);
        token.safeTransferFrom(msg.sender, address(this), challenge_.bond);
    }

    /// @inheritdoc INodeChallenges
    function conclude(uint256 challenge) external nonReentrant {
        NodeChallenge storage challenge_ = _challenges[challenge];
        if (challenge_.outcome == Outcome.None) revert NoSuchChallenge();
        if (challenge_.outcome != Outcome.Open) revert AlreadyConcluded();
        (bool done, uint256 code) = juries.verdictOf(challenge_.trial);
        if (!done) revert Undecided();
        uint256 next = code == Codes.NONE ? juries.replace(challenge_.trial) : 0;
        if (next != 0) {
            challenge_.trial = next;
            return;
        }
        challenge_.outcome = _outcome(code);
        uint256 slashed;
        uint256 back = challenge_.bond;
        if (challenge_.outcome == Outcome.Upheld) (slashed, back) = _uphold(challenge_, code);
        else stakes.release(challenge_.node);
        if (challenge_.outcome == Outcome.Refuted) {
            back = 0;
            _forfeit(challenge_.trial, code, challenge_.bond, challenge_.openedAt, stakes.operatorOf(challenge_.node));
        }
        if (challenge_.outcome == Outcome.Dismissed) {
            back -= _payJury(challenge_.trial, code, _unmeasured(challenge_, code));
        }
        // nothing was found: the same files can be brought again
        if (code == Codes.NONE || challenge_.outcome == Outcome.Dismissed) delete _tried[_key(challenge_)];
        emit ChallengeConcluded(challenge, challenge_.pool, challenge_.node, challenge_.outcome, code, slashed, back);
        _send(challenge_.accuser, back);
    }

    /// @inheritdoc INodeChallenges
    function challengeOf(uint256 challenge) external view returns (NodeChallenge memory) {
        return _challenges[challenge];
    }

    /// @inheritdoc INodeChallenges
    function triedIn(uint256 pool, uint256[] calldata sequences) external view returns (uint256 challenge) {
        return _tried[keccak256(abi.encode(pool, keccak256(abi.encode(sequences))))];
    }

    /// @inheritdoc INodeChallenges
    function bondOf(uint256 pool, uint256 files) public view returns (uint256) {
        if (files == 0 || files > MAX_FILES) revert BadCount();
        PoolTerms memory terms = court.termsOf(pool);
        return _jurySize(terms) * JuryTerms.fee(terms, files) + params.values().delayCompensation;
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
            if (uint160(file.digest) != FileDigest.digest(inners[i], node)) revert NotThisFile(sequence);
        }
    }

    /// @dev A stake that was free to leave stands for this pool's files no more, nor does one that went to another
    /// pool. Nor does one whose time is up and that other challenges hold: cheap ones in turn would hold it for good.
    function _checkStake(uint256 pool, address node) private view {
        if (pools.accountOf(pool, node).slashed) revert AlreadyEjected();
        IStakes.Node memory staked = stakes.nodeOf(node);
        bool left = staked.pool == 0 && staked.lastPool == pool;
        bool here = staked.pool == pool || (left && block.timestamp < staked.releaseAt);
        if (!here || staked.stake == 0) revert NothingAtStake();
        if (staked.frozen >= MAX_HOLDS) revert TooManyChallenges();
    }

    /// @dev Slashes and ejects as a rejected file does, with the jury's fees in the place of a committee's; the accuser
    /// is the collector. What the stake cannot pay the jury any more, because other files cost it, the bond does.
    function _uphold(NodeChallenge storage challenge_, uint256 code) private returns (uint256 slashed, uint256 back) {
        (uint256 pool, address node) = (challenge_.pool, challenge_.node);
        back = challenge_.bond;
        uint256 fees;
        uint256 in_ = stakes.nodeOf(node).pool;
        pools.expel(pool, node);
        if (in_ == 0 || in_ == pool) {
            (slashed, fees,,) = stakes.slash(node, _order(challenge_, code));
        } else {
            // other files took all of its stake meanwhile: what it staked anew stands for another pool
            stakes.release(node);
        }
        back -= _payJury(challenge_.trial, code, back + fees) - fees;
    }

    function _order(NodeChallenge storage challenge_, uint256 code) private view returns (IStakes.Slash memory order) {
        PoolTerms memory terms = court.termsOf(challenge_.pool);
        uint256 open_ = pools.accountOf(challenge_.pool, challenge_.node).unsettled;
        order.bps = params.valuesAt(challenge_.openedAt).slashBps;
        order.kept = open_ * terms.committee * terms.fee;
        order.fees = juries.costOf(challenge_.trial, code);
        order.minStake = type(uint256).max;
        order.lockedUntil = block.timestamp + pools.poolOf(challenge_.pool).unbonding;
        order.collector = challenge_.accuser;
    }

    function _outcome(uint256 code) private pure returns (Outcome) {
        if (code == Codes.NONE) return Outcome.Lapsed;
        if (code == Codes.UNAVAILABLE) return Outcome.Dismissed;
        return Codes.isReject(code) ? Outcome.Upheld : Outcome.Refuted;
    }

    /// @dev What a jury gets that says it could not judge: as for one file, however many were named, or it would earn
    /// the more by looking at nothing the larger the challenge is.
    function _unmeasured(NodeChallenge storage challenge_, uint256 code) private view returns (uint256) {
        uint256 jurors = juries.costOf(challenge_.trial, code) / juries.caseOf(challenge_.trial).fee;
        return jurors * court.termsOf(challenge_.pool).juryFee;
    }

    /// @dev Pays who voted `code` its fees, as far as `funds` last.
    function _payJury(uint256 trial, uint256 code, uint256 funds) private returns (uint256 used) {
        used = juries.conclude(trial, code, funds);
        _send(address(juries), used);
    }

    /// @dev The bond of who was wrong: the jury, then whoever's stake it held since `openedAt`; the rest is burnt.
    function _forfeit(uint256 trial, uint256 code, uint256 bond, uint256 openedAt, address injured) private {
        uint256 pot = bond - _payJury(trial, code, bond);
        uint256 compensation = params.valuesAt(openedAt).delayCompensation;
        if (compensation > pot) compensation = pot;
        _send(injured, compensation);
        _send(SuiteLib.SINK, pot - compensation);
    }

    function _send(address to, uint256 amount) private {
        if (amount != 0) token.safeTransfer(to, amount);
    }

    function _jurySize(PoolTerms memory terms) private pure returns (uint256) {
        return terms.appealJury == 0 ? terms.jury : terms.appealJury;
    }

    function _key(NodeChallenge storage challenge_) private view returns (bytes32) {
        return keccak256(abi.encode(challenge_.pool, challenge_.files));
    }
}
