"""Node cases: what several files of a node say together."""

from chain.events import Event
from chain.judging import Accusation, CaseOutcome
from chain.reducers.registry import account_of, on, slash
from chain.state import State


@on("NodeChallenges", "ChallengeOpened")
def _case_opened(state: State, event: Event) -> None:
    a = event.args
    number = state.trial_cases[a["trial"]] = a["challenge"]
    state.cases[number] = Accusation(
        number, a["pool"], a["node"], a["accuser"], tuple(a["sequences"]), a["evidence"],
        bond=a["bond"], trials=[a["trial"]], block=event.block, time=event.timestamp,
    )  # fmt: skip


@on("Juries", "JuryReplaced")
def _jury_replaced(state: State, event: Event) -> None:
    case = state.case_of(event.args["trial"])
    if case is not None:
        case.trials.append(event.args["next"])
        state.trial_cases[event.args["next"]] = case.case


@on("Pools", "NodeExpelled")
def _node_expelled(state: State, event: Event) -> None:
    account = account_of(state, event)
    account.slashed_at = min(account.slashed_at or event.timestamp, event.timestamp)
    account.ejected, account.member, account.limit = True, False, 0


@on("NodeChallenges", "ChallengeConcluded")
def _case_concluded(state: State, event: Event) -> None:
    a = event.args
    case, account = state.cases[a["challenge"]], account_of(state, event)
    case.concluded(a["outcome"], a["code"], a["slashed"], a["back"])
    if case.outcome is not CaseOutcome.UPHELD:
        return
    if not account.eject_code:
        account.eject_code, account.eject_sequence, account.eject_case = case.code, case.sequences[-1], case.case
    # The order to Stakes in the same transaction; nothing was taken of a stake that stands for another pool by now.
    state.pending_slashes.pop(case.node, None)
    account.slashed += case.slashed
    if case.slashed:
        slash(state, event, "node", case.node, case.code, case.slashed, (case.pool, case.sequences[-1]))
