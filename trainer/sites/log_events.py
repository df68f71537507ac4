"""What an event of the log is to the schedule."""

from protocol.sites.dealing import Dealing
from protocol.sites.log import (
    Boundary,
    ContributionOpened,
    ContributionRefused,
    Failed,
    Noted,
    PartRefused,
    PartsSaid,
    TimeUp,
    Unusable,
)
from trainer.sites.events import (
    Event,
    HashesSigned,
    OuterPhase,
    PartsTold,
    PartWrong,
    PayloadOpened,
    PhaseTimeUp,
    SiteJoined,
    SiteLeft,
    SitePutOut,
    StepSettled,
)
from trainer.sites.schedule import Schedule


def as_scheduled(
    event: Boundary | Noted | Unusable | ContributionRefused | ContributionOpened | PartsSaid | PartRefused | TimeUp
    | Failed,
    now: Schedule,
    dealing: Dealing | None,
) -> Event:  # fmt: skip
    """The next event after `now`; `dealing`: of the attempt under way, if it is known."""
    if isinstance(event, PartsSaid):
        phase = OuterPhase.CHECK if event.what == "checked" else OuterPhase(event.what)
        return PartsTold(now.step, now.attempt, phase, event.documents)
    if isinstance(event, PartRefused):
        return PartWrong(event.site, lied=event.document != now.documents.get(event.site) and not event.unseen)
    if isinstance(event, Boundary):
        return StepSettled(now.step, event.attempt, bytes.fromhex(event.digest))
    if isinstance(event, Failed):
        return StepSettled(now.step, event.attempt, None)
    if isinstance(event, TimeUp):
        return PhaseTimeUp(now.step, event.attempt, OuterPhase(event.phase))
    if isinstance(event, ContributionOpened):
        return PayloadOpened(event.site, now.step, event.document)
    if isinstance(event, Unusable | ContributionRefused):
        return SitePutOut(event.site, disputed=isinstance(event, Unusable))
    if event.what == "leave":
        return SiteLeft(event.site, owing=dealing is not None and bool(dealing.of(event.site)))
    assert event.digest is not None, "a note names it"
    if event.what == "join":
        return SiteJoined(event.site, bytes.fromhex(event.digest))
    return HashesSigned(event.site, now.step, now.digest, event.digest)
