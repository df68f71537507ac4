// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Court} from "./Court.sol";
import {Juries} from "./Juries.sol";
import {Pools} from "./Pools.sol";
import {Stakes} from "./Stakes.sol";
import {SuiteContract} from "./SuiteContract.sol";
import {AccountSlot} from "./libraries/AccountSlot.sol";
import {Codes} from "./libraries/Codes.sol";
import {FileSlot} from "./libraries/FileSlot.sol";
import {AlreadyConcluded, BadCount, PoolTerms, Suite} from "./libraries/Types.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @title NodeChallenges
/// @notice Challenges against a node whose files each pass, although together no node that computes as calibrated could
/// have made them. The accuser names final, accepted files of one node and pool, and deposits a bond. They are a case
/// of Juries, whose verdict either side may appeal. The juries' seeds are later than the challenge and also draw the
/// rows that jurors measure again. Each juror compares the measurements with the pool's null model. While a challenge is
/// open, the node's stake cannot leave.
///
/// Upheld (most say fraud): the node loses what a rejected file costs and is ejected. Different (most say fraud or
/// `DIFFERENT`): its membership ends and its unvested pay is barred, but its stake is untouched. In both cases the files
/// stay accepted, the accuser has its bond back, and the juries are paid by the slash, then by the pool, then by the
/// bond. Refuted: the bond pays the juries and compensates the node's operator, the rest is burnt, and nobody can
/// challenge the node for one challenge window. A case without a verdict changes nothing; the bond pays the jurors who
/// came. Fee, bond and time to commit grow with the number of files (`Juries.summon`).
contract NodeChallenges is SuiteContract {
    using AccountSlot for uint256;
    using FileSlot for uint256;

    struct NodeChallenge {
        uint256 pool;
        address node;
        address accuser;
        bool concluded;
        /// The case's verdict, once concluded; NONE or `unavailable`: it had none.
        uint8 code;
        uint256 bond;
        /// The case's first jury.
        uint256 trial;
    }

    /// @notice `sequences` ascend. `evidence` is the SHA-256 of what the accuser says it found. No contract reads it.
    event ChallengeOpened(
        uint256 indexed challenge,
        uint256 indexed pool,
        address indexed node,
        address accuser,
        uint256 trial,
        uint256 bond,
        uint256[] sequences,
        bytes32 evidence
    );
    /// @notice The case ended with `code`. `slashed` base units left the stake. The accuser got `back` of its bond, and
    /// `reward` of the slash.
    event ChallengeConcluded(
        uint256 indexed challenge,
        uint256 indexed pool,
        address indexed node,
        uint256 code,
        uint256 slashed,
        uint256 back,
        uint256 reward
    );

    error NotAscending(uint256 sequence);
    /// @notice The file is not accepted, or not for good yet.
    error NotAccepted(uint256 sequence);
    error AlreadyEjected();
    /// @notice The node has no stake, or its stake no longer answers for this pool's files.
    error NothingAtStake();
    /// @notice More challenges are open against this node than its stake can be held for.
    error TooManyChallenges();
    /// @notice The node was acquitted, and cannot be challenged before `time`.
    error Acquitted(uint256 time);
    error NoSuchChallenge();

    /// @notice Most files of one challenge.
    uint256 public constant MAX_FILES = 256;
    /// Holds of a stake beyond which no challenge is opened: half of what `Stakes` can count, whose end is for good.
    uint256 private constant MAX_HOLDS = 1 << 15;

    /// @notice Challenges ever opened; the last one's number.
    uint256 public opened;
    mapping(uint256 challenge => NodeChallenge) private _challenges;
    /// @notice When a node that was acquitted in a pool can be challenged there again; 0: it never was.
    mapping(uint256 pool => mapping(address node => uint256)) public acquittedUntil;

    constructor(Suite memory suite) SuiteContract(suite, suite.nodeChallenges) {}

    /// @notice Accuses `node` by the files at `sequences`, one to `MAX_FILES` in ascending order; `inners` are their
    /// `FileRef.inner`. Takes `Juries.depositOf(pool, files)` (approved before). The accuser must make the files' bytes
    /// available.
    function open(uint256 pool, address node, uint256[] calldata sequences, bytes32[] calldata inners, bytes32 evidence)
        external
        nonReentrant
        returns (uint256 challenge)
    {
        _checkFiles(pool, node, sequences, inners);
        _checkNode(pool, node);
        challenge = ++opened;
        NodeChallenge storage challenge_ = _challenges[challenge];
        (challenge_.pool, challenge_.node, challenge_.accuser) = (pool, node, msg.sender);
        challenge_.bond = Juries(juries).depositOf(pool, sequences.length);
        challenge_.trial = Juries(juries)
            .summon(pool, sequences[sequences.length - 1], sequences.length, new uint256[](0), address(0));
        emit ChallengeOpened(challenge, pool, node, msg.sender, challenge_.trial, challenge_.bond, sequences, evidence);
        Stakes(stakes).freeze(node);
        _receive(challenge_.bond);
    }

    /// @notice Takes the challenge's case on (`Juries.proceed`), and ends it once that has ended. Anyone may call.
    function conclude(uint256 challenge) external nonReentrant {
        NodeChallenge storage challenge_ = _challenges[challenge];
        if (challenge_.accuser == address(0)) revert NoSuchChallenge();
        if (challenge_.concluded) revert AlreadyConcluded();
        (uint256 code, bool ended) = Juries(juries).proceed(challenge_.trial);
        if (!ended) return;
        (challenge_.concluded, challenge_.code) = (true, uint8(code));
        (uint256 pot, uint256 cost) = Juries(juries).judge(challenge_.trial, code);
        uint256 slashed;
        uint256 reward;
        if (Codes.isReject(code) || code == Codes.DIFFERENT) {
            uint256 fees;
            (fees, slashed, reward) = _eject(challenge_, cost > pot ? cost - pot : 0);
            pot += fees;
        } else {
            Stakes(stakes).release(challenge_.node);
        }
        pot += challenge_.bond;
        uint256 used = Juries(juries).pay(challenge_.trial, pot);
        _send(juries, used);
        pot -= used;
        uint256 back;
        if (Codes.kind(code) == Codes.KIND_ACCEPT) pot -= _acquit(challenge_, pot);
        else back = Math.min(pot, challenge_.bond);
        emit ChallengeConcluded(challenge, challenge_.pool, challenge_.node, code, slashed, back, reward);
        _send(challenge_.accuser, back + reward);
        _send(SINK, pot - back);
    }

    function challengeOf(uint256 challenge) external view returns (NodeChallenge memory) {
        return _challenges[challenge];
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
            uint256 file = Pools(pools).wordOf(pool, sequence);
            bool ended = file.phase() == FileSlot.SETTLED || file.phase() == FileSlot.FINAL;
            if (!ended || Codes.kind(file.code()) != Codes.KIND_ACCEPT || block.timestamp < file.finalAt()) {
                revert NotAccepted(sequence);
            }
            if (file.digest() != FileSlot.digest(inners[i], node)) revert Pools.WrongFile(sequence);
        }
    }

    /// @dev An acquittal protects a node for a while. A stake answers for this pool's files until it is free to leave or
    /// is bound to another pool. Challenges that still hold it do not prolong that: cheap ones in turn would hold it for
    /// good.
    function _checkNode(uint256 pool, address node) private view {
        if (Pools(pools).accountOf(pool, node).slashed()) revert AlreadyEjected();
        uint256 until = acquittedUntil[pool][node];
        if (block.timestamp < until) revert Acquitted(until);
        Stakes.Node memory staked = Stakes(stakes).nodeOf(node);
        bool left = staked.pool == 0 && staked.lastPool == pool;
        bool here = staked.pool == pool || (left && block.timestamp < staked.releaseAt);
        if (!here || staked.stake == 0) revert NothingAtStake();
        if (staked.frozen >= MAX_HOLDS) revert TooManyChallenges();
    }

    /// @dev Ends the node's membership. A cheat is slashed as for a rejected file: the juries' fees take the place of a
    /// committee's, and the accuser's reward is at most its bond. The pool pays the juries what the stake does not, once
    /// for each node: challenges of an ejected one would drain it.
    /// @return fees What there is to pay the juries, at most `cost`.
    function _eject(NodeChallenge storage challenge_, uint256 cost)
        private
        returns (uint256 fees, uint256 slashed, uint256 reward)
    {
        (uint256 pool, address node) = (challenge_.pool, challenge_.node);
        uint256 account = Pools(pools).accountOf(pool, node);
        uint256 in_ = Stakes(stakes).nodeOf(node).pool;
        Pools(pools).expel(pool, node);
        // what it staked anew for another pool stands for that one
        if (Codes.isReject(challenge_.code) && (in_ == 0 || in_ == pool)) {
            PoolTerms memory terms = Court(court).termsOf(pool);
            Stakes.Slash memory order;
            order.bps = slashBps;
            order.kept = account.unsettled() * terms.committee * terms.fee;
            order.fees = cost;
            (order.reward, order.rewardBps) = (challenge_.bond, COLLECTOR_BPS);
            (slashed, fees, reward,,) = Stakes(stakes).slash(node, order);
        } else {
            Stakes(stakes).release(node);
        }
        if (!account.slashed()) fees += Pools(pools).payJury(pool, cost - fees);
    }

    /// @dev Protects the node for a while, and compensates its operator out of what the juries leave.
    function _acquit(NodeChallenge storage challenge_, uint256 pot) private returns (uint256 compensation) {
        (uint256 pool, address node) = (challenge_.pool, challenge_.node);
        acquittedUntil[pool][node] = block.timestamp + Court(court).termsOf(pool).challengeWindow;
        compensation = Math.min(pot, delayCompensation);
        _send(Stakes(stakes).operatorOf(node), compensation);
    }
}
