"""A support bundle holds what helps and no secret, wherever one was planted."""

import json
import os
import tarfile
from pathlib import Path

import pytest

from cli.diagnose.bundle import REMOVED, cleaned, known_secrets, pack, remaining, removed
from protocol.errors import IntegrityError
from runtime import keystore
from tests.cli.muster import Muster, make_key

PRIVATE = "4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318"
SIGNATURE = "5d41402abc4b2a76b9719d911017c592ae468d01a3f3623185d41402abc4b2a7"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
PLANTED = {
    "private key": (f"opened key 0x{PRIVATE} for work", PRIVATE),
    "bare private key": (f"key={PRIVATE}", PRIVATE),
    "key in a longer word": (f"x{PRIVATE}{PRIVATE}", PRIVATE),
    "password": ('login with password: "hunter2 is long"', "hunter2"),
    "password in JSON": ('{"password": "correct horse", "user": "u"}', "correct horse"),
    "passphrase": ("PASSPHRASE=tr0ub4dor", "tr0ub4dor"),
    "signed URL": (f"PUT https://s3.example/b/k?X-Amz-Credential=AKIA&X-Amz-Signature={SIGNATURE} 200", SIGNATURE[:20]),
    "other signed URL": ("GET https://s3.example/b/k?Expires=1&Signature=aGVsbG8gd29ybGQ%3D", "aGVsbG8"),
    "query alone": ("retry with X-Amz-Signature=abcdef0123", "abcdef0123"),
    "keystore": ('"crypto": {"cipher": "aes", "ciphertext": "d172bf743a674da9", "mac": "517ead924a9d"}', "d172bf"),
    "user of a URL": ("cloning https://me:s3cr3tpw@git.example/x", "s3cr3tpw"),
    "RPC key": ("https://base.g.provider.example/v2/Ab12Cd34Ef56Gh78Ij90Kl", "Ab12Cd34"),
    "header": ("Authorization: Bearer abc.def.ghi", "abc.def"),
    "JWT": (f"got {JWT} back", JWT[:30]),
    "S3 key": ('"secret_key": "wJalrXUtnFEMI/K7MDENG"', "wJalrXUtn"),
    "PEM": ("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----", "MIIEvQ"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_looks_like_a_secret_is_taken_out(name: str) -> None:
    line, secret = PLANTED[name]
    text = removed(f"before\n{line}\nafter\n")
    assert secret not in text
    assert remaining(text) == []
    assert text.startswith("before\n")
    if name != "PEM":
        assert text.endswith("\nafter\n")


def test_what_helps_stays() -> None:
    line = "12:00:01 I muster.worker: file 7 of step 3: 812 tokens in 4.1 s; node 0x" + "11" * 20 + "; tx 0xabcdef"
    assert removed(line) == line
    assert removed(f"submitted 0x{PRIVATE}") == f"submitted 0x{PRIVATE[:6]}…"
    assert removed("https://pool.example/v1/status answers 503") == "https://pool.example/v1/status answers 503"


@pytest.mark.parametrize(
    "line",
    [
        f"0x{PRIVATE}", f"zz{PRIVATE}", "password=x1", "-----BEGIN EC PRIVATE KEY-----", "u?X-Amz-Signature=ab",
        '"kdfparams": {', "https://a:b@c", "https://x.example/?sig=abc",
    ],
)  # fmt: skip
def test_the_second_look_needs_no_first(line: str) -> None:
    (found,) = remaining(f"fine\n{line}\n")
    assert found.startswith("line 2 holds ")
    assert line not in found


def test_known_values_are_found_however_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "node.password").write_text("lengthy & strange\n")
    known = known_secrets({"AWS_SECRET_ACCESS_KEY": "plain-value-1", "HOME": "/home/x"}, [tmp_path / "node.password"])
    text = "plain-value-1 lengthy & strange lengthy%20%26%20strange bGVuZ3RoeSAmIHN0cmFuZ2U= /home/x"
    assert remaining(text, known) == ["line 1 holds a value of a secret file or environment variable"]
    assert removed(text, known) == f"{REMOVED} {REMOVED} {REMOVED} {REMOVED}= /home/x"
    assert known_secrets({"MUSTER_PASSWORD_FILE": str(tmp_path)}, [tmp_path / "none"]) == []


def test_nothing_is_written_when_the_second_look_finds_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.diagnose.bundle.removed", lambda text, known: text)
    with pytest.raises(IntegrityError, match="line 2 holds a private key") as error:
        cleaned({"logs/worker.log": f"a\n{PRIVATE}\n"}, {}, [])
    assert PRIVATE not in str(error.value)


def test_an_archive_is_its_owners_alone(tmp_path: Path) -> None:
    pack(tmp_path / "x.tar.gz", {"a.json": "{}"})
    assert (tmp_path / "x.tar.gz").stat().st_mode & 0o777 == 0o600


def test_secrets_planted_everywhere_are_nowhere_in_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "data"
    key, out = make_key(tmp_path, "operator"), tmp_path / "support.tar.gz"
    (home / "logs").mkdir(parents=True)
    password = key.password_file.read_text().strip()
    private = keystore.load(key.path, password).key.hex().removeprefix("0x")
    planted = [line for line, _ in PLANTED.values()]
    log = [*planted, f"opened with {password}", f"key {private}", key.path.read_text(), "the last line"]
    (home / "logs" / "worker.log").write_text("\n".join(log) + "\n")
    profile = tmp_path / "profile.toml"
    profile.write_text(
        f'role = "operator"\nhome = "{home}"\ncache = "{home}"\nservice = "http://u:{"p" * 9}@127.0.0.1:1"\n'
        f'rpc = "http://127.0.0.1:1/v2/{PLANTED["RPC key"][1]}Ef56Gh78Ij90Kl?apikey=qwertyuiop"\n'
        f'[key]\nkeystore = "{key.path}"\npassword_file = "{key.password_file}"\n'
    )
    environment = {"MUSTER_PROFILE": str(profile), "MUSTER_API_TOKEN": "tok-en-9f8e7d", "AWS_SECRET": "aws-5ecret"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tests.cli.muster.PASSED_ON", ("PATH", "PYTHONPATH", *environment))
    assert Muster(tmp_path).run("doctor", "--bundle", out).code == 1
    with tarfile.open(out) as archive:
        found = {entry.name: archive.extractfile(entry).read().decode() for entry in archive}  # type: ignore[union-attr]
    assert {os.path.basename(name) for name in found} == {
        "versions.json", "environment.json", "doctor.json", "profile.json", "status.json", "worker.log",
    }  # fmt: skip
    whole, crypto = "\n".join(found.values()), json.loads(key.path.read_text())["crypto"]
    secrets = (password, private, "p" * 9, "qwertyuiop", "tok-en-9f8e7d", "aws-5ecret")
    for secret in (*secrets, crypto["ciphertext"], crypto["mac"], *(secret for _, secret in PLANTED.values())):
        assert secret not in whole
    assert "the last line" in found["support/logs/worker.log"]
    assert json.loads(found["support/versions.json"])["muster"]
    assert json.loads(found["support/doctor.json"])[0]["check"] == "python"
