from pathlib import Path

from tools.import_law import ROOT, breaches


def test_our_tree_keeps_the_law() -> None:
    assert breaches(ROOT) == []


def test_a_role_that_reaches_across_is_named(tmp_path: Path) -> None:
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker" / "a.py").write_text("from validator.pipeline import judge\nimport protocol.seeds\n")
    (tmp_path / "protocol").mkdir()
    (tmp_path / "protocol" / "b.py").write_text("def f():\n    import trainer.losses\n")
    assert breaches(tmp_path) == [
        "protocol/b.py:2 imports trainer.losses",
        "worker/a.py:1 imports validator.pipeline",
    ]
