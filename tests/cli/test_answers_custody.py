"""`validator status` says which files are kept for juries, and what keeps them from being shown."""

from pathlib import Path
from typing import Any

import pytest

from cli.answers import seats_answers
from tests.cli.test_answers import NOW, PROCESS, flat, seats_look


def test_a_validator_is_told_what_it_keeps_and_where_it_shows_it() -> None:
    kept = {"files": 3, "bytes": 5 << 20, "oldest": int(NOW) - 7200, "where": "https://seat.example", "problem": ""}
    answers = seats_answers(seats_look(process={**PROCESS, "retained": kept}))
    assert "retaining 3 files (5.0 MiB, the oldest came 2.0 h ago" in answers.doing[-1]
    assert answers.doing[-1].endswith("shown at https://seat.example")
    assert "`republish`" not in flat(answers.todo)
    silent = {**kept, "files": 0, "where": "", "problem": "20480 MiB are full (`keep_gib`)"}
    answers = seats_answers(seats_look(process={**PROCESS, "retained": silent}))
    assert answers.doing[-1] == "retaining 0 files (5.0 MiB) for juries, shown to nobody"
    assert "name where retained files are shown (`serve` or `republish`)" in flat(answers.todo)
    assert "make room for files that seats answer for: 20480 MiB are full" in flat(answers.todo)


def test_a_validator_is_told_with_which_engines_it_judges() -> None:
    both = flat(seats_answers(seats_look(process={**PROCESS, "engines": ["vllm", "transformers"]})).doing)
    assert "judging with vllm; files of node challenges that transformers made with that" in both
    alone = flat(seats_answers(seats_look(process={**PROCESS, "engines": ["vllm"]})).doing)
    assert "judging with vllm; files of other engines too" in alone


def test_doctor_names_the_engines_of_a_validator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cli.checks import validator_checks
    from cli.profile import Profile, ProfileKey
    from validator.judging import pipeline

    def said(**fields: Any) -> tuple[str, str]:
        key = ProfileKey(keystore=tmp_path)
        profile = Profile(role="validator", home=tmp_path, cache=tmp_path, key=key, **fields)
        (found,) = (one for one in validator_checks(profile) if one.check == "engines")
        return found.state, found.detail

    monkeypatch.setattr(pipeline, "vllm_installed", lambda: True)
    assert said(engine={"name": "transformers"})[1].startswith("transformers for every file, vllm for its")
    assert said(engine={"name": "vllm"}, validator={"case_engines": []})[1].startswith("vllm alone")
    monkeypatch.setattr(pipeline, "vllm_installed", lambda: False)
    assert "vllm, which is not installed" in said(validator={"case_engines": ["vllm"]})[1]
