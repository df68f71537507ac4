"""Packages with `load_environment` (verifiers 0.2): environments of one turn or several, their tools and rubrics.

A rollout is run by the environment itself; in place of a model, a script gives the turns that it is about (script.py).
"""

import asyncio
import functools
import importlib
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .client import scripted_client, tool_schema
from .endpoint import answer_inside
from .refusal import MACHINES, NoScore, Refused
from .rows import MAX_ROWS, plain_prompt, row_text
from .script import MODEL, Script, reply_of

_OUTSIDE = "InfraError", "ModelError"
"""The library's names for what is nobody's answer's fault."""
_Turns = Sequence[Mapping[str, Any]]


class ClassicPackage:
    """`load`: a module with `load_environment`, or `module:callable` that gives an environment."""

    def __init__(self, load: str, arguments: dict[str, Any], split: str) -> None:
        logging.disable(logging.CRITICAL)
        self._library = importlib.import_module("verifiers")
        module, _, name = load.partition(":")
        if name:
            made = getattr(importlib.import_module(module), name)(**arguments)
        else:
            made = self._library.load_environment(module, **arguments)
        self._environment = self._checked(made)
        self._trouble: list[BaseException] = []
        self._environment.timeout_seconds = None  # its clock would let two machines differ
        if hasattr(made, "tool_map"):
            made.tool_map = {name: self._watched(tool) for name, tool in made.tool_map.items()}
        for rubric in _all(self._environment.rubric):
            rubric.funcs = [self._watched(one) for one in rubric.funcs]
        data = made.get_dataset() if split == "train" else made.get_eval_dataset()
        if len(data) > MAX_ROWS:
            raise Refused(f"it has {len(data)} rows, {MAX_ROWS} at most", "limit them by an argument of the package")
        self._rows = [dict(data[number]) for number in range(len(data))]
        answer_inside()

    @property
    def texts(self) -> list[str]:
        return [row_text(number, row.get("prompt"), row.get("answer"), row) for number, row in enumerate(self._rows)]

    @property
    def turns(self) -> int:
        """The most turns of a rollout; 0 where the environment names none."""
        return max(0, int(self._environment.max_turns or 0))

    @property
    def tools(self) -> list[dict[str, Any]]:
        return [tool_schema(one) for one in self._environment.tool_defs or ()]

    def score(self, number: int, turns: _Turns) -> float:
        """The rubric's reward. Raises NoScore where a function failed for want of something of the machine's, or the
        environment asks what nobody may answer."""
        return asyncio.run(self._score(number, turns))

    def reply(self, number: int, turns: _Turns) -> str | None:
        """What the environment says after these turns; None where they are the end. Raises NoScore as `score` does."""
        return asyncio.run(self._reply(number, turns))

    async def _score(self, number: int, turns: _Turns) -> float:
        script, state = await self._rolled(number, turns)
        if state is None or not script.whole:  # it was over before: what came after that is worth nothing
            return 0.0
        await self._environment.rubric.score_rollout(state)
        self._raise_trouble(script)
        return float(state["reward"])

    async def _reply(self, number: int, turns: _Turns) -> str | None:
        script, _ = await self._rolled(number, turns)
        return reply_of(script)

    async def _rolled(self, number: int, turns: _Turns) -> tuple[Script, Any]:
        """The script after a rollout, and the state it ended in; None where the environment broke on a turn."""
        row, state, failure = self._rows[number], None, None
        script = Script(turns, self.tools, plain_prompt(number, row.get("prompt")))
        try:
            state = await self._environment.rollout(dict(row), scripted_client(script), MODEL, {})
            failure = state.get("error")
        except Exception as error:
            failure = error
        self._raise_trouble(script)
        asked = script.asked > 0 or script.over
        if failure is not None and (not asked or _of_machine(failure)):
            raise NoScore(f"the environment gave up: {failure!r}"[:300])
        if not asked:
            raise NoScore("the environment ends before it asks anything")
        return script, state

    def _raise_trouble(self, script: Script) -> None:
        if script.trouble:
            raise NoScore(script.trouble)
        if self._trouble:
            raise NoScore(f"a function of the package failed: {self._trouble[0]!r}"[:300])

    def _checked(self, made: Any) -> Any:
        library = self._library
        if not isinstance(made, library.MultiTurnEnv):
            raise Refused(
                f"it gives a {type(made).__name__}, which is no environment of one turn or several",
                "groups of environments and those with a rollout of their own cannot be verified this way",
            )
        if any(_is_client(one) for one in vars(made).values()):
            raise Refused("its environment asks a model of its own", "choose one whose replies follow from rules")
        for rubric in _all(made.rubric):
            judges = isinstance(rubric, library.JudgeRubric) or any("judge" in one for one in rubric.class_objects)
            if judges or any(_is_client(one) for one in (*rubric.class_objects.values(), *vars(rubric).values())):
                raise Refused(
                    f"its rubric ({type(rubric).__name__}) asks a model",
                    "no validator could reproduce a model's judgement: choose an environment with rules",
                )
            if any(rubric._is_group_func(one) for one in rubric.funcs):
                raise Refused(
                    "it rewards answers by comparing them", "choose an environment that scores each by itself"
                )
        return made

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same; what it raises is seen before the rubric makes a 0 of it."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                result = function(*args, **kwargs)
            except MACHINES as error:
                self._trouble.append(error)
                raise
            return self._awaited(result) if inspect.isawaitable(result) else result

        return call

    async def _awaited(self, result: Any) -> Any:
        try:
            return await result
        except MACHINES as error:
            self._trouble.append(error)
            raise


def _all(rubric: Any) -> Iterator[Any]:
    yield rubric
    for one in getattr(rubric, "rubrics", ()):
        yield from _all(one)


def _is_client(value: Any) -> bool:
    return type(value).__module__.split(".")[0] in ("openai", "anthropic", "litellm")


def _of_machine(failure: BaseException) -> bool:
    """Whether a failure, or what it was made of, says something of the machine and nothing of the turns."""
    seen: BaseException | None = failure
    for _ in range(8):
        if seen is None:
            return False
        if isinstance(seen, MACHINES) or any(one.__name__ in _OUTSIDE for one in type(seen).__mro__):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
