"""Every limit of the structure is seen to fail once, on small trees."""

from pathlib import Path

import pytest

from tools.import_law import breaches, circles
from tools.sources import ROOT, read_sources
from tools.structure import CONSTRUCTOR, CONTRACT_FILE, FUNCTION, PYTHON_FILE, report


def tree(root: Path, **files: str) -> Path:
    """Python files by module name, `_` between the parts."""
    for module, text in files.items():
        path = root / f"{module.replace('_', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_our_tree_keeps_the_law() -> None:
    assert breaches(read_sources(ROOT)) == []


def test_a_tree_within_its_limits_has_no_breach(tmp_path: Path) -> None:
    body = "\n".join(["    pass"] * (FUNCTION - 1))
    arguments = ", ".join(f"a{n}" for n in range(CONSTRUCTOR))
    constructor = f"class A:\n    def __init__(self, {arguments}): ...\n"
    tree(tmp_path, worker_a=f"def f():\n{body}\n{constructor}", worker_b="import protocol.c\n", protocol_c="")
    (tmp_path / "worker" / "long.py").write_text("\n" * PYTHON_FILE)
    (tmp_path / "contracts" / "src").mkdir(parents=True)
    (tmp_path / "contracts" / "src" / "Long.sol").write_text("\n" * CONTRACT_FILE)
    largest, wrong = report(tmp_path)
    assert wrong == []
    assert largest == [
        "Python file worker/long.py: 330 lines (limit 330)",
        "function worker/a.py:1 f: 50 lines (limit 50)",
        "constructor worker/a.py:52 __init__: 7 arguments (limit 7)",
        "contract contracts/src/Long.sol: 350 lines (limit 350)",
    ]


def test_a_python_file_that_is_too_long_is_named(tmp_path: Path) -> None:
    _, wrong = report(tree(tmp_path, worker_a="\n" * (PYTHON_FILE + 1)))
    assert wrong == ["too large: Python file worker/a.py: 331 lines (limit 330)"]


def test_a_contract_that_is_too_long_is_named_but_not_its_test(tmp_path: Path) -> None:
    for folder in ("src", "test"):
        (tmp_path / "contracts" / folder).mkdir(parents=True)
        (tmp_path / "contracts" / folder / "A.sol").write_text("\n" * (CONTRACT_FILE + 1))
    _, wrong = report(tmp_path)
    assert wrong == ["too large: contract contracts/src/A.sol: 351 lines (limit 350)"]


@pytest.mark.parametrize("start", ["def f():", "async def f():", "class A:\n  def f():"])
def test_a_function_that_is_too_long_is_named(start: str, tmp_path: Path) -> None:
    body = "\n".join(["    pass"] * FUNCTION)
    _, wrong = report(tree(tmp_path, worker_a=f"{start}\n{body}\n"))
    (one,) = wrong
    assert one.startswith("too large: function worker/a.py:")
    assert one.endswith(" f: 51 lines (limit 50)")


@pytest.mark.parametrize("arguments", ["a, b, c, d, e, f, g, h", "a, b, c, d, /, e, f, *, g, h=1"])
def test_a_constructor_with_too_many_arguments_is_named(arguments: str, tmp_path: Path) -> None:
    _, wrong = report(tree(tmp_path, worker_a=f"class A:\n  def __init__(self, {arguments}): ...\n"))
    assert wrong == ["too large: constructor worker/a.py:2 __init__: 8 arguments (limit 7)"]


def test_two_classes_of_one_name_are_named(tmp_path: Path) -> None:
    _, wrong = report(tree(tmp_path, worker_a="class A: ...\n", tests_b="def f():\n  class A: ...\n"))
    assert wrong == ["one name for several classes: A: tests/b.py:2, worker/a.py:1"]


def test_a_role_that_reaches_across_is_named(tmp_path: Path) -> None:
    tree(
        tmp_path,
        worker_a="from validator.pipeline import judge\nimport protocol.seeds\n",
        protocol_b="def f():\n    import trainer.losses\n",
    )
    assert breaches(read_sources(tmp_path)) == [
        "protocol/b.py:2 imports trainer.losses",
        "worker/a.py:1 imports validator.pipeline",
    ]
    assert report(tmp_path)[1] == [f"against the import law: {one}" for one in breaches(read_sources(tmp_path))]


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("chain_a", "storage.bucket"),
        ("runtime_a", "worker.main"),
        ("demo_a", "calibration.table"),
        ("trainer_a", "swarm.member"),
        ("demo_a", "cli.main"),
        ("demo_a", "attacks.worker"),
        ("attacks_a", "cli.main"),
        ("attacks_a", "benchmarks.fuzz"),
        ("cli_a", "attacks.worker"),
        ("cli_a", "tests.conftest"),
        ("tools_a", "protocol.errors"),
    ],
)
def test_the_law_forbids(module: str, imported: str, tmp_path: Path) -> None:
    tree(tmp_path, **{module: f"import {imported}\n"})
    assert breaches(read_sources(tmp_path)) == [f"{module.replace('_', '/')}.py:1 imports {imported}"]


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("storage_a", "protocol.errors"),
        ("demo_a", "trainer.main"),
        ("swarm_a", "trainer.learner"),
        ("cli_a", "calibration.table"),
        ("attacks_a", "demo.run"),
        ("benchmarks_a", "attacks.worker"),
        ("tests_a", "cli.main"),
        ("tests_a", "tools.structure"),
    ],
)
def test_the_law_allows(module: str, imported: str, tmp_path: Path) -> None:
    assert breaches(read_sources(tree(tmp_path, **{module: f"import {imported}\n"}))) == []


def test_circles_are_named_whatever_the_form_of_their_imports(tmp_path: Path) -> None:
    tree(
        tmp_path,
        worker_a="import worker.b\n",
        worker_b="def f():\n    from worker import c\n",
        worker_c="from .a import thing\n",
        worker_d="from worker.a import thing\n",
        runtime_a="from runtime import a\n",
    )
    (tmp_path / "chain").mkdir()
    (tmp_path / "chain" / "__init__.py").write_text("from .e import thing\n")
    (tmp_path / "chain" / "e.py").write_text("from . import other\n")
    assert circles(read_sources(tmp_path)) == [
        "chain → chain.e → chain",
        "runtime.a → runtime.a",
        "worker.a → worker.b → worker.c → worker.a",
    ]
    assert report(tmp_path)[1] == [f"import circle: {one}" for one in circles(read_sources(tmp_path))]


def test_two_circles_through_one_module_are_both_named(tmp_path: Path) -> None:
    tree(tmp_path, worker_a="import worker.b, worker.c\n", worker_b="import worker.a\n", worker_c="import worker.a\n")
    assert len(circles(read_sources(tmp_path))) == 2
