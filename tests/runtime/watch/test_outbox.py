"""Events reach their webhooks, signed, once the receiver takes them, whatever happens meanwhile."""

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from protocol.errors import ConfigError
from runtime.watch import outbox
from runtime.watch.config import Webhook
from runtime.watch.outbox import GIVE_UP_SECONDS, MOST, Outbox, check_events, pause, post, signature

SECRET = b"0123456789abcdef0123456789abcdef"
NOW = 1_000_000.0


def hook(folder: Path, url: str = "http://hook", *events: str, mode: int = 0o600, secret: bytes = SECRET) -> Webhook:
    path = folder / "secret"
    path.write_bytes(secret + b"\n")
    path.chmod(mode)
    return Webhook(url=url, secret_file=path, events=events)


class Receiver:
    """Answers as it is told, and remembers."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers, self.taken = list(answers), list[tuple[bytes, Mapping[str, str]]]()

    def __call__(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Exception):
            raise answer
        if answer == 200:
            self.taken.append((body, headers))
        return answer


def test_a_letter_is_signed_over_time_and_body(tmp_path: Path) -> None:
    receiver = Receiver()
    box = Outbox(tmp_path / "outbox.json", (hook(tmp_path),), receiver)
    box.put("gas_low", {"what": "no gas"}, NOW)
    box.deliver(NOW + 2)
    ((body, headers),) = receiver.taken
    document = json.loads(body)
    assert document == {"event": "gas_low", "id": headers["Muster-Delivery"], "time": int(NOW), "what": "no gas"}
    expected = hmac.new(SECRET, f"{int(NOW) + 2}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers["Muster-Signature"] == f"t={int(NOW) + 2},v1={expected}"
    assert signature(SECRET, 1, b"x") != signature(SECRET, 2, b"x")
    assert box.waiting == 0


def test_what_is_not_taken_is_kept_over_restarts_and_tried_ever_more_seldom(tmp_path: Path) -> None:
    path, hooks = tmp_path / "outbox.json", (hook(tmp_path),)
    failing = Receiver(500, httpx.ConnectError("refused"), 302)
    box = Outbox(path, hooks, failing)
    box.put("ejected", {}, NOW)
    now = NOW
    for tries in (1, 2, 3):
        box.deliver(now)
        (letter,) = box._letters.values()
        assert (letter.tries, letter.due) == (tries, now + pause(tries))
        box.deliver(letter.due - 0.1)
        assert next(iter(box._letters.values())).tries == tries, "it was not due"
        now = letter.due
    assert [pause(n) for n in (1, 2, 3, 11, 5000)] == [5.0, 10.0, 20.0, 3600.0, 3600.0]
    assert path.stat().st_mode & 0o777 == 0o600
    taking = Receiver()
    later = Outbox(path, hooks, taking)
    later.deliver(now)
    assert json.loads(taking.taken[0][0])["event"] == "ejected"
    assert Outbox(path, hooks, taking).waiting == 0


def test_the_outbox_is_bounded_and_gives_up_in_the_end(tmp_path: Path) -> None:
    path, hooks = tmp_path / "outbox.json", (hook(tmp_path),)
    box = Outbox(path, hooks, Receiver(*[500] * (MOST + 10)))
    box._write = lambda: None  # type: ignore[method-assign]  # two thousand fsyncs say nothing
    for number in range(MOST + 5):
        box.put("slashed", {"number": number}, NOW)
    assert (box.waiting, box.dropped) == (MOST, 5)
    assert json.loads(next(iter(box._letters.values())).body)["number"] == 5
    box.deliver(NOW + GIVE_UP_SECONDS + 1)
    assert (box.waiting, box.dropped) == (0, MOST + 5)


def test_a_webhook_gets_only_the_events_that_it_names(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "outbox.json", (hook(tmp_path, "http://hook", "ejected"),), Receiver())
    box.put("gas_low", {}, NOW)
    assert box.waiting == 0
    box.put("ejected", {}, NOW)
    assert box.waiting == 1
    other = Outbox(tmp_path / "outbox.json", (hook(tmp_path, "http://elsewhere"),), Receiver())
    assert other.waiting == 0, "nobody takes it any more"


@pytest.mark.parametrize(
    ("mode", "secret", "says"), [(0o644, SECRET, "can be read by others"), (0o600, b"short", "has 5 bytes")]
)
def test_a_secret_that_is_none_is_refused(tmp_path: Path, mode: int, secret: bytes, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Outbox(tmp_path / "outbox.json", (hook(tmp_path, mode=mode, secret=secret),), Receiver())


def test_an_event_or_url_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no event gas-low; there are: gas_low"):
        check_events((hook(tmp_path, "http://hook", "gas-low"),), ("gas_low",))
    with pytest.raises(ValueError, match="no http or https URL"):
        Webhook(url="file:///etc/passwd", secret_file=tmp_path)


@contextmanager
def served(status: int, location: str = "") -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class HookHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            if location:
                self.send_header("Location", location)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), HookHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def test_posting_follows_no_redirect() -> None:
    with served(200) as (inside, asked), served(307, inside) as (outside, _):
        assert post(outside, b"{}", {}) == 307
        assert asked == []
        assert post(inside, b"{}", {}) == 200


def test_a_receiver_that_is_gone_is_an_error_of_http() -> None:
    with pytest.raises(httpx.HTTPError):
        post("http://127.0.0.1:1/", b"{}", {})


def test_one_bad_letter_does_not_hold_up_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MOST", 10)
    receiver = Receiver(500, 200)
    box = Outbox(tmp_path / "outbox.json", (hook(tmp_path),), receiver)
    for event in ("gas_low", "stake_low"):
        box.put(event, {}, NOW)
    box.deliver(NOW)
    assert [json.loads(body)["event"] for body, _ in receiver.taken] == ["stake_low"]
    assert box.waiting == 1
