"""What must hold whatever goes wrong, looked at from outside, with the truth at hand."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from chain.indexer.records import Status
from chain.indexer.state import State
from localnet.plan import POOL
from orchestrator.ledger import reconcile
from trainer.reports.records import file_id

if TYPE_CHECKING:
    from simulation.world import World

_LONGEST_WAIT = 300.0
"""Seconds after which somebody who waits in calm weather waits in vain."""


def look(world: "World") -> Iterator[str]:
    """Yield what is wrong now, on the newest state of the chain."""
    world.observer.refresh()
    state = world.observer.state
    yield from _money(world, state)
    yield from _verdicts(world, state)
    yield from _seats(state)
    yield from _training(world, state)


def _money(world: "World", state: State) -> Iterator[str]:
    """Nothing is made or lost, and every account holds what the events say."""
    supply, held = world.suite.token.read("totalSupply"), sum(state.balances.values())
    if supply != held:
        yield f"money: {supply} base units exist, {held} by the transfers"
    found = reconcile(state, POOL, world.suite)
    if found is not None and found.findings:
        yield f"money: {'; '.join(found.findings)}"


def _verdicts(world: "World", state: State) -> Iterator[str]:
    """Made-up files earn nothing, computed ones are never refused, and their nodes lose nothing."""
    for file in state.submissions_of(POOL):
        forged = file.node in world.forgers
        if forged and file.status is Status.ACCEPTED:
            yield f"paid unverified: file {file.sequence} was made up, and is accepted"
        if not forged and file.status is Status.REJECTED:
            yield f"honest work refused: file {file.sequence} of {world.who(file.node)}: {file.code}"
    for (pool, node), account in state.accounts.items():
        if pool == POOL and node not in world.forgers and (account.ejected or account.slashed):
            yield f"honest node lost: {world.who(node)} was ejected or slashed"


def _seats(state: State) -> Iterator[str]:
    """All seats are honest, and faults are shorter than their windows."""
    for seat in state.seats.values():
        if seat.penalised:
            yield f"honest seat fined: seat {seat.seat} lost {seat.penalised}"


def _training(world: "World", state: State) -> Iterator[str]:
    """No file is trained on twice, and none that was made up."""
    made_up = {file_id(file) for file in state.submissions_of(POOL) if file.node in world.forgers}
    for path in sorted(world.plan.home("trainer").glob("*/trained.json")):
        count = Counter(name for step in json.loads(path.read_bytes()) for name in step)
        for name, times in count.items():
            if name in made_up:
                yield f"trained unverified: {name} was made up"
            if times > 1:
                yield f"trained twice: {name} is in {times} steps"


def at_rest(world: "World", since: float) -> Iterator[str]:
    """Yield what is wrong after a long calm that began at `since` (Unix seconds): work that stands still, pay that
    nobody claims, waits without an end."""
    now, state = world.chain.head.time, world.observer.state
    files = state.submissions_of(POOL)
    relayed = [file for file in files if file.time > since and world.chain.sender_of(file.tx) != file.node]
    recent = [file for file in relayed if file.status is Status.ACCEPTED]
    honest = [node for node in world.workers if node not in world.forgers]
    for node in honest:
        if not any(file.node == node for file in recent):
            yield f"no progress: {world.who(node)} has no file accepted that was relayed since the calm"
    for node in world.workers:
        if state.claim_hint(POOL, node, int(since)) is not None:
            yield f"unpaid: {world.who(node)} was not paid what had vested"
    for file in files:
        if file.status is Status.PENDING and file.time <= since:
            yield f"no progress: file {file.sequence} has no verdict after {now - file.time} s"
    steps = state.pools[POOL].steps
    if not any(world.chain.blocks[step.block].time > since for step in steps):
        yield "no progress: no policy step was published since the calm"
    for machine in world.machines.values():
        if not machine.process.alive and not machine.over:
            yield f"no progress: {machine.name} does not run: {machine.process.message}"
        for what, wait in machine.process.waits.items():
            if wait.since < max(since, world.scheduler.now - _LONGEST_WAIT):
                yield f"waits in vain: {machine.name} waits for {what} for {world.scheduler.now - wait.since:.0f} s"
