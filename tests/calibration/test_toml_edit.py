"""Thresholds in TOML that a person wrote: the numbers change, every comment stays."""

import pytest

from calibration.toml_edit import with_numbers, with_table
from cli.pool_config import pool_file
from protocol.config import ChecksConfig, PoolConfig
from protocol.encoding import parse_document, parse_toml
from protocol.errors import ConfigError
from tests.cli.joining import CONFIG

NUMBERS = {"sampling_gap_reject": 0.5, "logprob_mean_reject": 1e-06}

WRITTEN = """\
# whose pool this is
name = "a # b"  # its name

[checks]   # measured by nobody yet
sampling_gap_reject = 0.01 # the worst token
# logprob_mean_reject = 2e-5

# what is trained
[train]
steps = 3
"""


def test_numbers_change_in_their_lines_and_nothing_else() -> None:
    assert with_numbers(WRITTEN, "checks", NUMBERS) == WRITTEN.replace("0.01", "0.5").replace(
        "# logprob_mean_reject = 2e-5", "logprob_mean_reject = 1e-06"
    )


def test_a_number_that_is_not_there_is_added_to_its_table() -> None:
    text = with_numbers(WRITTEN, "checks", {"unsure_band": 0.25})
    assert text == WRITTEN.replace("worst token\n", "worst token\nunsure_band = 0.25\n")
    assert (
        with_numbers('name = "a"\n', "checks", {"unsure_band": 0.25}) == 'name = "a"\n\n[checks]\nunsure_band = 0.25\n'
    )


def test_the_file_that_init_writes_takes_every_threshold() -> None:
    before = pool_file(CONFIG, {})
    wanted = {name: value * 0.75 for name, value in ChecksConfig().model_dump().items()}
    after = with_numbers(before, "checks", wanted)
    config = parse_document(after.encode(), PoolConfig, "pool.toml", toml=True)
    assert config == CONFIG.model_copy(update={"checks": ChecksConfig(**wanted)})
    changed = [(old, new) for old, new in zip(before.splitlines(), after.splitlines(), strict=True) if old != new]
    assert len(changed) == len(wanted)


@pytest.mark.parametrize(
    "text",
    [
        "checks = { unsure_band = 0.5 }\n",
        "checks.unsure_band = 0.5\n",
        'text = """\n[checks]\nunsure_band = 0.5\n"""\n',
        "checks = 3\n",
    ],
)
def test_what_only_looks_like_the_table_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be changed in its place"):
        with_numbers(text, "checks", {"unsure_band": 0.25})


LAWS = {"audit_rate": 4096, "laws": [{"worker": "a:b", "bets": {"misses": [{"tilt": 0.5, "rate": 1e-06}]}}]}


def test_a_whole_table_is_added_replaced_and_taken_out() -> None:
    added = with_table(WRITTEN, "evidence", LAWS)
    assert added.startswith(WRITTEN)
    assert parse_toml(added.encode())["evidence"] == LAWS
    again = with_table(added, "evidence", LAWS | {"audit_rate": 65536})
    assert again == added.replace("4096", "65536")
    assert with_table(again, "evidence", None) == WRITTEN == with_table(WRITTEN, "evidence", None)


@pytest.mark.parametrize("text", ["evidence = 3\n", 'text = """\n[evidence]\n"""\n', "[evidence.laws]\nx = 1\n"])
def test_a_table_in_another_form_is_left_alone(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be changed in its place"):
        with_table(text, "evidence", LAWS)


def test_what_is_said_of_the_next_table_stays_when_a_table_is_replaced() -> None:
    text = 'name = "a"\n[evidence]\nrate = 1\n\n# what is trained\n[train]\nsteps = 3\n'
    kept = 'name = "a"\n\n# what is trained\n[train]\nsteps = 3\n'
    assert with_table(text, "evidence", None) == kept
    assert with_table(text, "evidence", {"rate": 2}) == kept + "[evidence]\nrate = 2\n"
