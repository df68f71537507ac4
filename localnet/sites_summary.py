"""What the sites of a run did, by their log: who trained on which file, and what a kill came to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chain.indexer.state import State
from localnet.onboarding import KeyRing
from localnet.plan import POOL, DemoPlan
from orchestrator.dashboard.results import SitesSummary, SiteSummary
from protocol.encoding import load_document
from protocol.identity import PoolId
from protocol.sites.run import SitesRun
from storage.keys import object_key
from storage.s3 import Bucket
from storage.weights.manifest import MAX_STORED_BYTES, ManifestScope, StepSites, unseal
from trainer.records import read_records

if TYPE_CHECKING:
    from trainer.sites.exchange import SiteExchange


@dataclass(frozen=True)
class LoggedStep:
    """An outer step that leads to state `number`: the `counted` sites, the site of every file, when it was `given` and
    made (Unix time), and whether it began again after that."""

    number: int
    counted: tuple[str, ...]
    site_of: Mapping[str, str]
    given: float
    made: float
    repeated: bool


def logged_steps(exchange: "SiteExchange") -> list[LoggedStep]:
    """All that a log tells of. Raises IntegrityError, UnreachableError."""
    from protocol.sites.log import Boundary, WorkGiven
    from trainer.sites.logbook import Logbook

    book, found = Logbook.at(exchange, 0), []
    given = attempt = 0.0
    while (entry := book.advance()) is not None:
        for event in entry.events:
            if isinstance(event, WorkGiven):
                given, attempt = entry.time, book.schedule.attempt
            elif isinstance(event, Boundary):
                dealing = book.past
                site_of = {item: site for site in event.made_of for item in (dealing.of(site) if dealing else ())}
                counted = tuple(event.counted)
                found.append(LoggedStep(event.step, counted, site_of, given, entry.time, event.attempt > attempt))
    return found


def summarise(
    steps: Sequence[LoggedStep],
    names: Mapping[str, str],
    kills: Mapping[str, float],
    trained: Sequence[Mapping[str, Any]],
    made_by: Sequence[StepSites | None],
) -> SitesSummary:
    """`names`: address → name; `kills`: name → Unix time; `trained`: the trainer's record of every file; `made_by`:
    what the manifests of all policy steps say."""
    logged = [(file, site) for one in steps for file, site in one.site_of.items()]
    counts = [site in one.counted for one in steps for site in one.site_of.values()]
    recorded = [(entry["sha256"], entry.get("site", "")) for entry in trained]
    once = len({file for file, _ in logged}) == len(logged) and sorted(logged) == sorted(recorded) and all(counts)
    wanted = {one.number: one.counted for one in steps}
    named = [one for one in made_by if one is not None and wanted.get(one.outer_step) == one.sites]
    sites = [
        SiteSummary(
            name=name,
            address=address,
            files=sum(site == address for _, site in logged),
            outer_steps=sum(address in one.counted for one in steps),
            killed=[one.number for one in steps if one.given <= kills.get(name, 0.0) <= one.made],
        )
        for address, name in names.items()
    ]
    return SitesSummary(
        sites=sites,
        outer_steps=len(steps),
        files=len(recorded),
        used_once=once,
        repeated=[one.number for one in steps if one.repeated],
        named=len(named),
    )


def sites_summary(
    plan: DemoPlan, ring: KeyRing, bucket: Bucket, state: State, kills: Mapping[str, float]
) -> SitesSummary:
    """Of a finished run. Raises MusterError."""
    from trainer.sites.exchange import SiteExchange

    run, pool = load_document(plan.sites_run, SitesRun), state.pools[POOL]
    names = {ring[name].address: name for name in plan.site_names}
    trained = [entry for path in plan.home("trainer").glob("*/trained.jsonl") for entry in read_records(path)]
    scope = ManifestScope(PoolId(run.chain_id, run.pools, run.pool), run.keeper)
    stored = [(bucket.get(object_key("manifests", one.manifest), MAX_STORED_BYTES), one) for one in pool.steps]
    made_by = [unseal(data, one.manifest, scope).made_by for data, one in stored]
    return summarise(logged_steps(SiteExchange(bucket, run)), names, kills, trained, made_by)


def wrong_with_sites(found: SitesSummary, steps: int) -> Iterator[str]:
    """What a good run must not show, in words."""
    if not found.used_once:
        yield "a file was not trained on by exactly one site, once"
    if found.named < found.outer_steps:
        yield f"{found.outer_steps - found.named} manifests do not name the sites that made their steps"
    for one in found.sites:
        if not one.files:
            yield f"{one.name} trained on nothing"
        if not one.killed and steps > len(found.sites):
            yield f"{one.name} was not killed during an outer step"


def shown_sites(found: SitesSummary) -> Iterator[str]:
    """The same for people."""
    for one in found.sites:
        killed = "".join(f", killed during outer step {number}" for number in one.killed)
        yield f"{one.name}: trained on {one.files} files in {one.outer_steps} outer steps{killed}"
    again = f", begun again: {', '.join(map(str, found.repeated))}" if found.repeated else ""
    yield (
        f"{found.outer_steps} outer steps of {len(found.sites)} sites{again}; each of {found.files} files used once: "
        f"{'yes' if found.used_once else 'NO'}; manifests that name the sites: {found.named}"
    )
