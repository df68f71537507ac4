"""The documents behind the dashboard's pages: overview, policy steps, people, files, evidence and search."""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Literal

from tokenizers import Tokenizer

from chain.deployment import FOLDER, NetworkConfig
from chain.indexer.records import Panel, Pool, Round, Status, Submission, Terms, Trial
from chain.indexer.state import State
from orchestrator.aggregates import ConsumedFiles
from orchestrator.auth import HttpError
from orchestrator.dashboard import documents
from orchestrator.heartbeats import Heartbeats
from orchestrator.ledger import escrow
from orchestrator.service import Service
from protocol.api import run, views
from protocol.config import WorkConfig
from protocol.errors import MusterError, UnreachableError
from protocol.evidence.figures import CHECK
from protocol.identity import PoolId
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, Rollout
from protocol.verdict import MAX_DOCUMENT_BYTES, BallotDocument, Code, Verdict, code_at
from storage.keys import MissingObjectError, object_key, parse_key
from storage.weights.manifest import MAX_STORED_BYTES, ManifestScope, unseal

THROUGHPUT_SECONDS = 600
RECENT_FILES = 20_000
"""Newest files that throughput and a validator's votes are taken from."""
RECENT_VOTES = 50
MOST_WAITS = 20
MOST_POINTS = 400
MOST_HITS = 20
ROWS = 8
"""Rollouts of a page."""
MAX_TOKENIZER_BYTES = 64 << 20
MAX_TEXT = 20_000
Order = Literal["joined", "earned", "slashed", "units"]
OpenObject = Callable[[str, int], bytes]
"""(key, limit in bytes) → the object's bytes."""
FileFacts = tuple[int, str, int, int, int]
"""A file's policy step, status, units, and the times of its submission and decision (0: none yet)."""


# ---- policy steps


@dataclass
class StepTally:
    """Files generated with one step: how many have each status, accepted output tokens, and the earliest and latest
    times of submission and acceptance."""

    files: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    submitted: tuple[int, int] | None = None
    accepted: tuple[int, int] | None = None


def tallies(files: Iterable[FileFacts]) -> dict[int, StepTally]:
    """Return policy step → its tally."""
    found: dict[int, StepTally] = {}
    for step, status, units, time, decided in files:
        tally = found.setdefault(step, StepTally())
        tally.files[status] += 1
        tally.submitted = _extended(tally.submitted, time)
        if status == Status.ACCEPTED:
            tally.tokens += units
            tally.accepted = _extended(tally.accepted, decided or time)
    return found


def _extended(span: tuple[int, int] | None, time: int) -> tuple[int, int]:
    return (time, time) if span is None else (min(span[0], time), max(span[1], time))


def step_entry(
    published: run.PublishedEntry, tally: StepTally | None, report: run.ReportEntry | None
) -> views.StepEntry:
    """Return a published step; `report` is the trainer's on its making."""
    rewards, tally = documents.reward_entry(report) if report else None, tally or StepTally()
    return views.StepEntry(
        **vars(published),
        reward=rewards.reward if rewards else None,
        heldout=rewards.heldout if rewards else None,
        files=dict(tally.files),
        tokens=tally.tokens,
        submitted=tally.submitted,
        accepted=tally.accepted,
    )


def step_view(published: run.PublishedEntry, tally: StepTally | None, report: run.ReportEntry | None) -> views.StepView:
    """Return a published step with the trainer's report."""
    return views.StepView(**vars(step_entry(published, tally, report)), report=report)


def history(
    published: Sequence[run.PublishedEntry],
    tallies: Mapping[int, StepTally],
    reports: Sequence[run.ReportEntry],
    most: int = MOST_POINTS,
) -> views.History:
    """Return the columns of a run's charts, at most `most` points: `time`, `tokens`, `files/…` by status, `reward`,
    `heldout/SET` and `error/SET`, `metric/…` and `timing/…` as the trainer reported them."""
    times = {one.step: one.time for one in published}
    reported = {one.step: one for one in reports}
    steps = _thinned(sorted({*times, *reported, *tallies}), most)
    rows = [_history_row(times.get(step), tallies.get(step), reported.get(step)) for step in steps]
    names = sorted({name for row in rows for name in row})
    return views.History(steps=steps, columns={name: [row.get(name) for row in rows] for name in names})


def _history_row(time: int | None, tally: StepTally | None, report: run.ReportEntry | None) -> dict[str, float | None]:
    row: dict[str, float | None] = {"time": time}
    if tally is not None:
        row |= {"tokens": tally.tokens} | {f"files/{status}": count for status, count in tally.files.items()}
    if report is not None:
        row |= {f"metric/{name}": value for name, value in report.metrics.items()}
        row |= {f"timing/{name}": value for name, value in report.timings.items()}
        rewards = documents.reward_entry(report)
        row["reward"] = rewards.reward
        for heldout in rewards.sets:
            row |= {f"heldout/{heldout.name}": heldout.average, f"error/{heldout.name}": heldout.error}
    return row


def _thinned(steps: list[int], most: int) -> list[int]:
    """Return at most `most` of the steps, evenly spread, with the first and the last."""
    if len(steps) <= most:
        return steps
    return [steps[round(index * (len(steps) - 1) / (most - 1))] for index in range(most)]


# ---- overview and pools


def overview(service: Service, tallies: Mapping[int, StepTally]) -> views.Overview:
    """Return where the run stands. `tallies`: of all policy steps."""
    now, heartbeats, view, config = service.clock(), service.heartbeats(), service.view, service.config
    state = view.state
    pool = view.pool(state)
    nodes = documents.node_states(state, view.pool_id, heartbeats, now)
    owners = documents.validator_states(state, heartbeats, now)
    reward, heldout = newest_reward(service.reports())
    return views.Overview(
        name=config.name,
        model=documents.shown_source(config.model.source),
        task=config.environment_names,
        pool=view.pool_id,
        owner=pool.owner if pool else None,
        phase=documents.phase(state, pool, config),
        time=now,
        started=service.started,
        chain=_chain_entry(service, state),
        step=pool.step if pool and pool.steps else None,
        usable_step=view.usable_step(state),
        steps=config.train.steps,
        reward=reward,
        heldout=heldout,
        counts={status.value: sum(one.files[status.value] for one in tallies.values()) for status in Status},
        tokens=sum(one.tokens for one in tallies.values()),
        throughput=_throughput(state, pool, now),
        in_flight=service.leases.in_flight(),
        nodes=dict(Counter(one.value for one in nodes.values())),
        validators=dict(Counter(one.value for one in owners.values() if one is not run.NodeState.LEFT)),
        map="".join(one.value[0] for one in nodes.values()),
        held=documents.held_steps(heartbeats, service.sources.steps(), now),
        disputes=sum(of == view.pool_id for of, _ in state.disputes),
        canaries=sum(of == view.pool_id for of, _ in state.canaries),
        slashed=sum(one.amount for one in state.slashes if one.pool in (view.pool_id, 0)),
        escrow=escrow(state, pool.pool) if pool else None,
        reconciliation=documents.reconciliation_entry(service),
        terms=_terms_entry(pool.terms) if pool else None,
        waits=documents.waits(heartbeats, now)[:MOST_WAITS],
    )


def _chain_entry(service: Service, state: State) -> views.ChainEntry:
    view, chain_id = service.view, service.uploads.pool.chain_id
    name, explorer = network(chain_id)
    age, head_age = (None if time is None else max(0.0, service.clock() - time) for time in (view.heard, view.moved))
    return views.ChainEntry(
        network=name,
        chain_id=chain_id,
        explorer=explorer,
        head=state.head,
        age=age,
        head_age=head_age,
        error=view.error,
    )


def network(chain_id: int) -> tuple[str, str]:
    """Return the name of a chain, and its explorer's URL or an empty string."""
    return _networks().get(chain_id, (f"chain {chain_id}", ""))


@lru_cache(maxsize=1)
def _networks() -> dict[int, tuple[str, str]]:
    known = [NetworkConfig.load(path) for path in sorted(FOLDER.glob("*.toml"))]
    return {one.chain_id: (one.name, one.explorer) for one in known}


def _throughput(state: State, pool: Pool | None, now: float) -> views.ThroughputEntry:
    sequences = islice(reversed(pool.sequences), RECENT_FILES) if pool else ()
    newest = [state.submissions[pool.pool, sequence] for sequence in sequences] if pool else []
    decided = [sub for sub in newest if sub.decided_time > now - THROUGHPUT_SECONDS]
    tokens = sum(sub.units for sub in decided if sub.status is Status.ACCEPTED)
    return views.ThroughputEntry(seconds=THROUGHPUT_SECONDS, files=len(decided), tokens=tokens)


def newest_reward(reports: list[run.ReportEntry]) -> tuple[float | None, float | None]:
    """Return the newest mean reward trained on, and the newest held-out one."""
    rewards = [documents.reward_entry(one) for one in reversed(reports)]
    reward = next((one.reward for one in rewards if one.reward is not None), None)
    return reward, next((one.heldout for one in rewards if one.heldout is not None), None)


def _terms_entry(terms: Terms) -> views.TermsEntry:
    return views.TermsEntry(
        rate=terms.rate,
        fee=terms.fee,
        stake=terms.minStake,
        committee=terms.committee,
        jury=terms.jury,
        challenge_seconds=terms.challengeWindow,
        audit_share=terms.audit_fraction,
        invite_only=terms.inviteOnly,
    )


def pool_entry(state: State, pool: Pool, here: bool) -> views.PoolEntry:
    """Return one pool of the contracts; `here`: it is this service's."""
    return views.PoolEntry(
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
        terms=_terms_entry(pool.terms),
    )


# ---- nodes and validators


def nodes(
    state: State,
    pool: Pool | None,
    heartbeats: Heartbeats,
    now: float,
    *,
    limit: int,
    after: int = 0,
    order: Order = "joined",
    wanted: run.NodeState | None = None,
    operator: str | None = None,
) -> views.Listing[run.NodeEntry]:
    """Return the nodes of a state or operator from place `after` on, in the order of joining or the largest figure
    first."""
    if pool is None:
        return views.Listing(rows=[], total=0, next=None)
    chosen = [account for (of, _), account in state.accounts.items() if of == pool.pool]
    if wanted is not None:
        states = documents.node_states(state, pool.pool, heartbeats, now)
        chosen = [account for account in chosen if states[account.node] is wanted]
    if operator is not None:
        chosen = [account for account in chosen if account.operator == operator]
    if order != "joined":
        figure = attrgetter("slashed" if order == "slashed" else "units_awarded")
        chosen.sort(key=figure, reverse=True)
    page = chosen[after : after + limit]
    rows = [documents.node_entry(state, pool, one, heartbeats.get(one.node), now) for one in page]
    return views.Listing(rows=rows, total=len(chosen), next=after + limit if after + limit < len(chosen) else None)


def node(state: State, pool: Pool | None, heartbeats: Heartbeats, now: float, address: str) -> run.NodeEntry:
    """Return one node. Raises HttpError 404 for an address that never joined the pool."""
    account = state.accounts.get((pool.pool, address)) if pool else None
    if pool is None or account is None:
        raise HttpError(404, f"{address} has not joined this pool", "see the list of nodes")
    return documents.node_entry(state, pool, account, heartbeats.get(address), now)


def validator(state: State, pool: Pool | None, owners: list[run.ValidatorEntry], address: str) -> views.ValidatorView:
    """Return one owner of seats with its newest votes and penalties. Raises HttpError 404 for an address that owns no
    seat."""
    entry = next((one for one in owners if one.address == address), None)
    if entry is None:
        raise HttpError(404, f"{address} owns no seat", "see the list of validators")
    seats = {one.seat for one in entry.seats}
    votes = islice(_votes(state, pool, seats), RECENT_VOTES) if pool else ()
    penalties = [one for one in reversed(state.slashes) if one.kind == "seat" and int(one.who) in seats]
    slashes = documents.slash_entries(penalties[:RECENT_VOTES])
    return views.ValidatorView(**vars(entry), recent=list(votes), slashes=slashes)


def _votes(state: State, pool: Pool, seats: set[int]) -> Iterator[views.VoteEntry]:
    """Yield what the seats revealed on the pool's newest files, newest first."""
    for sequence in islice(reversed(pool.sequences), RECENT_FILES):
        sub = state.submissions[pool.pool, sequence]
        for voting_round in state.lane_of(sub).rounds:
            for member in voting_round.reveals:
                seat, code = voting_round.seats[member], voting_round.code_at(sub.place, member)
                if seat in seats and code:
                    yield views.VoteEntry(
                        sequence=sequence,
                        seat=seat,
                        code=code.label,
                        status=sub.status.value,
                        reason=Code(sub.code).label if sub.code else "",
                        time=sub.time,
                    )


# ---- files


def find_submission(state: State, pool: int, sequence: int) -> Submission:
    """Return a file. Raises HttpError 404 if there is no such file."""
    found = state.submissions.get((pool, sequence))
    if found is None:
        raise HttpError(404, f"pool {pool} has no file {sequence}", "see the list of files")
    return found


def submissions(
    state: State,
    pool: Pool | None,
    consumed: ConsumedFiles,
    *,
    limit: int,
    after: int | None = None,
    node: str | None = None,
    status: Status | None = None,
    step: int | None = None,
) -> views.Listing[run.SubmissionEntry]:
    """Return files before sequence `after`, newest first, of one node, status or policy step."""
    if pool is None:
        return views.Listing(rows=[], total=0, next=None)
    sequences = pool.sequences
    if node is not None:
        account = state.accounts.get((pool.pool, node))
        sequences = account.sequences if account else []
    earlier = (sequence for sequence in reversed(sequences) if after is None or sequence < after)
    candidates = (state.submissions[pool.pool, sequence] for sequence in earlier)
    matching = (sub for sub in candidates if status in (None, sub.status) and step in (None, sub.step))
    found = list(islice(matching, limit + 1))
    rows = [run.SubmissionEntry(**documents.submission_fields(state, sub, consumed)) for sub in found[:limit]]
    total = len(sequences) if status is None and step is None else None
    return views.Listing(rows=rows, total=total, next=rows[-1].sequence if len(found) > limit else None)


def submission_view(state: State, sub: Submission, consumed: ConsumedFiles) -> views.SubmissionView:
    """Return one file with its committees, juries, dispute, canary and penalties."""
    key = (sub.pool, sub.sequence)
    disputes = [one for one in documents.disputes(state, sub.pool) if one.sequence == sub.sequence]
    canaries = [one for one in documents.canaries(state, sub.pool) if one.sequence == sub.sequence]
    derived = {
        "root": sub.root.hex(),
        "key": object_key("rollouts", sub.sha256),
        "lane": sub.lane,
        "attested": state.lane_of(sub).is_judged(sub.place),
        "final": sub.final_time or None,
        "panels": panels(state, sub),
        "dispute": disputes[0] if disputes else None,
        "canary": canaries[0] if canaries else None,
        "slashes": documents.slash_entries(one for one in state.slashes if (one.pool, one.sequence) == key),
    }
    return views.SubmissionView(**documents.submission_fields(state, sub, consumed) | derived)


def panels(state: State, sub: Submission) -> list[views.PanelEntry]:
    """Return a file's committees, then its juries."""
    committees = [_committee(state, one, sub.place) for one in state.lane_of(sub).rounds if one.drawn]
    key = (sub.pool, sub.sequence)
    juries = [
        one for one in state.trials.values() if (one.pool, one.sequence) == key and one.trial not in state.trial_cases
    ]
    return committees + [_jury(state, one) for one in juries]


def _committee(state: State, one: Round, place: int) -> views.PanelEntry:
    votes = {member: (one.code_at(place, member), digest) for member, (_, digest) in one.reveals.items()}
    outcome = code_at(one.codes, place) if one.settled else Code.NONE
    return _panel(state, one, "committee", one.round, votes, outcome)


def _jury(state: State, one: Trial) -> views.PanelEntry:
    votes = {member: (Code(code), digest) for member, (code, digest) in one.reveals.items()}
    return _panel(state, one, "jury", one.trial, votes, Code(one.code))


def _panel(
    state: State, panel: Panel, kind: str, number: int, votes: dict[int, tuple[Code, bytes]], outcome: Code
) -> views.PanelEntry:
    members = []
    for member, seat in enumerate(panel.seats):
        code, digest = votes.get(member, (Code.NONE, b""))
        members.append(
            views.MemberEntry(
                seat=seat,
                owner=state.seats[seat].owner,
                committed=member in panel.commits,
                code=code.label if code else "",
                verdict=object_key("verdicts", digest) if len(digest) == 32 else "",
            )
        )
    return views.PanelEntry(
        kind=kind,
        number=number,
        drawn=panel.drawn_time or None,
        seed=panel.seed.hex(),
        outcome=outcome.label if outcome else "",
        members=members,
    )


# ---- evidence: published verdicts and rollouts, from the pool's bucket


@dataclass
class Evidence:
    """Reads a pool's bucket for the dashboard, one file at a time, so that onlookers never hold up the pool's work.

    Every byte is a stranger's: documents are checked against the hashes on chain, rollout files are read in a sandbox.
    """

    pool: PoolId
    work: WorkConfig
    open_object: OpenObject
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tokenizers: dict[bytes, Tokenizer | None] = field(default_factory=dict)

    def verdicts(self, state: State, sequence: int) -> views.VerdictsView:
        """Return the published verdicts on a file. Raises HttpError 404, UnreachableError."""
        sub = find_submission(state, self.pool.pool, sequence)
        members = [(member.seat, member.verdict) for panel in panels(state, sub) for member in panel.members]
        with self._lock:
            entries = [self._verdict(sub, seat, key) for seat, key in members if key]
        return views.VerdictsView(sequence=sequence, verdicts=entries)

    def _verdict(self, sub: Submission, seat: int, key: str) -> views.VerdictEntry:
        try:
            data = self.open_object(key, MAX_DOCUMENT_BYTES)
            verdict = BallotDocument.parse(data, parse_key(key).digest).on(sub.sequence)
            return verdict_entry(seat, key, verdict)
        except MissingObjectError:
            return views.VerdictEntry(seat=seat, key=key, problem="its voter has not published it")
        except UnreachableError:
            raise
        except (MusterError, ValueError) as error:
            return views.VerdictEntry(seat=seat, key=key, problem=str(error)[:200])

    def rollouts(self, state: State, sequence: int, first: int) -> views.RolloutsView:
        """Return some rows of a file from row `first` on. Raises HttpError 404, UnreachableError."""
        sub = find_submission(state, self.pool.pool, sequence)
        limits = Limits.of(self.work)
        with self._lock:
            try:
                data = self.open_object(object_key("rollouts", sub.sha256), limits.file_bytes)
                header, rows = read(data, limits)
            except MissingObjectError:
                return _no_rollouts(sequence, "the file is not in the pool's bucket")
            except UnreachableError:
                raise
            except MusterError as error:
                return _no_rollouts(sequence, error.what[:200])
            tokenizer = self._tokenizer(state.pools[self.pool.pool])
        if first >= len(rows):
            raise HttpError(404, f"file {sequence} has {len(rows)} rows", "ask for an earlier row")
        return views.RolloutsView(
            sequence=sequence,
            engine=header.engine,
            dtype=header.dtype,
            device=header.device,
            total=len(rows),
            next=first + ROWS if first + ROWS < len(rows) else None,
            rows=[_rollout(first + index, row, tokenizer) for index, row in enumerate(rows[first : first + ROWS])],
            problem="",
        )

    def _tokenizer(self, pool: Pool) -> Tokenizer | None:
        """Return the tokenizer among the weights of the pool's first step; None if it cannot be read."""
        manifest = pool.steps[0].manifest
        if manifest not in self._tokenizers:
            try:
                self._tokenizers[manifest] = self._read_tokenizer(manifest, pool.owner)
            except UnreachableError:
                raise
            except Exception:  # a hostile tokenizer.json can make the parser raise anything
                self._tokenizers[manifest] = None
        return self._tokenizers[manifest]

    def _read_tokenizer(self, manifest_hash: bytes, owner: str) -> Tokenizer:
        stored = self.open_object(object_key("manifests", manifest_hash), MAX_STORED_BYTES)
        manifest = unseal(stored, manifest_hash, ManifestScope(self.pool, owner))
        (file,) = (one for one in manifest.files if one.name == "tokenizer.json" and one.size <= MAX_TOKENIZER_BYTES)
        data = b"".join(self.open_object(shard.key, shard.size) for shard in file.shards)
        return Tokenizer.from_str(data.decode())


def verdict_entry(seat: int, key: str, verdict: Verdict) -> views.VerdictEntry:
    """Return a published verdict without the long columns of the null model's check."""
    return views.VerdictEntry(
        seat=seat,
        key=key,
        problem="",
        code=verdict.code.label,
        engine=verdict.engine,
        audited=len(verdict.audited),
        findings=[
            views.FindingEntry(check=one.check, code=one.code.label, note=one.note, figures=one.measurements)
            for one in verdict.findings
            if one.check != CHECK
        ],
    )


def _no_rollouts(sequence: int, problem: str) -> views.RolloutsView:
    return views.RolloutsView(
        sequence=sequence, engine="", dtype="", device="", total=0, next=None, rows=[], problem=problem
    )


def _rollout(number: int, row: Rollout, tokenizer: Tokenizer | None) -> views.RolloutEntry:
    def text_of(tokens: tuple[int, ...]) -> str:
        if tokenizer is None:
            return " ".join(map(str, tokens))[:MAX_TEXT]
        return tokenizer.decode(list(tokens), skip_special_tokens=False)[:MAX_TEXT]

    return views.RolloutEntry(
        row=number,
        problem=row.slot,
        sample=row.sample,
        seed=str(row.problem_seed),
        prompt=text_of(row.prompt_tokens),
        completion=text_of(row.output_tokens),
        text=tokenizer is not None,
        prompt_tokens=len(row.prompt_tokens),
        output_tokens=len(row.output_tokens),
        target_length=row.target_length,
        stopped=row.finish == 0,
        task_reward=row.task_reward,
        length_penalty=row.length_penalty,
        reward=row.reward,
    )


# ---- search


def search(state: State, pool: Pool | None, query: str) -> views.Hits:
    """Find nodes, validators, operators and files by the beginning of an address or hash (`0x` and at least four
    digits); files, policy steps and pools by number."""
    text = query.strip()
    found: Iterator[views.HitEntry] = iter(())
    if pool is not None and re.fullmatch(r"#?[0-9]{1,9}", text):
        found = _by_number(state, pool, int(text.lstrip("#")))
    elif pool is not None and re.fullmatch(r"(0x)?[0-9a-fA-F]{4,64}", text):
        found = _by_digits(state, pool, text.lower().removeprefix("0x"))
    return views.Hits(query=text, hits=list(islice(found, MOST_HITS)))


def _by_number(state: State, pool: Pool, number: int) -> Iterator[views.HitEntry]:
    if (pool.pool, number) in state.submissions:
        yield views.HitEntry(kind="submission", id=str(number), label=f"file {number}")
    if number < len(pool.steps):
        yield views.HitEntry(kind="step", id=str(number), label=f"policy step {number}")
    if number in state.seats:
        yield views.HitEntry(kind="validator", id=state.seats[number].owner, label=f"seat {number}")
    if number in state.pools:
        yield views.HitEntry(kind="pool", id=str(number), label=f"pool {number}")


def _by_digits(state: State, pool: Pool, digits: str) -> Iterator[views.HitEntry]:
    def begins(text: str) -> bool:
        return text.lower().removeprefix("0x").startswith(digits)

    accounts = [account for (of, _), account in state.accounts.items() if of == pool.pool]
    for account in accounts:
        if begins(account.node):
            yield views.HitEntry(kind="node", id=account.node, label="node")
    for owner in dict.fromkeys(seat.owner for seat in state.seats.values()):
        if begins(owner):
            yield views.HitEntry(kind="validator", id=owner, label="owner of seats")
    for seat in state.seats.values():
        if begins(seat.voter) and seat.voter != seat.owner:
            yield views.HitEntry(kind="validator", id=seat.owner, label=f"votes for seat {seat.seat}")
    for operator in dict.fromkeys(account.operator for account in accounts):
        if begins(operator):
            yield views.HitEntry(kind="operator", id=operator, label="operator of nodes")
    if begins(pool.owner):
        yield views.HitEntry(kind="pool", id=str(pool.pool), label=f"owner of pool {pool.pool}")
    if len(digits) >= 8:
        for sequence in reversed(pool.sequences):
            sub = state.submissions[pool.pool, sequence]
            if begins(sub.sha256.hex()) or begins(sub.tx):
                yield views.HitEntry(kind="submission", id=str(sequence), label=f"file {sequence}")
