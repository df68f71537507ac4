from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def no_poll_backoff() -> Iterator[None]:
    """What may be there is looked for in every turn, so that tests can count turns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diloco.transport.PollBackoff.due", lambda self: True)
        yield
