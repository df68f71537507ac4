"""Packages with `load_environment` (verifiers 0.2): single-turn environments and their rubrics.

A rollout is run by the environment itself; in place of a model, a client gives the answer that is to be scored.
"""

import asyncio
import functools
import importlib
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any

from .refusal import MACHINES, NoScore, Refused
from .rows import MAX_ROWS, row_text

_MODEL = "muster"


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
        for rubric in _all(self._environment.rubric):
            rubric.funcs = [self._watched(one) for one in rubric.funcs]
        data = made.get_dataset() if split == "train" else made.get_eval_dataset()
        if len(data) > MAX_ROWS:
            raise Refused(f"it has {len(data)} rows, {MAX_ROWS} at most", "limit them by an argument of the package")
        self._rows = [dict(data[number]) for number in range(len(data))]

    @property
    def texts(self) -> list[str]:
        return [row_text(number, row.get("prompt"), row.get("answer"), row) for number, row in enumerate(self._rows)]

    def score(self, number: int, answer: str) -> float:
        """The rubric's reward. Raises NoScore where a function failed for want of something of the machine's."""
        return asyncio.run(self._score(number, answer))

    async def _score(self, number: int, answer: str) -> float:
        row, environment = self._rows[number], self._environment
        client = _client(answer)
        state = await environment.rollout(dict(row), client, _MODEL, {})
        if state.get("error") is not None:
            raise NoScore(f"the environment gave up: {state['error']!r}"[:300])
        if client.asked != 1:
            raise NoScore(f"the environment asked its model {client.asked} times instead of once")
        if row_text(number, client.prompt, "", None) != row_text(number, row.get("prompt"), "", None):
            raise NoScore("the environment asks something else than its row says")
        await environment.rubric.score_rollout(state)
        if self._trouble:
            raise NoScore(f"a reward function failed: {self._trouble[0]!r}"[:300])
        return float(state["reward"])

    def _checked(self, made: Any) -> Any:
        library = self._library
        if not isinstance(made, library.SingleTurnEnv):
            raise Refused(
                f"it gives a {type(made).__name__}, which is not a single-turn environment",
                "environments of several turns, tools and groups of environments cannot be verified this way",
            )
        if made.tool_defs:
            raise Refused("its environment has tools", "choose an environment without tools")
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


def _client(answer: str) -> Any:
    """In place of a model: gives the answer, and notes what it was asked."""
    base = importlib.import_module("verifiers.clients.client").Client
    types = importlib.import_module("verifiers.types")

    async def get_response(self: Any, prompt: Any, **_: Any) -> Any:
        self.asked, self.prompt = self.asked + 1, prompt
        message = types.ResponseMessage(content=answer, finish_reason="stop", is_truncated=False)
        return types.Response(id=_MODEL, created=0, model=_MODEL, message=message)

    made = type("Transcript", (base,), {"get_response": get_response, "asked": 0, "prompt": ""})
    setattr(made, "__abstractmethods__", frozenset())  # noqa: B010  the rest of a client speaks to a provider
    return made(None)
