"""Disputed outer steps of runs of sites. What is recorded of steps, and who joined, nobody but their own run reads."""

from chain.events import Event
from chain.judging import CaseOutcome, StepDispute
from chain.reducers.registry import on
from chain.state import State


@on("SiteRuns", "StepDisputed")
def _step_disputed(state: State, event: Event) -> None:
    a = event.args
    number = state.trial_steps[a["trial"]] = a["dispute"]
    state.step_disputes[number] = StepDispute(
        number, a["run"], a["step"], a["pool"], a["disputer"], a["bond"], [a["trial"]], event.block, event.timestamp
    )


@on("SiteRuns", "DisputeConcluded")
def _dispute_concluded(state: State, event: Event) -> None:
    a = event.args
    disputed = state.step_disputes[a["dispute"]]
    disputed.outcome, disputed.code = CaseOutcome(a["outcome"]), a["code"]
    disputed.slashed, disputed.back = a["slashed"], a["back"]
