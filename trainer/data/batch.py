"""From rollouts to tensors: which sequences share a packed row, which rank trains it, and how attention sees it. Rows
hold whole sequences without padding. Numbers of sequences in what is packed are called indices."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any

import torch
from torch import Tensor

from protocol.config import AdvantageName
from protocol.rollout_file.rows import Inserted, interleaved, sampled_positions


@dataclass(frozen=True)
class Source:
    """Who made a rollout: a node, with an engine (its build) and the weights of a policy step."""

    node: str
    engine: str
    policy_step: int


@dataclass(frozen=True)
class GroupSettings:
    """What the rollouts of one environment have of their own: its name, the estimator of advantages (None: the run's),
    and what multiplies them."""

    environment: str = ""
    advantage: AdvantageName | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class TrainRollout:
    """One completion. `reward` is the trainer's own (float32), never the file's, less the penalty of `train.overlong`.

    `output`: the sampled tokens, EOS included, the only ones that are trained on. `inserted`: what an environment of
    several turns put between them. `logprobs`: ln p of each output token under the policy that generated it, or empty
    where unknown. `advantage` is known once its group is complete. `target`: the length that was asked for (0: none).
    `source`: None where it does not matter. `settings` are the same for all of a group."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    reward: float
    task_reward: float = 0.0
    logprobs: tuple[float, ...] = ()
    advantage: float = 0.0
    target: int = 0
    source: Source | None = None
    settings: GroupSettings = GroupSettings()
    inserted: Inserted = ()

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.output) + sum(len(tokens) for _, tokens in self.inserted)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The whole sequence as the model reads it."""
        return (*self.prompt, *interleaved(self.output, self.inserted))

    @property
    def output_positions(self) -> list[int]:
        """The position of each output token in that sequence."""
        return [len(self.prompt) + position for position in sampled_positions(len(self.output), self.inserted)]


# All completions of one problem by one submission.
Group = tuple[TrainRollout, ...]


@dataclass(frozen=True)
class WorkEstimate:
    """Floating-point operations of one forward pass: `linear` for each token, `attention` for each pair of a token and
    one that it sees. Sliding windows are counted as full attention."""

    linear: float
    attention: float = 0.0

    @classmethod
    def of(cls, model: Any) -> "WorkEstimate":
        """Estimate a transformers model from its matrices (embeddings only look up, the head multiplies) and its heads.
        Of experts as many count as a token visits."""
        config = model.config.get_text_config()
        heads = int(getattr(config, "num_attention_heads", 0) or 0)
        width = int(getattr(config, "head_dim", None) or (config.hidden_size // heads if heads else 0))
        experts = next((n for key in ("num_experts", "num_local_experts") if (n := getattr(config, key, None))), 0)
        share = config.num_experts_per_tok / experts if experts else 1.0
        weights = float(config.vocab_size * config.hidden_size)
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2 and "embed" not in name and "lm_head" not in name:
                weights += parameter.numel() * (share if ".experts." in name else 1.0)
        return cls(2.0 * weights, 4.0 * int(config.num_hidden_layers) * heads * width)

    def of_sequence(self, length: int) -> float:
        """Return the operations for a sequence of `length` tokens, each of which sees itself and what comes before."""
        return length * (self.linear + self.attention * length / 2)

    def training(self, lengths: Iterable[int]) -> float:
        """Return the operations of forward and backward pass, without what is computed twice to save memory."""
        return 3.0 * sum(map(self.of_sequence, lengths))


# For each rank its rows in order, each the indices of its sequences, longest first; an empty row is a dummy.
Plan = list[list[tuple[int, ...]]]


def plan_rows(
    lengths: Sequence[int], capacity: int, ranks: int, work: Callable[[int], float], together: bool = True
) -> Plan:
    """Return every index of `lengths` exactly once, in rows of at most `capacity` tokens (a longer sequence has its own
    row). Every rank gets equally many rows, and its k-th row costs about what the others' k-th do by `work` (of a
    length): ranks wait for one another at every row. `together` False puts each sequence in its own row."""
    costs = [work(length) for length in lengths]
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    rows: list[list[int]] | None = None if together else [[index] for index in order]
    count = max(-(-sum(lengths) // capacity), sum(2 * length > capacity for length in lengths))
    while rows is None:  # always finds room once every sequence has a row of its own
        count = min(len(order), -(-count // ranks) * ranks)
        rows = _level_rows(order, lengths, costs, capacity, count)
        count += 1 + count // 64
    return _assign_rows(rows, costs, ranks)


def idle_share(plan: Plan, lengths: Sequence[int], work: Callable[[int], float]) -> float:
    """Return the share of the ranks' time spent waiting for the slowest of each round of rows; 0 for an empty plan."""
    costs = [[sum(work(lengths[index]) for index in row) for row in rows] for rows in plan]
    spent = len(plan) * sum(max(round_) for round_ in zip(*costs, strict=True))
    return 1.0 - sum(map(sum, costs)) / spent if spent else 0.0


def _level_rows(
    order: Sequence[int], lengths: Sequence[int], costs: Sequence[float], capacity: int, count: int
) -> list[list[int]] | None:
    """The costliest first, always into the cheapest of `count` rows that has room; None where one finds no room."""
    rows: list[list[int]] = [[] for _ in range(count)]
    tokens = [0] * count
    heap = [(0.0, row) for row in range(count)]
    for index in order:
        full = []
        while heap and tokens[heap[0][1]] and tokens[heap[0][1]] + lengths[index] > capacity:
            full.append(heapq.heappop(heap))
        if not heap:
            return None
        cost, row = heapq.heappop(heap)
        rows[row].append(index)
        tokens[row] += lengths[index]
        for entry in (*full, (cost + costs[index], row)):
            heapq.heappush(heap, entry)
    return rows


def _assign_rows(rows: list[list[int]], costs: Sequence[float], ranks: int) -> Plan:
    """Rows of like cost at the same time; within a round the costlier one to the rank that has had less."""
    rows = [*rows, *([] for _ in range(-len(rows) % ranks))]  # dummies, which come last
    cost = [sum(costs[index] for index in row) for row in rows]
    ordered = sorted(range(len(rows)), key=lambda row: (-cost[row], row))
    plan: Plan = [[] for _ in range(ranks)]
    spent = [0.0] * ranks
    for start in range(0, len(ordered), ranks):
        idlest = sorted(range(ranks), key=lambda rank: (spent[rank], rank))
        for rank, row in zip(idlest, ordered[start : start + ranks], strict=True):
            plan[rank].append(tuple(rows[row]))
            spent[rank] += cost[row]
    return plan


class PackedLayout:
    """Sequences of these `lengths` one after another in a row of L tokens, on a device."""

    def __init__(self, lengths: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.lengths, self.device = tuple(lengths), torch.device(device)

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def longest(self) -> int:
        return max(self.lengths)

    @cached_property
    def positions(self) -> Tensor:
        """[1, L] int64: from 0 in every sequence."""
        return torch.cat([torch.arange(length) for length in self.lengths]).unsqueeze(0).to(self.device)

    @cached_property
    def bounds(self) -> Tensor:
        """[S + 1] int32: where each sequence begins, and the end of the last."""
        return torch.tensor([0, *accumulate(self.lengths)], dtype=torch.int32, device=self.device)

    @property
    def runs(self) -> list[tuple[int, int]]:
        """(sequences, length) of neighbours of equal length: few where the row is ordered by length."""
        return [(len(list(run)), length) for length, run in groupby(self.lengths)]


@dataclass(frozen=True)
class MicroBatch:
    """One packed row: S sequences, L tokens, N output tokens.

    samples: the sequences' indices in what was packed. tokens: [1, L] int64. rows: [N] int64, the token before each
    output token, whose hidden state predicts it. targets: [N] int64, the output tokens. advantages: [N] float32.
    sampled: [N] float32, ln p in the rollout file, None unless every sample of the step has it. sequence: [N] int64,
    0 … S−1, ascending. A dummy, which keeps a rank in step with those that have work, has one token, no outputs."""

    samples: tuple[int, ...]
    layout: PackedLayout
    tokens: Tensor
    rows: Tensor
    targets: Tensor
    advantages: Tensor
    sampled: Tensor | None
    sequence: Tensor


def pack_row(
    indices: Sequence[int],
    sequences: Sequence[tuple[Sequence[int], Sequence[int], float]],
    sampled: Sequence[float] | None,
    device: torch.device,
) -> MicroBatch:
    """Return the row of these sequences, a dummy for none: tokens, positions of those that are trained on, advantage.
    `sampled`: ln p of every trained token."""
    layout = PackedLayout([len(tokens) for tokens, _, _ in sequences] or [1], device)
    ids = torch.tensor([token for tokens, _, _ in sequences for token in tokens] or [0])
    starts = accumulate((len(tokens) for tokens, _, _ in sequences), initial=0)
    outputs = [start + at for start, (_, positions, _) in zip(starts, sequences, strict=False) for at in positions]
    at, sizes = torch.tensor(outputs, dtype=torch.int64), torch.tensor([len(own) for _, own, _ in sequences]).long()
    return MicroBatch(
        samples=tuple(indices),
        layout=layout,
        tokens=ids.unsqueeze(0).to(device),
        rows=(at - 1).to(device),
        targets=ids[at].to(device),
        advantages=torch.tensor([advantage for _, _, advantage in sequences]).repeat_interleave(sizes).to(device),
        sampled=None if sampled is None else torch.tensor(sampled, dtype=torch.float32, device=device),
        sequence=torch.arange(len(sequences)).repeat_interleave(sizes).to(device),
    )


def micro_batch(samples: Sequence[TrainRollout], indices: Sequence[int], device: torch.device) -> MicroBatch:
    """Return the row that holds those of all `samples` at these indices, in this order; a dummy for no indices."""
    chosen = [samples[index] for index in indices]
    if not all(sample.prompt for sample in chosen):
        raise ValueError("a sample without a prompt: nothing predicts its first token")
    known = all(sample.logprobs for sample in samples)
    sampled = [value for sample in chosen for value in sample.logprobs] if known else None
    sequences = [(sample.tokens, sample.output_positions, sample.advantage) for sample in chosen]
    return pack_row(indices, sequences, sampled, device)
