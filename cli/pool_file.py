"""A pool's configuration as commented TOML: every field of the models, what it means, its bounds and its default."""

import json
import textwrap
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from cli.pool_fields import EXPLAINED, MACHINE_WRITTEN
from protocol.config import PoolConfig
from protocol.encoding import Document

_WIDTH = 118
_HEAD = """\
# A pool's configuration. Its hash goes on chain with `muster pool create` and can never change after that.
# A line that begins with `#` and a name is not set; remove the `#` to set it. Comments end with bounds and default.
# Next: muster pool check --config FILE --terms base-sepolia --budget TOKENS

"""
_SYMBOLS = (("ge", "at least {}"), ("gt", "above {}"), ("le", "at most {}"), ("lt", "below {}"))


def pool_file(config: PoolConfig, task_parameters: Mapping[str, Any]) -> str:
    """The TOML of a configuration. `task_parameters`: name → default of what its environment takes, shown where not
    set."""
    return _HEAD + "\n".join(_Writer(task_parameters).table(PoolConfig, config, "", off=False)) + "\n"


class _Writer:
    """Writes one model after another; `off` makes comments of what is not set."""

    def __init__(self, task_parameters: Mapping[str, Any]) -> None:
        self._task_parameters = task_parameters

    def table(self, kind: type[Document], value: Document | None, path: str, off: bool) -> Iterator[str]:
        """The fields of a model, those without tables of their own first, as TOML wants them."""
        parts = []
        for name, field in kind.model_fields.items():
            given = getattr(value, name) if value is not None else _default(field)
            models = _models(field.annotation)
            if models or isinstance(given, dict):
                parts.append((name, field, given, models))
            else:
                yield from _comment(kind, name, field)
                yield _assignment(name, given, off)
        for name, field, given, models in parts:
            yield ""
            yield from _comment(kind, name, field)
            yield from self._part(f"{path}.{name}".lstrip("."), given, models, _is_list(field.annotation), off)

    def _part(self, path: str, given: Any, models: list[type[Document]], many: bool, off: bool) -> Iterator[str]:
        if isinstance(given, MACHINE_WRITTEN):
            yield _header(path, many, off)
            yield from (_assignment(name, one, off) for name, one in given.model_dump(mode="json").items())
            return
        if models and set(models) <= set(MACHINE_WRITTEN):
            yield _header(path, many, off=True)
            return
        if isinstance(given, dict):
            yield from self._parameters(path, given, off)
            return
        values = list(given) if many and given else [given] if isinstance(given, Document) else []
        for value in values:
            yield _header(path, many, off)
            yield from self.table(type(value), value, path, off)
        for kind in models:  # what could stand there instead, or also
            if kind not in map(type, values):
                if values:
                    yield f"# Instead of the table above, where it is {kind.model_fields['name'].default}:"
                yield _header(path, many, off=True)
                yield from self.table(kind, None, path, off=True)

    def _parameters(self, path: str, given: dict[str, Any], off: bool) -> Iterator[str]:
        yield _header(path, many=False, off=off)
        for name, value in given.items():
            yield _assignment(name, value, off)
        if path == "environments.params":
            for name, value in self._task_parameters.items():
                if name not in given:
                    yield _assignment(name, value, off=True)


def _comment(kind: type[Document], name: str, field: FieldInfo) -> list[str]:
    notes = "; ".join(_notes(field))
    text = EXPLAINED[kind][name] + (f" ({notes})" if notes else "")
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _notes(field: FieldInfo) -> Iterator[str]:
    """Bounds, choices and default, in words."""
    if choices := [one for part in _spread(field.annotation) if get_origin(part) is Literal for one in get_args(part)]:
        yield "one of " + ", ".join(map(str, choices)) if len(choices) > 1 else f"always {choices[0]}"
    for attribute, words in _SYMBOLS:
        for bound in field.metadata:
            if (value := getattr(bound, attribute, None)) is not None:
                yield words.format(f"{value:g}" if isinstance(value, float) else value)
    default = _default(field)
    if isinstance(default, str | int | float | bool) and not (choices and len(choices) == 1):
        yield f"default {_literal(default)}"


def _default(field: FieldInfo) -> Any:
    value = field.get_default(call_default_factory=True, validated_data={})
    return None if field.is_required() else value


def _spread(annotation: Any) -> Iterator[Any]:
    """The members of a union, without what annotates them."""
    if get_origin(annotation) is Annotated:
        yield from _spread(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from _spread(one)
    else:
        yield annotation


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is tuple


def _models(annotation: Any) -> list[type[Document]]:
    """The models that a field holds, one or many."""
    inner = get_args(annotation)[0] if _is_list(annotation) else annotation
    return [one for one in _spread(inner) if isinstance(one, type) and issubclass(one, Document)]


def _header(path: str, many: bool, off: bool) -> str:
    return ("# " if off else "") + (f"[[{path}]]" if many else f"[{path}]")


def _assignment(name: str, value: Any, off: bool) -> str:
    if value is None:
        return f"# {name} ="
    return ("# " if off else "") + f"{name} = {_literal(value)}"


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_literal(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # a TOML basic string has JSON's escapes
