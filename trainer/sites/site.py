"""A site: inner steps, a contribution, the outer step, again; whatever a kill interrupts is done once all the same, for
what is on its disk by then (trainer/sites/site_disk.py). No contribution is told to anybody before it is there.
"""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from protocol.accounts import LocalAccount
from protocol.errors import MusterError, UnreachableError
from protocol.sites.layout import Tensors
from protocol.sites.log import Boundary, LogEvent
from protocol.sites.outer import OuterState, OuterStepError
from protocol.waits import WAITS, wait_for
from storage.keys import MissingObjectError
from trainer.sites.catching_up import caught_up, led_to, limits_at, published_state, step_to
from trainer.sites.events import OuterPhase
from trainer.sites.evidence import check_evidence
from trainer.sites.exchange import SiteExchange, decoded
from trainer.sites.gathering import SiteGathering
from trainer.sites.inner import InnerWork, ItemsUnusable, Share
from trainer.sites.logbook import Logbook
from trainer.sites.mouth import SiteMouth
from trainer.sites.places import OthersPlaces
from trainer.sites.reducing import SiteReducing
from trainer.sites.rhythm import Rhythm
from trainer.sites.schedule import Schedule
from trainer.sites.share_of_step import InnerProgress, InnerSteps, OwnContribution, make_own, on_top
from trainer.sites.site_disk import SiteDisk
from trainer.sites.status_file import standing
from trainer.sites.timeouts import Patience, Timeouts

log = logging.getLogger("muster.sites")


class Site:
    """One site of a run. `start` brings it to the newest state, `turn` does the next thing that can be done."""

    def __init__(
        self,
        exchange: SiteExchange,
        account: LocalAccount,
        inner: InnerWork,
        home: Path,
    ) -> None:
        self.exchange, self.run, self.inner = exchange, exchange.run, inner
        self.address, settings = str(account.address), exchange.run.settings
        self.timeouts = Timeouts.of_run(exchange.run)
        self.state = OuterState.start(inner.weights())
        self._account, self._mouth = account, SiteMouth(exchange, account)
        self._others: SiteGathering | SiteReducing = SiteGathering(exchange, self.address)
        if self.run.reducing:
            self._others = SiteReducing(exchange, self.address, self._mouth, random.SystemRandom())
        self._disk = SiteDisk(home, self.state.layout, settings.shards, inner)
        self._patience = Patience(self.timeouts.window)
        self._places = OthersPlaces(exchange, self.address, self.state.layout)
        self._owed: Tensors | None = None
        self._own: OwnContribution | None = None
        self._progress = InnerProgress()
        self._book: Logbook | None = None
        self._read_all, self._rhythm = False, Rhythm()
        self.steps = 0

    @property
    def book(self) -> Logbook:
        assert self._book is not None, "call `start` first"
        return self._book

    def start(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Load what is on disk, and follow the log to its newest boundary. `stopped` is asked while that is waited for
        and after each outer step that was missing. Raises MusterError where it was, where there is no log within the
        run's time for joining, or it does not fit what is on disk."""
        kept = self._disk.newest()
        self._progress, self._owed = self._disk.progress, self._disk.owed
        own = None if kept is None else self._disk.on_its_way(kept)
        began, newest = time.monotonic(), kept or self.state
        what = f"the log of {self.run.name} to begin"
        book = wait_for(what, self._newest, self.timeouts.join, 0.5, "start its keeper", stopped)
        with WAITS.on(f"outer step {book.boundary.step}, to which this site catches up"):
            for state in caught_up(self.exchange, newest, book):
                newest = state
                if stopped():
                    raise MusterError(f"stopped while catching up, at outer step {newest.step}")
        self._book = book
        if kept is None or newest is not kept:
            counted = own is not None and kept is not None and self._counted(own, kept.step)
            if own is not None and not counted and self.run.work == "given":
                self._undo()
            self.inner.load(newest.weights)
            self._hold(newest, own.owed if own is not None and counted else self._owed, InnerProgress())
            own = None
        self.state = newest
        if own is not None:  # on its way still, and the inner work is where it was then
            self._sent_off(own)
        self._mouth.find_place(book.notes.get(self.address, 0))
        seconds = time.monotonic() - began
        log.info("%s stands at outer step %d, caught up in %.3f s", self.address, newest.step, seconds)

    def turn(self) -> str:
        """Do the next thing; what is waited for, empty if something was done. Raises IntegrityError where the log or
        an outer step is wrong; UnreachableError."""
        self._disk.tend()
        book = self.book
        if book.boundary.step > self.state.step:
            return self._take_step(book.boundary)
        may_be_there = self.awaits_work or not self._read_all or self._rhythm.due(book.schedule)
        if may_be_there and self._read_entry():
            return ""
        now = book.schedule
        if self.address not in now.members:
            return self._ask_to_join(now)
        if self.awaits_work:
            return f"what outer step {now.step} trains on"
        if self._own is not None and self._own.attempt != now.attempt:
            self._offer_again(self._own)
        if self._own is None:
            return self._train(now)
        return self._offer(self._own, now)

    @property
    def awaits_work(self) -> bool:
        """Whether nobody has said yet what the outer step trains on."""
        return self._book is not None and self.run.work == "given" and self._book.items is None

    def leave(self) -> None:
        """Tell the keeper, who need not wait for this site any more; where it cannot be told, silence tells it."""
        now = self.book.schedule
        if self.address not in now.members | now.waiting:
            return
        try:
            self._mouth.say("leave", now, None)
        except UnreachableError as error:
            log.warning("leaving without a word: %s", error)

    def finish(self) -> None:
        """Return once all that was made is on the disk. Raises MusterError."""
        self._disk.finish()

    def status(self) -> dict[str, Any]:
        """What people may be shown of it, also before it has started."""
        return {
            "site": self.address, "run": self.run.name, **standing(self.state, self._book),
            "inner_steps": self._progress.made, "outer_steps_made": self.steps,
        }  # fmt: skip

    def _read_entry(self) -> bool:
        """Take the log's next entry, if it is there; whether another may be there already, or an outer step is to be
        made. What follows an entry that was waited for is not there yet."""
        found, waited_for = self.book.upcoming(), self._read_all
        self._read_all = waited_for or found is None
        if found is None:
            return False
        self.book.take(*found, self._check)
        return not waited_for or self.book.boundary.step > self.state.step

    def _check(self, book: Logbook, event: LogEvent) -> None:
        check_evidence(book, event, self.state, self.address)

    def _newest(self) -> Logbook | None:
        try:
            return Logbook.newest(self.exchange)
        except UnreachableError as error:
            log.warning("%s", error)
            return None

    def _counted(self, own: OwnContribution, step: int) -> bool:
        """Whether the outer step after state `step` was made of a contribution, which counted, by the log."""
        after = next((one for _, one in self.book.chapters_back() if one.step <= step + 1), None)
        made = after is not None and after.step == step + 1 and after.made_of.get(self.address) == own.digest
        return made and after is not None and self.address in after.counted

    def _sent_off(self, own: OwnContribution) -> None:
        self._own, overlap = own, self.run.settings.overlap
        self._progress = InnerProgress(left=overlap, sent=self.inner.weights() if overlap else None)

    def _hold(self, state: OuterState, owed: Tensors | None, progress: InnerProgress) -> None:
        """Go on from a new state, while it is written down with the inner work."""
        self._disk.hold(state, owed, progress)
        self.state, self._owed, self._own, self._progress = state, owed, None, progress

    def _take_step(self, boundary: Boundary) -> str:
        """Make the outer step that the log tells of."""
        if self._progress.left:
            return self._train_beyond()
        own = self._own if self._own and boundary.made_of.get(self.address) == self._own.digest else None
        try:
            after = self._state_after(boundary, own)
        except (UnreachableError, MissingObjectError) as error:
            return f"the payloads of outer step {self.state.step}: {error.what}"
        if self.run.work == "given" and (own is None or self.address not in boundary.counted):
            self._undo()  # what does not count leaves no trace here
        done = self._progress
        self.inner.load(on_top(after.weights, self.inner.weights(), done.sent))
        owed = own.owed if own is not None and self.address in boundary.counted else self._owed
        self._hold(after, owed, InnerProgress(done.beyond, done.beyond_tokens))
        self.steps += 1
        log.info(
            "outer step %d: %d of %d contributions count", after.step, len(boundary.counted), len(boundary.made_of)
        )
        return ""

    def _state_after(self, boundary: Boundary, own: OwnContribution | None) -> OuterState:
        """The state that a boundary begins: made here, of `own` and what the others published, or as the keeper
        published it where something of that is gone. Raises as `step_to`."""
        known, made = {}, self._others.made(boundary)
        if own is not None and not self.run.reducing:
            known[own.digest] = decoded(own.payload, self.address, limits_at(self.exchange, self.state), self.state)
        try:
            if made is not None:
                after, judged = led_to(boundary, *made)
            else:
                read = self._others.fetcher.read
                after, judged = step_to(self.exchange, self.state, boundary, known, self.book.past, read)
        except MissingObjectError as error:
            published = published_state(self.exchange, boundary, self.state)
            if published is None:
                raise
            log.warning("outer step %d is taken as the keeper published it: %s", self.state.step, error)
            return published
        if own is not None and self.address in judged.excluded:
            why = judged.excluded[self.address]
            log.warning("our contribution to outer step %d does not count: %s", self.state.step, why)
        return after

    def _ask_to_join(self, now: Schedule) -> str:
        if self.address not in now.waiting:
            self._mouth.say("join", now, now.digest.hex())
        if not now.members:
            return f"other sites: {len(now.waiting)} have joined, {now.quorum} are needed"
        found = now.marks.get(self.address)
        if found is not None and found.until > now.step + 1:
            return f"outer step {found.until} to begin: this site held up others, and is left out until then"
        return f"outer step {now.step} to end, to take part in the next"

    def _share(self, step: int) -> Share:
        dealing = self.book.dealing
        items = None if dealing is None else dealing.items
        seed, places = bytes.fromhex(self.run.seed), self._places.of(self.book)
        return Share(seed, self.address, self.book.dealt, items, step, places)

    def _train(self, now: Schedule) -> str:
        """One inner step, or the contribution that they led to."""
        dealt = self.book.dealt_as(self.address)
        if self.run.work == "given" and self._progress.made and self._progress.dealt != dealt:
            self._undo()
        done, wanted, tokens = self._progress, self.run.settings.inner_steps, 0
        try:
            if done.made < wanted:
                tokens = self.inner.train(self._share(self.state.step), done.made)
        except ItemsUnusable as error:
            return self._cannot_use(error, now)
        if tokens:
            done.made, done.tokens, done.dealt = done.made + 1, done.tokens + tokens, dealt
            if done.made < wanted:
                return ""
        if not done.made:  # others need not wait for a site to which nothing is dealt; it takes part in the next step
            self._mouth.say("leave", now, None)
            return f"outer step {now.step} to end: nothing of it is dealt to this site"
        limits = limits_at(self.exchange, self.state, self.book.dealing)
        work = InnerSteps(done.made, done.tokens, now.attempt, dealt, self.inner.figures())
        log.info("to outer step %d: %s", now.step, work)
        own = make_own(self.state, self.inner.weights(), limits, self._account, work, self._owed)
        self._disk.keep(now.step, own)
        self._sent_off(own)
        return ""

    def _cannot_use(self, error: ItemsUnusable, now: Schedule) -> str:
        """Wait as long as a payload may take, unless another site has done so already; then say so: the step goes on
        without this site, or without the files."""
        named = {item.hex() for item in error.items} <= self.book.named
        if not (error.for_good or named) and self._patience.lasts(now.step, now.attempt):
            return f"{error.what} (at most {self._patience.seconds:.0f} s, then it is named in the log)"
        log.warning("%s", error)
        self._mouth.say("unusable", now, None, [item.hex() for item in error.items])
        return f"outer step {now.step} to go on without this site: {error.what}"

    def _train_beyond(self) -> str:
        """One inner step while the contribution is exchanged: the next outer step's first ones."""
        done = self._progress
        tokens = self.inner.train(self._share(self.state.step + 1), done.beyond)
        done.left = done.left - 1 if tokens else 0
        if tokens:
            done.beyond, done.beyond_tokens = done.beyond + 1, done.beyond_tokens + tokens
        return ""

    def _offer(self, own: OwnContribution, now: Schedule) -> str:
        """Sign the contribution's hash, publish its payload once all have signed, and wait for the outer step."""
        signed = now.documents.get(self.address)
        if now.phase == OuterPhase.COLLECT and signed is None and not self._mouth.said("sign", now, own.digest):
            self.exchange.publish(own.document)
            self._mouth.say("sign", now, own.digest)
        if now.phase == OuterPhase.OPEN and signed == own.digest:
            self._mouth.send(own)
        late = sorted(now.members - now.documents.keys())
        why = f"contributions to outer step {now.step} of {', '.join(late)}"
        if now.phase != OuterPhase.COLLECT:
            try:
                why = self._others.turn(self.book, self.state, own)
            except (MissingObjectError, OuterStepError) as error:
                why = f"outer step {now.step} to go on: {error.what}"
        return self._train_beyond() if self._progress.left else why

    def _offer_again(self, own: OwnContribution) -> None:
        """To another attempt: the same, if it is dealt alike, or where sites have data of their own and some only are
        gone; else it is made anew from where the outer step began."""
        book = self.book
        dealt = book.dealt_as(self.address)
        if own.dealt == dealt or (self.run.work == "own" and set(dealt) <= set(own.dealt)):
            self._own = replace(own, attempt=book.schedule.attempt)
            return
        log.info("outer step %d begins again among other sites", book.schedule.step)
        self._disk.drop()
        self._undo()
        self._own = None

    def _undo(self) -> None:
        """Go back to the inner work as it was when the outer step began."""
        self._disk.undo()
        self._progress, self._owed = self._disk.progress, self._disk.owed
