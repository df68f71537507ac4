"""What a run shows: safeguards that acted, whether honest validators agree, and whether the run was good."""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from chain.abi import checksum
from chain.client import ChainClient
from chain.indexer.records import Canary, Lane
from chain.indexer.state import State, needed, seats_in
from localnet.diloco import diloco_faults, diloco_highlights
from localnet.network import ProgressPrinter
from localnet.onboarding import KeyRing, names, payers
from localnet.plan import POOL, DemoPlan
from orchestrator.dashboard.results import (
    Agreement,
    DilocoSummary,
    DodgedCanary,
    RunSummary,
    Safeguards,
    SilentCommittee,
    ValidatorSummary,
    VerdictDifference,
    build_summary,
    save_results,
)
from protocol.api.run import RunRecord
from protocol.encoding import show_tokens
from protocol.errors import IntegrityError
from protocol.verdict import LANE, Verdict


def safeguards(
    plan: DemoPlan, ring: KeyRing, client: ChainClient, state: State, pool: int, recorded: Collection[int]
) -> Safeguards:
    """Read from the chain alone, of the files in the service's record: a node that was frozen hands in later ones."""
    lanes = state.lanes_of(pool)
    files = [file for file in state.submissions_of(pool) if file.sequence in recorded]
    transactions = dict.fromkeys(file.tx for file in files)
    sent = client.batch([("eth_getTransactionByHash", [tx]) for tx in transactions])
    sender = {tx: checksum(document["from"]) for tx, document in zip(transactions, sent, strict=True)}
    by_receipt = [file.sequence for file in files if sender[file.tx] == file.node]
    poor = [ring[name].address for name in names(plan) if name not in payers(plan) + plan.diloco_workers]
    return Safeguards(
        relayed=len(files) - len(by_receipt),
        by_receipt=by_receipt,
        censored=bool(plan.censored),
        without_ether=sum(not client.balance(address) and not transactions_of(client, address) for address in poor),
        members=len(poor),
        opted_in=len(seats_in(state, state.pools[pool])),
        needed=needed(state.pools[pool].terms),
        silent=[committee for lane in lanes if (committee := _silent(state, lane))],
        dodged=dodged_canaries(state, pool),
    )


def transactions_of(client: ChainClient, address: str) -> int:
    return client.number("eth_getTransactionCount", address, "latest")


def _silent(state: State, lane: Lane) -> SilentCommittee | None:
    """The first committee's silence, if another one decided all that it left."""
    first, last = lane.rounds[0], lane.round
    absent = [seat for member, seat in enumerate(first.seats) if member not in first.reveals]
    decided = all(state.submissions[lane.pool, sequence].votes_code for sequence in lane.sequences)
    if not absent or 2 * len(absent) < len(first.seats) or last is first or not last.settled or not decided:
        return None
    cause = "seat", lane.pool, lane.lane << 4, first.settled_time
    fines = [slash.amount for slash in state.slashes if (slash.kind, slash.pool, slash.sequence, slash.time) == cause]
    return SilentCommittee(lane=lane.lane, absent=absent, fined=sum(fines))


def dodged_canaries(state: State, pool: int) -> list[DodgedCanary]:
    return [dodge for canary in state.canaries.values() if canary.pool == pool for dodge in _dodged(state, canary)]


def _dodged(state: State, canary: Canary) -> Iterator[DodgedCanary]:
    """The accused seats whose owner had disputed the file. A seat is slashed once in a lane, by whichever canary."""
    dispute = state.disputes.get((canary.pool, canary.sequence))
    lane = canary.pool, canary.sequence // LANE
    beside = [other for other in state.canaries.values() if (other.pool, other.sequence // LANE) == lane]
    for seat in canary.accused if dispute and canary.upheld else ():
        if dispute and dispute.disputer == state.seats[seat].owner:
            slashed = sum(other.slashed.get(seat, 0) for other in beside)
            yield DodgedCanary(submission=canary.sequence, seat=seat, slashed=slashed)


def broken_safeguards(safeguards: Safeguards) -> Iterator[str]:
    """Yield each safeguard that failed, in words. Every run must keep these, whatever the draws of committees."""
    if not safeguards.relayed:
        yield "no file was relayed"
    if safeguards.censored and not safeguards.by_receipt:
        yield "the node that the service does not relay submitted nothing by its receipt"
    if safeguards.without_ether < safeguards.members:
        yield f"{safeguards.members - safeguards.without_ether} nodes or operators held ether"
    if safeguards.opted_in < safeguards.needed:
        yield f"{safeguards.opted_in} seats opted in, the pool needs {safeguards.needed}"
    for committee in safeguards.silent:
        if not committee.fined:
            yield f"the silent seats {committee.absent} of lane {committee.lane} paid nothing"
    for canary in safeguards.dodged:
        if not canary.slashed:
            yield f"seat {canary.seat} dodged canary {canary.submission}"


def shown_safeguards(safeguards: Safeguards) -> Iterator[str]:
    """The same for people."""
    poor = safeguards.without_ether
    yield f"files: {safeguards.relayed} relayed by the service; {poor} nodes and operators never held ether"
    if safeguards.by_receipt:
        numbers = ", ".join(map(str, safeguards.by_receipt))
        yield f"file {numbers}: not relayed by the service, submitted by the node with its receipt"
    yield f"seats: {safeguards.opted_in} opted into the pool, which needs {safeguards.needed}"
    for committee in safeguards.silent:
        fined = show_tokens(committee.fined)
        yield f"lane {committee.lane}: seats {committee.absent} kept silent, paid {fined} MUS, and were replaced"
    for canary in safeguards.dodged:
        lost = show_tokens(canary.slashed)
        yield f"canary {canary.submission}: seat {canary.seat} had disputed it to dodge, and lost {lost} MUS"


def agreement(plan: DemoPlan) -> Agreement:
    """How the kept verdicts of the honest validators' processes compare."""
    from validator.replay import CODE, alike, differences, largest

    honest = [spec for spec in plan.validators if not spec.attack]
    kept = {spec.name: kept_verdicts(plan.home(f"validator-{spec.name}")) for spec in honest}
    judged: dict[str, dict[str, Verdict]] = {}
    for name, verdicts in kept.items():
        for facts, verdict in verdicts.items():
            judged.setdefault(facts, {})[name] = verdict
    shared = {facts: by for facts, by in sorted(judged.items()) if len(by) > 1}
    differing, findings = [], []
    for by in shared.values():
        first, *others = by.values()
        off = [difference for other in others for difference in differences(other, first)]
        findings += off
        # Rounding decides between accept and unsure, which have the same consequence.
        if not all(alike(verdict.code, first.code) for verdict in others):
            codes = {name: verdict.code.label for name, verdict in by.items()}
            shown = [str(difference) for difference in off]
            differing.append(VerdictDifference(submission=first.sequence, codes=codes, differences=shown))
    validators = []
    for spec in honest:
        own = kept[spec.name].values()
        used = sorted({verdict.engine.get("name", "?") for verdict in own})
        judged_files = len({verdict.sequence for verdict in own})
        engine = "+".join(used) or spec.engine
        validators.append(ValidatorSummary(name=spec.name, engine=engine, batch=spec.batch, judged=judged_files))
    return Agreement(
        validators=validators,
        compared=len(shared),
        differing=differing,
        checks_differing=sum(finding.measurement == CODE for finding in findings),
        largest_differences=largest(findings),
    )


def kept_verdicts(home: Path) -> dict[str, Verdict]:
    """The verdicts that a validator stored, by what they were judged from: the file's name stands for all its facts.

    A file that a kill cut short is left out.
    """
    out = {}
    for path in sorted(home.glob("*/verdicts/*.json")):
        try:
            out[path.name] = Verdict.parse(path.read_bytes())
        except (OSError, IntegrityError):
            continue
    return out


def write_results(
    plan: DemoPlan,
    ring: KeyRing,
    progress: ProgressPrinter,
    client: ChainClient,
    newest: Callable[[], State],
    diloco: Callable[[State], DilocoSummary | None] = lambda _: None,
) -> bool:
    """Everything from the orchestrator's record, which it has compared with the chain. Returns whether the run was
    good: the ledger equals the chain, cheaters were slashed, ejected and untrained, nobody honest was finally rejected,
    honest validators agree, and the chain shows what every safeguard did."""

    def summarise(record: RunRecord) -> RunSummary:
        state, recorded = newest(), {file.sequence for file in record.submissions}
        return build_summary(
            record,
            seed=plan.seed,
            seconds=progress.seconds,
            cheaters=[ring[f"node-{node.name}"].address for node in plan.nodes if node.cheats],
            decoys=[ring[f"node-{node.name}"].address for node in plan.nodes if node.decoy],
            agreement=agreement(plan),
            safeguards=safeguards(plan, ring, client, state, POOL, recorded),
            diloco=diloco(state),
        )

    summary = save_results(plan.http_url, plan.root, summarise)
    wrong = [*problems(summary), *tracebacks(plan.root / "logs")]
    for line in [*highlights(summary), *(f"NOT GOOD: {what}" for what in wrong)]:
        progress.say(line)
    progress.say(f"report: {plan.root / 'report.html'} · numbers: {plan.root / 'summary.json'}")
    return not wrong


def tracebacks(logs: Path) -> Iterator[str]:
    """Yield each of our processes, hostile or not, whose log has a traceback."""
    for log in sorted(logs.glob("*.log")):
        # The storage server is not ours.
        if log.stem != "s3" and "Traceback (most recent call last)" in log.read_text("utf-8", "replace"):
            yield f"{log.stem} met a fault of its own code: see {log}"


def problems(summary: RunSummary) -> Iterator[str]:
    """Yield what no run may show, in words. Nothing here depends on which seats the chain happens to draw."""
    if not summary.ledger_matches_chain:
        yield "the ledger differs from the chain"
    if not summary.escrow_balanced:
        yield "the escrow does not balance"
    if summary.honest_rejected:
        yield f"{summary.honest_rejected} honest files were rejected"
    for cheater in summary.cheaters:
        if cheater.submissions and not (cheater.slashed and cheater.ejected):
            yield f"the cheater {cheater.address} got away"
        if cheater.rollouts_trained:
            yield f"{cheater.rollouts_trained} rollouts of the cheater {cheater.address} were trained on"
    if summary.safeguards:
        yield from broken_safeguards(summary.safeguards)
    if summary.diloco:
        yield from diloco_faults(summary.diloco, summary.steps)
    for file in summary.agreement.differing if summary.agreement else ():
        codes = ", ".join(f"{name} says {code}" for name, code in file.codes.items())
        yield f"honest validators differ on file {file.submission}: {codes}"


def not_shown(summary: RunSummary, safeguards: Safeguards) -> Iterator[str]:
    """Yield what draws of seats, or a busy machine, did not bring about. It fails no run: chance alone decides it."""
    overturned = any(dispute.overturned for dispute in summary.disputes)
    for what, shown in {
        "honest work that colluding seats reject, and a jury that overturns it": overturned,
        "a canary that a lazy seat accepts": any(canary.slashed for canary in summary.canaries),
        "a silent committee that is replaced": safeguards.silent,
        "a lazy seat that disputes the canary it accepted": safeguards.dodged,
        "a cheater that submits a file": all(cheater.submissions for cheater in summary.cheaters),
    }.items():
        if not shown:
            yield f"not shown in this run, because chance did not bring it about: {what}"


def highlights(summary: RunSummary) -> Iterator[str]:
    """The run in a few lines."""
    files, agreement = summary.submissions, summary.agreement
    reward = f"{shown(summary.reward_first)} → {shown(summary.reward_last)}"
    yield f"held-out reward {reward} in {summary.steps} steps, {summary.seconds:.0f} s"
    tokens = f"{summary.tokens_verified:,} tokens verified and paid"
    canaries = sum(canary.upheld for canary in summary.canaries)
    yield f"files: {files.accepted} accepted, {files.rejected - canaries} refused, {canaries} canaries; {tokens}"
    share, running = summary.trainer_idle_share, summary.trainer_idle_running
    if share is not None and running is not None:
        causes = ", ".join(f"{cause} {seconds:.0f} s" for cause, seconds in summary.trainer_idle_seconds.items())
        yield f"trainer idle {share:.0%}, after the first step {running:.0%}: {causes}"
    if summary.weights_overlap is not None:
        pause = "" if summary.swap_pause is None else f"; a change of weights stood still {summary.swap_pause:.2f} s"
        yield f"weights fetched while files were made: {summary.weights_overlap:.0%} of the time that took{pause}"
    for cheater in summary.cheaters:
        end = "slashed and ejected" if cheater.slashed and cheater.ejected else "NOT caught"
        yield f"cheater {cheater.address}: {end} ({cheater.reason}), {cheater.rollouts_trained} rollouts trained"
    for dispute in summary.disputes:
        if dispute.overturned:
            yield f"dispute won: the jury overturned the wrong outcome of file {dispute.sequence}"
    if summary.canaries:
        caught = sum(bool(canary.slashed) for canary in summary.canaries)
        yield f"canaries: {len(summary.canaries)} opened, {caught} accepted by a lazy validator, which paid"
    if summary.safeguards:
        yield from shown_safeguards(summary.safeguards)
        yield from not_shown(summary, summary.safeguards)
    if summary.diloco:
        yield from diloco_highlights(summary.diloco)
    if agreement:
        validators = ", ".join(f"{validator.engine} with batch {validator.batch}" for validator in agreement.validators)
        judged = f"{agreement.compared} files judged by more than one, {len(agreement.differing)} verdicts differ"
        yield f"honest validators ({validators}): {judged}"
    ledger = "yes, to the last base unit" if summary.ledger_matches_chain else "NO"
    yield f"ledger equals chain: {ledger}; escrow balances: {'yes' if summary.escrow_balanced else 'NO'}"


def shown(reward: float | None) -> str:
    return "not measured" if reward is None else f"{reward:.3f}"
