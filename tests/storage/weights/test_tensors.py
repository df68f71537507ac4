"""Headers of safetensors files that a stranger wrote."""

import contextlib
import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.weights.delta import tensor_spans
from tests.storage.weights.stepping import save

GOOD = {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}


def written(path: Path, header: Any, data: int = 8, length: int | None = None) -> Path:
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head) if length is None else length) + head + bytes(data))
    return path


def test_places(tmp_path: Path) -> None:
    save(tmp_path / "w", {"b": np.zeros(3, np.uint32), "a": np.zeros(0, np.uint16), "c": np.zeros(2, np.uint16)})
    places = tensor_spans(tmp_path / "w")
    assert [(one.name, one.dtype, one.shape, one.end - one.start) for one in places] == [
        ("b", "F32", (3,), 12),
        ("a", "BF16", (0,), 0),
        ("c", "BF16", (2,), 4),
    ]
    assert tensor_spans(written(tmp_path / "x", {"__metadata__": {"format": "pt"}, "w": GOOD}))[0].name == "w"


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 100_000,
        {"w": None},
        {"w": []},
        {"w": GOOD | {"data_offsets": [0, 9]}},
        {"w": GOOD | {"data_offsets": [0, 7]}},
        {"w": GOOD | {"data_offsets": [8, 0]}},
        {"w": GOOD | {"data_offsets": [-8, 8]}},
        {"w": GOOD | {"data_offsets": [0, 8.0]}},
        {"w": GOOD | {"data_offsets": [0, 1 << 70]}},
        {"w": GOOD | {"shape": [-4]}},
        {"w": GOOD | {"shape": [True]}},
        {"w": GOOD | {"shape": [1] * 33}},
        {"w": GOOD | {"shape": "4"}},
        {"w": GOOD | {"dtype": 5}},
        {"w": GOOD, "v": GOOD},
        {"w": GOOD | {"data_offsets": [0, 4]}, "v": GOOD | {"data_offsets": [5, 8]}},
    ],
)
def test_what_is_no_safetensors_file(tmp_path: Path, header: Any) -> None:
    with pytest.raises(ValueError, match=r"its (header|tensors)|JSON|EOF|recursion|expected"):
        tensor_spans(written(tmp_path / "w", header))


@pytest.mark.parametrize("length", [0, 1, 1 << 20, (1 << 64) - 1, 1 << 63])
def test_a_header_that_does_not_fit(tmp_path: Path, length: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        tensor_spans(written(tmp_path / "w", {"w": GOOD}, length=length))


def test_damaged_files_raise_nothing_else(tmp_path: Path) -> None:
    dice, path = random.Random(0), tmp_path / "w"
    good = written(path, {"w": GOOD, "__metadata__": {"a": "b"}}).read_bytes()
    for _ in range(500):
        data = bytearray(good)
        for _ in range(dice.randint(1, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        path.write_bytes(data[: dice.randint(0, len(data))] if dice.random() < 0.3 else data)
        with contextlib.suppress(ValueError):
            tensor_spans(path)
