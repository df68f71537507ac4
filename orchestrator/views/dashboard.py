"""Everything that the dashboard's routes answer, made from a service at most every so often."""

from chain.indexer.records import Status
from orchestrator import participant_views, submission_views
from orchestrator.http_errors import HttpError
from orchestrator.ledger import rows
from orchestrator.service import Service
from orchestrator.status import published_entry
from orchestrator.views import files, people, search, steps
from orchestrator.views.answers import AnswerCache
from orchestrator.views.evidence import Evidence
from orchestrator.views.overview import overview, pool_entry
from protocol.api import judged, run, views

MOST_ROWS = 100
FIGURES_SECONDS = 1.0


class Dashboard:
    """The documents of `protocol.api.views`. Reading all files or accounts is done once for all that ask."""

    def __init__(self, service: Service, seconds: float = FIGURES_SECONDS) -> None:
        self._service = service
        self._figures = AnswerCache(seconds)
        self.evidence = Evidence(service.uploads.pool, service.config.work, service.open_object)

    def overview(self) -> views.Overview:
        return overview(self._service, self._tallies())

    def history(self) -> views.History:
        return steps.history(self._published(), self._tallies(), self._service.reports())

    def difficulty(self) -> views.Difficulties:
        return self._service.rates.view()

    def step_list(self, after: int | None, limit: int) -> views.Listing[views.StepEntry]:
        """Newest first: those before step `after`."""
        published, told = self._published(), {one.step: one for one in self._service.reports()}
        wanted = [one for one in reversed(published) if after is None or one.step < after]
        page = [steps.step_entry(one, self._tallies().get(one.step), told.get(one.step)) for one in wanted[:limit]]
        return views.Listing(rows=page, total=len(published), next=page[-1].step if len(wanted) > limit else None)

    def step(self, number: int) -> views.StepView:
        """Raises HttpError 404 for a step that was not published."""
        published = self._published()
        if number >= len(published):
            raise HttpError(404, f"policy step {number} was not published", "see the list of steps")
        report = next((one for one in self._service.reports() if one.step == number), None)
        return steps.step_view(published[number], self._tallies().get(number), report)

    def nodes(
        self, after: int, limit: int, order: people.Order, wanted: run.NodeState | None, operator: str | None
    ) -> views.Listing[run.NodeEntry]:
        state, beats, now = self._service.watch.state, self._service.beats(), self._service.clock()
        pool = self._service.watch.pool(state)
        return people.nodes(
            state, pool, beats, now, limit=limit, after=after, order=order, wanted=wanted, operator=operator
        )

    def node(self, address: str) -> run.NodeEntry:
        state = self._service.watch.state
        pool = self._service.watch.pool(state)
        return people.node(state, pool, self._service.beats(), self._service.clock(), address)

    def submissions(
        self, after: int | None, limit: int, node: str | None, status: Status | None, step: int | None
    ) -> views.Listing[run.SubmissionEntry]:
        state, trained = self._service.watch.state, self._service.trained()
        pool = self._service.watch.pool(state)
        return files.listing(state, pool, trained, limit=limit, after=after, node=node, status=status, step=step)

    def submission(self, sequence: int) -> views.SubmissionView:
        state = self._service.watch.state
        return files.view(state, files.find(state, self._service.watch.pool_id, sequence), self._service.trained())

    def verdicts(self, sequence: int) -> views.VerdictsView:
        return self.evidence.verdicts(self._service.watch.state, sequence)

    def rollouts(self, sequence: int, first: int) -> views.RolloutsView:
        return self.evidence.rollouts(self._service.watch.state, sequence, first)

    def validators(self, after: int, limit: int) -> views.Listing[run.ValidatorEntry]:
        return people.validators(self._validators(), limit=limit, after=after)

    def validator(self, address: str) -> views.ValidatorView:
        state = self._service.watch.state
        return people.validator(state, self._service.watch.pool(state), self._validators(), address)

    def disputes(self, after: int, limit: int) -> views.Listing[judged.DisputeEntry]:
        found = submission_views.disputes(self._service.watch.state, self._service.watch.pool_id)
        return _page(found[::-1], after, limit)

    def canaries(self, after: int, limit: int) -> views.Listing[judged.CanaryEntry]:
        found = submission_views.canaries(self._service.watch.state, self._service.watch.pool_id)
        return _page(found[::-1], after, limit)

    def cases(self, after: int, limit: int) -> views.Listing[judged.CaseEntry]:
        found = submission_views.cases(self._service.watch.state, self._service.watch.pool_id)
        return _page(found[::-1], after, limit)

    def slashes(self, after: int, limit: int) -> views.Listing[judged.SlashEntry]:
        state, pool = self._service.watch.state, self._service.watch.pool_id
        wanted = [one for one in reversed(state.slashes) if one.pool in (pool, 0)]
        shown = submission_views.slash_entries(wanted[after : after + limit])
        return views.Listing(rows=shown, total=len(wanted), next=_next(after, limit, len(wanted)))

    def ledger(self, after: int, limit: int) -> views.Listing[run.LedgerEntry]:
        state, pool, now = self._service.watch.state, self._service.watch.pool_id, int(self._service.clock())
        if pool not in state.pools:
            return views.Listing(rows=[], total=0, next=None)
        return _page(self._figures.get("ledger", lambda: rows(state, pool, now)), after, limit)

    def pools(self, after: int, limit: int) -> views.Listing[views.PoolEntry]:
        state, here = self._service.watch.state, self._service.watch.pool_id
        page = list(state.pools.values())[::-1][after : after + limit]
        shown = [pool_entry(state, pool, pool.pool == here) for pool in page]
        return views.Listing(rows=shown, total=len(state.pools), next=_next(after, limit, len(state.pools)))

    def search(self, query: str) -> views.Hits:
        state = self._service.watch.state
        return search.search(state, self._service.watch.pool(state), query)

    def _published(self) -> list[run.PublishedEntry]:
        pool = self._service.watch.pool(self._service.watch.state)
        return [published_entry(one) for one in pool.steps] if pool else []

    def _tallies(self) -> dict[int, steps.StepTally]:
        state, pool = self._service.watch.state, self._service.watch.pool_id

        def make() -> dict[int, steps.StepTally]:
            subs = state.submissions_of(pool)
            return steps.tallies((sub.step, sub.status.value, sub.units, sub.time, sub.decided_time) for sub in subs)

        found: dict[int, steps.StepTally] = self._figures.get("tallies", make)
        return found

    def _validators(self) -> list[run.ValidatorEntry]:
        state, pool = self._service.watch.state, self._service.watch.pool_id
        beats, now = self._service.beats(), self._service.clock()
        found: list[run.ValidatorEntry] = self._figures.get(
            "validators", lambda: participant_views.validators(state, pool, beats, now)
        )
        return found


def _next(after: int, limit: int, total: int) -> int | None:
    return after + limit if after + limit < total else None


def _page(found: list[views.E], after: int, limit: int) -> views.Listing[views.E]:
    return views.Listing(rows=found[after : after + limit], total=len(found), next=_next(after, limit, len(found)))
