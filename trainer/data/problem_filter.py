"""The offline filter: which problems a model solves sometimes, from k tries at each candidate. Others carry no signal.

Candidates, prompts and sampling noise follow from public hashes and the model, so that anyone with the same weights can
make the same choice."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

from engines.base import Engine
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig, ProblemFilter
from protocol.encoding import canonical_json, parse_json, sha256_hex, tagged_hash, words
from protocol.errors import ConfigError
from protocol.files import explained, file_digests
from protocol.seeds import all_targets
from trainer.reports.evaluate import BATCHES_AT_ONCE, Attempt, score_attempts


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


class FilterReport(NamedTuple):
    """What a filter found: how many candidates it kept, were too hard or too easy, and the document to use."""

    problems: ProblemFilter
    kept: int
    too_hard: int
    too_easy: int


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
    keep what is solved sometimes. Every finished candidate is a line of `journal`, from which an interrupted filter
    continues. Raises ConfigError if the journal belongs to another filter, or if nothing is kept."""
    (tried,) = config.environments
    model = sha256_hex(canonical_json(file_digests(folder)))
    head = {  # what decides the tries: the journal's first line
        "version": 1,
        "model": model,
        "prompt": config.model.model_dump(mode="json", include={"prompt_template", "chat_template", "answer_after"}),
        "environment": tried.model_dump(mode="json", include={"name", "params", "content", "rows"}),
        "temperature": config.work.temperature,
        "max_new_tokens": config.work.max_new_tokens,
        "targets": list(all_targets(config.work, tried)),
        "samples": plan.samples,
    }
    solved = _resume(journal, head)
    environment = PoolEnvironments.of(config, folder)
    if plan.candidates > (rows := tried.drawn_rows) > 0:
        raise ConfigError(f"there are {rows} problems to try, not {plan.candidates}", f"try {rows} at most")
    if len(solved) < plan.candidates:
        engine.load(folder)
    targets, group = all_targets(config.work, tried) or (0,), max(1, BATCHES_AT_ONCE * batch // plan.samples)
    with explained(f"write {journal}", "check the folder and the room on its disk"), journal.open("a") as stream:
        while len(solved) < plan.candidates:
            part, attempts = range(len(solved), min(len(solved) + group, plan.candidates)), []
            for candidate, sample in product(part, range(plan.samples)):
                noise = tagged_hash("muster/filter-noise/1", bytes.fromhex(model), candidate, sample)
                k0, k1, k2 = words(noise, 3)
                attempts.append(Attempt(tried.candidate(candidate), targets[sample % len(targets)], (k0, k1, k2)))
            scores = (score for score, _ in score_attempts(engine, environment, attempts, batch))
            solved += [sum(score.task_reward >= 1 for score in islice(scores, plan.samples)) for _ in part]
            stream.writelines(_line({"candidate": candidate, "solved": solved[candidate]}) for candidate in part)
            stream.flush()
            progress(f"{len(solved)} of {plan.candidates} problems tried, {sum(map(plan.keeps, solved))} kept")
    return _report(plan, solved[: plan.candidates], model, head)


def _resume(journal: Path, head: dict[str, Any]) -> list[int]:
    """Solved tries of the candidates in the journal, which is begun if need be; a line cut off by a kill is dropped."""
    with explained(f"use {journal}", "check the path"):
        try:
            text = journal.read_text() if journal.exists() else ""
            whole = text[: text.rfind("\n") + 1]
            lines = [dict(parse_json(line.encode())) for line in whole.split("\n")[:-1]]
        except (ValueError, TypeError):
            raise ConfigError(f"{journal} is not a filter's journal", "name another file") from None
        if lines and lines[0] != head:
            differs = ", ".join(name for name in head if lines[0].get(name) != head[name])
            raise ConfigError(f"{journal} belongs to another filter: {differs} differs", "name another file")
        journal.parent.mkdir(parents=True, exist_ok=True)
        journal.write_text(whole or _line(head))
    solved = []
    for number, line in enumerate(lines[1:]):
        count = line.get("solved")
        if line.get("candidate") != number or type(count) is not int or not 0 <= count <= head["samples"]:
            raise ConfigError(f"{journal} is damaged: line {number + 2} is not candidate {number}'s", "remove it")
        solved.append(count)
    return solved


def _report(plan: FilterPlan, counts: list[int], model: str, head: dict[str, Any]) -> FilterReport:
    chosen = tuple(number for number, count in enumerate(counts) if plan.keeps(count))
    if not chosen:
        raise ConfigError(
            f"none of {plan.candidates} problems is solved in {plan.lowest:.1%} to {plan.highest:.1%} of the tries",
            "try more candidates, another task, or another model",
        )
    lines = [head, *({"candidate": number, "solved": count} for number, count in enumerate(counts))]
    report, bounds = sha256_hex("".join(map(_line, lines)).encode()), {"lowest": plan.lowest, "highest": plan.highest}
    problems = ProblemFilter.of(plan.candidates, chosen, model=model, samples=plan.samples, report=report, **bounds)
    hard = sum(count < plan.lowest * plan.samples for count in counts)
    return FilterReport(problems, len(chosen), hard, len(counts) - len(chosen) - hard)


def _line(entry: dict[str, Any]) -> str:
    return canonical_json(entry).decode() + "\n"
