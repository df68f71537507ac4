"""Packages with an environment of one turn or several (verifiers 0.2).

A transcript takes the model's place: it gives its turns in order, and checks that what it is asked only ever grows.
What an environment asks next follows from its row and from the model's turns. So the environment's own rollout, run on
the turns so far, asks once more than they are: what is new in that request is its reply.
"""

import asyncio
import functools
import importlib
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from . import MACHINES, MAX_ROWS, NoScore, Refused, field, plain_message, plain_prompt, row_text

MODEL = "muster"
MAX_REPLY_CHARS = 1 << 16
# Settings that would make other turns than the pool samples
_SHAPING = ("stop", "response_format", "logit_bias", "functions", "function_call", "prompt_logprobs", "guided_json")
# Role, text, and calls with id, name and arguments
_Message = tuple[str, str, tuple[tuple[str, str, str], ...]]
_Turns = Sequence[Mapping[str, Any]]


class Script:
    """`turns`: {"text", "call": [name, arguments as JSON] or None}. `tools`: the schemas that every request has to
    offer. `opening`: role and text of the first one's messages. `asked`: turns that were given; `over`: whether one
    more was asked for, and `due`: the texts that were new in it. `trouble`: why there is neither reply nor score."""

    def __init__(self, turns: _Turns, tools: Sequence[Any], opening: Sequence[Any]) -> None:
        self._turns, self._tools = turns, list(tools)
        self._so_far: list[_Message] = [(role, text, ()) for role, text in opening]
        self.asked, self.over, self.trouble = 0, False, ""
        self.due: list[str] = []

    @property
    def whole(self) -> bool:
        return self.asked == len(self._turns)

    def next(
        self, messages: Any, model: Any, tools: Sequence[Any], settings: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Return the next turn, its `calls` as [id, name, arguments]; None after the last. Raise NoScore or Refused for
        a request that no worker would have sampled an answer to."""
        shaping = next((name for name in _SHAPING if settings.get(name)), "")
        is_shaped = bool(shaping) or settings.get("tool_choice") not in (None, "auto")
        wrong = {
            f"sets `{shaping or 'tool_choice'}`, which the pool's sampling does not have": is_shaped,
            "asks on after its model's context is full": self.over,
            f"asks another model: {str(model)[:60]}": model != MODEL,
            f"asks for {str(settings.get('n'))[:20]} answers at once": settings.get("n") not in (None, 1),
            "offers other tools than before": list(tools) != self._tools,
        }
        for what, is_wrong in wrong.items():
            if is_wrong:
                raise NoScore(f"the environment {what}")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        new = self._added([_plain(self.asked, message) for message in messages])
        if self.whole:
            self.over, self.due = True, [text for _, text, _ in new]
            return None
        turn = self._turns[self.asked]
        self.asked += 1
        calls = [(f"call{self.asked:05}", *turn["call"])] if turn["call"] else []
        self._so_far += [*new, ("assistant", turn["text"], tuple(calls))]
        return {"text": turn["text"], "calls": calls}

    def _added(self, messages: list[_Message]) -> list[_Message]:
        """Return what a request has more than the one before it and its answer."""
        before = len(self._so_far)
        if messages[:before] != self._so_far or (self.asked == 0 and len(messages) > before):
            what = "changes what was said before" if self.asked else "asks something else than its row says"
            raise NoScore(f"the environment {what}")
        for role, _, _ in messages[before:]:
            if role not in ("tool", "user"):
                raise NoScore(f"the environment speaks as `{role[:20]}` between turns")
        return messages[before:]


def _plain(turn: int, message: Any) -> _Message:
    role, text = plain_message(f"turn {turn}" if turn else "the row", message)
    calls = []
    for call in field(message, "tool_calls") or ():
        about = field(call, "function") or call
        calls.append((str(field(call, "id")), str(field(about, "name")), str(field(about, "arguments"))))
    return role, text, tuple(calls)


def _tool_schema(tool: Any) -> dict[str, Any]:
    """Return a tool of the library's as a chat template is told of it."""
    about = {name: getattr(tool, name) for name in ("name", "description", "parameters")}
    return {"type": "function", "function": about}


def scripted_client(script: Script) -> Any:
    """Return a `verifiers.clients.Client`. After the script's last turn the model's context is full, as the library
    says it: its environments then end the rollout, and their rubrics score what there is."""
    base = importlib.import_module("verifiers.clients.client").Client
    types = importlib.import_module("verifiers.types")
    errors = importlib.import_module("verifiers.errors")

    async def get_response(
        self: Any, prompt: Any, model: Any, sampling_args: Any = None, tools: Any = None, **_: Any
    ) -> Any:
        try:
            turn = script.next(prompt, model, [_tool_schema(tool) for tool in tools or ()], sampling_args or {})
        except (NoScore, Refused) as error:  # whatever catches it, there is no score
            script.trouble = script.trouble or str(error)
            raise NoScore(script.trouble) from None
        if turn is None:
            raise errors.OverlongPromptError("the transcript has no more turns")
        calls = [types.ToolCall(id=number, name=name, arguments=given) for number, name, given in turn["calls"]]
        message = types.ResponseMessage(
            content=turn["text"],
            tool_calls=calls or None,
            finish_reason="tool_calls" if calls else "stop",
            is_truncated=False,
        )
        return types.Response(id=MODEL, created=0, model=MODEL, message=message)

    client = type("Transcript", (base,), {"get_response": get_response})
    setattr(client, "__abstractmethods__", frozenset())  # noqa: B010  the rest of a client speaks to a provider
    return client(None)


class Package:
    """`load`: a module with `load_environment`, or `module:callable` that gives an environment."""

    def __init__(self, load: str, arguments: dict[str, Any], split: str) -> None:
        logging.disable(logging.CRITICAL)
        library = importlib.import_module("verifiers")
        module, _, name = load.partition(":")
        if name:
            environment = getattr(importlib.import_module(module), name)(**arguments)
        else:
            environment = library.load_environment(module, **arguments)
        _check(environment, library)
        self._environment, self._trouble = environment, list[BaseException]()
        environment.timeout_seconds = None  # its clock would let two machines differ
        if hasattr(environment, "tool_map"):
            environment.tool_map = {name: self._watched(tool) for name, tool in environment.tool_map.items()}
        for rubric in _all(environment.rubric):
            rubric.funcs = [self._watched(function) for function in rubric.funcs]
        data = environment.get_dataset() if split == "train" else environment.get_eval_dataset()
        if len(data) > MAX_ROWS:
            raise Refused(f"it has {len(data)} rows, {MAX_ROWS} at most", "limit them by an argument of the package")
        self._rows = [dict(data[number]) for number in range(len(data))]
        self.texts = [
            row_text(number, row.get("prompt"), row.get("answer"), row) for number, row in enumerate(self._rows)
        ]
        self.turns = max(0, int(environment.max_turns or 0))  # the most of a rollout; 0 where it names none

    @property
    def tools(self) -> list[dict[str, Any]]:
        return [_tool_schema(tool) for tool in self._environment.tool_defs or ()]

    def score(self, number: int, turns: _Turns) -> float:
        """Return the rubric's reward. Raise NoScore where the machine failed, or nobody may answer what is asked."""
        return asyncio.run(self._score(number, turns))

    def reply(self, number: int, turns: _Turns) -> str | None:
        """Return what it says after these turns; None for the end, nothing, or too much. Raise NoScore as `score`."""
        script, _ = asyncio.run(self._rolled(number, turns))
        text = "\n\n".join(script.due).encode(errors="replace").decode()
        return text if script.over and script.due and len(text) <= MAX_REPLY_CHARS else None

    async def _score(self, number: int, turns: _Turns) -> float:
        script, state = await self._rolled(number, turns)
        if state is None or not script.whole:  # it was over before: what came after that is worth nothing
            return 0.0
        await self._environment.rubric.score_rollout(state)
        self._raise_trouble(script)
        return float(state["reward"])

    async def _rolled(self, number: int, turns: _Turns) -> tuple[Script, Any]:
        """Return the script after a rollout, and the state it ended in; None where the environment broke on a turn."""
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

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the same function; what it raises is seen before the rubric makes a 0 of it."""

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


def _check(environment: Any, library: Any) -> None:
    """Raise Refused for an environment whose scores or replies nobody could reproduce."""
    if not isinstance(environment, library.MultiTurnEnv):
        what = f"it gives a {type(environment).__name__}, which is no environment of one turn or several"
        raise Refused(what, "groups of environments and those with a rollout of their own cannot be verified this way")
    if any(map(_is_client, vars(environment).values())):
        raise Refused("its environment asks a model of its own", "choose one whose replies follow from rules")
    for rubric in _all(environment.rubric):
        judges = isinstance(rubric, library.JudgeRubric) or any("judge" in name for name in rubric.class_objects)
        if judges or any(map(_is_client, (*rubric.class_objects.values(), *vars(rubric).values()))):
            what = f"its rubric ({type(rubric).__name__}) asks a model"
            raise Refused(what, "no validator could reproduce a model's judgement: choose an environment with rules")
        if any(map(rubric._is_group_func, rubric.funcs)):
            raise Refused("it rewards answers by comparing them", "choose an environment that scores each by itself")


def _all(rubric: Any) -> Iterator[Any]:
    yield rubric
    for part in getattr(rubric, "rubrics", ()):
        yield from _all(part)


def _is_client(value: Any) -> bool:
    return type(value).__module__.split(".")[0] in ("openai", "anthropic", "litellm")


def _of_machine(failure: BaseException) -> bool:
    """Whether a failure, or what it was made of, says something of the machine and nothing of the turns."""
    seen: BaseException | None = failure
    for _ in range(8):
        if seen is None:
            return False
        # the library's names for what is nobody's answer's fault
        if isinstance(seen, MACHINES) or {kind.__name__ for kind in type(seen).__mro__} & {"InfraError", "ModelError"}:
            return True
        seen = seen.__cause__ or seen.__context__
    return False
