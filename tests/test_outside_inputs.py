"""Inputs as strangers bring them, and what they may expect: every line of data/outside_inputs.jsonl.

A handler runs all lines of some kinds; those for endpoints, buckets and keys are in tests/outside.
"""

import gzip
import json
import logging
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.loading import load_model
from environments.checking import Screen, screen_file
from environments.genesys import read_row, scored
from environments.pool import PoolEnvironments
from environments.prompts import rendered
from environments.scorers import code, mathematics
from protocol.errors import ConfigError, IntegrityError
from protocol.models import load_tokenizer, text_digest
from tests.outside import chain, keys, storage
from tests.outside.lines import Handler, Line
from tests.trainer.helpers import small_model
from tests.trainer.world import CONFIG as POOL
from trainer.model.policy import Policy
from trainer.sft import read_conversations

LINES: list[Line] = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "outside_inputs.jsonl").read_text().splitlines()
]
HANDLERS: dict[str, Handler] = chain.HANDLERS | keys.HANDLERS | storage.HANDLERS


def handles(*kinds: str) -> Callable[[Handler], Handler]:
    """Register what runs the lines of these kinds; a name that ends in `*` stands for all that begin like it."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(kinds, handler))
        return handler

    return register


def _handler(kind: str) -> Handler | None:
    return HANDLERS.get(kind) or next(
        (handler for name, handler in HANDLERS.items() if name.endswith("*") and kind.startswith(name[:-1])), None
    )


@handles("math-*")
def _mathematics(line: Line, folder: Path) -> None:
    assert mathematics.score(line["input"]["answer"], line["input"]["reference"]) == line["expected"]


_LONG_RUNS = {
    "read 1e5 lines": ("100000\n" + "7\n" * 100_000, "700000"),
    "big output 2MB": ("300000", "1234567\n" * 300_000),
}


@handles("code-*")
def _code(line: Line, folder: Path) -> None:
    verification = line["input"]["verification"]
    if verification is None:
        given, printed = _LONG_RUNS[line["input"]["case"]]
        test = {"type": "stdin_stdout", "input": given, "output": printed}
        verification = {"language": "python", "test_cases": [test]}
    assert code.score(line["input"]["answer"], verification) == line["expected"]


@handles("predicted-output-*", "answer-tags")
def _scored(line: Line, folder: Path) -> None:
    task = "reasoning_gym" if line["kind"] == "answer-tags" else "code_output_prediction"
    assert scored(task, line["input"]["info"], line["input"]["answer"]) == line["expected"]


@handles("dataset-functional-taken-for-stdin")
def _functional(line: Line, folder: Path) -> None:
    with pytest.raises(IntegrityError):
        read_row(json.dumps(line["input"]).encode(), "row 0")


GOOD = {
    "problem_id": "p0",
    "source": "s",
    "task_type": "verifiable_math",
    "prompt": "Half of one?",
    "verification_info": json.dumps({"ground_truth": "1/2"}),
}


def _screened(data: bytes, folder: Path) -> int:
    """How many rows of a file `muster env screen` keeps."""
    path = folder / "rows"
    path.write_bytes(data)
    by_type, _ = screen_file(path, folder / "kept", folder / "refused", Screen(), print)
    for row in (folder / "kept").read_bytes().splitlines():
        read_row(row, "a kept row is strict JSON")
    return by_type.total()


@handles("dataset-*")
def _data_row(line: Line, folder: Path) -> None:
    kept = _screened(json.dumps(line["input"]).encode() + b"\n", folder)
    assert kept == (not line["expected"].startswith("refused")), line["expected"]


@handles("dataset-number-truths")
def _number_truth(line: Line, folder: Path) -> None:
    info = line["input"]["verification_info"]
    answer = f"{Decimal(repr(info['ground_truth'])):f}"
    assert scored("verifiable_math", info, f"\\boxed{{{answer}}}") == line["expected"]
    assert _screened(json.dumps(line["input"]).encode(), folder) == 1


@handles("dataset-file-kinds")
def _file_kind(line: Line, folder: Path) -> None:
    row, text = json.dumps(GOOD).encode(), line["input"]
    read = {
        "byte order mark": b"\xef\xbb\xbf" + row + b"\n",
        "gzip": gzip.compress(row + b"\n"),
        "array": json.dumps([GOOD], indent=1).encode(),
        "empty lines": b"\n" + row + b"\n\n",
    }
    refused = {"zip": b"PK\x03\x04", "UTF-16": "\ufeff{}".encode("utf-16-le"), "CSV": b"problem_id,prompt\np0,x\n"}
    kind = next(kind for kind in read | refused if kind in text)
    if kind in read:
        assert _screened(read[kind], folder) == 1
    else:
        with pytest.raises(IntegrityError, match="rows is no JSON"):
            _screened(refused[kind], folder)


@handles("parquet-*")
def _parquet(line: Line, folder: Path) -> None:
    columns = {name: pa.array([text]) for name, text in GOOD.items()}
    if line["kind"] == "parquet-null-column":
        columns["gold_standard_solution"] = pa.nulls(1)
    else:
        kinds = {
            "dictionary": pa.dictionary(pa.int32(), pa.string()),
            "large": pa.large_string(),
            "view": pa.string_view(),
        }
        kind = next((kind for word, kind in kinds.items() if word in line["input"]), pa.string())
        columns["task_type"] = columns["task_type"].cast(kind)
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    by_type, _ = screen_file(folder / "rows.parquet", folder / "kept", folder / "refused", Screen(), print)
    assert by_type.total() == 1


@handles("sft-*")
def _conversations(line: Line, folder: Path) -> None:
    plain = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
    row = json.dumps(plain if isinstance(line["input"], str) else line["input"]).encode()
    mark = b"\xef\xbb\xbf" if isinstance(line["input"], str) else b""
    (folder / "data.jsonl").write_bytes(mark + row + b"\n")
    (found,) = read_conversations(folder / "data.jsonl")
    assert [message.text for message in found.messages] == ["hi", "hello"]


@handles("model-*")
def _model_folder(line: Line, folder: Path) -> None:
    model = small_model(folder / "model")
    if line["kind"] == "model-json-beside":
        (model / "trainer_state.json").write_text('{"grad_norm": NaN}')
        load_model(model, "float32")
    elif line["kind"] == "model-quantised":
        path = model / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | line["input"]["config.json"]))
        with pytest.raises(IntegrityError, match=r"quantised weights .*use the original model"):
            load_model(model, "float32")
    elif line["kind"] == "model-tokens-beyond-rows":
        config = json.loads((model / "config.json").read_text())
        tokenizer: Any = load_tokenizer(model)
        tokenizer.add_tokens([f"<extra{number}>" for number in range(config["vocab_size"])])
        tokenizer.save_pretrained(str(model))
        with pytest.raises(IntegrityError, match=r"has token \d+, the model \d+ rows"):
            load_model(model, "float32")
    else:
        tokenizer = load_tokenizer(model)
        tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|pad|>{% endfor %}"
        tokenizer.save_pretrained(str(model))
        seen: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
        log = logging.getLogger("muster.environments")
        log.addHandler(handler)
        try:
            config = POOL.model_copy(update={"model": POOL.model.model_copy(update={"chat_template": True})})
            PoolEnvironments.of(config, model)
        finally:
            log.removeHandler(handler)
        assert any("no stop token" in text for text in seen)


@handles("template-not-deterministic")
def _chance(line: Line, folder: Path) -> None:
    tokenizer: Any = load_tokenizer(small_model(folder / "model"))
    tokenizer.chat_template = line["input"]["chat_template"]
    with pytest.raises(ConfigError, match="not deterministic"):
        rendered(tokenizer, [{"role": "user", "content": "hi"}])


@handles("template-folder-lost")
def _named_templates(line: Line, folder: Path) -> None:
    model = small_model(folder / "model")
    before = text_digest(model)
    (model / "chat_template.jinja").write_text("<user>{{ messages[0].content }}")
    (model / "additional_chat_templates").mkdir()
    named = model / "additional_chat_templates" / "tool_use.jinja"
    named.write_text("TOOLS:{{ tools | length }} <user>{{ messages[0].content }}")
    assert text_digest(model) != before
    exported = Policy(model).export(folder / "step-0")
    texts = [
        rendered(load_tokenizer(one), [{"role": "user", "content": "hi"}], tools)
        for one in (model, exported)
        for tools in ([], [{"type": "function", "function": {"name": "f"}}])
    ]
    assert texts == ["<user>hi", "TOOLS:1 <user>hi"] * 2
    digest = text_digest(model)
    named.write_text("changed")
    assert text_digest(model) != digest


@pytest.mark.parametrize("line", [pytest.param(line, id=line["id"]) for line in LINES])
def test_what_a_stranger_expects(line: Line, tmp_path: Path) -> None:
    handler = _handler(line["kind"])
    assert handler is not None, f"no handler for {line['kind']}: {line['how']}"
    handler(line, tmp_path)
