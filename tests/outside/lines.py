"""A line of data/outside_inputs.jsonl, and what runs it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Line = dict[str, Any]
Handler = Callable[[Line, Path], None]
"""Takes a line (`input`, `expected`, and whatever else it has) and a folder of its own; raises what the test should
fail with."""
