"""The documents behind the dashboard's pages: small, paged by the service, public. Times in Unix seconds."""

from typing import Annotated, Generic, TypeVar

from pydantic import Field

from protocol.api import run
from protocol.api.base import Amount, ResponseBody, Rows, at_most
from protocol.verdict import Measurement

E = TypeVar("E")
Counts = Annotated[dict[str, int], at_most(1000)]


class Listing(ResponseBody, Generic[E]):
    """A page of a list. `next`: the `after` of the next page, if any; `total`: null where counting would read all."""

    rows: Rows[E]
    total: int | None
    next: int | None


class ChainEntry(ResponseBody):
    """How well the service follows its chain: `age` and `head_age` are the seconds since the chain last answered and
    last had a new block (null: not yet), `error` why it does not answer, `explorer` a URL to transactions."""

    network: str
    chain_id: int
    explorer: str
    head: int
    age: float | None
    head_age: float | None
    error: str


class TermsEntry(ResponseBody):
    """What a pool offers and asks. `rate`: base units per output token; `stake`: base units at least; windows in
    seconds."""

    rate: Amount
    fee: Amount
    stake: Amount
    committee: int
    jury: int
    challenge_seconds: int
    audit_share: float
    invite_only: bool


class PoolEntry(ResponseBody):
    """A pool of the same contracts. `url` is its service as its owner announces it, checked by nobody."""

    pool: int
    owner: str
    status: str
    url: str
    here: bool
    steps: int
    nodes: int
    submissions: int
    funded: Amount
    held: Amount
    terms: TermsEntry


class ThroughputEntry(ResponseBody):
    """What was decided within the last `seconds`: files, and output tokens accepted."""

    seconds: int
    files: int
    tokens: int


class Overview(run.RunOutline):
    """Where a run stands, small enough to be asked for often. `map` has the first letter of each node's state, in the
    order of joining. `held`: who has which policy step, newest first. `heldout`: the newest held-out reward, of
    policy step `heldout_step`. `today`: the last day, or as much of it as the newest files cover."""

    chain: ChainEntry
    reward: float | None
    heldout: float | None
    heldout_step: int | None = None
    counts: Counts
    tokens: int
    throughput: ThroughputEntry
    nodes: Counts
    validators: Counts
    map: str
    held: Rows[run.HeldEntry]
    disputes: int
    canaries: int
    slashed: Amount
    terms: TermsEntry | None
    today: ThroughputEntry | None = None


class History(ResponseBody):
    """A run step by step, for charts: `columns` holds a list as long as `steps` for every figure. Long runs are thinned
    out evenly; the first and the newest step are always there."""

    steps: Rows[int]
    columns: Annotated[dict[str, Rows[float | None]], at_most(1000)]


class StepEntry(run.PublishedEntry):
    """A policy step with its files by status, accepted tokens, and when the first and last were submitted, accepted."""

    reward: float | None
    heldout: float | None
    files: Counts
    tokens: int
    submitted: tuple[int, int] | None
    accepted: tuple[int, int] | None


class StepView(StepEntry):
    """A policy step with the trainer's report on its making, null where there is none."""

    report: run.ReportEntry | None


class MemberEntry(ResponseBody):
    """A member of a committee or jury. `code` is empty until revealed; `verdict` is the key of its verdict document."""

    seat: int
    owner: str
    committed: bool
    code: str
    verdict: str


class PanelEntry(ResponseBody):
    """A committee or a jury with its votes: `kind` is committee or jury, `outcome` empty until settled."""

    kind: str
    number: int
    drawn: int | None
    seed: str
    outcome: str
    members: Rows[MemberEntry]


class SubmissionView(run.SubmissionEntry):
    """All that the chain says of a file. `final`: when its outcome stands for good; `key`: its object."""

    root: str
    key: str
    lane: int
    final: int | None
    finalized: bool
    panels: Rows[PanelEntry]
    dispute: run.DisputeEntry | None
    canary: run.CanaryEntry | None
    slashes: Rows[run.SlashEntry]


class FindingEntry(ResponseBody):
    """What one check found: `figures` by name, those judged by a threshold with it under `NAME_reject`."""

    check: str
    code: str
    note: str
    figures: Annotated[dict[str, Measurement], at_most(1000)]


class VerdictEntry(ResponseBody):
    """One member's published verdict on a file, or why it cannot be shown."""

    seat: int
    key: str
    problem: str
    code: str = ""
    engine: Annotated[dict[str, str], at_most(100)] = Field(default_factory=dict)
    audited: int = 0
    findings: Rows[FindingEntry] = Field(default_factory=list)


class VerdictsView(ResponseBody):
    """What the members of a file's committees and juries measured."""

    sequence: int
    verdicts: Rows[VerdictEntry]


class RolloutEntry(ResponseBody):
    """One completion. `text` is false where prompt and completion are token ids, for lack of the pool's tokenizer."""

    row: int
    problem: int
    sample: int
    seed: str
    prompt: str
    completion: str
    text: bool
    prompt_tokens: int
    output_tokens: int
    target_length: int
    stopped: bool
    task_reward: float
    length_penalty: float
    reward: float


class RolloutsView(ResponseBody):
    """Some rows of a rollout file, which its node wrote: `problem` says why there are none."""

    sequence: int
    engine: str
    dtype: str
    device: str
    total: int
    next: int | None
    rows: Rows[RolloutEntry]
    problem: str


class VoteEntry(ResponseBody):
    """A vote on one file, and what became of the file."""

    sequence: int
    seat: int
    code: str
    status: str
    reason: str
    time: int


class ValidatorView(run.ValidatorEntry):
    """A seats' owner with the newest votes of its seats and what they lost."""

    recent: Rows[VoteEntry]
    slashes: Rows[run.SlashEntry]


class DayEntry(ResponseBody):
    """Base units for files accepted on one day, which begins at `day`, midnight UTC."""

    day: int
    pay: Amount


class StakeEntry(ResponseBody):
    """Stake of an operator's own in `nodes` nodes, which unlocks at `unlocks`; null while they are members of a pool or
    a file of theirs is before a jury."""

    stake: Amount
    nodes: int
    unlocks: int | None


class OperatorView(ResponseBody):
    """What one operator's nodes earn in this pool: `total` of their accounts, pay by day (oldest first), and what they
    got accepted lately. `unlocks`: the first and the last time at which locked pay vests. `unbonding`: seconds from
    leaving until stake unlocks."""

    total: run.LedgerEntry
    days: Rows[DayEntry]
    recent: ThroughputEntry
    unlocks: tuple[int, int] | None
    stakes: Rows[StakeEntry]
    unbonding: int


class HitEntry(ResponseBody):
    """Something found: `kind` is node, validator, operator, submission, step or pool; `id` names it in its page."""

    kind: str
    id: str
    label: str


class Hits(ResponseBody):
    query: str
    hits: Rows[HitEntry]
