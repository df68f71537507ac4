"""From the state on a disk, or the run's first one, to the newest: the log says which steps are missing, and each is
made again from what its sites published, or taken from a state that was published since."""

import logging
from collections.abc import Iterator

from protocol.errors import IntegrityError, MusterError
from protocol.sites.admission import Admitted
from protocol.sites.contribution import ContributionLimits
from protocol.sites.dealing import Dealing
from protocol.sites.layout import Tensors
from protocol.sites.log import Boundary
from protocol.sites.outer import OuterState
from trainer.sites.exchange import ReadShard, SiteExchange
from trainer.sites.logbook import Logbook, dealing_before, too_few
from trainer.sites.reduction import place_of, reduced_step
from trainer.sites.replica import judge, passed_over, settled_by

log = logging.getLogger("muster.sites")


def limits_at(exchange: SiteExchange, state: OuterState, dealing: Dealing | None = None) -> ContributionLimits:
    """What a contribution to the outer step that starts from `state` may be, of what is dealt in an attempt at it."""
    run = exchange.run
    return ContributionLimits.of(run.pool_id, run.settings, state.step, state.digest, state.layout, dealing)


def step_to(
    exchange: SiteExchange,
    state: OuterState,
    boundary: Boundary,
    known: dict[str, Tensors] | None = None,
    dealing: Dealing | None = None,
    read: ReadShard | None = None,
) -> tuple[OuterState, Admitted]:
    """The state that `boundary` begins, made from `state`, the one before it, and which contributions counted.
    `known`: pseudo-gradients that need not be fetched, by their documents' hashes; `dealing`: of the attempt that it
    was made in, None to read it in the log; `read`: how payloads are had.

    Raises IntegrityError if the step does not lead to the state that the log names, or is made of what others gave than
    the run's sites; MissingObjectError, UnreachableError.
    """
    exchange.run.check_sites([*boundary.made_of, *boundary.means])
    if exchange.run.reducing and boundary.made_of:
        if not boundary.means or boundary.products.keys() != boundary.means.keys():
            raise IntegrityError(f"the log does not say of which means outer step {state.step} was made")
        place = place_of(exchange.run, state, boundary.attempt, boundary.made_of, boundary.means.keys())
        documents = boundary.products, boundary.means
        return led_to(boundary, *reduced_step(exchange, state, limits_at(exchange, state), place, documents))
    dealing = dealing or dealing_before(exchange, boundary)
    limits, known = limits_at(exchange, state, dealing), known or {}
    gradients: dict[str, Tensors] = {}
    for site, document in boundary.made_of.items():
        gradient = known.get(document)
        if gradient is None:
            gradient = exchange.gradient(exchange.contribution(document, site, limits), limits, state, read)
        gradients[site] = gradient
    if not gradients and dealing is not None and too_few(dealing, exchange.run):
        return led_to(boundary, passed_over(state), Admitted({}, {}))
    judged = judge(state, gradients, exchange.run.settings)
    return led_to(boundary, settled_by(state, gradients, judged, exchange.run.settings), judged)


def led_to(boundary: Boundary, made: OuterState | None, judged: Admitted) -> tuple[OuterState, Admitted]:
    """Both, where they are what the log says. Raises IntegrityError."""
    expected = (boundary.step, boundary.digest, sorted(boundary.counted))
    if made is None or (made.step, made.digest.hex(), sorted(judged.shares)) != expected:
        raise IntegrityError(
            f"outer step {boundary.step - 1} does not lead to the state that the log names, of the sites that it names",
            "stop: the run's keeper is wrong, or this machine is",
        )
    return made, judged


def caught_up(exchange: SiteExchange, state: OuterState, book: Logbook) -> Iterator[OuterState]:
    """The states after `state` up to that of `book.boundary`, one by one; from a published one on where `state` is none
    of the log's, or too old. Raises IntegrityError where neither leads there; MissingObjectError, UnreachableError."""
    missing: list[Boundary] = []
    for _, boundary in book.chapters_back():
        if (boundary.step, boundary.digest) == (state.step, state.digest.hex()):
            break
        missing.append(boundary)
        if boundary.state is not None:
            published = published_state(exchange, boundary, state)
            if published is not None:
                missing.pop()
                state = published
                yield state
                break
    else:
        raise IntegrityError(
            "the log does not contain the state that this process holds, nor a published one",
            "name the run's own base model, or another home",
        )
    for boundary in reversed(missing):
        state, _ = step_to(exchange, state, boundary)
        yield state


def published_state(exchange: SiteExchange, boundary: Boundary, state: OuterState) -> OuterState | None:
    """The state that `boundary` begins as the keeper published it, None where it cannot be had; `state`: any other of
    the run."""
    if boundary.state is None:
        return None
    try:
        made = exchange.state(boundary.state, boundary.step, boundary.digest, state.layout)
    except MusterError as error:
        log.warning("state %d cannot be had, looking for an older one: %s", boundary.step, error)
        return None
    log.info("took outer state %d from the bucket", boundary.step)
    return made
