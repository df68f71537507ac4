"""Disputed outer steps of runs of sites. What is recorded of steps, and who joined, nobody but their own run reads."""

from chain.events import Event
from chain.judging import StepDispute
from chain.reducers.registry import on
from chain.state import State


@on("SiteRuns", "StepDisputed")
def _step_disputed(state: State, event: Event) -> None:
    a = event.args
    number = state.trial_steps[a["trial"]] = a["dispute"]
    state.step_disputes[number] = StepDispute(
        number, a["run"], a["step"], a["pool"], a["disputer"],
        bond=a["bond"], trials=[a["trial"]], block=event.block, time=event.timestamp,
    )  # fmt: skip


@on("SiteRuns", "DisputeConcluded")
def _dispute_concluded(state: State, event: Event) -> None:
    a = event.args
    state.step_disputes[a["dispute"]].concluded(a["outcome"], a["code"], a["slashed"], a["back"])
