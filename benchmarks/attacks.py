"""Detection rates of every attack, through the validator's own pipeline, on the demo's tiny model and without a chain.

Files have 16 rollouts, an eighth of the demo's: means over few rollouts separate worst, so larger files fare better.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import attacks.all  # noqa: F401
from attacks.base import REGISTRY
from protocol.config import BF16_CHECKS, ChecksConfig, ModelConfig, PoolConfig, TaskConfig, WorkConfig
from protocol.engines.hf import TransformersEngine
from protocol.models.tiny import tiny_model_config
from protocol.seeds import AUDIT_EVERYTHING
from protocol.workbook import Workbook
from trainer.basemodel import base_model
from validator.case import Facts
from validator.pipeline import judge
from worker.produce import Order, Produced, Producer

Progress = Callable[[str], None]
TASK = TaskConfig(
    name="reasoning_gym/chain_sum", params={"min_terms": 3, "max_terms": 4, "min_digits": 1, "max_digits": 1}
)
LEARNING_RATES = (1e-6, 1e-5, 1e-4, 3e-4)
STALE = (1, 2, 4)
STRENGTHS: dict[str, tuple[float, ...]] = {
    "weights-noise": (0.01, 0.001, 0.0001),
    "token-swap": (0, 1),
    "early-eos": (0, 1),
    "padding": (0, 1),
}
SEPARATE = ("weights-stale", "partial")
BF16 = (
    "weights-noise", "weights-int8", "weights-small", "greedy", "temperature", "reroll", "seed", "fabricate",
    "token-swap", "early-eos", "hidden-prompt", "proofs-random", "proofs-swapped", "edited-copy",
)  # fmt: skip


@dataclass(frozen=True)
class Bed:
    """A pool, its model folder, and the verifier."""

    config: PoolConfig
    folder: Path
    verifier: TransformersEngine
    workbook: Workbook
    dtype: str

    @classmethod
    def of(cls, folder: Path, model: ModelConfig, checks: ChecksConfig, dtype: str) -> "Bed":
        work = WorkConfig(problems_per_file=4, samples_per_problem=4, max_new_tokens=48, max_prompt_tokens=96)
        config = PoolConfig(name="bench", model=model, task=TASK, work=work, checks=checks)
        verifier = TransformersEngine(dtype=dtype, max_batch=16)
        verifier.load(folder)
        return cls(config, folder, verifier, Workbook.of(config, folder), dtype)

    def engine(self) -> TransformersEngine:
        return TransformersEngine(dtype=self.dtype, max_batch=16)

    def code(self, made: Produced, order: Order, audit_rate: int = AUDIT_EVERYTHING) -> str:
        done = made.commitment
        facts = Facts(
            chain_id=order.chain_id,
            pools=order.pools,
            pool=order.pool,
            sequence=order.counter,
            node=order.node,
            step=order.step,
            counter=order.counter,
            units=done.units,
            rows=done.rows,
            sha256=done.sha256,
            root=done.root,
            step_seed=order.step_seed,
            manifest=order.manifest,
            lane_seed=b"\x09" * 32,
            audit_rate=audit_rate,
        )
        return judge(facts, made.data, self.config, self.workbook, self.verifier).verdict.code.label

    def row(self, name: str, producer: Producer, count: int, progress: Progress) -> dict[str, Any]:
        """Judge `count` files of a producer that has its weights."""
        codes: Counter[str] = Counter()
        for counter in range(count):
            codes[self.code(producer.make(order(counter)), order(counter))] += 1
        detected = count - codes["accept"] - codes["unsure"]
        progress(f"{self.dtype} {name}: {detected} of {count} {dict(codes)}")
        return {"name": name, "dtype": self.dtype, "submissions": count, "detected": detected, "codes": dict(codes)}


def order(counter: int) -> Order:
    return Order(31337, "0x" + "22" * 20, 1, "0x" + "11" * 20, 3, counter, b"\x07" * 32, b"\x08" * 32)


def named(bed: Bed, names: Iterable[str], count: int, progress: Progress) -> list[dict[str, Any]]:
    out = []
    for name in names:
        entry = REGISTRY[name]
        for strength in STRENGTHS.get(name, (entry.default,)):
            producer = entry.build(bed.config, bed.engine(), strength)
            producer.load(bed.folder)
            label = f"{name}={strength:g}" if strength else name
            out.append(bed.row(label, producer, count, progress))
    return out


def policy_steps(bed: Bed, rate: float, steps: int, target: Path) -> list[Path]:
    """Folders of `steps` + 1 successive policies: AdamW on a policy gradient over the bed's own rollouts, with random
    advantages (what matters here is how far an optimiser step moves the weights, not where to)."""
    import shutil

    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(bed.folder, dtype=torch.float32)
    producer = Producer(bed.config, bed.engine())
    producer.load(bed.folder)
    rows = producer.make(order(10**6)).rollouts
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=0.01)
    generator = torch.Generator().manual_seed(0)
    folders = []
    for step in range(steps + 1):
        folder = target / f"{rate:g}-{step}"
        shutil.copytree(bed.folder, folder)
        model.save_pretrained(folder)
        folders.append(folder)
        loss = torch.zeros(())
        for row in rows:
            ids = torch.tensor([row.prompt_tokens + row.output_tokens])
            logits = model(ids).logits[0, len(row.prompt_tokens) - 1 : -1].log_softmax(-1)
            chosen = logits.gather(1, torch.tensor(row.output_tokens).unsqueeze(1)).sum()
            loss = loss - chosen * torch.randn((), generator=generator) / len(rows)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return folders


def stale(bed: Bed, rates: Iterable[float], count: int, progress: Progress) -> list[dict[str, Any]]:
    out = []
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        for rate in rates:
            folders = policy_steps(bed, rate, max(STALE), Path(name))
            bed.verifier.load(folders[-1])
            for behind in STALE:
                producer = Producer(bed.config, bed.engine())
                producer.load(folders[-1 - behind])
                out.append(bed.row(f"weights-stale={behind} lr={rate:g}", producer, count, progress))
        bed.verifier.load(bed.folder)
    return out


def fractions(bed: Bed, count: int, progress: Progress) -> list[dict[str, Any]]:
    """A worker that cheats on a share of its rollouts, against audits: measured and by the formula of the docs."""
    out = []
    rows = bed.config.work.rows
    for share in (1 / 16, 1 / 4):
        producer = REGISTRY["partial"].build(bed.config, bed.engine(), share)
        producer.load(bed.folder)
        files = [producer.make(order(counter)) for counter in range(count)]
        for rate in (65536 // 8, 65536 // 4, 65536 // 2, AUDIT_EVERYTHING):
            codes = Counter(bed.code(made, order(counter), rate) for counter, made in enumerate(files))
            found = count - codes["accept"] - codes["unsure"]
            cheated = round(share * rows)
            formula = 1 - (1 - rate / 65536) ** cheated * (rows - cheated) / rows
            progress(f"share {share:g} audit {rate / 65536:g}: {found} of {count}, formula {formula:.3f}")
            out.append(
                {"share": share, "audit": rate / 65536, "submissions": count, "detected": found, "formula": formula}
            )
    return out


def run(quick: bool, progress: Progress) -> dict[str, Any]:
    """{attacks: [{name, dtype, submissions, detected, codes}], fractions: […], honest: […]}."""
    torch.set_num_threads(1)
    count = 2 if quick else 200
    model = tiny_model_config()
    folder = base_model(model, TASK, 1, progress=progress)
    fp32 = Bed.of(folder, model, ChecksConfig(), "float32")
    rates = (1e-6, 3e-4) if quick else LEARNING_RATES
    honest = [fp32.row("honest", _honest(fp32), count, progress)]
    rows = named(fp32, sorted(set(REGISTRY) - set(SEPARATE)), count, progress)
    rows += stale(fp32, rates, count, progress)
    shares = fractions(fp32, count, progress)
    bf16 = Bed.of(folder, model, BF16_CHECKS, "bfloat16")
    honest.append(bf16.row("honest", _honest(bf16), count, progress))
    rows += named(bf16, BF16[:3] if quick else BF16, count, progress)
    return {"attacks": rows, "fractions": shares, "honest": honest}


def _honest(bed: Bed) -> Producer:
    producer = Producer(bed.config, bed.engine())
    producer.load(bed.folder)
    return producer
