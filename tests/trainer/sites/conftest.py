import pytest


@pytest.fixture(autouse=True)
def looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be there is looked for in every turn, so that tests can count turns; tests/trainer/sites/test_looking.py
    says when processes look."""
    monkeypatch.setattr("trainer.sites.seldom.TIMES", 0.0)
    monkeypatch.setattr("trainer.sites.note_reader.OTHERS_TIMES", 0.0)
    monkeypatch.setattr("trainer.sites.rhythm.SHARE", 0.0)
