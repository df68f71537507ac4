"""What the chain's tests share: a misbehaving endpoint in front of the local chain, and a call that moves money."""

from collections.abc import Iterator

import pytest

from chain.transactions import Call
from tests.chain.proxy import Proxy
from tests.conftest import Chain

SELF = "0x000000000000000000000000000000000000bEEF"


def gift(wei: int = 1) -> Call:
    return Call(SELF, b"", "gift", wei)


@pytest.fixture
def proxy(chain: Chain) -> Iterator[Proxy]:
    made = Proxy(chain.url)
    yield made
    made.close()
