"""reasoning_gym without the library for plots that one of its own needs bring: 0.7 of the 1.0 s of CPU it takes.

Its game of life computes with cellpylib, which imports matplotlib for plots that nobody here asks for. So cellpylib
finds stand-ins while it is imported; the first plot would import the real modules, and so does whoever else wants them.
"""

import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import ModuleType
from typing import Any

_PLOTS = "matplotlib"
_PARTS = ("pyplot", "animation", "collections")
_SOLID = "mpl_toolkits.mplot3d"
"""For its `Axes3D`, which is called for one kind of plot."""


class LateModule(ModuleType):
    """Stands for a module of its name, which is imported when something in it is looked up."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


@cache
def registry() -> dict[str, tuple[type, type]]:
    """All datasets of reasoning_gym by name: class, and class of the configuration."""
    if "cellpylib" not in sys.modules and _PLOTS not in sys.modules:
        with _undrawn(), suppress(ImportError):  # what is missing reasoning_gym says below
            importlib.import_module("cellpylib")
    from reasoning_gym.factory import DATASETS

    for name, module in list(sys.modules.items()):
        if name.startswith("reasoning_gym."):
            vars(module).setdefault("sum", _sum)
    return dict(DATASETS)


def _sum(values: Iterable[Any], /, start: Any = 0) -> Any:
    """Add from left to right. The builtin `sum` of floats compensates its rounding errors since Python 3.12, so scores
    of partial credit would differ between versions."""
    for value in values:
        start = start + value
    return start


@contextmanager
def _undrawn() -> Iterator[None]:
    plots = LateModule(_PLOTS)
    put = {_PLOTS: plots, **{f"{_PLOTS}.{part}": LateModule(f"{_PLOTS}.{part}") for part in _PARTS}}
    for part in _PARTS:
        setattr(plots, part, put[f"{_PLOTS}.{part}"])
    solid = put[_SOLID] = LateModule(_SOLID)
    solid.__dict__["Axes3D"] = lambda *given: importlib.import_module(_SOLID).Axes3D(*given)
    sys.modules.update(put)
    try:
        yield
    finally:
        for name in put:
            if sys.modules.get(name) is put[name]:
                del sys.modules[name]
