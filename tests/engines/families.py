"""Families of models through the whole pipeline: both engines, verification, trainer, export, reload.

Each family is a tiny random model of its real architecture,
kind of tokenizer and shape of chat template, in fp32. transformers and vLLM, in processes of their own, make rollout
files and judge one another's with the validator's whole pipeline. The trainer recomputes the log-probs in the files,
takes one step and exports; both engines reload in place and judge one another's files of that step.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from benchmarks.support.offline_pool import ENVIRONMENT, texts, work_of
from engines.base import Engine
from environments.pool import PoolEnvironments
from protocol.config import ModelConfig, OptimizerConfig, PoolConfig, ScheduleConfig, TrainConfig, WorkConfig
from protocol.seeds import AUDIT_EVERYTHING
from runtime.process import EngineConfig
from trainer.data.batch import Group, TrainRollout, micro_batch
from trainer.learner import Learner
from trainer.model.policy import Policy
from validator.judging.checks import SubmissionFacts
from validator.judging.pipeline import judge
from worker.produce import Produced, Producer

# transformers and tokenizers are imported where they are used: listing families must stay cheap.

CORPUS = (
    "State the final answer to the following arithmetic problem: 4 + 7 - 3 =",
    "Give only the final answer. The answer is a number between one and a hundred.",
    "Think for 40 tokens before giving a response. You are a helpful assistant.",
)
GPT_PATTERN = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"""
)
MERGES = 120

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SMOLLM3 = "<|im_start|>system\nToday Date: {{ strftime_now('%d %B %Y') }}\nReasoning Mode: /think<|im_end|>\n" + CHATML
LLAMA3 = (
    "{{ bos_token }}{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "<|start_header_id|>system<|end_header_id|>\n\nToday Date: {{ date_string }}\n\n<|eot_id|>"
    "{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
    "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for message in messages %}<start_of_turn>{{ message['role'] }}\n"
    "{{ message['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ ' [INST] ' + message['content'] + ' [/INST]' }}{% else %}"
    "{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
)
OLMO2 = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
PHI3 = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def byte_level(*special: str, bos: str | None = None, eos: str = "<|endoftext|>", prepend: bool = False) -> Any:
    """Make a byte-level BPE behind a splitting pattern, special tokens last (Qwen, Llama 3, OLMo 2). prepend: the
    post-processor puts `bos` before plain text."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(GPT_PATTERN), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=256 + MERGES, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(list(dict.fromkeys([*([bos] if bos else []), eos, *special])))
    if prepend and bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, pad_token=eos)


def byte_fallback(kind: str, first: tuple[str, ...], *special: str) -> Any:
    """Make SentencePiece's BPE as transformers carries it: ▁ for spaces, bytes for what is not in the vocabulary.
    `kind`: LlamaTokenizer or GemmaTokenizer."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    learner.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=60 + MERGES, show_progress=False))
    learned = json.loads(learner.to_str())["model"]
    pieces = [*first, *(f"<0x{byte:02X}>" for byte in range(256)), *sorted(learned["vocab"], key=learned["vocab"].get)]
    merges = [tuple(merge) for merge in learned["merges"]]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    made = getattr(transformers, kind)(vocab=vocabulary, merges=merges)
    made.add_special_tokens({"additional_special_tokens": list(special)})
    return made


@dataclass(frozen=True)
class Family:
    """A family. `ends`: tokens that end a completion; `padding`: rows of the model's vocabulary without a token."""

    name: str
    architecture: str
    tokenizer: Callable[[], Any]
    chat_template: str
    ends: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    padding: int = 0

    def save(self, folder: Path, seed: int = 0) -> Path:
        """Write a complete model folder in fp32, the same for the same seed."""
        import torch
        import transformers

        tokenizer = self.tokenizer()
        tokenizer.chat_template = self.chat_template
        tokenizer.save_pretrained(str(folder))
        ends = tokenizer.convert_tokens_to_ids(list(self.ends))
        common = {
            "vocab_size": len(tokenizer) + self.padding,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
            # Spread, so that distributions are neither flat nor sharp.
            "initializer_range": 0.08,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": ends if len(ends) > 1 else ends[0],
            "pad_token_id": tokenizer.pad_token_id,
            "dtype": "float32",
        }
        library: Any = transformers
        library.utils.logging.disable_progress_bar()
        torch.manual_seed(seed)
        config = getattr(library, f"{self.architecture}Config")(**common | self.settings)
        model = library.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                # A fresh norm is all ones and a fresh bias all zeros: a mistake in either would not show.
                if parameter.ndim == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
        model.generation_config = library.GenerationConfig(
            bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id
        )
        model.save_pretrained(str(folder))
        return folder


def _qwen() -> Any:
    return byte_level("<|im_start|>", "<|im_end|>")


QWEN_ENDS = ("<|im_end|>", "<|endoftext|>")
WINDOWS = ["sliding_attention"] * 5 + ["full_attention"]
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}
FAMILIES = (
    Family("Qwen2", "Qwen2", _qwen, CHATML, QWEN_ENDS, {"tie_word_embeddings": True}, padding=39),
    Family("Qwen3", "Qwen3", _qwen, CHATML, QWEN_ENDS, {"tie_word_embeddings": True, "head_dim": 64}),
    Family(
        "Llama 3",
        "Llama",
        lambda: byte_level(
            *("<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"),
            bos="<|begin_of_text|>",
            eos="<|eot_id|>",
            prepend=True,
        ),
        LLAMA3,
        ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
        {
            "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    Family(
        "Gemma 3",
        "Gemma3Text",
        lambda: byte_fallback(
            "GemmaTokenizer", ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>"), *("<start_of_turn>", "<end_of_turn>")
        ),
        GEMMA,
        ("<eos>", "<end_of_turn>"),
        {
            "num_hidden_layers": 6,
            "layer_types": WINDOWS,
            "sliding_window": 24,
            "head_dim": 32,
            "query_pre_attn_scalar": 32,
        },
        padding=7,
    ),
    Family(
        "Mistral",
        "Mistral",
        lambda: byte_fallback("LlamaTokenizer", ("<unk>", "<s>", "</s>")),
        MISTRAL,
        ("</s>",),
        {"sliding_window": 48, "head_dim": 32},
    ),
    Family(
        "OLMo 2", "Olmo2", lambda: byte_level("<|pad|>", bos="<|endoftext|>"), OLMO2, ("<|endoftext|>",), padding=64
    ),
    Family(
        "Phi-3",
        "Phi3",
        lambda: byte_fallback(
            *("LlamaTokenizer", ("<unk>", "<s>", "</s>")),
            *("<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>"),
        ),
        PHI3,
        ("<|endoftext|>", "<|assistant|>", "<|end|>"),
        {"sliding_window": 40},
        padding=53,
    ),
    Family(
        "SmolLM3",
        "SmolLM3",
        lambda: byte_level("<|im_start|>", "<|im_end|>", "<|end_of_text|>", bos="<|begin_of_text|>", eos="<|im_end|>"),
        SMOLLM3,
        ("<|im_end|>", "<|end_of_text|>"),
        # Every fourth layer has no rotary positions.
        {"num_hidden_layers": 4, "no_rope_layer_interval": 4, "tie_word_embeddings": True},
    ),
    Family("Qwen3 MoE", "Qwen3Moe", _qwen, CHATML, QWEN_ENDS, EXPERTS | {"decoder_sparse_step": 1}),
)


CONFIG = PoolConfig(
    name="families",
    model=ModelConfig(source="random", chat_template=True),
    environments=(ENVIRONMENT,),
    work=WorkConfig(problems_per_file=4, samples_per_problem=5, max_new_tokens=48, max_prompt_tokens=160),
)
TRAIN = TrainConfig(optimizer=OptimizerConfig(schedule=ScheduleConfig(warmup_updates=0)))
PACKED = 16  # sequences in one row of the trainer


_LOADED: dict[str, Engine] = {}


def _engine(name: str) -> Engine:
    """The one engine of this process."""
    if name not in _LOADED:
        _LOADED[name] = EngineConfig.model_validate({"name": name, "batch": 20}).make()
    return _LOADED[name]


def _make(name: str, folder: Path, files: int) -> list[Produced]:
    producer = Producer(CONFIG, _engine(name))
    producer.load(folder)
    return [producer.make(work_of(number)) for number in range(files)]


def _rejected(name: str, folder: Path, files: Sequence[Produced]) -> list[str]:
    engine, environment, out = _engine(name), PoolEnvironments.of(CONFIG, folder), []
    engine.load(folder)
    for made in files:
        work = made.header.work
        facts = SubmissionFacts(work, made.commitment, work.id.counter, bytes(32), AUDIT_EVERYTHING)
        verdict = judge(facts, made.data, CONFIG, environment, engine)
        if not verdict.code.is_accept:
            out.append(f"{name}: {verdict.code.label}, {verdict.findings[-1].note}")
    return out


def measure(family: Family, folder: Path, engines: Sequence[str], files: int, executor: Callable[[], Executor]) -> None:
    """Let each engine make `files`, train on all of them, and let it make a fifth as many with the new weights. All
    must accept all, the trainer must find the log-probs that files state, and most of what is said must change."""
    processes = {name: executor() for name in engines}
    try:
        base = family.save(folder / "base")
        first = _crosswise(processes, base, files)
        trained, error = train(base, [file for made in first.values() for file in made])
        later = _crosswise(processes, trained, max(1, files // 5))
    finally:
        for process in processes.values():
            process.shutdown()
    assert error < 1e-4
    pairs = [pair for name in engines for pair in zip(later[name], first[name], strict=False)]
    changed = [one != other for new, old in pairs for one, other in zip(texts(new), texts(old), strict=True)]
    assert sum(changed) > len(changed) / 2


def _crosswise(processes: dict[str, Executor], folder: Path, files: int) -> dict[str, list[Produced]]:
    """Let every engine make files and judge all; return what each made."""
    made = {name: process.submit(_make, name, folder, files).result() for name, process in processes.items()}
    everything = [file for own in made.values() for file in own]
    for name, process in processes.items():
        assert process.submit(_rejected, name, folder, everything).result() == []
    return made


def train(base: Path, files: Sequence[Produced]) -> tuple[Path, float]:
    """Take one training step on rollouts of all files; return the exported folder beside `base`, and the largest
    distance of the trainer's log-probs before the step from those that the files state, in nats."""
    learner = Learner(base, TRAIN, CONFIG.work.temperature)
    groups = [group for made in files for group in _groups(made)]
    error = _error(learner.policy, [rollout for group in groups for rollout in group])
    learner.train_step(groups)
    return learner.policy.export(base.with_name("trained")), error


@torch.no_grad()
def _error(policy: Policy, samples: Sequence[TrainRollout]) -> float:
    together, error = PACKED if policy.packs else 1, 0.0
    for start in range(0, len(samples), together):
        row = micro_batch(samples, range(start, min(start + together, len(samples))), policy.device)
        logp, _ = policy.logprobs(row, CONFIG.work.temperature)
        if row.sampled is None:
            raise ValueError("a file without log-probs")
        error = max(error, float((logp - row.sampled).abs().max()))
    return error


def _groups(made: Produced) -> list[Group]:
    """Return a file's groups. A random model earns nothing by the task: a rollout's first token decides its reward."""
    return [
        tuple(
            TrainRollout(row.prompt_tokens, row.output_tokens, float(row.output_tokens[0] % 2), 0.0, row.logprobs)
            for row in members
        )
        for _, members in groupby(made.rollouts, key=lambda row: row.slot)
    ]
