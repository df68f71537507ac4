"""What the log says against a site must follow from that site's own words: whoever follows the log looks them up before
it takes such an entry, so a keeper that makes them up is found out. Of words that nobody can have any more the keeper's
stands, who could as well not have heard the site: but a site knows what it has said itself."""

import logging

from protocol.errors import IntegrityError, MusterError, UnreachableError, printable
from protocol.sites.forms import MalformedContribution
from protocol.sites.log import ContributionRefused, LogEvent, Noted, PartRefused, Unusable
from protocol.sites.notes import SiteNote
from protocol.sites.outer import OuterState
from trainer.sites.catching_up import limits_at
from trainer.sites.logbook import Logbook
from trainer.sites.reduction import Parts, Payloads, place_of

log = logging.getLogger("muster.sites")
_STOP = "stop: the run's keeper is wrong, or this machine is"
_Said = tuple[str, str | None, tuple[str, ...]]
"""What, and of which digest and items."""


def check_evidence(book: Logbook, event: LogEvent, state: OuterState, reader: str) -> None:
    """Look up what `event`, the next one after `book`, holds against a site, for the site `reader` that holds `state`.
    Raises IntegrityError where the words of that site are others; UnreachableError, after which it is to be looked up
    again."""
    if isinstance(event, ContributionRefused):
        _check_note(book, event.site, event.note, ("sign", event.document, ()), reader)
        _check_refusal(book, event, state)
    elif isinstance(event, PartRefused):
        _check_part(book, event, state, reader)
    elif isinstance(event, Unusable):
        _check_note(book, event.site, event.note, ("unusable", None, tuple(event.items)), reader)
    elif isinstance(event, Noted) and event.what == "leave":
        _check_note(book, event.site, event.note, ("leave", None, ()), reader)
    elif isinstance(event, Noted) and event.what == "sign":
        signed = book.schedule.documents.get(event.site)
        if signed is not None and signed != event.digest:
            _check_note(book, event.site, event.note, ("sign", event.digest, ()), reader)
            _check_note(book, event.site, book.signed[event.site], ("sign", signed, ()), reader)


def _check_note(book: Logbook, site: str, number: int, said: _Said, reader: str) -> None:
    """Whether note `number` of `site` says so, of the attempt under way where it is about one."""
    try:
        note = book.exchange.note(site, number)
    except IntegrityError as error:
        log.warning("note %d of %s: %s", number, site, error)
        note = None
    if note is not None and _words(note) == said and _is_due(note, book):
        return
    if note is None and site != reader:
        log.warning("note %d of %s cannot be had, by which it is out of this step", number, site)
        return
    raise IntegrityError(f"the log has a word of {site} ({said[0]}) that it did not say in note {number}", _STOP)


def _words(note: SiteNote) -> _Said:
    return note.what, note.digest, tuple(note.items)


def _is_due(note: SiteNote, book: Logbook) -> bool:
    """Whether it is about the attempt under way, or one that the log has not had yet."""
    if note.what == "leave":
        return note.number >= book.notes.get(note.site, 0)
    return (note.step, note.attempt) == (book.schedule.step, book.schedule.attempt)


def _check_refusal(book: Logbook, refused: ContributionRefused, state: OuterState) -> None:
    """Whether a contribution that the log refuses is wrong by what is published."""
    limits = limits_at(book.exchange, state, book.dealing)
    why = printable(refused.why)
    log.warning("the contribution of %s to outer step %d is refused: %s", refused.site, limits.step, why)
    try:
        book.exchange.contribution(refused.document, refused.site, limits)
    except UnreachableError:
        raise
    except MalformedContribution:
        return
    except MusterError as error:
        log.warning("why that of %s is refused cannot be computed again: %s", refused.site, error)
        return
    raise IntegrityError(
        f"the log refuses a contribution of {refused.site} to outer step {limits.step} that is right", _STOP
    )


def _check_part(book: Logbook, refused: PartRefused, state: OuterState, reader: str) -> None:
    """Whether what a site published of a shard is wrong, in the attempt under way, and it said that it is its own."""
    now, site, document = book.schedule, refused.site, refused.document
    why = printable(refused.why)
    log.warning("a part of %s in outer step %d is refused, shard %d: %s", site, now.step, refused.shard, why)
    if refused.shard >= (shards := book.exchange.run.settings.shards):
        raise IntegrityError(f"the log refuses shard {refused.shard} of {site}, of {shards} that there are", _STOP)
    if document == now.contributors.get(site):
        _check_note(book, site, book.signed[site], ("sign", document, ()), reader)
    else:
        what = "means" if document == now.means.get(site) else "products"
        _check_note(book, site, book.said[what, site], (what, document, ()), reader)
    try:
        wrong = _part_is_wrong(book, refused, state)
    except UnreachableError:
        raise
    except MusterError as error:
        log.warning("why a part of %s is refused cannot be computed again: %s", site, error)
        return
    if not wrong:
        raise IntegrityError(f"the log refuses a part of {site} in outer step {now.step} that is right", _STOP)


def _part_is_wrong(book: Logbook, refused: PartRefused, state: OuterState) -> bool:
    """By computing it again from what is published. Raises MusterError where that cannot be had."""
    now, exchange, limits = book.schedule, book.exchange, limits_at(book.exchange, state, book.dealing)
    site, document = refused.site, refused.document
    made = {one: exchange.contribution(named, one, limits) for one, named in now.contributors.items()}
    payloads = Payloads(limits, state, made, exchange.shard)
    if document == now.contributors.get(site):
        return payloads.seen(site, refused.shard) is None and not refused.unseen
    place = place_of(exchange.run, state, now.attempt, now.contributors, now.reducers)
    parts = Parts.opened(exchange, place, limits, now.products, now.means)
    if document == now.products.get(site):
        unseen = parts.unseen(site, refused.shard)
        return unseen == refused.unseen and parts.wrong_products(payloads, site) is not None
    return not refused.unseen and parts.wrong_mean(payloads, site, parts.judged(exchange.run).shares) is not None
