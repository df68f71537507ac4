// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title ISwarms
/// @notice Swarms: members who train each a policy of their own and share what they sampled, without a pool, steps or
/// pay. Here are their stakes, the Merkle roots of what they shared, and the one breach that a contract can judge: two
/// envelopes of one round. Holds its members' stake itself; nothing of it depends on pools, seats or juries.
interface ISwarms {
    struct Swarm {
        /// SHA-256 of the swarm's canonical document; zero when there is no such swarm.
        bytes32 document;
        /// Grains that a member locks.
        uint256 stake;
        /// Seconds from leaving, or from an ejection, to when stake can be withdrawn: as long a breach can be proven.
        uint256 delay;
    }

    struct Member {
        /// The key that signs envelopes and records roots.
        address member;
        /// Who paid the stake and gets it back; zero when it never joined.
        address owner;
        /// Grains still locked.
        uint256 stake;
        /// The block of its joining. The next block's hash is part of its problems' seeds.
        uint256 joinedBlock;
        /// After it left or was ejected: when stake can be withdrawn; 0 before.
        uint256 releaseAt;
        /// The first round that no recorded root covers.
        uint256 nextRound;
        /// Whether it was found to have signed two envelopes of one round.
        bool ejected;
    }

    event SwarmOpened(uint256 indexed swarm, bytes32 indexed document, address opener, uint256 stake, uint256 delay);
    event MemberJoined(uint256 indexed swarm, address indexed member, address owner, uint256 stake);
    event MemberLeft(uint256 indexed swarm, address indexed member, uint256 releaseAt);
    event StakeWithdrawn(uint256 indexed swarm, address indexed member, address owner, uint256 amount);
    /// @notice The member says that its envelopes of rounds `first` to `last` hold `groups` question groups, and that
    /// `root` is the Merkle root over them (docs/protocol.md, section 11).
    event RootRecorded(
        uint256 indexed swarm, address indexed member, uint256 first, uint256 last, uint256 groups, bytes32 root
    );
    /// @notice Two envelopes of `round` were shown. Of the stake, `reward` went to the prover and `burnt` to nobody;
    /// the rest stays locked until `releaseAt`.
    event MemberEjected(
        uint256 indexed swarm,
        address indexed member,
        address prover,
        uint256 round,
        uint256 reward,
        uint256 burnt,
        uint256 releaseAt
    );

    error Paused();
    error BadSwarmTerms();
    error NoSuchSwarm();
    /// @notice A key joins a swarm once, so that its problems never change.
    error AlreadyJoined();
    error WrongConsent();
    error ExpiredConsent();
    error NoSuchMember();
    error NotStakeOwner();
    error AlreadyLeft();
    /// @notice 0: it has not left.
    error StakeHeld(uint256 releaseAt);
    error NothingAtStake();
    error AlreadyEjected();
    /// @notice The rounds are out of order, or some of them are in an earlier root.
    error BadRounds(uint256 next);
    error EmptyRoot();
    /// @notice Both are the same envelope: signing it twice is no breach.
    error SameEnvelope();
    /// @notice A signature is not the member's of that envelope.
    error BadSignature();

    /// @notice Opens a swarm; anybody may. It has no owner, and nothing of it can change.
    /// @param document SHA-256 of its canonical document.
    /// @param stake Grains that each member locks, at least 1.
    /// @param delay Seconds from the network's shortest window to a year.
    function open(bytes32 document, uint256 stake, uint256 delay) external returns (uint256 swarm);

    /// @notice The caller locks the swarm's stake (approved before) for `member` and owns it. A key that is not the
    /// caller's own consents first.
    /// @param expiry Last second at which the consent may be used.
    /// @param consent The member key's EIP-712 signature of
    /// Consent(uint256 swarm,address member,address owner,uint256 expiry), domain {name "muster-swarm", version "1",
    /// chainId, this}; not looked at when the member calls.
    function join(uint256 swarm, address member, uint256 expiry, bytes calldata consent) external;

    /// @notice Ends a membership; owner only. Nobody reads its envelopes any more; stake stays until `delay` has passed.
    function leave(uint256 swarm, address member) external;

    /// @notice Sends an ended member's stake to its owner; owner only.
    function withdraw(uint256 swarm, address member) external;

    /// @notice Records the root over the caller's envelopes of rounds `first` to `last`: one transaction for many groups.
    /// Rounds are recorded once, in ascending order; a round without an envelope may be among them.
    function record(uint256 swarm, uint256 first, uint256 last, uint256 groups, bytes32 root) external;

    /// @notice Shows that a member signed two different envelopes of one round: takes half of its stake, a tenth of that
    /// for the caller, and ejects it. Anybody may, while stake is locked, also after the member left.
    /// @param rootA Merkle root of the one envelope's groups, and so on.
    function accuse(
        uint256 swarm,
        address member,
        uint256 round,
        bytes32 rootA,
        bytes calldata signatureA,
        bytes32 rootB,
        bytes calldata signatureB
    ) external;

    /// @notice What a member signs of an envelope: Envelope(uint256 swarm,address member,bytes32 document,uint256 round,
    /// bytes32 root), domain as for `join`.
    function envelopeDigest(uint256 swarm, address member, uint256 round, bytes32 root) external view returns (bytes32);
    /// @notice What a member signs to be joined.
    function consentDigest(uint256 swarm, address member, address owner, uint256 expiry) external view returns (bytes32);
    function swarmOf(uint256 swarm) external view returns (Swarm memory);
    /// @notice Swarms ever opened; the last one's number.
    function opened() external view returns (uint256);
    function memberOf(uint256 swarm, address member) external view returns (Member memory);
    /// @notice Several members at once, in the order asked for. There is no list of all: whoever joins by the thousand
    /// would make it long for everybody; `MemberJoined` has them.
    function membersOf(uint256 swarm, address[] calldata members) external view returns (Member[] memory);
    /// @notice Whether its envelopes are to be read: staked, and neither left nor ejected.
    function isMember(uint256 swarm, address member) external view returns (bool);
}
