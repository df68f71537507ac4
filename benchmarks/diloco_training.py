"""A run of `python -m benchmarks diloco`: a Llama of five million parameters, trained on text by data parallelism over
four sites, or by four sites that take outer steps. It goes on from a checkpoint with the same bits.

Every site takes the same rows at the same inner step in all runs of a seed, so all runs see equal tokens. In data
parallelism the sites' gradients are averaged at every step; that, with AdamW's state, is also how every run begins: the
sites start from one checkpoint, as in DiLoCo's experiments.
"""

import copy
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.diloco_sites import SITES, FourSites
from benchmarks.diloco_text import SiteStreams
from engines.loading import set_threads
from protocol.sites.config import AdmissionConfig, OuterConfig, SitesConfig
from protocol.sites.layout import F32, Tensors
from protocol.sites.outer import OuterState

VOCABULARY = 256
CHECKPOINT = "checkpoint.pt"
SHORT = 10
"""Inner steps, and fewer, after which noise is nearly all of a pseudo-gradient."""


@dataclass(frozen=True)
class Scale:
    """How large everything is. `rows`, `length`: of a site's batch. `warmup`: steps by data parallelism that all runs
    of a seed share; `last`: the step that they end with; `every`: steps between evaluations, a multiple of each H.

    The learning rate rises over `rising` steps and stays until the end of `warmup`. Then it falls along a line, from
    `after` times as much to nothing at `last`: so the sites' weights have come together in the end."""

    hidden: int = 384
    layers: int = 3
    intermediate: int = 1088
    rows: int = 4
    length: int = 128
    warmup: int = 1600
    last: int = 2000
    every: int = 100
    held_out: int = 256
    learning_rate: float = 1e-3
    after: float = 0.5
    rising: int = 50

    def rate(self, step: int) -> float:
        """The learning rate of the inner step `step`, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * min(1.0, (step + 1) / self.rising)
        return self.learning_rate * self.after * (self.last - step) / (self.last - self.warmup)


@dataclass(frozen=True)
class DilocoPlan:
    """`sites`: null for data parallelism, over `streams` of the sites' data, null for all: 1 is a site alone."""

    seed: int
    sites: SitesConfig | None = None
    streams: int | None = None

    def digest(self, scale: Scale) -> str:
        """Of everything that decides the bits of the run's steps, besides machine and packages."""
        return hashlib.sha256(repr((self, scale)).encode()).hexdigest()


def sites_config(inner_steps: int, mode: Any = "float32", codebook: Any = "uniform") -> SitesConfig:
    """Of a rate of 1 and a momentum of 0.5, at every H. INTELLECT-1's 0.7 and 0.9 are for hundreds of outer steps: of
    the four that a run makes at H = 100, the last would still be moved by the first, which are much longer. The
    few bytes that a site sees in ten steps (5,120) leave honest sites a cosine of 0.04: the least is 0.01 there."""
    outer = OuterConfig(learning_rate=1.0, momentum=0.5)
    made = SitesConfig(inner_steps=inner_steps, mode=mode, codebook=codebook, outer=outer)
    if inner_steps > SHORT:
        return made
    return made.model_copy(update={"admission": AdmissionConfig(cosine=0.01)})


class TrainedModel:
    """The model, and an AdamW for each of `optimizers` states over its parameters."""

    def __init__(self, scale: Scale, seed: int, optimizers: int) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        set_threads(1)
        torch.manual_seed(seed)
        config: Any = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=scale.hidden,
            intermediate_size=scale.intermediate,
            num_hidden_layers=scale.layers,
            num_attention_heads=scale.hidden // 64,
            num_key_value_heads=scale.hidden // 128,
            max_position_embeddings=scale.length,
        )
        self._scale = scale
        make_model: Any = LlamaForCausalLM
        self.model: Any = make_model(config).train()
        self.optimizers = [
            torch.optim.AdamW(self.model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
            for _ in range(optimizers)
        ]

    @property
    def weights(self) -> dict[str, Any]:
        return {name: one.detach().numpy().copy() for name, one in self.model.named_parameters()}

    def load(self, weights: Tensors) -> None:
        with torch.no_grad():
            for name, one in self.model.named_parameters():
                one.copy_(torch.from_numpy(weights[name]))

    def take_step(self, optimizer: int, step: int, rows: Any) -> float:
        """On the mean loss over the batch in nats per byte, which is returned; gradients are clipped."""
        loss = self._loss(torch.from_numpy(rows))
        loss.backward()  # type: ignore[no-untyped-call]
        chosen = self.optimizers[optimizer]
        for group in chosen.param_groups:
            group["lr"] = self._scale.rate(step)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        chosen.step()
        chosen.zero_grad()
        return float(loss.detach())

    def evaluate(self, rows: Any) -> float:
        """Mean loss in nats per byte."""
        with torch.no_grad():
            losses = [float(self._loss(torch.from_numpy(part))) * len(part) for part in _split(rows, 16)]
        return sum(losses) / len(rows)

    def _loss(self, rows: torch.Tensor) -> torch.Tensor:
        """Products of matrices are bfloat16, as in INTELLECT-1; weights, gradients and AdamW's state are float32."""
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.model(input_ids=rows[:, :-1], use_cache=False).logits.float()
        return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), rows[:, 1:].reshape(-1))


class DilocoRun:
    """`step`: inner steps that all sites have taken since the beginning. Between two of them some sites may be ahead:
    their weights are kept.
    `cpu`: processor seconds since the last line."""

    def __init__(self, folder: Path, plan: DilocoPlan, scale: Scale, streams: SiteStreams) -> None:
        self._path, self._plan, self._scale, self._streams = folder / CHECKPOINT, plan, scale, streams
        self._trained = TrainedModel(scale, plan.seed, len(SITES) if plan.sites else 1)
        self.step, self.losses, self.cpu = 0, list[float](), 0.0
        self._ahead: dict[str, Tensors] = {}
        self._sites: FourSites | None = None
        if plan.sites:
            self._sites = FourSites(plan.sites, OuterState.start(self._trained.weights))

    @property
    def model(self) -> TrainedModel:
        return self._trained

    def begin_from(self, checkpoint: Path) -> None:
        """Data parallelism's, whose weights and optimizer every site takes over."""
        kept = torch.load(checkpoint)
        self.step = kept["step"]
        self._trained.load(_arrays(kept["weights"]))
        for one in self._trained.optimizers:
            one.load_state_dict(copy.deepcopy(kept["optimizers"][0]))
        if self._plan.sites:
            self._sites = FourSites(self._plan.sites, OuterState.start(self._trained.weights))

    def advance(self) -> dict[str, Any] | None:
        """A turn: some steps of data parallelism, or the inner steps of one site. Of the turn that ends a round, its
        line for the journal."""
        began = time.process_time()
        line = self._parallel_steps() if self._sites is None else self._site_turn(self._sites)
        self.cpu += time.process_time() - began
        if line is not None:
            line["cpu"], self.cpu = round(self.cpu, 2), 0.0
        return line

    def _parallel_steps(self) -> dict[str, Any] | None:
        end = min(self.step + 10, -(-(self.step + 1) // self._scale.every) * self._scale.every)
        for step in range(self.step, end):
            rows = np.concatenate([self._rows(site, step) for site in range(len(SITES))[: self._plan.streams]])
            self.losses.append(self._trained.take_step(0, step, rows))
        self.step = end
        return self._line(OuterState.start(self._trained.weights), {}) if end % self._scale.every == 0 else None

    def _site_turn(self, sites: FourSites) -> dict[str, Any] | None:
        number, count = len(self._ahead), sites.config.inner_steps
        self._trained.load(sites.state.weights)
        for step in range(self.step, self.step + count):
            self.losses.append(self._trained.take_step(number, step, self._rows(number, step)))
        self._ahead[SITES[number]] = self._trained.weights
        if len(self._ahead) < len(SITES):
            return None
        found = sites.outer_step(self._ahead, count * self._scale.rows * self._scale.length)
        self.step, self._ahead = self.step + count, {}
        self._trained.load(sites.state.weights)
        return self._line(sites.state, {"outer": asdict(found)})

    def _line(self, state: OuterState, more: dict[str, Any]) -> dict[str, Any]:
        """`state`: whose digest says whether this step comes out as it did before."""
        line = {"step": self.step, "train_loss": sum(self.losses) / len(self.losses), "digest": state.digest.hex()}
        line |= more
        self.losses = []
        if self.step % self._scale.every == 0:
            line["loss"] = self._trained.evaluate(self._streams.held_out(self._scale.held_out))
        return line

    def _rows(self, site: int, step: int) -> Any:
        return self._streams.batch(site, step, self._scale.rows)

    def keep(self) -> None:
        """Write a checkpoint in place of the one before."""
        kept: dict[str, Any] = {
            "plan": self._plan.digest(self._scale),
            "step": self.step,
            "losses": self.losses,
            "weights": _stored(self._trained.weights),
            "cpu": self.cpu,
            "optimizers": [one.state_dict() for one in self._trained.optimizers],
        }
        if self._sites is not None:
            state = self._sites.state
            kept |= {"ahead": _by_site(self._ahead, _stored), "owed": _by_site(self._sites.owed, _stored)}
            kept["outer"] = [state.step, _stored(state.weights), _stored(state.momentum)]
        aside = self._path.with_suffix(".new")
        torch.save(kept, aside)
        aside.replace(self._path)

    def forget(self) -> None:
        """Remove the checkpoint: the journal says all that is wanted of a run that has come to its end."""
        self._path.unlink(missing_ok=True)

    def resume(self) -> bool:
        """Go on from the checkpoint; false if there is none. Raises ValueError for another plan's."""
        if not self._path.exists():
            return False
        kept = torch.load(self._path)
        if kept["plan"] != self._plan.digest(self._scale):
            raise ValueError(f"{self._path} is of another plan: remove its folder")
        self.step, self.losses, self.cpu = kept["step"], kept["losses"], kept["cpu"]
        self._trained.load(_arrays(kept["weights"]))
        for one, state in zip(self._trained.optimizers, kept["optimizers"], strict=True):
            one.load_state_dict(state)
        if self._plan.sites:
            step, weights, momentum = kept["outer"]
            state = OuterState(step, _arrays(weights), _arrays(momentum))
            self._ahead = _by_site(kept["ahead"], _arrays)
            self._sites = FourSites(self._plan.sites, state, _by_site(kept["owed"], _arrays))
        return True


def _split(rows: Any, size: int) -> list[Any]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _stored(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(one) for name, one in tensors.items()}


def _arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, F32]:
    return {name: one.numpy() for name, one in tensors.items()}


def _by_site(kept: Mapping[str, Any], made: Callable[[Any], Any]) -> dict[str, Any]:
    return {site: made(one) for site, one in kept.items()}
