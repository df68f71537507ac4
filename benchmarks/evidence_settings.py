"""What the benchmark of evidence looks at: kinds of files, honest and cheated; settings, each a model and a task."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from benchmarks.attacks_trained import STEPS, trained
from benchmarks.offline_pool import BFLOAT16, ENVIRONMENT, FULL_WORK
from protocol.config import BF16_CHECKS, PoolConfig, WorkConfig
from protocol.environments import EnvironmentConfig
from protocol.files import user_cache, write_folder
from trainer.base_model import Recipe, base_model, warmed_up
from trainer.tiny_model import tiny_model_config

DARES = 0.9
"""Of the largest score gap that the pool's thresholds allow, what the steering worker uses."""

SURE = 8.0
"""Weights of the last norm of a random model: scores spread by 4.8 nats."""


@dataclass(frozen=True)
class Kind:
    """One way to make files: an attack at a strength, or a step of training at `rate`. `behind` is how many policy
    steps its weights are behind those that it is judged by. `inside`: it changes an engine's insides, those of
    transformers alone."""

    name: str
    attack: str = ""
    strength: float = 0.0
    rate: float = 0.0
    behind: int = 0
    inside: bool = False

    @property
    def folder_name(self) -> str:
        return self.name.replace(" ", "_")


HONEST = (Kind("calibration"), Kind("honest"))
DRIFT = (Kind("honest after 13 steps at 1e-5", rate=1e-5), Kind("honest after 13 steps at 1e-4", rate=1e-4))
CHEATS = (
    Kind("weights-int8", "weights-int8"),
    Kind("layer-int8", "layer-int8", 1.0),
    Kind("kv-int8", "kv-int8", inside=True),
    Kind("weights-noise=0.001", "weights-noise", 0.001),
    Kind("weights-stale=1 lr=1e-05", rate=1e-5, behind=1),
    Kind("weights-stale=4 lr=1e-05", rate=1e-5, behind=4),
    Kind("stale-prefill lr=1e-05", "stale-prefill", rate=1e-5, behind=1, inside=True),
    Kind("temperature=0.98", "temperature", 0.98),
    Kind("temperature-proven=0.98", "temperature-proven", 0.98),
    Kind("top-p=0.999", "top-p", 0.999, inside=True),
    Kind("greedy-rows=0.0625", "greedy-rows", 1 / 16),
    Kind("ghostwriter-int8", "ghostwriter-int8"),
    Kind("steer", "steer", DARES),
    Kind("steer for length", "shorten", DARES),
    Kind("weights-noise=0.0001", "weights-noise", 0.0001),
    Kind("weights-stale=1 lr=1e-06", rate=1e-6, behind=1),
)
OF_TEXT = ("temperature-proven=0.98", "top-p=0.999", "ghostwriter-int8", "steer")
"""Cheats on sampling whose text is proven honestly: how much of it there is decides how soon they show. Greedy rows are
not among them: two long ones of a problem are equal, which refuses the file."""
OF_PROCESSORS = ("weights-int8", "weights-noise=0.001", "temperature=0.98", "ghostwriter-int8")
"""One of each way to cheat, for pairs of processors."""
MILDER = tuple(
    Kind(f"{name}, a gap of {gap}", attack, gap)
    for name, attack in (("steer", "steer"), ("steer for length", "shorten"))
    for gap in (0.3, 0.1)
)
"""Steering that stays further below the allowed score gap: it gains less, and shows less."""
PAIRS = (("transformers", "transformers"), ("vllm", "vllm"), ("transformers", "vllm"), ("vllm", "transformers"))
AVX2 = "transformers-avx2"
"""Transformers on a processor without AVX-512: torch and oneDNN are told to use no more than AVX2."""
PROCESSOR_PAIRS = ((AVX2, AVX2), (AVX2, "transformers"), ("transformers", AVX2))
RESTRICTED = {AVX2: ("transformers", {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}, "avx2")}
"""Engine that is no name of engines/factory.py → the engine, the environment that torch has to be imported in, and how
its device's name ends then."""


@dataclass(frozen=True, eq=False)
class EvidenceSetting:
    """A model and its task. `base`: makes the model's folder, once. `calibration`: honest files that the law is learned
    from, by the worker's engine, `fewer` where a pair has not as many; `lives`: those that honest lives are drawn from
    (of 16 the mean payment of some bet exceeds 1 by chance in a hundredth of draws, of 160 in none); `each`: files of
    every other kind. `batch`: completions decoded together. Without `whole` only the law, honest lives and what is
    found of whole audits is wanted. `scaled`: wanted are lives of honest work whose figures are all larger by the
    safety factor too. `laws`: pairs of engines that share the false-accusation probability of the pool's laws."""

    name: str
    base: Callable[[], Path]
    calibration: Mapping[str, int]
    fewer: Mapping[tuple[str, str], int] = field(default_factory=dict)
    environment: EnvironmentConfig = ENVIRONMENT
    work: WorkConfig = FULL_WORK
    pairs: tuple[tuple[str, str], ...] = PAIRS[:1]
    cheats: tuple[Kind, ...] = CHEATS
    lives: int = 16
    each: int = 16
    batch: int = 64
    whole: bool = False
    scaled: bool = False
    laws: int = len(PAIRS)

    @cached_property
    def config(self) -> PoolConfig:
        return PoolConfig(
            name="evidence",
            model=tiny_model_config().model_copy(update={"dtype": BFLOAT16}),
            environments=(self.environment,),
            work=self.work,
            checks=BF16_CHECKS,
        )

    def count(self, engine: str, kind: Kind) -> int:
        """Files of a kind."""
        if kind in (HONEST[1], *DRIFT):
            return self.lives
        return self.calibration[engine] if kind == HONEST[0] else self.each

    def home(self, under: Path) -> Path:
        """Where its files are kept."""
        return under / self.name if self.name else under

    def of(self, pair: tuple[str, str]) -> "EvidenceSetting":
        """As one pair of engines has it."""
        worker = pair[0]
        return replace(self, calibration={worker: self.fewer.get(pair, self.calibration[worker])})

    @property
    def quick(self) -> "EvidenceSetting":
        return replace(self, calibration=dict.fromkeys(self.calibration, 8), fewer={}, lives=2, each=2)


def demo_model() -> Path:
    return base_model(tiny_model_config(), ENVIRONMENT, 1)


def trained_model() -> Path:
    """The demo's model after its training (`benchmarks attacks_trained`)."""
    return trained(STEPS, lambda line: None)[1]


def half_billion_model() -> Path:
    """Random weights in the shape of Qwen2.5-0.5B over the demo's vocabulary. The last norm is scaled so that a token
    is about as sure as a language model's."""
    folder = user_cache("models") / "half-billion"
    if not folder.is_dir():
        write_folder(folder, _random_weights)
    return folder


def _random_weights(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    small = demo_model()
    folder.mkdir(parents=True, exist_ok=True)
    for path in small.glob("*.json"):
        shutil.copy(path, folder)
    read = json.loads((small / "config.json").read_text())
    config = Qwen2Config(
        vocab_size=read["vocab_size"],
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=read["eos_token_id"],
        pad_token_id=read["pad_token_id"],
        dtype="bfloat16",
    )
    torch.manual_seed(1)
    model: Any = cast(Any, AutoModelForCausalLM).from_config(config, dtype=torch.bfloat16)
    with torch.no_grad():
        model.model.norm.weight.fill_(SURE)
    model.save_pretrained(folder)


LONG_SUMS = EnvironmentConfig(
    name="reasoning_gym/chain_sum", params={"min_terms": 10, "max_terms": 12, "min_digits": 1, "max_digits": 1}
)


def long_model() -> Path:
    """One that works every sum out, and often errs: a quarter of the demo's warm-up."""
    return _long(Recipe(worked_steps=90, mixed_steps=12, worked_share=1.0))


def long_sure_model() -> Path:
    """The same with two thirds of the demo's warm-up, whose tokens are about as sure as the demo's."""
    return _long(Recipe(worked_steps=240, mixed_steps=24, worked_share=1.0))


def _long(recipe: Recipe) -> Path:
    return warmed_up(LONG_SUMS, 1, user_cache("models"), lambda line: None, recipe)


OF_ANY_TEXT = tuple(kind for kind in CHEATS if not kind.rate and kind.attack not in ("steer", "shorten"))
"""A random model earns nothing that could be steered; its policy steps are not trained."""
LONG = FULL_WORK.model_copy(update={"max_new_tokens": 96})
DEMO = EvidenceSetting(
    "",
    demo_model,
    {"transformers": 768, "vllm": 1536},
    fewer={("transformers", "vllm"): 192, ("vllm", "transformers"): 384},
    lives=160,
    pairs=PAIRS,
    whole=True,
)
"""With transformers files cost little, and the more there are, the better rare events are known."""
_OF_TEXT = tuple(kind for kind in CHEATS if kind.name in OF_TEXT)
SETTINGS = (
    DEMO,
    EvidenceSetting("large law", demo_model, {"transformers": 20000}, cheats=(*CHEATS, *MILDER), lives=160, whole=True),
    EvidenceSetting("trained", trained_model, {"transformers": 384}),
    EvidenceSetting(
        "long",
        long_model,
        {"transformers": 192},
        environment=LONG_SUMS,
        work=LONG,
        cheats=(*_OF_TEXT, *MILDER[:2]),
        batch=128,
    ),
    EvidenceSetting(
        "long-sure",
        long_sure_model,
        {"transformers": 96},
        environment=LONG_SUMS,
        work=LONG,
        cheats=_OF_TEXT,
        batch=128,
    ),
    EvidenceSetting(
        "half-billion",
        half_billion_model,
        {"transformers": 40},
        work=FULL_WORK.model_copy(update={"max_new_tokens": 16}),
        cheats=OF_ANY_TEXT,
        each=4,
        batch=128,
    ),
    EvidenceSetting(
        "processors",
        demo_model,
        {"transformers": 96, AVX2: 96},
        pairs=PROCESSOR_PAIRS,
        cheats=tuple(kind for kind in CHEATS if kind.name in OF_PROCESSORS),
        lives=48,
        scaled=True,
        laws=len(PAIRS) + len(PROCESSOR_PAIRS),
    ),
)
