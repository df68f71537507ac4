"""The audit sample that the contracts compute is the protocol's, row for row."""

import random

import pytest

from protocol.seeds import AUDIT_EVERYTHING, audit_sample
from tests.conftest import Deployed

CASES, BATCH = 100_000, 1_000


@pytest.mark.slow
def test_contract_and_python_agree_on_a_hundred_thousand_random_rows(deployed: Deployed) -> None:
    rng = random.Random(8)
    suite = deployed.suite()
    sampled = 0
    for _ in range(CASES // BATCH):
        cases = [_case(rng) for _ in range(BATCH)]
        answers = suite.client.read_many([suite.canaries.view("inSample", *case) for case in cases])
        for (seed, sequence, rows, rate, row), answer in zip(cases, answers, strict=True):
            expected = row in audit_sample(seed, sequence, rows, rate)
            assert answer == expected, (seed.hex(), sequence, rows, rate, row)
            sampled += expected
    assert CASES // 10 < sampled < 9 * CASES // 10


def _case(rng: random.Random) -> tuple[bytes, int, int, int, int]:
    """(seed, sequence, rows, rate, row): small and large rates alike, and now and then the always-audited row."""
    rows = rng.choice((1, 2, 7, rng.randint(1, 24)))
    rate = rng.choice((1, rng.randint(1, AUDIT_EVERYTHING), AUDIT_EVERYTHING - 1, AUDIT_EVERYTHING))
    seed = rng.randbytes(8).rjust(32, b"\0")
    return seed, rng.randrange(1 << 28), rows, rate, rng.randrange(rows)
