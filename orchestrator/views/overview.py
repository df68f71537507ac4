"""The first page: where a run stands, and how well the service can tell."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice

from chain.deployment import FOLDER, NetworkConfig
from chain.indexer.records import Pool, Status, Submission, Terms
from chain.indexer.state import State
from orchestrator.ledger import escrow
from orchestrator.participant_views import held_steps, node_states, validator_states
from orchestrator.service import Service
from orchestrator.status import phase, reconciliation_entry, reward_entry, shown_source, waits
from orchestrator.views.steps import StepTally
from protocol.api.run import NodeState, ReportEntry
from protocol.api.views import ChainEntry, Overview, PoolEntry, TermsEntry, ThroughputEntry

THROUGHPUT_SECONDS = 600
_LOOKED_AT = 20_000
MOST_WAITS = 20


def overview(service: Service, found: Mapping[int, StepTally]) -> Overview:
    """`found`: the tallies by policy step."""
    now, beats, watch, config = service.clock(), service.beats(), service.watch, service.config
    state = watch.state
    pool = watch.pool(state)
    step = pool.step if pool and pool.steps else None
    states = node_states(state, watch.pool_id, beats, now)
    owners = validator_states(state, beats, now)
    reward, heldout = newest_reward(service.reports())
    return Overview(
        name=config.name,
        model=shown_source(config.model.source),
        task=config.environment_names,
        pool=watch.pool_id,
        owner=pool.owner if pool else None,
        phase=phase(state, pool, config),
        time=now,
        started=service.started,
        chain=chain_entry(service, state),
        step=step,
        usable_step=watch.usable_step(state),
        steps=config.train.steps,
        reward=reward,
        heldout=heldout,
        counts={status.value: sum(one.files[status.value] for one in found.values()) for status in Status},
        tokens=sum(one.tokens for one in found.values()),
        throughput=throughput(state, pool, now),
        in_flight=service.leases.in_flight(),
        nodes=dict(Counter(one.value for one in states.values())),
        validators=dict(Counter(one.value for one in owners.values() if one is not NodeState.LEFT)),
        map="".join(one.value[0] for one in states.values()),
        held=held_steps(beats, service.sources.steps(), now),
        disputes=sum(of == watch.pool_id for of, _ in state.disputes),
        canaries=sum(of == watch.pool_id for of, _ in state.canaries),
        slashed=sum(one.amount for one in state.slashes if one.pool in (watch.pool_id, 0)),
        escrow=escrow(state, pool.pool) if pool else None,
        reconciliation=reconciliation_entry(service),
        terms=terms_entry(pool.terms) if pool else None,
        waits=waits(beats, now)[:MOST_WAITS],
    )


def chain_entry(service: Service, state: State) -> ChainEntry:
    watch, chain_id = service.watch, service.uploads.pool.chain_id
    name, explorer = network(chain_id)
    heard, moved = (None if at is None else max(0.0, service.clock() - at) for at in (watch.heard, watch.moved))
    return ChainEntry(
        network=name,
        chain_id=chain_id,
        explorer=explorer,
        head=state.head,
        age=heard,
        head_age=moved,
        error=watch.error,
    )


def network(chain_id: int) -> tuple[str, str]:
    """The name and the explorer's URL (or an empty string) of a chain."""
    return _networks().get(chain_id, (f"chain {chain_id}", ""))


@lru_cache(maxsize=1)
def _networks() -> dict[int, tuple[str, str]]:
    """Chain id → name and explorer of the networks that muster knows."""
    known = [NetworkConfig.load(path) for path in sorted(FOLDER.glob("*.toml"))]
    return {one.chain_id: (one.name, one.explorer) for one in known}


def throughput(state: State, pool: Pool | None, now: float) -> ThroughputEntry:
    """Of the last minutes."""
    recent = [sub for sub in islice(_newest(state, pool), _LOOKED_AT) if sub.decided_time > now - THROUGHPUT_SECONDS]
    tokens = sum(sub.units for sub in recent if sub.status is Status.ACCEPTED)
    return ThroughputEntry(seconds=THROUGHPUT_SECONDS, files=len(recent), tokens=tokens)


def _newest(state: State, pool: Pool | None) -> Iterator[Submission]:
    """The pool's files, newest first."""
    return (state.submissions[pool.pool, sequence] for sequence in reversed(pool.sequences)) if pool else iter(())


def newest_reward(reports: list[ReportEntry]) -> tuple[float | None, float | None]:
    """The newest mean reward trained on, and the newest held-out one."""
    told = [reward_entry(one) for one in reversed(reports)]
    reward = next((one.reward for one in told if one.reward is not None), None)
    return reward, next((one.heldout for one in told if one.heldout is not None), None)


def terms_entry(terms: Terms) -> TermsEntry:
    return TermsEntry(
        rate=terms.rate,
        fee=terms.fee,
        stake=terms.minStake,
        committee=terms.committee,
        jury=terms.jury,
        challenge_seconds=terms.challengeWindow,
        audit_share=terms.audit_fraction,
        invite_only=terms.inviteOnly,
    )


def pool_entry(state: State, pool: Pool, here: bool) -> PoolEntry:
    return PoolEntry(
        pool=pool.pool,
        owner=pool.owner,
        status=pool.status,
        url=pool.service_url,
        here=here,
        steps=len(pool.steps),
        nodes=sum(of == pool.pool and account.member for (of, _), account in state.accounts.items()),
        submissions=len(pool.sequences),
        funded=pool.funded,
        held=pool.escrow,
        terms=terms_entry(pool.terms),
    )
