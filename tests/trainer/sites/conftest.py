import pytest


@pytest.fixture(autouse=True)
def _looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be there is looked for in every turn, so that tests can count turns."""
    monkeypatch.setattr("trainer.sites.seldom.TIMES", 0.0)
