import pytest


@pytest.fixture(autouse=True)
def no_poll_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be there is looked for in every turn, so that tests can count turns."""
    monkeypatch.setattr("diloco.transport.PollBackoff.due", lambda self: True)
