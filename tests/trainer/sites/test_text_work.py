"""Sites that pre-train on text: one stream of documents for all, gone on with to the token."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from protocol.errors import ConfigError
from protocol.sites.outer import OuterState
from protocol.sites.run import SitesRun
from protocol.training import AdamWConfig, OptimizerConfig, ScheduleConfig
from tests.trainer.helpers import small_model
from tests.trainer.sites.world import KEEPER, SITES, TRUSTED, MemoryBucket, make_run
from trainer.config import MemoryConfig
from trainer.model import policy as policies
from trainer.model.sharding import Placement
from trainer.sft import packed_row
from trainer.sites.config import TextConfig
from trainer.sites.exchange import SiteExchange
from trainer.sites.inner import Share
from trainer.sites.keeper import SitesKeeper
from trainer.sites.site import Site
from trainer.sites.text import DocumentEncoder, TextWork, text_learners
from trainer.text.run_data import check_data, data_digest, text_corpus

RATES = OptimizerConfig(
    method=AdamWConfig(learning_rate=1e-2, beta2=0.95), schedule=ScheduleConfig(warmup_updates=7, decay_share=0.2)
)
MEMBERS = tuple(str(one.address) for one in SITES[:3])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TextConfig:
    """Documents of 10 to 90 letters, each one letter's."""
    path, dice = tmp_path_factory.mktemp("data") / "data.jsonl", random.Random(1)
    texts = (dice.choice("abcd") * dice.randint(10, 90) for _ in range(300))
    path.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    return TextConfig(
        files=(path,), dtype="float32", batch_tokens=100, sequence_tokens=48, heldout=5, updates=100, optimizer=RATES
    )


@pytest.fixture
def run() -> SitesRun:
    return make_run(3, "text", admission=TRUSTED, inner_steps=5, training_seconds=1000, overlap=1)


def work_of(config: TextConfig, base: Path, run: SitesRun, home: Path) -> TextWork:
    corpus = text_corpus(config, home)
    return TextWork(config, base, corpus, run, text_learners(config, base, Placement()))


def same(one: TextWork, other: TextWork) -> bool:
    found = other.weights()
    return one.cursor == other.cursor and all(
        np.array_equal(value, found[name]) for name, value in one.weights().items()
    )


@pytest.mark.parametrize("changed", [{}, {"dtype": "bfloat16", "memory": MemoryConfig(float8=True)}])
def test_two_sites_learn_one_goes_on_bit_for_bit_and_a_third_begins_where_they_stand(
    base: Path,
    config: TextConfig,
    run: SitesRun,
    tmp_path: Path,
    changed: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policies, "check_float8", lambda *_: None)  # a CPU rounds as a GPU does
    config = config.model_copy(update=changed)
    exchange = SiteExchange(MemoryBucket(), run)
    works = [work_of(config, base, run, tmp_path / str(at)) for at in range(2)]
    before = works[0].heldout_loss()
    keeper = SitesKeeper(exchange, KEEPER, OuterState.start(works[0].weights()), tmp_path / "keeper")
    keeper.start()
    sites = [Site(exchange, SITES[at], works[at], tmp_path / str(at)) for at in range(2)]
    for site in sites:
        site.start()

    def until(step: int) -> None:
        while min(site.state.step for site in sites) < step:
            keeper.turn()
            for site in sites:
                site.turn()

    until(3)
    assert sites[0].state.digest == sites[1].state.digest == keeper.state.digest
    assert works[0].heldout_loss() < 0.8 * before
    assert {one.dtype for one in works[0].weights().values()} == {np.dtype(np.float32)}
    sites[0].finish()
    again = work_of(config, base, run, tmp_path / "0")
    killed = Site(exchange, SITES[0], again, tmp_path / "0")
    killed.start()
    assert killed.state.digest == sites[0].state.digest
    works[0].save(tmp_path / "kept").finish()
    again.restore(tmp_path / "kept")
    share = Share(bytes.fromhex(run.seed), MEMBERS[0], MEMBERS[:2], step=3)
    assert works[0].cursor.offset, "in the middle of a document"
    for number in range(4):
        assert again.train(share, number) == works[0].train(share, number) > 90
        assert same(works[0], again)
    works[0].restore(tmp_path / "kept")
    late = work_of(config, base, run, tmp_path / "2")
    sites.append(Site(exchange, SITES[2], late, tmp_path / "2"))
    sites[2].start()
    until(keeper.state.step + 2)
    stood = sorted(one.cursor.place for one in works)
    assert stood[0] > 60
    assert stood[0] - 40 < late.cursor.place < stood[1] + 40, "not from the first document on"


def test_all_sites_have_one_learning_rate_over_the_whole_run(
    base: Path, config: TextConfig, run: SitesRun, tmp_path: Path
) -> None:
    """It rises over 7 inner steps, stays, and falls from the 80th to the last."""
    work = work_of(config, base, run, tmp_path)
    rates = []
    for at in (0, 3, 6, 50, 79, 90, 99, 150):
        work.train(Share(bytes(32), MEMBERS[0], MEMBERS[:1], step=at // 5), at % 5)
        rates.append(work.figures()["learning_rate"] / 1e-2)
    assert rates == pytest.approx([1 / 7, 4 / 7, 1, 1, 1, 0.1 + 0.9 * 9 / 20, 0.1, 0.1])


def test_who_did_not_take_part_begins_at_the_middle_of_where_the_others_stand(
    base: Path, config: TextConfig, run: SitesRun, tmp_path: Path
) -> None:
    def begun(*places: int) -> int:
        work = work_of(config, base, run, tmp_path)
        work.train(Share(bytes(32), MEMBERS[0], MEMBERS[:1], places=tuple(sorted(places))), 0)
        return work.cursor.place

    first = begun()
    assert first < 10
    assert 100 <= begun(100) < 110
    assert 100 <= begun(100, 1 << 48) < 110, "one of two that lies"
    assert 100 <= begun(0, 100, 1 << 48) < 110
    work = work_of(config, base, run, tmp_path)
    work.train(Share(bytes(32), MEMBERS[0], MEMBERS[:1], places=(100,)), 3)
    assert work.cursor.place < 10, "only where an outer step begins"


def test_other_documents_or_another_tokenizer_are_refused(
    base: Path, config: TextConfig, run: SitesRun, tmp_path: Path
) -> None:
    def digest(changed: dict[str, Any], folder: Path = base) -> str:
        other = config.model_copy(update=changed)
        return data_digest(text_corpus(other, tmp_path / "home"), other, folder)

    own = digest({})
    with pytest.raises(ConfigError, match="does not say what its sites train on") as caught:
        check_data(run, own)
    assert own in str(caught.value), "the cure names it"
    agreed = run.model_copy(update={"data": own})
    check_data(agreed, own)
    moved = tmp_path / "moved.jsonl"
    moved.write_bytes(config.files[0].read_bytes())
    assert digest({"files": (moved,)}) == own, "where a file lies is a site's own matter"
    moved.write_bytes(config.files[0].read_bytes().replace(b"aaaa", b"aaab", 1))
    longer = small_model(tmp_path / "longer")
    (longer / "tokenizer.json").write_bytes((base / "tokenizer.json").read_bytes() + b"\n")
    others = [
        digest({"files": (moved,)}), digest({"files": (*config.files, moved)}), digest({"heldout": 4}),
        digest({}, longer),
    ]  # fmt: skip
    assert len({own, *others}) == 5
    for other in others:
        with pytest.raises(ConfigError, match="this site's documents and tokenizer are"):
            check_data(agreed, other)
    with pytest.raises(ConfigError, match="what its keeper gives them"):
        check_data(make_run(1, "given", admission=TRUSTED, overlap=0).model_copy(update={"work": "given"}), own)


def test_too_few_documents_are_named(config: TextConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="300 documents, of which 300 are kept apart"):
        text_corpus(config.model_copy(update={"heldout": 300}), tmp_path)


def largest_logit(work: TextWork) -> float:
    """The mean over what is kept apart."""
    policy, examples = work._learners._imitation.policy, work._heldout
    with torch.no_grad():
        _, largest = policy.logprobs_and_largest(packed_row(examples, range(len(examples)), policy.device))
    return float(largest.mean())


def test_max_z_loss_holds_the_largest_logits_down(
    base: Path, config: TextConfig, run: SitesRun, tmp_path: Path
) -> None:
    """And is no part of the loss that is told."""
    told, logits = {}, {}
    for weight in (0.0, 0.5):
        work = work_of(config.model_copy(update={"max_z_loss": weight}), base, run, tmp_path / str(weight))
        share = Share(bytes(32), MEMBERS[0], MEMBERS[:1])
        work.train(share, 0)
        told[weight] = work.figures()["loss"]
        for number in range(1, 12):
            work.train(share, number)
        logits[weight] = largest_logit(work)
    assert told[0.5] == told[0.0]
    assert logits[0.5] < 0.85 * logits[0.0]


def test_what_is_kept_apart_is_encoded_once(
    base: Path, config: TextConfig, run: SitesRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    encode = DocumentEncoder.__call__

    def counted(self: DocumentEncoder, text: str) -> tuple[int, ...]:
        encoded.append(text)
        return encode(self, text)

    monkeypatch.setattr(DocumentEncoder, "__call__", counted)
    work = work_of(config, base, run, tmp_path)
    losses = {work.heldout_loss(), work.figures()["heldout_loss"]}
    assert len(losses) == 1
    assert len(encoded) == 5
