"""An installed package with the least of the library's shape (itself: test_library.py): what is tested is the
process."""

import base64
import hashlib
import zipfile
from pathlib import Path
from textwrap import dedent

from environments.verifiers.process import Turn

_LIBRARY = """
class Rubric:
    def __init__(self, funcs):
        self.funcs, self.class_objects = list(funcs), {}

    def _is_group_func(self, function):
        return False

    async def score_rollout(self, state):
        try:
            state["reward"] = float(self.funcs[0](state["answer"]))
        except Exception:
            state["reward"] = 0.0


class JudgeRubric(Rubric):
    pass


class Environment:
    tool_defs, max_turns = None, -1

    def __init__(self, rows, rubric):
        self.rows, self.rubric = rows, rubric

    def get_dataset(self):
        return self.rows

    get_eval_dataset = get_dataset


class MultiTurnEnv(Environment):
    def is_over(self, said):
        return False

    async def ask(self, client, messages, model, sampling):
        return await client.get_response(prompt=messages, model=model, sampling_args=sampling, tools=self.tool_defs)

    async def rollout(self, row, client, model, sampling):
        from verifiers.errors import OverlongPromptError
        from verifiers.types import AssistantMessage

        messages, said = row["prompt"], []
        if isinstance(messages, str):
            messages = [AssistantMessage(role="text", content=messages)]
        state = {"answer": "", "said": said, "error": None}
        while not self.is_over(said) and len(said) != self.max_turns:
            if said:
                messages = messages + self.env_response(said)
            try:
                reply = await self.ask(client, messages, model, sampling)
            except OverlongPromptError:
                break
            one = reply.message
            messages = messages + [AssistantMessage(role="assistant", content=one.content, tool_calls=one.tool_calls)]
            said.append(one)
        state["answer"] = said[-1].content if said else ""
        return state


class SingleTurnEnv(MultiTurnEnv):
    max_turns = 1


def load_environment(module, **arguments):
    import importlib

    return importlib.import_module(module).load_environment(**arguments)
"""
_TYPES = """
from types import SimpleNamespace as Response, SimpleNamespace as ResponseMessage
from types import SimpleNamespace as AssistantMessage, SimpleNamespace as ToolCall
from types import SimpleNamespace as Tool, SimpleNamespace as UserMessage, SimpleNamespace as ToolMessage
"""
_ERRORS = """
class Error(Exception):
    pass


class OverlongPromptError(Error):
    pass


class InfraError(Error):
    pass
"""
_CLIENT = """
import abc


class Client(abc.ABC):
    def __init__(self, client):
        pass

    @abc.abstractmethod
    async def close(self): ...
"""
ROWS = """
    import verifiers as vf

    def rows(count=3):
        return [{"prompt": [{"role": "user", "content": f"Say {n}."}], "answer": str(n)} for n in range(count)]

    def load_environment(count=3):
        return vf.SingleTurnEnv(rows(count), vf.Rubric([score]))
"""
GAME = """
    import verifiers as vf
    from verifiers.types import Tool, ToolMessage, UserMessage

    seen = []

    def user(text):
        return [UserMessage(role="user", content=text)]

    class Game(vf.MultiTurnEnv):
        def is_over(self, said):
            return bool(said) and said[-1].content == "end"

        def env_response(self, said):
            seen.append(said)
            return self.respond(said[-1].content, said)

    def respond(text, said):
        return user(f"{len(said)}, {len(seen)}: {text}")

    def score(answer):
        return {"end": 1.0, "half": 0.5}.get(answer, 0.0)

    def rows():
        return [{"prompt": [{"role": "user", "content": f"Play {n}."}], "answer": ""} for n in range(3)]

    def load_environment(most=4, **arguments):
        made = Game(rows(), vf.Rubric([score]))
        made.max_turns = most
        made.respond = lambda text, said: respond(text, said)
        change(made, **arguments)
        return made

    def change(made):
        pass
"""
"""A package of several turns; `change` is for tests to make of it what they want."""
TOOLS = """
    def change(made, more=()):
        about = {"type": "object", "properties": {"box": {"type": "string"}}}
        made.tool_defs = [Tool(name=one, description="Opens a box.", parameters=about) for one in ("open", *more)]
        made.tool_map = {"open": lambda box: str(ord(box))}
        made.respond = call

    def call(text, said):
        import json

        one = said[-1].tool_calls[0]
        try:
            found = made_tool(one.name)(**json.loads(one.arguments))
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        return [ToolMessage(role="tool", tool_call_id=one.id, content=found)]

    def made_tool(name):
        return current[0].tool_map[name]

    current = []

    class Game(Game):
        def __init__(self, *given):
            super().__init__(*given)
            current[:] = [self]

        def is_over(self, said):
            return bool(said) and not said[-1].tool_calls
"""
"""After GAME: what it says are answers to calls of a tool."""


def turns(*texts: str) -> list[Turn]:
    """What a model said, without calls."""
    return [Turn(text=text, call=None) for text in texts]


def small_library() -> dict[str, str]:
    """Path → text of the library's shape."""
    return {
        "verifiers/__init__.py": _LIBRARY,
        "verifiers/types.py": _TYPES,
        "verifiers/errors.py": _ERRORS,
        "verifiers/clients/__init__.py": "",
        "verifiers/clients/client.py": _CLIENT,
    }


def small_package(folder: Path, source: str, version: str = "0.2.1") -> Path:
    """`folder` with the module `own`, as if it were installed."""
    about = {f"verifiers-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: verifiers\nVersion: {version}\n"}
    for name, text in (small_library() | about | {"own.py": dedent(source)}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str], needs: str = "") -> Path:
    """A pure wheel of these files in `folder`, the same bytes at any time: it is installed once."""
    about = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: MIT\n"
    whole = files | {
        f"{about}/METADATA": metadata + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},{_digest(text)},{len(text.encode())}" for path, text in whole.items()]
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in whole.items():
            archive.writestr(zipfile.ZipInfo(path), text)
        archive.writestr(zipfile.ZipInfo(f"{about}/RECORD"), "\n".join([*record, f"{about}/RECORD,,"]) + "\n")
    return made


def _digest(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
