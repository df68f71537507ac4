// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {OneJury} from "../court/OneJury.sol";
import {ISiteRuns} from "../interfaces/ISiteRuns.sol";
import {SignerStakes} from "../libraries/SignerStakes.sol";
import {SuiteLib} from "../libraries/SuiteLib.sol";
import {TypedData} from "../libraries/TypedData.sol";
import {Suite} from "../libraries/Types.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// @title SiteStakes
/// @notice Runs, and the stakes that stand behind them: opening, joining, leaving, closing, withdrawing.
abstract contract SiteStakes is ISiteRuns, OneJury {
    using SafeERC20 for IERC20;

    bytes32 public constant CONSENT_TYPEHASH =
        keccak256("Consent(bytes32 document,address key,address owner,uint256 expiry)");
    bytes32 internal constant DOMAIN = keccak256("muster-sites");
    uint256 public constant MAX_STAKE = SignerStakes.MAX_STAKE;
    uint256 public constant MAX_DELAY = SignerStakes.MAX_DELAY;

    struct RunSlot {
        bytes32 document;
        // next word
        bytes32 start;
        // next word
        address keeper;
        uint56 siteStake;
        uint40 releaseAt;
        // next word
        address owner;
        uint56 stake;
        uint32 delay;
        bool ejected;
        // next word
        uint32 pool;
        uint32 steps;
        uint32 disputes;
    }

    struct SiteSlot {
        address owner;
        uint56 stake;
        uint40 releaseAt;
        // next word
        bool ejected;
    }

    /// In whose domain sites and keeper sign.
    address public immutable pools;

    /// @inheritdoc ISiteRuns
    uint256 public opened;
    mapping(uint256 run => RunSlot) internal _runs;
    mapping(uint256 run => mapping(address site => SiteSlot)) internal _sites;

    constructor(Suite memory suite) OneJury(suite) {
        SuiteLib.checkPlace(suite.siteRuns);
        pools = suite.pools;
    }

    /// @inheritdoc ISiteRuns
    function open(Terms calldata terms, uint256 expiry, bytes calldata consent)
        external
        nonReentrant
        returns (uint256 run)
    {
        if (params.paused()) revert Paused();
        _checkTerms(terms);
        _checkConsent(terms.document, terms.keeper, expiry, consent);
        run = ++opened;
        RunSlot storage slot = _runs[run];
        (slot.document, slot.start) = (terms.document, terms.start);
        (slot.keeper, slot.owner) = (terms.keeper, msg.sender);
        (slot.siteStake, slot.stake) = (uint56(terms.siteStake), uint56(terms.keeperStake));
        (slot.delay, slot.pool) = (uint32(terms.delay), uint32(terms.pool));
        emit RunOpened(
            run,
            terms.document,
            terms.keeper,
            msg.sender,
            terms.pool,
            terms.start,
            terms.siteStake,
            terms.keeperStake,
            terms.delay
        );
        token.safeTransferFrom(msg.sender, address(this), terms.keeperStake);
    }

    /// @inheritdoc ISiteRuns
    function join(uint256 run, address site, uint256 expiry, bytes calldata consent) external nonReentrant {
        if (params.paused()) revert Paused();
        RunSlot storage slot = _run(run);
        if (slot.releaseAt != 0) revert RunOver();
        SiteSlot storage joining = _sites[run][site];
        if (joining.owner != address(0)) revert AlreadyJoined();
        _checkConsent(slot.document, site, expiry, consent);
        uint56 stake = slot.siteStake;
        (joining.owner, joining.stake) = (msg.sender, stake);
        emit SiteJoined(run, site, msg.sender, stake);
        token.safeTransferFrom(msg.sender, address(this), stake);
    }

    /// @inheritdoc ISiteRuns
    function leave(uint256 run, address site) external {
        SiteSlot storage slot = _owned(run, site);
        if (slot.releaseAt != 0) revert AlreadyLeft();
        uint256 releaseAt = block.timestamp + _runs[run].delay;
        slot.releaseAt = uint40(releaseAt);
        emit SiteLeft(run, site, releaseAt);
    }

    /// @inheritdoc ISiteRuns
    function close(uint256 run) external {
        RunSlot storage slot = _run(run);
        if (slot.owner != msg.sender) revert NotStakeOwner();
        if (slot.releaseAt != 0) revert RunOver();
        emit RunClosed(run, _end(slot));
    }

    /// @inheritdoc ISiteRuns
    function withdraw(uint256 run, address site) external nonReentrant {
        SiteSlot storage slot = _owned(run, site);
        uint256 releaseAt = slot.releaseAt;
        if (releaseAt == 0 || block.timestamp < releaseAt) revert StakeHeld(releaseAt);
        uint256 amount = slot.stake;
        slot.stake = 0;
        _withdraw(run, site, amount);
    }

    /// @inheritdoc ISiteRuns
    function withdrawKeeper(uint256 run) external nonReentrant {
        RunSlot storage slot = _run(run);
        if (slot.owner != msg.sender) revert NotStakeOwner();
        uint256 releaseAt = slot.releaseAt;
        if (releaseAt == 0 || block.timestamp < releaseAt) revert StakeHeld(releaseAt);
        if (slot.disputes != 0) revert Undecided();
        uint256 amount = slot.stake;
        slot.stake = 0;
        _withdraw(run, slot.keeper, amount);
    }

    /// @inheritdoc ISiteRuns
    function runOf(uint256 run) external view returns (Run memory) {
        RunSlot storage slot = _runs[run];
        return Run({
            document: slot.document,
            start: slot.start,
            pool: slot.pool,
            keeper: slot.keeper,
            owner: slot.owner,
            siteStake: slot.siteStake,
            stake: slot.stake,
            delay: slot.delay,
            steps: slot.steps,
            releaseAt: slot.releaseAt,
            disputes: slot.disputes,
            ejected: slot.ejected
        });
    }

    /// @inheritdoc ISiteRuns
    function siteOf(uint256 run, address site) external view returns (Site memory) {
        return _site(run, site);
    }

    /// @inheritdoc ISiteRuns
    function sitesOf(uint256 run, address[] calldata sites) external view returns (Site[] memory views) {
        views = new Site[](sites.length);
        for (uint256 i = 0; i < sites.length; ++i) {
            views[i] = _site(run, sites[i]);
        }
    }

    /// @inheritdoc ISiteRuns
    function isSite(uint256 run, address site) external view returns (bool) {
        SiteSlot storage slot = _sites[run][site];
        return slot.owner != address(0) && slot.releaseAt == 0;
    }

    /// @inheritdoc ISiteRuns
    function consentDigest(bytes32 document, address key, address owner, uint256 expiry) public view returns (bytes32) {
        return
            TypedData.digest(
                DOMAIN, address(this), keccak256(abi.encode(CONSENT_TYPEHASH, document, key, owner, expiry))
            );
    }

    /// @dev From when on nothing is recorded; the first end stays.
    function _end(RunSlot storage slot) internal returns (uint256 releaseAt) {
        releaseAt = slot.releaseAt;
        if (releaseAt != 0) return releaseAt;
        releaseAt = block.timestamp + slot.delay;
        slot.releaseAt = uint40(releaseAt);
    }

    function _run(uint256 run) internal view returns (RunSlot storage slot) {
        slot = _runs[run];
        if (slot.owner == address(0)) revert NoSuchRun();
    }

    /// @dev A jury of no seats would never be done, so a pool must be there.
    function _checkTerms(Terms calldata terms) private view {
        if (terms.document == 0 || terms.start == 0 || terms.keeper == address(0)) revert BadRunTerms();
        if (!SignerStakes.isStake(terms.siteStake) || !SignerStakes.isStake(terms.keeperStake)) revert BadRunTerms();
        if (!SignerStakes.isDelay(terms.delay, params)) revert BadRunTerms();
        if (terms.pool == 0) return;
        if (terms.pool > type(uint32).max || court.termsOf(terms.pool).jury == 0) revert BadRunTerms();
    }

    function _checkConsent(bytes32 document, address key, uint256 expiry, bytes calldata consent) private view {
        if (key == msg.sender) return;
        if (block.timestamp > expiry) revert ExpiredConsent();
        if (!TypedData.signedBy(key, consentDigest(document, key, msg.sender, expiry), consent)) revert WrongConsent();
    }

    function _withdraw(uint256 run, address key, uint256 amount) private {
        if (amount == 0) revert NothingAtStake();
        emit StakeWithdrawn(run, key, msg.sender, amount);
        token.safeTransfer(msg.sender, amount);
    }

    function _owned(uint256 run, address site) private view returns (SiteSlot storage slot) {
        slot = _sites[run][site];
        if (slot.owner == address(0)) revert NoSuchSite(site);
        if (slot.owner != msg.sender) revert NotStakeOwner();
    }

    function _site(uint256 run, address site) private view returns (Site memory) {
        SiteSlot storage slot = _sites[run][site];
        return Site({owner: slot.owner, stake: slot.stake, releaseAt: slot.releaseAt, ejected: slot.ejected});
    }
}
