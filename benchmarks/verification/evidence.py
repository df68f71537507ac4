"""Whether the evidence of a node's history ever accuses an honest node, and after how many files it finds a cheat.

`python -m benchmarks evidence [--quick] [--only TEXT] [--seconds N]`. Real training runs of the demo's model; null
models as the trainer learns them; passes as validators and jurors make them. Each (policy, dtype, kind) is measured
once, with real engines, and kept in build/evidence, so that the next run goes on where `--seconds` ended this one.
Histories are then drawn from what was measured: a node keeps to one kind, and each of its files is a measured file in
one of that file's audits. Resampling makes no evidence that the passes do not contain: `files` says how many they are.

Keys: cases [{dtype, policy, audited, name, label, files (measured), nodes, length, accused, slashed, median, p99, mean,
largest, by, refused, mantissas, limit (what the null model takes for honest)}], label: own, false (an honest engine
under the usual one's) or cheat; honest, of all under their own label: {nodes (a history each), accused, slashed,
files}; found, of cheats in bf16 {name: {policies, files, p99_1, p99_4, p99_16}}: the most files until 99 of 100 are
accused at rates 1, 1/4, 1/16; found_float32; price; plots {what: list}, of whole-weight cheats or of audit rates.
"""

import math
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from attacks.base import Cheat
from attacks.registry import REGISTRY
from attacks.subtle import SMALL_ATTACKS
from benchmarks.recipe import OfflineWork, batch_of, demo_config
from benchmarks.support.kept import keep, kept
from benchmarks.support.offline_pool import BFLOAT16, FLOAT32, FULL_WORK
from calibration.measuring import audits, context_of
from calibration.null_model import Draws, audit_draws, pair_null_model
from chain.deployment import FOLDER
from engines.base import Completion, Engine
from engines.hf import TransformersEngine
from environments.pool import PoolEnvironments
from protocol.config import BF16_CHECKS, ChecksConfig, PoolConfig
from protocol.encoding import TOKEN, parse_tokens, tagged_hash
from protocol.evidence.figures import BETS, FIGURES, Sum, rounded
from protocol.evidence.null_model import LIMIT_NATS, PairNullModel
from protocol.identity import PoolId, WorkId
from protocol.seeds import AUDIT_EVERYTHING, Work
from trainer.learner import Learner
from trainer.model.base_model import base_model
from validator.judging.checks import PREFILL_CHECKS
from validator.judging.measurements import file_figures
from worker.produce import Planned, Producer

HOME = Path(__file__).parents[2] / "build" / "evidence"
RATES = [AUDIT_EVERYTHING // share for share in (1, 4, 16)]
NODES, HONEST_FILES, CHEAT_FILES = 800, 1000, 64
NODE = "0x" + "00" * 20
Progress = Callable[[str], None]
Row = dict[str, Any]
Array = np.ndarray[Any, np.dtype[np.float64]]


class Policy(NamedTuple):
    """A step of a training run with a learning rate. `trained`: it starts where the demo's ends, not at its base."""

    rate: float
    step: int
    trained: bool = False

    def __str__(self) -> str:
        return f"{'trained, ' * self.trained}lr {self.rate:g}, step {self.step}"


DEMO, LAST = 1.5e-4, 28
BASE, TRAINED = Policy(DEMO, 0), Policy(DEMO, LAST)


class Kind(NamedTuple):
    """One way to make files: KNOWN's at a strength, or an engine that VARY changes; `batch` completions at once."""

    name: str
    files: int
    batch: int = 128
    attack: str = ""
    strength: float = 0.0
    vary: str = ""
    threads: int = 1


def calibrations(vary: str = "") -> list[Kind]:
    """Return the kinds whose files a null model is learned from, as many as the trainer makes by default."""
    return [Kind(f"calibration {batch} {vary}".strip(), 32, batch, vary=vary) for batch in (8, 64)]


HONEST = (Kind("one batch", 16), Kind("batches of 20, two threads", 16, 20, threads=2))
VARIANTS = tuple(Kind(name, 8, vary=name) for name in ("eager attention", "norms in bf16", "sums in two parts"))
SECOND = Kind("own second pass", 8, attack="second-pass")
STALE = Kind("stale by a step", 12, attack="stale", strength=1)
CHEATS = (
    Kind("int8 weights", 12, attack="weights-int8"),
    Kind("noise of 0.1%", 12, attack="weights-noise", strength=0.001),
    Kind("LoRA of 0.1%", 12, attack="lora", strength=0.001),
    Kind("int8 KV cache", 12, attack="kv-int8"),
    Kind("skipped layer", 12, attack="weights-small"),
    Kind("other temperature, proven", 12, attack="temperature-proven", strength=0.98),
    Kind("int8 text, proven", 12, attack="ghostwriter-int8"),
)


class SecondPass(Cheat):
    """Takes log-probabilities and proofs from a prefill of its own, which is honest."""

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        return self.proven(plan, super().complete(work, plan))


KNOWN = {name: one.build for name, one in (REGISTRY | SMALL_ATTACKS).items()} | {"second-pass": SecondPass}
KNOWN |= dict.fromkeys(("", "stale"), lambda config, engine, _: Producer(config, engine))


def _eager(model: Any) -> None:
    model.set_attn_implementation("eager")


def _plain_norms(model: Any) -> None:
    """Let RMSNorm multiply in bfloat16 instead of float32."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = partial(_norm, module)


def _norm(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    scale = torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)
    scaled: torch.Tensor = module.weight * hidden * scale
    return scaled


def _split(parts: int, model: Any) -> None:
    """Sum the parts of row-parallel products after rounding, as tensor parallelism does."""
    for name, module in model.named_modules():
        if name.endswith(("o_proj", "down_proj")):
            module.forward = partial(_in_parts, module, parts)


def _in_parts(module: Any, parts: int, hidden: torch.Tensor) -> torch.Tensor:
    pieces = zip(hidden.chunk(parts, -1), module.weight.chunk(parts, -1), strict=True)
    whole: torch.Tensor = sum(torch.nn.functional.linear(*piece) for piece in pieces)  # type: ignore[assignment]
    return whole


def _precise_rope(model: Any) -> None:
    """Rotate queries and keys in float32 and round once."""
    for layer in model.model.layers:
        layer.self_attn.forward = partial(_rotating, layer.self_attn.forward, sys.modules[type(layer).__module__])


def _rotating(forward: Any, library: Any, *args: Any, **facts: Any) -> Any:
    usual = library.apply_rotary_pos_emb

    def rotate(query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
        return tuple(one.to(key.dtype) for one in usual(query.float(), key.float(), cos.float(), sin.float()))

    library.apply_rotary_pos_emb = rotate  # the verifier's model, which shares the library, computes as usual
    try:
        return forward(*args, **facts)
    finally:
        library.apply_rotary_pos_emb = usual


def _compile(model: Any) -> None:
    """Let torch fuse what lies between products, which then rounds once."""
    for layer in model.model.layers:
        layer.mlp.compile(dynamic=True)
        layer.input_layernorm.compile(dynamic=True)


VARY: Mapping[str, Callable[[Any], None]] = {
    "eager attention": _eager,
    "norms in bf16": _plain_norms,
    "sums in two parts": partial(_split, 2),
    "sums in four parts": partial(_split, 4),
    "rope in float32": _precise_rope,
    "compiled": _compile,
}
"""Honest engines that compute otherwise than the usual one."""


class Case(NamedTuple):
    """Files of these kinds by one policy in one arithmetic."""

    dtype: str
    policy: Policy
    kinds: tuple[Kind, ...]


def cases() -> Iterator[Case]:
    """Yield what is measured, the most telling first."""
    for policy in (BASE, TRAINED):
        yield Case(BFLOAT16, policy, (*HONEST, *CHEATS, *VARIANTS, SECOND))
    yield Case(BFLOAT16, Policy(1e-5, 4), (*HONEST, STALE))
    yield Case(FLOAT32, BASE, (*HONEST, *CHEATS[:3], *VARIANTS, SECOND))
    yield Case(BFLOAT16, Policy(1e-5, 2, True), (*HONEST, STALE))
    for step in (4, 1, 16, 2, 8):
        yield Case(BFLOAT16, Policy(DEMO, step), HONEST)
    for step in (LAST, 4, 1, 16, 2, 8):
        yield Case(FLOAT32, Policy(DEMO, step), HONEST)
    for rate in (3e-4, 1e-6):
        yield Case(BFLOAT16, Policy(rate, 4), (*HONEST, STALE))
    yield Case(BFLOAT16, BASE, tuple(kind for one in VARIANTS for kind in calibrations(one.vary)))


def run(quick: bool, progress: Progress, only: str = "", seconds: int = 0) -> dict[str, Any]:
    """Return the result that the module describes, of what is measured once `seconds` (0: no limit) are over."""
    laboratory = Laboratory(HOME.with_name("evidence-quick") if quick else HOME, quick)
    end = time.monotonic() + seconds if seconds else math.inf
    chosen = [case for case in cases() if only in f"{case.dtype}, {case.policy}"][: 1 if quick else None]
    for case in chosen:
        for kind in (*calibrations(), *case.kinds):
            laboratory.measure(case, kind, end, progress)
    rows = list[Row]()
    for dtype, policy in dict.fromkeys(case[:2] for case in chosen):
        kinds = [kind for case in chosen if case[:2] == (dtype, policy) for kind in case.kinds]
        rows += judged(dtype, policy, kinds, laboratory.seen(dtype, policy), 20 if quick else NODES)
    honest = [row for row in rows if row["label"] == "own"]
    totals = {name: sum(row[name] for row in honest) for name in ("nodes", "accused", "slashed")}
    files = sum({(row["dtype"], row["policy"], row["name"]): row["files"] for row in honest}.values())
    found = _found(rows, BFLOAT16)
    whole = [found[kind.name] for kind in (*CHEATS[:5], STALE) if kind.name in found]
    trained = [row for row in rows if row["policy"] == str(TRAINED) and row["name"] == HONEST[0].name]
    plots = {name: [row[name] for row in whole] for name in ("p99_1", "p99_4", "p99_16")}
    plots |= {name: [row[name] for row in trained if row["dtype"] == BFLOAT16] for name in ("mantissas", "limit")}
    rest = {"found_float32": _found(rows, FLOAT32), "cases": rows, "price": _price(rows), "plots": plots}
    return {"honest": totals | {"files": files}, "found": found, **rest}


def judged(
    dtype: str, policy: Policy, kinds: Sequence[Kind], known: Mapping[str, list[Row]], nodes: int
) -> Iterator[Row]:
    """Yield what becomes of nodes that make files of one kind, at each audit rate."""
    for rate in RATES:
        usual = null_model(known, "", rate, policy.step)
        for kind in kinds:
            seen = known.get(kind.name, [])
            own = null_model(known, kind.vary, rate, policy.step) if kind.vary else None
            models = {"own" if kind in HONEST else "cheat": usual}
            if kind.vary or kind == SECOND:
                models = {"false": usual, "own": own}
            if len(seen) < 4 or kind.name.startswith("calibration"):
                continue
            for label, model in ((label, model) for label, model in models.items() if model):
                length = CHEAT_FILES if label == "cheat" else HONEST_FILES
                at, by, largest = histories(paid(seen, model, rate), nodes, length)
                accused, files = int((at > 0).sum()), np.where(at > 0, at, length + 1)
                refused = sorted({code for row in seen for code in row["codes"][str(rate)] if code})
                mantissas = [one for row in seen for draw in draws_of(row, rate) for one in draw["mantissas"]]
                mean = (whole := Sum.over(mantissas)).total / whole.count
                yield {
                    "dtype": dtype, "policy": str(policy), "audited": rate / AUDIT_EVERYTHING, "name": kind.name,
                    "label": label, "files": len(seen), "nodes": nodes, "length": length, "accused": accused,
                    "slashed": nodes if refused else 0, "median": int(np.median(files)),
                    "p99": int(np.quantile(files, 0.99, method="higher")), "mean": round(float(files.mean()), 2),
                    "largest": round(largest, 1), "by": list(FIGURES)[int(by.argmax())] if accused else "",
                    "refused": refused, "mantissas": round(mean, 4), "limit": model.honest()["mantissas"],
                }  # fmt: skip


def null_model(known: Mapping[str, list[Row]], vary: str, rate: int, step: int) -> PairNullModel | None:
    """Return what the trainer learns of the engine that `vary` changes; None where no file of it was measured."""
    files = [[draws_of(row, rate) for row in known.get(kind.name, [])] for kind in calibrations(vary)]
    if not all(files):
        return None
    learned = [[one for at, one in enumerate(found) if at % 4 != 3] for found in files]
    return pair_null_model("own", "own", learned, [one for found in files for one in found[3::4]], step)


def draws_of(row: Row, rate: int) -> Draws:
    """Return a measured file's figures in its audits at a rate."""
    kept_draws = row["draws"][str(rate)]
    return [{name: [Sum(*one) for one in draw[at]] for at, name in enumerate(FIGURES)} for draw in kept_draws]


def paid(seen: Sequence[Row], model: PairNullModel, rate: int) -> Array:
    """Return what each audit of each file pays [files × draws, figures, bets]."""
    nothing = (0.0,) * BETS
    nats = (model.nats(figures) for row in seen for figures in draws_of(row, rate))
    return np.array([[one.get(name, nothing) for name in FIGURES] for one in nats])


def histories(paid: Array, nodes: int, files: int, seed: int = 0) -> tuple[Array, Array, float]:
    """Draw the histories of many nodes at once from measured files, which pay `paid` [measured, figures, bets], by the
    recursion of `NodeEvidence.add`. Return the file at which each node was accused (0: never), how often each figure
    was ahead then, and the largest ln of the evidence."""
    rng = np.random.default_rng(seed)
    factors, wealth = np.exp(np.minimum(paid, 600)), np.zeros((nodes, len(FIGURES), BETS))
    largest, at, by = 0.0, np.zeros(nodes), np.zeros(len(FIGURES))
    for number in range(1, files + 1):
        wealth = np.minimum(
            (wealth + 1 / (number * (number + 1))) * factors[rng.integers(len(paid), size=nodes)], 1e300
        )
        each = (wealth + 1 / (number + 1)).mean(axis=2)
        total = np.log(each.mean(axis=1))
        fresh = (total >= LIMIT_NATS) & (at == 0)
        at[fresh] = number
        by += np.bincount(each[fresh].argmax(axis=1), minlength=len(FIGURES))
        largest = max(largest, float(total.max()))
        if at.all():
            break
    return at, by, largest


def _found(rows: Sequence[Row], dtype: str) -> dict[str, Row]:
    cheats, out = [row for row in rows if (row["label"], row["dtype"]) == ("cheat", dtype)], {}
    for name in dict.fromkeys(row["name"] for row in cheats):
        own = [row for row in cheats if row["name"] == name]
        worst = {f"p99_{share}": max(row["p99"] for row in own if row["audited"] == 1 / share) for share in (1, 4, 16)}
        files = sum(row["files"] for row in own if row["audited"] == 1)
        out[name] = {"policies": len({row["policy"] for row in own}), "files": files} | worst
    return out


FILE_UNITS = 65_536
SAVED = ("int8 weights", "int8 KV cache", "skipped layer")
"""Cheats that spare work in bfloat16: at most half of it, as half of the bytes are moved."""


def _price(rows: Sequence[Row]) -> list[Row]:
    """Return what one identity gains at most at Base Sepolia's terms if it is told the file that would convict it, and
    leaves with the one before, paid in full. A new identity starts from nothing."""
    terms = tomllib.loads((FOLDER / "terms" / "base-sepolia.toml").read_text())
    pay = parse_tokens(terms["rate"]) * FILE_UNITS / TOKEN
    priced = [row for row in rows if (row["label"], row["dtype"]) == ("cheat", BFLOAT16) and row["name"] in SAVED]
    return [
        {key: row[key] for key in ("name", "policy", "audited", "mean", "refused")}
        | {"pay": pay, "gain": round(pay * (row["mean"] - 1) / 2, 2)}
        for row in priced
    ]


class Laboratory:
    """Trains policies, makes files and measures them, each once."""

    def __init__(self, home: Path, quick: bool) -> None:
        self._home, self._quick = home, quick

    def measure(self, case: Case, kind: Kind, end: float, progress: Progress) -> None:
        """Measure what is missing of a kind's files, until `end`."""
        known = len(self.seen(case.dtype, case.policy).get(kind.name, []))
        count = min(kind.files, 4) if self._quick else kind.files
        if known >= count or time.monotonic() > end:
            return
        config = self.config(case.dtype)
        weights, start = self.weights(case.policy), time.monotonic()
        environments, verifier = PoolEnvironments.of(config, weights), verifier_of(case.dtype, weights)
        works = [work_of(case, kind, number) for number in range(known, count)]
        for work, data in zip(works, self._made(case, kind, works), strict=True):
            row = measured(work, data, config, environments, verifier, 16 if kind.files > 16 else 8)
            keep(self._home / f"{case.dtype}, {case.policy}.jsonl", {"kind": kind.name} | row)
            if time.monotonic() > end:
                return
        progress(f"{case.dtype}, {case.policy}: {kind.name}, {time.monotonic() - start:.0f} s")

    def seen(self, dtype: str, policy: Policy) -> dict[str, list[Row]]:
        """Return the measured files by their kind."""
        rows = kept(self._home / f"{dtype}, {policy}.jsonl")
        return {kind: [row for row in rows if row["kind"] == kind] for kind in {row["kind"] for row in rows}}

    def config(self, dtype: str) -> PoolConfig:
        demo = demo_config()
        model = demo.model.model_copy(update={"dtype": dtype})
        checks = BF16_CHECKS if dtype == BFLOAT16 else ChecksConfig()
        return demo.model_copy(update={"model": model, "work": FULL_WORK, "checks": checks})

    def _made(self, case: Case, kind: Kind, works: Sequence[Work]) -> Iterator[bytes]:
        producer = self.producer(case, kind)
        for work in works:
            torch.set_num_threads(kind.threads)
            data = producer.make(work).data
            torch.set_num_threads(1)
            yield data

    def producer(self, case: Case, kind: Kind) -> Producer:
        config, engine = self.config(case.dtype), TransformersEngine(case.dtype, max_batch=kind.batch)
        producer = KNOWN[kind.attack](config, engine, kind.strength)
        behind = int(kind.strength) if kind.attack == "stale" else 0
        producer.load(self.weights(case.policy._replace(step=case.policy.step - behind)))
        if kind.vary:
            VARY[kind.vary](engine.model)
        return producer

    def weights(self, policy: Policy) -> Path:
        """Return a policy's folder: the demo's training at its learning rate, on files of the policy before."""
        folders = self._home / "policies"
        if not (folder := folders / str(policy)).is_dir():
            config = demo_config()
            method = config.train.optimizer.method.model_copy(update={"learning_rate": policy.rate})
            optimizer = config.train.optimizer.model_copy(update={"method": method})
            train = config.train.model_copy(update={"optimizer": optimizer})
            base = self.weights(TRAINED) if policy.trained else base_model(config.model, config.environments[0], 1)
            learner, work = Learner(base, train, config.work.temperature, FLOAT32, seed=1), OfflineWork(config)
            for step in range((LAST if policy.rate == DEMO else policy.step) + 1):
                own = folders / str(policy._replace(step=step))
                if not own.is_dir():
                    learner.policy.export(own)
                if step < LAST:
                    work.load(own)
                    learner.train_step(batch_of(work, step, step)[0])
        return folder


@lru_cache(1)
def verifier_of(dtype: str, weights: Path) -> Engine:
    engine = TransformersEngine(dtype, max_batch=64)
    engine.load(weights)
    return engine


def work_of(case: Case, kind: Kind, number: int) -> Work:
    """Of a node of its own for every kind, so that no two files share problems or noise."""
    seed = tagged_hash(f"muster/benchmark-evidence/3 {kind.name}", case.policy.step)
    return Work(WorkId(PoolId(0, NODE, 0), NODE, case.policy.step, number), seed, bytes(32))


def measured(work: Work, data: bytes, config: Any, environments: Any, verifier: Engine, most: int = 16) -> Row:
    """Return what checks and figures say of an honest or cheating file in at most so many audits at each rate."""
    row: Row = {"tokens": 0, "codes": {}, "draws": {}}
    for rate in RATES:
        context = context_of(work, data, config, environments, rate)
        row["tokens"], row["codes"][str(rate)], row["draws"][str(rate)] = context.facts.commitment.units, [], []
        for seen in audits(context, verifier, min(most, audit_draws(rate))):
            findings = [check(seen) for check in PREFILL_CHECKS]
            row["codes"][str(rate)].append(next((one.check for one in findings if one.code.is_reject), ""))
            figures = file_figures(seen)
            row["draws"][str(rate)].append([[(rounded(u.total), u.count) for u in figures[name]] for name in FIGURES])
    return row
