"""Models of three sizes, two architectures and two tokenizers that learned the same worked sums."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from environments.catalogue import load_environment
from environments.prompts import prompt_text
from protocol.environments import EnvironmentConfig
from protocol.folders import write_folder
from protocol.models import load_tokenizer, save_byte_tokenizer
from trainer.base_model import Recipe, warm_up
from trainer.tiny_model import END_OF_THOUGHT, PHRASES, START_OF_THOUGHT, tiny_model_config

_EOS, _PAD = "<|end|>", "<|pad|>"
_MERGES = 80


@dataclass(frozen=True)
class SwarmModel:
    """`phrases`: the demo's tokenizer, of bytes and whole phrases; else byte-pair encoding with merges of its own.
    Hidden size, blocks and steps of the warm-up decide how much it can before the swarm begins, and the share of worked
    answers at the warm-up's end how often it shows that: one that seldom works a sum out is seldom right, and its own
    groups seldom tell it what would be better."""

    name: str
    architecture: str
    phrases: bool
    hidden: int
    layers: int
    steps: int
    worked_share: float

    def fresh(self, folder: Path, seed: int) -> Path:
        """One that knows nothing, in `folder`; the same for the same seed."""
        import torch
        import transformers

        if self.phrases:
            save_byte_tokenizer(folder, PHRASES)
        else:
            _save_merging_tokenizer(folder)
        tokenizer: Any = load_tokenizer(folder)
        ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        sizes = {"hidden_size": self.hidden, "intermediate_size": 2 * self.hidden, "num_hidden_layers": self.layers}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
        rest = {"vocab_size": len(tokenizer), "tie_word_embeddings": True, "bos_token_id": None, "dtype": "float32"}
        config = getattr(transformers, f"{self.architecture}Config")(**sizes, **heads, **rest, **ends)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = getattr(transformers, f"{self.architecture}ForCausalLM")(config)
        model.generation_config = transformers.GenerationConfig(**ends)  # type: ignore[no-untyped-call]
        model.save_pretrained(str(folder))
        return folder

    def taught(self, folder: Path, task: EnvironmentConfig, seed: int) -> Path:
        """The model after its warm-up, made in `folder` unless it is there."""
        made = folder / f"{self.name}-{self.worked_share}-{seed}"
        if not made.is_dir():
            environment = load_environment(task)
            recipe = Recipe(worked_steps=self.steps, worked_share=self.worked_share)
            fill = partial(warm_up, task=environment, seed=seed, recipe=recipe, fresh=self.fresh)
            folder.mkdir(parents=True, exist_ok=True)
            write_folder(made, fill)
        return made


MODELS = (
    SwarmModel("small Qwen2", "Qwen2", True, 64, 2, 360, 0.12),
    SwarmModel("Qwen2", "Qwen2", True, 128, 2, 360, 0.3),
    SwarmModel("Llama", "Llama", False, 192, 3, 360, 0.6),
)


def _save_merging_tokenizer(folder: Path) -> None:
    """Bytes and merges of the question's words; digits stay single, as families that are good at sums have them."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_of])
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=256 + _MERGES, initial_alphabet=alphabet, show_progress=False)
    task = load_environment(EnvironmentConfig(name="reasoning_gym/chain_sum"))
    made.train_from_iterator([prompt_text(tiny_model_config(), task.problem(seed), 0) for seed in range(200)], trainer)
    made.add_tokens([AddedToken(one, normalized=False) for one in (START_OF_THOUGHT, END_OF_THOUGHT)])
    made.add_special_tokens([_EOS, _PAD])
    fast: Any = PreTrainedTokenizerFast
    fast(tokenizer_object=made, eos_token=_EOS, pad_token=_PAD).save_pretrained(str(folder))
