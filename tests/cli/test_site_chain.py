"""`muster site open, join, show, verify, dispute, accuse, watch, leave, close, withdraw` on a real chain."""

import json
from pathlib import Path

import pytest

from chain.contracts.site_runs import SiteRuns
from protocol.encoding import canonical_json
from protocol.sites.log import FIRST, LogEntry, TimeUp, seal_entry
from protocol.sites.notes import SiteNote, seal_note
from protocol.sites.recorded import StepRecord
from protocol.sites.run import SitesRun
from runtime.keystore import store
from tests.cli.muster import Muster
from tests.conftest import Deployed
from tests.trainer.helpers import small_model
from tests.trainer.sites.chain_world import KEEPER_STAKE, SITE_STAKE, on_this_chain
from tests.trainer.sites.world import KEEPER, SITES, make_run

PASSWORD, START = "correct horse battery staple", "5a" * 32


@pytest.fixture
def run(deployed: Deployed) -> SitesRun:
    return on_this_chain(make_run(3), deployed)


@pytest.fixture
def place(tmp_path: Path, deployed: Deployed, run: SitesRun) -> Path:
    """Keys of the keeper and two sites with tokens and gas, a deployment file, the run's document."""
    (tmp_path / "run.json").write_bytes(canonical_json(run.model_dump(mode="json")))
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "password").chmod(0o600)
    for name, account in {"keeper": KEEPER, "site": SITES[0], "other": SITES[1]}.items():
        store(tmp_path / f"{name}.json", bytes(account.key), PASSWORD, work_factor=1 << 10)
        deployed.chain.fund(account.address)
        deployed.suite(deployed.governance).token.mint(account.address, 2 * KEEPER_STAKE).send()
    deployed.deployment.save(tmp_path / "deployment.json")
    return tmp_path


@pytest.fixture
def muster(muster: Muster, place: Path, deployed: Deployed) -> Muster:
    muster.deployment, muster.rpc = place / "deployment.json", deployed.chain.url
    return muster


def acting(place: Path, name: str) -> list[str]:
    return ["--keystore", str(place / f"{name}.json"), "--password-file", str(place / "password"), "--yes"]


def opening(place: Path) -> list[str]:
    terms = ["--document", str(place / "run.json"), "--stake", "40", "--keeper-stake", "200", "--delay", "3600"]
    return ["site", "open", *terms, "--start", START, *acting(place, "keeper")]


def joining(place: Path, name: str = "site") -> list[str]:
    return ["site", "join", "--document", str(place / "run.json"), "--run", "1", *acting(place, name)]


def runs_of(deployed: Deployed) -> SiteRuns:
    return deployed.suite(KEEPER).site_runs


def test_a_run_from_beginning_to_end(muster: Muster, place: Path, deployed: Deployed, run: SitesRun) -> None:
    rehearsed = muster.ok(*opening(place), "--dry-run").out
    assert "would succeed" in rehearsed or "needs the transactions before it" in rehearsed
    assert muster.ok(*opening(place), "--json").json["run"] == 1
    view = runs_of(deployed).run_of(1)
    assert (view.document.hex(), view.start.hex(), view.stake) == (run.digest, START, KEEPER_STAKE)
    muster.ok(*joining(place))
    # somebody else's tokens, with the site's consent
    own = ["--own-keystore", str(place / "other.json"), "--own-password-file", str(place / "password")]
    assert muster.ok(*joining(place, "keeper"), *own, "--json").json["site"] == SITES[1].address
    assert runs_of(deployed).site_of(1, SITES[1].address).owner == KEEPER.address
    assert "joined it before" in muster.refused(*joining(place))
    shown = muster.ok("site", "show", 1, "--json").json
    assert (shown["steps"], shown["site_stake"]) == (0, SITE_STAKE)
    assert "0 are" in muster.refused("site", "show", 1, 0)

    entry = LogEntry(
        run=run.digest, number=3, previous=FIRST, chapter=0, time=1.0, events=[TimeUp(attempt=0, phase="open")]
    )
    runs_of(deployed).record(1, StepRecord(0, "ab" * 32, ()), entry).send()
    recorded = muster.ok("site", "show", 1, 0)
    assert "ab" * 32 in recorded.out
    assert "by nobody" in recorded.out
    assert "contradictions can be shown" in muster.refused(
        "site", "dispute", "--run", 1, "--step", 0, *acting(place, "site")
    )

    assert "as long as it is needed" in muster.refused("site", "withdraw", "--run", 1, *acting(place, "site"))
    muster.ok("site", "leave", "--run", 1, *acting(place, "site"))
    assert "is locked until" in muster.refused("site", "withdraw", "--run", 1, *acting(place, "site"))
    muster.ok("site", "close", "--run", 1, *acting(place, "keeper"))
    deployed.chain.later(3601)
    muster.ok("site", "withdraw", "--run", 1, *acting(place, "site"))
    taken = muster.ok("site", "withdraw", "--run", 1, "--keeper", *acting(place, "keeper")).out
    assert "withdraw 200 tokens" in taken
    assert deployed.suite().token.balance_of(SITES[0].address) == 2 * KEEPER_STAKE
    assert "no stake stands" in muster.refused("site", "withdraw", "--run", 1, *acting(place, "site"))


def test_two_files_convict_a_site_and_a_keeper(muster: Muster, place: Path, deployed: Deployed, run: SitesRun) -> None:
    muster.ok(*opening(place))
    muster.ok(*joining(place))

    def note(number: int, digest: str, attempt: int = 2) -> Path:
        said = SiteNote(
            run=run.digest, site=SITES[0].address, number=number, what="sign", step=4, attempt=attempt, digest=digest
        )
        path = place / f"note-{number}-{attempt}.json"
        path.write_bytes(seal_note(said, run, SITES[0]))
        return path

    def entry(phase: str) -> Path:
        event = TimeUp(attempt=0, phase=phase)  # type: ignore[arg-type]
        path = place / f"{phase}.json"
        said = LogEntry(run=run.digest, number=7, previous=FIRST, chapter=0, time=1.0, events=[event])
        path.write_bytes(seal_entry(said, run, KEEPER))
        return path

    def accusing(one: Path, other: Path, number: int = 1) -> list[str]:
        where = ["--document", str(place / "run.json"), "--run", str(number)]
        return ["site", "accuse", str(one), str(other), *where, *acting(place, "other")]

    assert "saying it twice is no breach" in muster.refused(*accusing(note(1, "aa" * 32), note(3, "aa" * 32)))
    assert "to one attempt" in muster.refused(*accusing(note(1, "aa" * 32), note(3, "bb" * 32, attempt=3)))
    assert "same entry" in muster.refused(*accusing(entry("open"), entry("open")))
    assert "there is no run 2" in muster.refused(*accusing(note(1, "aa" * 32), note(2, "bb" * 32), 2))
    assert not runs_of(deployed).site_of(1, SITES[0].address).ejected
    muster.ok(*accusing(note(1, "aa" * 32), note(2, "bb" * 32)))
    assert runs_of(deployed).site_of(1, SITES[0].address).stake == SITE_STAKE // 2
    muster.ok(*accusing(entry("open"), entry("collect")))
    view = runs_of(deployed).run_of(1)
    assert (view.ejected, view.stake) == (True, KEEPER_STAKE // 2)
    assert "run is over" in muster.refused(*joining(place, "other"))


def test_what_is_wrong_is_said(muster: Muster, place: Path, run: SitesRun) -> None:
    assert "there is no run 1 on chain" in muster.refused(*joining(place))
    words = opening(place)
    assert "is no digest" in muster.refused(*[word if word != START else "12" for word in words])
    words[words.index("--keystore") + 1] = str(place / "site.json")
    assert "the keeper of test is" in muster.refused(*words)
    muster.ok(*opening(place))
    other = {**json.loads((place / "run.json").read_bytes()), "name": "another"}
    (place / "run.json").write_text(json.dumps(other))
    assert "on chain has the document" in muster.refused(*joining(place))
    elsewhere = {**other, "chain_id": 1}
    (place / "run.json").write_text(json.dumps(elsewhere))
    assert "the deployment is on chain" in muster.refused(*joining(place))
    assert "there is no run 7 on chain" in muster.refused("site", "leave", "--run", 7, *acting(place, "site"))


def test_a_record_and_another_entry_convict_a_keeper(
    muster: Muster, place: Path, deployed: Deployed, run: SitesRun
) -> None:
    muster.ok(*opening(place))

    def entry(time: float, number: int = 3) -> LogEntry:
        event = TimeUp(attempt=0, phase="open")
        return LogEntry(run=run.digest, number=number, previous=FIRST, chapter=0, time=time, events=[event])

    def accusing(said: LogEntry, step: int = 0) -> list[str]:
        (place / "entry.json").write_bytes(seal_entry(said, run, KEEPER))
        where = ["--document", str(place / "run.json"), "--run", "1", "--step", str(step)]
        return ["site", "accuse", str(place / "entry.json"), *where, *acting(place, "other")]

    runs_of(deployed).record(1, StepRecord(0, "ab" * 32, ()), entry(1.0)).send()
    assert "does not contradict entry 3" in muster.refused(*accusing(entry(1.0)))
    assert "does not contradict entry 4" in muster.refused(*accusing(entry(2.0, number=4)))
    assert "does not contradict" in muster.refused(*accusing(entry(2.0), step=7))
    muster.ok(*accusing(entry(2.0)))
    assert runs_of(deployed).run_of(1).ejected


def test_what_is_no_statement_is_refused(muster: Muster, place: Path) -> None:
    muster.ok(*opening(place))
    where = ["--document", str(place / "run.json"), "--run", "1", *acting(place, "other")]
    (place / "long").write_bytes(b"{" * (1 << 18))
    (place / "junk").write_bytes(b'{"entry": \xff\x1b[31m')
    long, junk = str(place / "long"), str(place / "junk")
    assert "is too long" in muster.refused("site", "accuse", long, junk, *where)
    assert "is too long" in muster.refused("site", "accuse", "/dev/zero", junk, *where)
    refused = muster.refused("site", "accuse", junk, junk, *where)
    assert "\x1b" not in refused
    assert "a second one" in muster.refused("site", "accuse", junk, *where)
    assert "a second one" in muster.refused("site", "accuse", junk, junk, "--step", 0, *where)


def test_whoever_joins_can_see_that_the_run_begins_from_its_model(
    muster: Muster, place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The run of `opening` begins from nobody's state, so no step of it could ever be judged."""
    model = small_model(tmp_path_factory.mktemp("model") / "base")
    muster.ok(*opening(place))
    assert "take no part in this run" in muster.refused(*joining(place), "--model", str(model))


def test_a_run_whose_keeper_would_refuse_it_is_not_opened(muster: Muster, place: Path, run: SitesRun) -> None:
    other = run.model_copy(update={"exchange": "shards"})
    (place / "run.json").write_bytes(canonical_json(other.model_dump(mode="json")))
    assert "audit 1 parts of 3" in muster.refused(*opening(place))


def test_the_status_says_how_it_stands_with_the_chain(muster: Muster, tmp_path: Path) -> None:
    standing = {
        "run": "first", "step": 7, "attempt": 0, "phase": "collect", "digest": "ab" * 32, "members": [], "waiting": [],
        "waits": [],
    }  # fmt: skip
    keeping = {"run": 1, "recorded": 5, "made": 7, "without_stake": ["0xA"], "problem": "nobody answers"}
    differs = {"3": ["it led to another state"]}
    following = {"run": 1, "recorded": 5, "compared": 4, "staked": False, "differs": differs, "problem": ""}

    def said(document: dict[str, object]) -> str:
        (tmp_path / "status.json").write_text(json.dumps(document))
        return str(muster.ok("site", "status", "--home", tmp_path).out)

    keeper = said({**standing, "keeper": "0xB", "chain": keeping})
    assert "run 1, 5 of 7 outer steps recorded" in keeper
    assert "without stake, so not taken in: 0xA" in keeper
    assert "the chain: nobody answers" in keeper
    site = said({**standing, "site": "0xA", "chain": following})
    assert "outer step 3 is recorded otherwise: it led to another state" in site
    assert "this site has no stake on chain" in site
    assert "chain" not in said({**standing, "site": "0xA", "chain": None})
    found = {"found": {"0xB": "it was shown"}, "problem": "no bucket"}
    assert "0xB contradicted itself: it was shown" in said({**standing, "site": "0xA", "contradictions": found})
    watching = said({"watches": "first", "contradictions": {"found": {}, "problem": ""}, "waits": []})
    assert watching.strip() == "watching first\nnobody contradicted itself"
