"""Every import rule is seen to fail once, on small trees."""

from pathlib import Path

import pytest

from tools.structure import ROOT, SourceFile, breaches, check, circles, executed, read_sources, report, sizes


def tree(root: Path, **files: str) -> Path:
    """Python files by module name, `_` between the parts."""
    for module, text in files.items():
        path = root / f"{module.replace('_', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_our_tree_keeps_the_rules() -> None:
    assert breaches(read_sources(ROOT)) == []


def test_a_role_that_reaches_across_is_named(tmp_path: Path) -> None:
    tree(
        tmp_path,
        worker_a="from validator.judging.pipeline import judge\nimport protocol.seeds\n",
        protocol_b="def f():\n    import trainer.losses\n",
    )
    assert breaches(read_sources(tmp_path)) == [
        "protocol/b.py:2 imports trainer.losses",
        "worker/a.py:1 imports validator.judging.pipeline",
    ]
    assert check(tmp_path) == [f"against the import rules: {one}" for one in breaches(read_sources(tmp_path))]


FORBIDDEN = """
chain storage.s3, runtime worker.main, localnet calibration.table, trainer swarm.member, localnet cli.main,
localnet attacks.worker, attacks cli.main, attacks benchmarks.fuzz, cli attacks.worker, cli tests.conftest,
tools protocol.errors"""
ALLOWED = """
storage protocol.errors, localnet trainer.main, swarm trainer.learner, cli calibration.table, attacks localnet.demo,
benchmarks attacks.worker, tests cli.main, tests tools.structure"""
USES = [(*use.split(), table is ALLOWED) for table in (FORBIDDEN, ALLOWED) for use in table.split(",")]


@pytest.mark.parametrize(("package", "imported", "allowed"), USES)
def test_the_rules_say_who_may_import_what(package: str, imported: str, allowed: bool, tmp_path: Path) -> None:
    tree(tmp_path, **{f"{package}_a": f"import {imported}\n"})
    assert breaches(read_sources(tmp_path)) == ([] if allowed else [f"{package}/a.py:1 imports {imported}"])


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
    assert check(tmp_path) == [f"import circle: {one}" for one in circles(read_sources(tmp_path))]


def test_two_circles_through_one_module_are_both_named(tmp_path: Path) -> None:
    tree(tmp_path, worker_a="import worker.b, worker.c\n", worker_b="import worker.a\n", worker_c="import worker.a\n")
    assert len(circles(read_sources(tmp_path))) == 2


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ('import importlib\nimportlib.import_module("worker.main")\n', [(2, "worker.main")]),
        ('from importlib import import_module\nimport_module(f"worker.{1}")\n', [(2, "worker")]),
        ('argv = [1, "-P", "-m", "cli.main", "run"]\n', [(1, "cli.main")]),
        ('argv = ["-m", f"cli.{1}"]\n', [(1, "cli")]),
        ('argv = ["-m", 3]\nimport_module(3)\n', []),
    ],
)
def test_modules_that_are_executed_or_imported_by_name_are_seen(code: str, named: list[tuple[int, str]]) -> None:
    assert list(executed(SourceFile("validator/a.py", code))) == named


@pytest.mark.parametrize(
    ("package", "executes", "allowed"),
    [
        *(("localnet", "cli.main", True), ("localnet", "attacks.worker", True), ("benchmarks", "cli.main", True)),
        *(("localnet", "benchmarks.faults", False), ("attacks", "cli.main", False), ("validator", "cli.main", False)),
        ("runtime", "localnet.demo", False),
    ],
)
def test_who_may_start_which_processes(package: str, executes: str, allowed: bool, tmp_path: Path) -> None:
    tree(tmp_path, **{f"{package}_a": f'argv = ["-m", "{executes}"]\n'})
    assert breaches(read_sources(tmp_path)) == ([] if allowed else [f"{package}/a.py:1 executes {executes}"])


def test_the_report_counts_lines_files_and_words(tmp_path: Path) -> None:
    tree(tmp_path, worker_a="import protocol.b\n", tests_c="\n\n", benchmarks_d="\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("three words here\n")
    counted = sizes(tmp_path)
    assert list(counted.values()) == [1, 1, 1, 2, 0, 3]
    assert "  worker: protocol" in list(report(tmp_path))
