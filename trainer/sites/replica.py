"""Following the outer steps: each is applied once to a replica's state, and leads all replicas to the same bits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from protocol.errors import IntegrityError
from protocol.sites.admission import Admitted, admit
from protocol.sites.config import SitesConfig
from protocol.sites.layout import Tensors, cut
from protocol.sites.outer import OuterState, advance, check_tensors


@dataclass(frozen=True)
class OuterStep:
    """Outer step `step`, settled: from the state of digest `base` with what `contributions` there were (each site's
    pseudo-gradient as decoded) to the state of digest `after`. Which of them count follows from them."""

    step: int
    base: bytes
    contributions: Mapping[str, Tensors]
    after: bytes


def settle(state: OuterState, contributions: Mapping[str, Tensors], config: SitesConfig) -> OuterState | None:
    """The state after the outer step that is under way; None if too few of the contributions count. Raises
    OuterStepError where they are no tensors of this model."""
    return settled_by(state, contributions, judge(state, contributions, config), config)


def settled_by(
    state: OuterState, contributions: Mapping[str, Tensors], judged: Admitted, config: SitesConfig
) -> OuterState | None:
    """The same where it is known which of them count."""
    if not judged.complete:
        return None
    return advance(state, {site: contributions[site] for site in judged.shares}, judged.shares, config.outer)


def passed_over(state: OuterState) -> OuterState:
    """The state after an outer step that nothing is left of to train on."""
    return replace(state, step=state.step + 1)


def judge(state: OuterState, contributions: Mapping[str, Tensors], config: SitesConfig) -> Admitted:
    """Which of the contributions to an outer step count, and why the others do not. Raises OuterStepError where they
    are no tensors of this model."""
    check_tensors(state, contributions)
    shards = state.layout.shards(config.shards)
    vectors = {site: [cut(tensors, pieces) for pieces in shards] for site, tensors in contributions.items()}
    return admit(vectors, config.admission)


def follow(state: OuterState, settled: OuterStep, config: SitesConfig) -> OuterState:
    """The replica's state after a settled outer step; the same object if it has made that step already.

    Raises IntegrityError if steps between are missing, or this one does not lead where it says.
    """
    if settled.step < state.step:
        return state
    if settled.step > state.step:
        raise IntegrityError(
            f"outer step {settled.step} came, this replica stands at {state.step}", "fetch the steps between"
        )
    if settled.base != state.digest:
        raise IntegrityError(
            f"outer step {settled.step} starts from another state than this replica's", "fetch the state again"
        )
    made = settle(state, settled.contributions, config)
    if made is None or made.digest != settled.after:
        raise IntegrityError(f"outer step {settled.step} does not lead to the state that was published")
    return made
