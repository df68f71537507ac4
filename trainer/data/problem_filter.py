"""The offline filter: which problems a model solves sometimes, from k tries at each candidate.

Problems that are never or nearly always solved carry no signal; INTELLECT-2 kept those solved in 12.5% to 75% of eight
tries. Candidates, prompts and sampling noise follow from public hashes and the model, so that anyone with the same
weights can make the same choice.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.base import Engine
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig, ProblemFilter
from protocol.encoding import canonical_json, parse_json, sha256_hex, tagged_hash, words
from protocol.errors import ConfigError
from protocol.files import explained, file_digests
from protocol.seeds import all_targets
from trainer.reports.evaluate import BATCHES_AT_ONCE, Attempt, score_attempts

_SOLVED = 1.0


@dataclass(frozen=True)
class FilterPlan:
    """`samples` tries at each of the candidates 0 … `candidates` − 1; kept are those whose share of solved tries lies
    in [`lowest`, `highest`]. A try solves a problem if its task reward is 1."""

    candidates: int
    samples: int = 8
    lowest: float = 0.125
    highest: float = 0.75

    def keeps(self, solved: int) -> bool:
        return self.lowest * self.samples <= solved <= self.highest * self.samples


@dataclass(frozen=True)
class FilterReport:
    """What a filter found: `kept` of `candidates`, the others too hard or too easy, and the document to use."""

    problems: ProblemFilter
    kept: int
    too_hard: int
    too_easy: int

    @property
    def share(self) -> float:
        return self.kept / self.problems.candidates


def run_filter(
    engine: Engine,
    config: PoolConfig,
    folder: Path,
    plan: FilterPlan,
    journal: Path,
    batch: int = 64,
    progress: Callable[[str], None] = lambda line: None,
) -> FilterReport:
    """Try every candidate of the one environment of `config`, which has no filter yet, with the weights in `folder` and
    keep what is solved sometimes.

    Every finished candidate is a line of `journal`, so that an interrupted filter goes on where it was. Raises
    ConfigError if the journal belongs to another filter, or if nothing is kept.
    """
    head, model = _head(config, folder, plan), model_digest(folder)
    solved = _resume(journal, head)
    environment = PoolEnvironments.of(config, folder)
    if plan.candidates > (rows := config.environments[0].drawn_rows) > 0:
        raise ConfigError(f"there are {rows} problems to try, not {plan.candidates}", f"try {rows} at most")
    if len(solved) < plan.candidates:
        engine.load(folder)
    group = max(1, BATCHES_AT_ONCE * batch // plan.samples)
    with explained(f"write {journal}", "check the folder and the room on its disk"), journal.open("a") as stream:
        while len(solved) < plan.candidates:
            part = range(len(solved), min(len(solved) + group, plan.candidates))
            solved += _solved(engine, environment, model, part, plan.samples, batch)
            stream.writelines(_line({"candidate": one, "solved": solved[one]}) for one in part)
            stream.flush()
            progress(f"{len(solved)} of {plan.candidates} problems tried, {sum(map(plan.keeps, solved))} kept")
    return _report(plan, solved, model, head)


def model_digest(folder: Path) -> str:
    """Compute the SHA-256 over the names and hashes of a model folder's files."""
    return sha256_hex(canonical_json(file_digests(folder)))


def _solved(
    engine: Engine, environment: PoolEnvironments, model: str, candidates: range, samples: int, batch: int
) -> Iterator[int]:
    """How many tries at each candidate succeed."""
    (tried,) = environment.config.environments
    targets = all_targets(environment.config.work, tried) or (0,)
    attempts = [
        Attempt(
            tried.candidate(one),
            targets[sample % len(targets)],
            _noise_key(model, one, sample),
        )
        for one in candidates
        for sample in range(samples)
    ]
    done = score_attempts(engine, environment, attempts, batch)
    for _ in candidates:
        yield sum(next(done).score.task_reward >= _SOLVED for _ in range(samples))


def _noise_key(model: str, candidate: int, sample: int) -> tuple[int, int, int]:
    k0, k1, k2 = words(tagged_hash("muster/filter-noise/1", bytes.fromhex(model), candidate, sample), 3)
    return k0, k1, k2


def _head(config: PoolConfig, folder: Path, plan: FilterPlan) -> dict[str, Any]:
    """What decides the tries: the journal's first line."""
    work = config.work
    return {
        "version": 1,
        "model": model_digest(folder),
        "prompt": config.model.model_dump(mode="json", include={"prompt_template", "chat_template", "answer_after"}),
        "environment": config.environments[0].model_dump(mode="json", include={"name", "params", "content", "rows"}),
        "temperature": work.temperature,
        "max_new_tokens": work.max_new_tokens,
        "targets": list(all_targets(work, config.environments[0])),
        "samples": plan.samples,
    }


def _resume(journal: Path, head: dict[str, Any]) -> list[int]:
    """Solved tries of the candidates in the journal, which is begun if need be; a line cut off by a kill is dropped."""
    lines: list[dict[str, Any]] = []
    with explained(f"use {journal}", "check the path"):
        try:
            text = journal.read_text() if journal.exists() else ""
            whole = text[: text.rfind("\n") + 1]
            lines = [_entry(line) for line in whole.splitlines()]
        except ValueError:
            raise ConfigError(f"{journal} is not a filter's journal", "name another file") from None
        if lines and lines[0] != head:
            differs = ", ".join(name for name in head if lines[0].get(name) != head[name])
            raise ConfigError(f"{journal} belongs to another filter: {differs} differs", "name another file")
        journal.parent.mkdir(parents=True, exist_ok=True)
        journal.write_text(whole or _line(head))
    solved = [line.get("solved") for line in lines[1:]]
    if [line.get("candidate") for line in lines[1:]] != list(range(len(solved))):
        raise ConfigError(f"{journal} is damaged: candidates are missing", "remove it and begin again")
    counts = [count for count in solved if type(count) is int and 0 <= count <= head["samples"]]
    if len(counts) < len(solved):
        raise ConfigError(f"{journal} is damaged: a count of solved tries is none", "remove it and begin again")
    return counts


def _entry(line: str) -> dict[str, Any]:
    """A line of a journal. Raises ValueError for anything but an object."""
    entry = parse_json(line.encode())
    if not isinstance(entry, dict):
        raise ValueError("not an object")
    return entry


def _report(plan: FilterPlan, solved: list[int], model: str, head: dict[str, Any]) -> FilterReport:
    counts = solved[: plan.candidates]
    kept = tuple(place for place, count in enumerate(counts) if plan.keeps(count))
    if not kept:
        raise ConfigError(
            f"none of {plan.candidates} problems is solved in {plan.lowest:.1%} to {plan.highest:.1%} of the tries",
            "try more candidates, another task, or another model",
        )
    lines = [head, *({"candidate": place, "solved": count} for place, count in enumerate(counts))]
    problems = ProblemFilter.of(
        plan.candidates,
        kept,
        model=model,
        samples=plan.samples,
        lowest=plan.lowest,
        highest=plan.highest,
        report=sha256_hex("".join(map(_line, lines)).encode()),
    )
    hard = sum(count < plan.lowest * plan.samples for count in counts)
    return FilterReport(problems, len(kept), hard, len(counts) - len(kept) - hard)


def _line(entry: dict[str, Any]) -> str:
    return canonical_json(entry).decode() + "\n"
