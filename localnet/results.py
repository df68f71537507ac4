"""What a run leaves: `summary.json`, `report.html`, and a few lines that say whether it was good."""

from collections.abc import Iterator
from dataclasses import dataclass

from chain.state import State
from localnet.accounts import KeyRing
from localnet.agreement import agreement
from localnet.plan import POOL, DemoPlan
from localnet.progress import ProgressPrinter
from localnet.safeguards import broken_safeguards, safeguards, shown_safeguards
from localnet.sites_summary import shown_sites, wrong_with_sites
from orchestrator.dashboard.results import RunSummary, SitesSummary, save_results


@dataclass(frozen=True)
class Outcome:
    """`good`: the ledger equals the chain, cheaters were slashed, ejected and untrained, nobody honest was finally
    rejected, honest validators agree, and the chain shows what every safeguard did."""

    summary: RunSummary
    good: bool


def write_results(
    plan: DemoPlan, ring: KeyRing, progress: ProgressPrinter, state: State, sites: SitesSummary | None = None
) -> Outcome:
    """Everything from the orchestrator's record, which it has compared with the chain."""
    summary = save_results(
        plan.http_url,
        plan.root,
        seed=plan.seed,
        seconds=progress.seconds,
        cheaters=[ring[f"node-{node.name}"].address for node in plan.nodes if node.cheats],
        carriers=[ring[f"node-{node.name}"].address for node in plan.nodes if node.carrier],
        agreement=agreement(plan),
        safeguards=safeguards(state, POOL),
        sites=sites,
    )
    wrong = list(problems(summary))
    for line in [*highlights(summary), *(f"NOT GOOD: {what}" for what in wrong)]:
        progress.say(line)
    progress.say(f"report: {plan.root / 'report.html'} · numbers: {plan.root / 'summary.json'}")
    return Outcome(summary, not wrong)


def problems(summary: RunSummary) -> Iterator[str]:
    """Yield what no run may show, in words. Nothing here depends on which seats the chain happens to draw."""
    if not summary.ledger_matches_chain:
        yield "the ledger differs from the chain"
    if not summary.escrow_balanced:
        yield "the escrow does not balance"
    if summary.honest_rejected:
        yield f"{summary.honest_rejected} honest files were rejected"
    for cheater in summary.cheaters:
        if not (cheater.slashed and cheater.ejected):
            yield f"the cheater {cheater.address} got away"
        if cheater.rollouts_trained:
            yield f"{cheater.rollouts_trained} rollouts of the cheater {cheater.address} were trained on"
    if summary.safeguards:
        yield from broken_safeguards(summary.safeguards)
    if summary.sites:
        yield from wrong_with_sites(summary.sites, summary.steps)
    for one in summary.agreement.differing if summary.agreement else ():
        said = ", ".join(f"{name} says {code}" for name, code in one.codes.items())
        yield f"honest validators differ on file {one.submission}: {said}"


def highlights(summary: RunSummary) -> Iterator[str]:
    """The run in a few lines."""
    files, found = summary.submissions, summary.agreement
    yield (
        f"held-out reward {shown(summary.reward_first)} → {shown(summary.reward_last)} "
        f"in {summary.steps} steps, {summary.seconds:.0f} s"
    )
    yield (
        f"files: {files.accepted} accepted, {files.rejected} refused; "
        f"{summary.tokens_verified:,} tokens verified and paid"
    )
    if summary.trainer_idle_share is not None and summary.trainer_idle_running is not None:
        causes = ", ".join(f"{cause} {seconds:.0f} s" for cause, seconds in summary.trainer_idle_seconds.items())
        yield (
            f"trainer idle {summary.trainer_idle_share:.0%}, after the first step "
            f"{summary.trainer_idle_running:.0%}: {causes}"
        )
    if summary.weights_overlap is not None:
        pause = "" if summary.swap_pause is None else f"; a change of weights stood still {summary.swap_pause:.2f} s"
        yield f"weights fetched while files were made: {summary.weights_overlap:.0%} of the time that took{pause}"
    for one in summary.cheaters:
        end = "slashed and ejected" if one.slashed and one.ejected else "NOT caught"
        yield f"cheater {one.address}: {end} ({one.reason}), {one.rollouts_trained} rollouts trained"
    for dispute in summary.disputes:
        if dispute.overturned:
            yield f"dispute won: the jury overturned the wrong outcome of file {dispute.sequence}"
    if summary.canaries:
        caught = sum(bool(one.slashed) for one in summary.canaries)
        yield f"canaries: {len(summary.canaries)} opened, {caught} accepted by a lazy validator, which paid"
    if summary.safeguards:
        yield from shown_safeguards(summary.safeguards)
    if summary.sites:
        yield from shown_sites(summary.sites)
    if found:
        validators = ", ".join(f"{one.engine} with batch {one.batch}" for one in found.validators)
        yield (
            f"honest validators ({validators}): {found.compared} files judged by more than one, "
            f"{len(found.differing)} verdicts differ"
        )
    ledger = "yes, to the last grain" if summary.ledger_matches_chain else "NO"
    yield f"ledger equals chain: {ledger}; escrow balances: {'yes' if summary.escrow_balanced else 'NO'}"


def shown(reward: float | None) -> str:
    return "not measured" if reward is None else f"{reward:.3f}"
