"""Packages with a Taskset (verifiers 0.4): its prompts, and rewards on a finished trace of one answer, which need no
harness: the library itself scores again what was recorded like this."""

import asyncio
import functools
import importlib
import inspect
import itertools
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from . import MACHINES, MAX_ROWS, NoScore, Refused, row_text


class Package:
    """`load`: a module that exports a Taskset; `arguments` are of its configuration."""

    def __init__(self, load: str, arguments: dict[str, Any], _split: str) -> None:
        loaders = importlib.import_module("verifiers.v1.utils.loaders")
        if ":" in load:
            raise Refused(f"`{load}` names something inside a module", "name the module: it exports its taskset")
        configuration = loaders.taskset_config_type(load).model_validate({"id": load, **arguments})
        taskset = loaders.taskset_class(load)(configuration)
        if loaders.environment_class(load).__name__ != "SingleAgentEnv":
            raise Refused("it brings an environment of several agents", "choose a plain taskset")
        if loaders.default_harness_id(load) == load:
            raise Refused("it brings a harness of its own", "choose a plain taskset")
        if not taskset.bounded:
            raise Refused("it has no last task", "bound it by an argument of the package")
        if type(taskset).toolsets(configuration):
            raise Refused("it has tools", "choose a taskset without tools")
        self._base = importlib.import_module("verifiers.v1.task").Task
        self._tasks = [self._checked(task) for task in itertools.islice(iter(taskset), MAX_ROWS + 1)]
        if len(self._tasks) > MAX_ROWS:
            raise Refused(f"it has more than {MAX_ROWS} tasks", "limit them by an argument of the package")
        for task in {(type(task), type(task.data)): task for task in self._tasks}.values():
            _trace(task, "")  # so that no fork makes its types anew

    @property
    def texts(self) -> list[str]:
        return [
            row_text(number, _messages(task.data), getattr(task.data, "answer", ""), task.data.model_dump(mode="json"))
            for number, task in enumerate(self._tasks)
        ]

    turns, tools = 1, ()

    def reply(self, _number: int, _turns: Sequence[Mapping[str, Any]]) -> None:
        """Return None: there is one turn."""

    def score(self, number: int, turns: Sequence[Mapping[str, Any]]) -> float:
        """Return the trace's reward, 0 where it fails. Raise NoScore where the machine made it fail."""
        task = self._tasks[number]
        trace = _trace(task, turns[0]["text"])
        try:
            asyncio.run(task.score(trace))
        except Exception as error:
            cause = error.__cause__ or error.__context__ or error
            if isinstance(error, MACHINES) or isinstance(cause, MACHINES):
                raise NoScore(f"a reward failed: {cause!r}"[:300]) from None
            return 0.0
        return float(trace.reward)

    def _checked(self, task: Any) -> Any:
        kind = type(task)
        why = {
            "it has tools": bool(kind.toolsets(task.config)),
            "its tasks need a container": kind.NEEDS_CONTAINER or task.data.image is not None,
            "its tasks are judged by a model": bool(task.config.judges),
            "its tasks prepare or tidy up a machine": any(
                getattr(kind, name) is not getattr(self._base, name) for name in ("setup", "finalize", "score")
            ),
            "its tasks bring skills or files": bool(task.data.skills or task.data.artifacts),
            "its rewards look into a machine": any(_needs_machine(reward) for reward in task.hooks("reward")),
            "its tasks reward nothing": not task.hooks("reward"),
        }
        for what, wrong in why.items():
            if wrong:
                raise Refused(what, "only prompts with rewards on the answer's text can be verified")
        return task


def _needs_machine(function: Any) -> bool:
    parameter = inspect.signature(function).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty


def _messages(data: Any) -> Any:
    """System's and user's texts."""
    prompt = [{"role": "user", "content": data.prompt}] if isinstance(data.prompt, str) else list(data.prompt or ())
    return [*([{"role": "system", "content": data.system_prompt}] if data.system_prompt else []), *prompt]


@functools.cache
def _module(name: str) -> Any:
    return importlib.import_module(f"verifiers.v1.{name}")


@functools.cache
def _kinds(task: type, data: type) -> tuple[Any, Any]:
    """Return the types of a trace and of its state, which take most of a second to make."""
    state = _module("state").state_cls(task)
    return _module("trace").Trace[data, state, _module("configs.agent").WireAgentConfig], state


def _trace(task: Any, answer: str) -> Any:
    """Return a finished trace: the prompt's messages, and the answer as the model's one turn."""
    types, traces, graph = _module("types"), _module("trace"), _module("graph")
    kinds = {"system": types.SystemMessage, "user": types.UserMessage}
    messages = [kinds[message["role"]](content=message["content"]) if isinstance(message, dict) else message
                for message in _messages(task.data)]  # fmt: skip
    nodes = [graph.MessageNode(message=message, parent=at - 1 if at else None) for at, message in enumerate(messages)]
    reply = types.AssistantMessage(content=answer)
    nodes.append(graph.MessageNode(message=reply, parent=len(nodes) - 1 if nodes else None, sampled=True))
    behaviour: Any = type(task)
    data: Any = type(task.data)
    trace, state = _kinds(behaviour, data)
    return trace(
        id=task.hash,  # it would draw one by chance
        verifiers=traces.VersionInfo(version=version("verifiers")),  # it would ask git for a commit
        task=traces.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        agent=traces.AgentInfo(config=_module("configs.agent").WireAgentConfig()),
        nodes=nodes,
        calls=[traces.ModelCall(node=len(nodes) - 1, finish_reason="stop")],
        state=state(),
        is_completed=True,
        ok=True,
        stop_condition="agent_completed",
    )
