"""An export of a pool verifies; whatever is altered in it is found and named."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from cli.main import app
from dataset import document as names
from dataset.document import CARD, StoredDataset
from dataset.export import export
from dataset.rows import DatasetRow
from dataset.verify import load
from protocol.accounts import Account
from protocol.errors import ConfigError, IntegrityError
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits
from protocol.verdict import Code
from storage.keys import object_key
from tests.dataset.world import Change, SoldWork, contracts_and_bucket, forged, rows_of
from tests.validator.world import CONFIG

ROWS = 6
PARQUET = "data/rollouts-00000.parquet"


@pytest.fixture(scope="module")
def sold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SoldWork]:
    """Five files of two nodes: three accepted (one of them unsure) for good, one rejected, one accepted but not yet for
    good."""
    with contracts_and_bucket(tmp_path_factory.mktemp("sold"), CONFIG) as (game, bucket):
        work = SoldWork(game, bucket)
        (_, honest), (_, cheat) = work.game.node(), work.game.node()
        work.begin()
        work.judge(work.submit(honest, 1), Code.ACCEPT)
        work.judge(work.submit(cheat, 2), Code.REJECT_SAMPLING)
        work.judge(work.submit(honest, 3), Code.ACCEPT)
        work.judge(work.submit(honest, 4), Code.UNSURE)
        game.deployed.chain.later(61)
        work.judge(work.submit(honest, 5), Code.ACCEPT)
        yield work


@pytest.fixture(scope="module")
def exported(sold: SoldWork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of the finished pool; not to be changed."""
    folder = tmp_path_factory.mktemp("exports") / "data-set"
    sold.export(folder)
    return folder


def test_an_export_holds_what_was_accepted_and_verifies(sold: SoldWork, exported: Path) -> None:
    report = sold.verify(exported)
    assert report.findings.messages == []
    assert (report.rows, report.newer) == (3 * ROWS, 0)
    first = rows_of(exported)
    accepted = [sold.submitted[place] for place in (0, 2, 3)]
    assert [row.order_key for row in first] == [(sequence, row) for sequence in accepted for row in range(ROWS)]
    assert {(row.verdict, row.votes) for row in first[12:]} == {("accept", ("unsure",) * 3)}
    totals = report.document.totals
    assert (totals.rows, totals.submissions, totals.nodes, totals.problems) == (18, 3, 1, 9)
    assert totals.output_tokens == sum(len(row.output_tokens) for row in first)
    submission = sold.game.state.submissions[sold.game.pool, accepted[0]]
    data = sold.bucket.get(object_key("rollouts", submission.sha256))
    for row, rollout in zip(first, read(data, Limits.of(CONFIG.work))[1], strict=False):
        assert row.output_tokens == tuple(rollout.output_tokens)
        assert row.prompt.endswith("<think>")
        assert "<|end|>" not in row.completion
        assert row.verdicts == ("08" * 32,) * 3
        assert bytes.fromhex(row.manifest) == sold.game.state.pools[sold.game.pool].steps[0].manifest


def test_the_card_is_read_as_hugging_face_reads_it(exported: Path) -> None:
    _, header, text = (exported / CARD).read_text().split("---\n", 2)
    fields = yaml.safe_load(header)
    assert fields["license"] == "other"
    assert fields["size_categories"] == ["n<1K"]
    patterns = [one["data_files"][0]["path"] for one in fields["configs"]]
    assert [len(list(exported.glob(pattern))) for pattern in patterns] == [1]
    assert pq.read_table(next(exported.glob(patterns[0]))).num_rows == 18
    assert "18 verified rollouts" in text
    assert "| Apache-2.0 |" in text, "what reasoning_gym declares"


def test_the_same_pool_gives_the_same_bytes_in_parts(sold: SoldWork, exported: Path, tmp_path: Path) -> None:
    """Rows in several files are the same rows, and an export made again is the same, byte for byte."""
    source = load(exported).dataset
    again, parts = tmp_path / "again", tmp_path / "parts"
    sold.export(again)
    assert load(again).dataset.files == source.files
    sold.export(parts, rows_per_file=7)
    assert [file.rows for file in load(parts).dataset.files] == [7, 7, 4]
    assert rows_of(parts) == rows_of(exported)
    assert sold.verify(parts).sound


def test_an_export_is_signed_by_its_exporter(sold: SoldWork, exported: Path, tmp_path: Path) -> None:
    account = Account.create()
    sold.export(tmp_path / "signed", licence="cc-by-4.0", account=account)
    stored = load(tmp_path / "signed")
    assert stored.signer == account.address
    document = stored.dataset.model_copy(update={"licences": load(exported).dataset.licences})
    StoredDataset(dataset=document, signer=stored.signer, signature=stored.signature).write(tmp_path / "signed")
    with pytest.raises(IntegrityError, match="is signed by"):
        load(tmp_path / "signed")


def test_nothing_is_left_of_an_export_that_fails(sold: SoldWork, tmp_path: Path) -> None:
    first = sold.game.state.submissions[sold.game.pool, sold.submitted[2]]

    def objects(key: str, limit: int) -> bytes:
        if first.sha256.hex() in key:
            raise IntegrityError("the bucket is gone", "")
        return sold.bucket.get(key, limit)

    with pytest.raises(IntegrityError, match="the bucket is gone"):
        export(sold.source, objects, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    sold.export(tmp_path / "out")
    with pytest.raises(ConfigError, match="exists"):
        sold.export(tmp_path / "out")


def edited(place: int, change: Callable[[DatasetRow], DatasetRow]) -> Change:
    return lambda rows: [*rows[:place], change(rows[place]), *rows[place + 1 :]]


def with_leaf(row: DatasetRow) -> DatasetRow:
    return replace(row, leaf=row.computed_leaf().hex())


OTHER = "0x" + "11" * 20
FIRST, CONTENT = "row 0 (submission 0, row 0)", "its content is not the one of its leaf"
FORGERIES: dict[str, tuple[Change, str]] = {
    "token": (
        edited(8, lambda row: replace(row, output_tokens=(1, *row.output_tokens[1:]))),
        f"row 8 (submission 32, row 2): {CONTENT}",
    ),
    "reward": (edited(0, lambda row: replace(row, task_reward=1.0 - row.task_reward)), f"{FIRST}: {CONTENT}"),
    "leaf": (
        edited(0, lambda row: with_leaf(replace(row, reward=9.0))),
        f"{FIRST}: its leaf does not lead to the root on chain",
    ),
    "text": (
        edited(17, lambda row: replace(row, completion="42")),
        "row 17 (submission 48, row 5): `completion` is not the text of its tokens",
    ),
    "prompt": (
        edited(0, lambda row: replace(row, prompt=row.prompt + " ")),
        f"{FIRST}: `prompt` is not the text of its tokens",
    ),
    "file": (
        edited(0, lambda row: replace(row, file_sha256=row.file_root)),
        f"{FIRST}: `file_sha256` is not what the chain says",
    ),
    "environment": (
        edited(0, lambda row: replace(row, environment="mathematics")),
        f"{FIRST}: `environment` or `problem` is not what its problem seed stands for",
    ),
    "node": (edited(0, lambda row: replace(row, node=OTHER)), f"{FIRST}: `node` is not what the chain says"),
    "verdict": (
        edited(12, lambda row: replace(row, votes=("accept",) * 3)),
        "row 12 (submission 48, row 0): `votes` is not what the chain says",
    ),
    "dropped": (lambda rows: [*rows[:3], *rows[4:]], "row 3 of submission 0 is missing"),
    "dropped file": (lambda rows: rows[6:], "row 0 and 5 more of submission 0 are missing"),
    "doubled": (lambda rows: [*rows[:4], *rows[3:]], "row 4 (submission 0, row 3) appears twice"),
    "reordered": (lambda rows: [rows[1], rows[0], *rows[2:]], f"row 1{FIRST[5:]} comes after submission 0, row 1"),
    "renumbered": (  # each in the place of the other, with the proof of its own
        lambda rows: [replace(rows[1], row=0), replace(rows[0], row=1), *rows[2:]],
        f"{FIRST}: it is (slot 0, sample 1), which is another row of the file",
    ),
    "rejected": (
        edited(6, lambda row: replace(row, submission=16)),
        "row 6 belongs to submission 16, which is rejected",
    ),
    "not final": (
        lambda rows: [*rows, replace(rows[-1], submission=64)],
        "row 18 belongs to submission 64, which is accepted but was not final then",
    ),
    "invented": (
        lambda rows: [*rows, replace(rows[-1], submission=99)],
        "row 18 belongs to submission 99, which the pool does not have",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_rows_that_a_careful_forger_changed_are_named(
    name: str, sold: SoldWork, exported: Path, tmp_path: Path
) -> None:
    change, words = FORGERIES[name]
    report = sold.verify(forged(exported, tmp_path / "forged", change))
    assert words in [line.removeprefix("data/rollouts-00000.parquet, ") for line in report.findings.messages]


def test_careless_changes_are_named(sold: SoldWork, exported: Path, tmp_path: Path) -> None:
    """A file of rows, the configuration, the tokenizer, the card, the totals, and files that do not belong there."""
    told = {}
    for name, path, old, new in (
        ("data", PARQUET, b"PAR1", b"PAR2"),
        ("config", names.CONFIG, b'"name":"test"', b'"name":"best"'),
        ("tokenizer", "tokenizer/tokenizer.json", b"<think>", b"<Think>"),
        ("card", CARD, b"18 verified", b"19 verified"),
    ):
        folder = tmp_path / name
        shutil.copytree(exported, folder)
        whole = folder / path
        assert old in whole.read_bytes()
        whole.write_bytes(whole.read_bytes().replace(old, new, 1))
        told[name] = sold.verify(folder).findings.messages
    assert "data/rollouts-00000.parquet: its SHA-256 is " in told["data"][0]
    assert told["config"] == ["pool.json is not the configuration whose hash is on chain"]
    assert told["tokenizer"] == ["tokenizer: tokenizer.json is not the one of policy step 0"]
    assert len(told["card"]) == 1
    assert "is not what dataset.json says" in told["card"][0]
    stray = tmp_path / "stray"
    shutil.copytree(exported, stray)
    (stray / "data" / "rollouts-00007.parquet").write_bytes(b"{}\n")
    (stray / "run.py").write_text("")
    assert len(sold.verify(stray).findings.messages) == 2


def test_totals_and_origin_are_compared_with_rows_and_chain(sold: SoldWork, exported: Path, tmp_path: Path) -> None:
    document, folder = load(exported).dataset, tmp_path / "copy"
    shutil.copytree(exported, folder)
    as_of = document.as_of
    for update, words in (
        ({"totals": document.totals.model_copy(update={"nodes": 2})}, "`totals` are not those"),
        ({"as_of": as_of.model_copy(update={"time": as_of.time + 1000})}, f"block {as_of.block} of the chain is not"),
        ({"model": "another"}, "`model` is not what the pool's configuration says"),
        ({"owner": "0x" + "11" * 20}, "`owner` is not the pool's"),
        ({"chain_id": 84532}, "the data set is from chain 84532"),
        ({"genesis": "11" * 32}, "its first block differs"),
        ({"contracts": document.contracts | {"Pools": "0x" + "11" * 20}}, "from other contracts"),
    ):
        StoredDataset.of(document.model_copy(update=update), None).write(folder)
        assert any(words in line for line in sold.verify(folder).findings.messages), words


def test_files_that_became_final_later_are_counted_not_missed(sold: SoldWork, exported: Path) -> None:
    later = replace(sold.source, block=replace(sold.source.block, time=sold.source.block.time + 100))
    report = sold.verify(exported, later)
    assert report.findings.messages == []
    assert report.newer == 1


def test_hostile_files_are_refused_with_a_word(sold: SoldWork, exported: Path, tmp_path: Path) -> None:
    table = pq.read_table(exported / PARQUET)
    negative = table.set_column(table.schema.get_field_index("row"), "row", [[-1] * table.num_rows])
    for name, data, words in (
        ("junk", b"[" * 50_000, "rollouts-00000.parquet cannot be read"),
        ("cut", (exported / PARQUET).read_bytes()[:-100], "rollouts-00000.parquet cannot be read"),
        ("columns", table.drop_columns(["row"]), "rollouts-00000.parquet has other columns than a data set"),
        ("negative", negative.cast(table.schema), "rollouts-00000.parquet, row 0: column `row`"),
    ):
        folder = tmp_path / name
        shutil.copytree(exported, folder)
        if isinstance(data, bytes):
            (folder / PARQUET).write_bytes(data)
        else:
            pq.write_table(data, folder / PARQUET)
        assert any(words in one for one in sold.verify(folder).findings.messages), name
    with pytest.raises(ConfigError):
        load(tmp_path)


def test_the_command_says_by_its_exit_code_whether_rows_are_true(
    sold: SoldWork, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sold.game.deployed.deployment.save(tmp_path / "deployment.json")
    chain = ["--deployment", str(tmp_path / "deployment.json"), "--rpc", sold.game.deployed.chain.url]
    bad = forged(exported, tmp_path / "forged", lambda rows: rows[:-1])
    for folder, more, code, words in (
        (exported, (), 0, "18 rows checked"),
        (bad, (), 1, "WRONG  row 5 of submission 48 is missing"),
        (exported, ("--signer", OTHER), 1, "signed by nobody"),
    ):
        done = CliRunner().invoke(app, ["dataset", "verify", str(folder), *chain, *more])
        assert done.exit_code == code, done.output
        assert words in done.output
        assert done.output.endswith("every row is on chain\n") is (code == 0)
