// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Appeals} from "./Appeals.sol";
import {Court} from "./Court.sol";
import {Juries} from "./Juries.sol";
import {Pools} from "./Pools.sol";
import {Seats} from "./Seats.sol";
import {SuiteContract} from "./SuiteContract.sol";
import {Codes} from "./libraries/Codes.sol";
import {FileSlot} from "./libraries/FileSlot.sol";
import {TypedData} from "./libraries/TypedData.sol";
import {AlreadyConcluded, FileData, PoolTerms, Suite, WindowOver} from "./libraries/Types.sol";
import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";

/// @title Canaries
/// @notice Files that a pool owner plants to fail, so that validators who do not look lose money. The owner commits to
/// them with each step, before its seed is known, and opens them after the votes. A file can be opened only with its
/// node's consent, so nobody else's work can be called a canary. Every opening that accuses seats goes to a jury
/// without the owner's seats. A false one costs the owner the bonds that it put at stake.
contract Canaries is SuiteContract {
    using FileSlot for uint256;

    struct Planted {
        /// Secret until the opening, so that nobody can guess a step's leaves.
        bytes32 salt;
        /// Exactly DEPTH hashes: inclusion in the step's canary root of
        /// keccak256(keccak256(abi.encode(salt, pool, step, node, counter))), pairs sorted.
        bytes32[] proof;
        /// The decoy node's EIP-712 signature of DecoyConsent(bytes32 leaf), domain {name "muster-canaries", version
        /// "1", chainId, Canaries}. The leaf names pool, step, node and counter, so it is valid for one file.
        bytes consent;
    }

    struct Rollout {
        /// Row number of a rollout in the audit sample that fails by at least twice the reject threshold.
        uint256 row;
        /// keccak256 of the row's bytes; its leaf is the keccak256 of that.
        bytes32 rowHash;
        /// Inclusion of the leaf in the file's root, pairs sorted.
        bytes32[] proof;
    }

    struct Canary {
        address owner;
        uint256 deposit;
        /// The committee's outcome before the opening.
        uint256 code;
        uint256[] accused;
        /// The first jury, or 0 when nobody is accused.
        uint256 trial;
        bool concluded;
    }

    /// @notice Jury `trial` judges the opening; 0 when nobody is accused.
    event CanaryOpened(
        uint256 indexed pool,
        uint256 indexed sequence,
        uint256 row,
        uint256 reason,
        uint256[] accused,
        uint256 deposit,
        uint256 trial
    );
    event CanaryConcluded(uint256 indexed pool, uint256 indexed sequence, bool upheld, uint256 code);
    event SeatSlashed(uint256 indexed pool, uint256 indexed sequence, uint256 indexed seat, uint256 amount);

    error NotPlanted();
    error NotInFile();
    error NotInSample();
    error BadReason();
    error NotOpened();

    /// @notice Depth of every step's tree of leaves: 1,024 leaves, padded with random ones. A decoy's files beyond them
    /// could not be opened, and would cost it its stake.
    uint256 public constant DEPTH = 10;
    bytes32 private constant ROWS_TAG = keccak256("muster/audit/1");
    bytes32 private constant ONE_ROW_TAG = keccak256("muster/audit-one/1");
    /// The rate at which every row is in the sample.
    uint256 private constant EVERYTHING = 1 << 16;
    bytes32 public constant CONSENT_TYPEHASH = keccak256("DecoyConsent(bytes32 leaf)");

    /// By `FileSlot.idOf`.
    mapping(uint256 id => Canary) private _canaries;
    /// Seats slashed in a lane, by pool << 32 | lane: one slash per seat and lane.
    mapping(uint256 id => mapping(uint256 seat => bool)) private _slashed;

    constructor(Suite memory suite) SuiteContract(suite, suite.canaries) {}

    /// @notice Opens a canary after its lane is settled and within its challenge window. Pool owner only. Takes a
    /// deposit of the bonds at stake, a jury's fees, and the fees of jurors whose dispute it cancels. The file pays no
    /// units, and its decoy node is unfrozen at the end.
    /// @param reason The reject code that an honest check gives.
    function open(
        uint256 pool,
        uint256 sequence,
        FileData calldata file,
        Planted calldata planted,
        Rollout calldata rollout,
        uint256 reason
    ) external nonReentrant {
        if (Pools(pools).ownerOf(pool) != msg.sender) revert Pools.NotOwner();
        if (!Codes.isReject(reason)) revert BadReason();
        PoolTerms memory terms = Court(court).termsOf(pool);
        _checkPlanted(pool, file, planted);
        _checkRollout(pool, sequence, file, rollout, terms.auditRate);

        Canary storage canary = _canaries[FileSlot.idOf(pool, sequence)];
        uint256 fees;
        (canary.code, fees) = _take(pool, sequence, file);
        canary.owner = msg.sender;
        _accuse(canary, pool, sequence);
        canary.deposit = canary.accused.length * canarySlash + uint256(terms.jury) * terms.juryFee;
        emit CanaryOpened(pool, sequence, rollout.row, reason, canary.accused, canary.deposit, canary.trial);
        _receive(canary.deposit + fees);
        _send(juries, fees);
    }

    /// @notice Takes the canary's case on (`Juries.proceed`), and ends it after that, or at once without a jury. Anyone
    /// may call.
    function conclude(uint256 pool, uint256 sequence, FileData calldata file) external nonReentrant {
        Canary storage canary = _canaries[FileSlot.idOf(pool, sequence)];
        if (canary.owner == address(0)) revert NotOpened();
        if (canary.concluded) revert AlreadyConcluded();
        // without a jury there is nothing to judge
        bool judged = canary.trial != 0;
        (uint256 verdict, bool ended) = judged ? Juries(juries).proceed(canary.trial) : (Codes.CANARY, true);
        if (!ended) return;
        canary.concluded = true;
        uint256 pot;
        if (judged) (pot,) = Juries(juries).judge(canary.trial, verdict);
        uint256 code = _outcome(canary, verdict);
        Court(court).setOutcome(pool, sequence, code);
        emit CanaryConcluded(pool, sequence, code == Codes.CANARY, code);
        Pools(pools).resolve(pool, sequence, file, code, 0, 0);
        pot += _slash(canary, pool, sequence, code == Codes.CANARY);
        _settleDeposit(canary, verdict, pot);
    }

    function canaryOf(uint256 pool, uint256 sequence) external view returns (Canary memory) {
        return _canaries[FileSlot.idOf(pool, sequence)];
    }

    /// @notice Whether row `row` is in a file's audit sample (docs/reference/protocol.md, section 3): when the last sixteen
    /// bits of H("muster/audit/1", lane seed, sequence, row) are below the rate; and row H("muster/audit-one/1", lane seed,
    /// sequence) mod rows always. A constant cost, whatever the file's size.
    function inSample(bytes32 seed, uint256 sequence, uint256 rows, uint256 rate, uint256 row)
        public
        pure
        returns (bool)
    {
        if (row >= rows) return false;
        if (rate >= EVERYTHING) return true;
        if (row == uint256(keccak256(abi.encode(ONE_ROW_TAG, seed, sequence))) % rows) return true;
        return uint16(uint256(keccak256(abi.encode(ROWS_TAG, seed, sequence, row)))) < rate;
    }

    function _checkPlanted(uint256 pool, FileData calldata file, Planted calldata planted) private view {
        bytes32 leaf = keccak256(abi.encode(planted.salt, pool, file.step, file.node, file.counter));
        leaf = keccak256(bytes.concat(leaf));
        bytes32 root = Pools(pools).canaryRootOf(pool, file.step);
        if (planted.proof.length != DEPTH || !MerkleProof.verifyCalldata(planted.proof, root, leaf)) {
            revert NotPlanted();
        }
        // by its key, never ERC-1271: nobody's file is of node 0, and no contract is asked what it consented to
        bytes32 hash = keccak256(abi.encode(CONSENT_TYPEHASH, leaf));
        TypedData.check(file.node, keccak256("muster-canaries"), hash, planted.consent);
    }

    function _checkRollout(
        uint256 pool,
        uint256 sequence,
        FileData calldata file,
        Rollout calldata rollout,
        uint256 rate
    ) private view {
        bytes32 leaf = keccak256(bytes.concat(rollout.rowHash));
        if (!MerkleProof.verifyCalldata(rollout.proof, file.root, leaf)) revert NotInFile();
        (,,, bytes32 seed,) = Court(court).decisionOf(pool, sequence);
        if (!inSample(seed, sequence, file.rows, rate, rollout.row)) revert NotInSample();
    }

    /// @dev Holds the file. A dispute of it ends.
    function _take(uint256 pool, uint256 sequence, FileData calldata file)
        private
        returns (uint256 code, uint256 fees)
    {
        uint256 slot = Pools(pools).wordOf(pool, sequence);
        if (slot.phase() == FileSlot.DISPUTED) {
            bytes32 inner = FileSlot.inner(pool, sequence, file);
            if (FileSlot.digest(inner, file.node) != slot.digest()) revert Pools.WrongFile(sequence);
            if (block.timestamp >= slot.finalAt()) revert WindowOver(slot.finalAt());
            return Appeals(appeals).cancel(pool, sequence);
        }
        code = Pools(pools).hold(pool, sequence, file); // reverts unless settled and within the window
        Court(court).setOutcome(pool, sequence, Codes.DISPUTED);
    }

    /// @dev Members whose vote accepted, be it the committee's outcome or not: laziness must not hide behind others. A
    /// jury judges the opening if there are any.
    function _accuse(Canary storage canary, uint256 pool, uint256 sequence) private {
        (, uint256[] memory members, uint256[] memory votes,,) = Court(court).decisionOf(pool, sequence);
        for (uint256 i = 0; i < members.length; ++i) {
            if (Codes.kind(votes[i]) != Codes.KIND_ACCEPT) continue;
            canary.accused.push(members[i]);
            Seats(seats).freeze(members[i]);
        }
        if (canary.accused.length != 0) canary.trial = Juries(juries).summon(pool, sequence, 1, members, canary.owner);
    }

    /// @dev A jury that finds the file good restores it; one that cannot tell leaves the committee's outcome.
    function _outcome(Canary storage canary, uint256 verdict) private view returns (uint256) {
        uint256 kind = Codes.kind(verdict);
        if (kind == Codes.KIND_REJECT || kind == Codes.KIND_MALFORMED) return Codes.CANARY;
        return kind == Codes.KIND_ACCEPT ? Codes.ACCEPT : canary.code;
    }

    /// @dev Frees the accused, and slashes them when the jury agrees.
    function _slash(Canary storage canary, uint256 pool, uint256 sequence, bool upheld)
        private
        returns (uint256 taken)
    {
        mapping(uint256 => bool) storage slashed = _slashed[FileSlot.idOf(pool, sequence >> 4)];
        for (uint256 i = 0; i < canary.accused.length; ++i) {
            uint256 seat = canary.accused[i];
            Seats(seats).release(seat);
            if (!upheld || slashed[seat]) continue;
            slashed[seat] = true;
            uint256 amount = Seats(seats).penalise(seat, canarySlash, address(this));
            taken += amount;
            emit SeatSlashed(pool, sequence, seat, amount);
        }
    }

    /// @dev The slashed, and jurors that were overturned, pay the juries, else the owner does. A false canary loses all
    /// of its deposit.
    function _settleDeposit(Canary storage canary, uint256 verdict, uint256 pot) private {
        uint256 used = canary.trial == 0 ? 0 : Juries(juries).pay(canary.trial, pot + canary.deposit);
        _send(juries, used);
        uint256 fromPot = used < pot ? used : pot;
        _send(SINK, pot - fromPot);
        bool wrong = Codes.kind(verdict) == Codes.KIND_ACCEPT;
        _send(wrong ? SINK : canary.owner, canary.deposit - (used - fromPot));
    }
}
