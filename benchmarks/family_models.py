"""Families of language models in miniature: their real architectures with random weights, their real kinds of
tokenizers over tiny trained vocabularies, chat templates in the shape of the published ones, several stop tokens.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """Byte-level BPE behind a splitting pattern, special tokens after the vocabulary (Qwen, Llama 3, OLMo 2).

    prepend: plain text gets `bos` by the post-processor.
    """
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
    """SentencePiece's BPE as transformers carries it: ▁ for spaces, bytes as tokens for what is not in the vocabulary
    (`kind`: LlamaTokenizer for Llama 2, Mistral and Phi-3, GemmaTokenizer)."""
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
    """A family: which tokenizer, which tokens end a completion, which architecture and what is special about it.

    `padding`: rows of the model's vocabulary that no token of the tokenizer has.
    """

    name: str
    architecture: str
    tokenizer: Callable[[], Any]
    chat_template: str
    ends: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    padding: int = 0

    def save(self, folder: Path, seed: int = 0) -> Path:
        """A complete model folder in fp32, the same for the same seed."""
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
            "GemmaTokenizer",
            ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>"),
            *("<start_of_turn>", "<end_of_turn>"),
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
        "OLMo 2",
        "Olmo2",
        lambda: byte_level("<|pad|>", bos="<|endoftext|>"),
        OLMO2,
        ("<|endoftext|>",),
        padding=64,
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
