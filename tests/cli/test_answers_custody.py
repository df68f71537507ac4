"""`validator status` says which files are kept for juries, and what keeps them from being shown."""

from cli.views.answers_seats import seats_answers
from tests.cli.test_answers import NOW, PROCESS, flat, seats_look


def test_a_validator_is_told_what_it_keeps_and_where_it_shows_it() -> None:
    kept = {"files": 3, "bytes": 5 << 20, "oldest": int(NOW) - 7200, "where": "https://seat.example", "problem": ""}
    answers = seats_answers(seats_look(process={**PROCESS, "kept": kept}))
    assert "keeping 3 files (5.0 MiB, the oldest came 2.0 h ago" in answers.doing[-1]
    assert answers.doing[-1].endswith("shown at https://seat.example")
    assert "`republish`" not in flat(answers.todo)
    silent = {**kept, "files": 0, "where": "", "problem": "20480 MiB are full (`keep_gib`)"}
    answers = seats_answers(seats_look(process={**PROCESS, "kept": silent}))
    assert answers.doing[-1] == "keeping 0 files (5.0 MiB) for juries, shown to nobody"
    assert "name where kept files are shown (`serve` or `republish`)" in flat(answers.todo)
    assert "make room for files that seats answer for: 20480 MiB are full" in flat(answers.todo)
