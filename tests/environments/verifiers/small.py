"""A folder of dependencies as an installed package has one, with the least of the library's shape that the process asks
for: what is tested with it is the process. The library itself is tested in test_library.py."""

from pathlib import Path
from textwrap import dedent

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


class SingleTurnEnv:
    tool_defs = None

    def __init__(self, rows, rubric):
        self.rows, self.rubric = rows, rubric

    def get_dataset(self):
        return self.rows

    get_eval_dataset = get_dataset

    async def rollout(self, row, client, model, sampling):
        reply = await client.get_response(prompt=row["prompt"], model=model, sampling_args=sampling)
        return {"answer": reply.message.content}


def load_environment(module, **arguments):
    import importlib

    return importlib.import_module(module).load_environment(**arguments)
"""
_TYPES = """
from types import SimpleNamespace as Response, SimpleNamespace as ResponseMessage
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


def small_library() -> dict[str, str]:
    """Path → text of the library's shape."""
    return {
        "verifiers/__init__.py": _LIBRARY,
        "verifiers/types.py": _TYPES,
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
