"""Which files a step consumes: deep enough, fresh enough, each at most once, also across restarts and rollbacks."""

from dataclasses import fields, replace
from hashlib import sha256

from hypothesis import given, settings
from hypothesis import strategies as st

from chain.indexer.records import Pool, Submission, Terms
from chain.indexer.state import State
from protocol.verdict import Code
from trainer.data import look, overturned
from trainer.records import file_id

TERMS = Terms.of(
    {field.name.rstrip("_"): 1 for field in fields(Terms)} | {"inviteOnly": False, "configHash": bytes(32)}
)
NODE, CARRIER = "0x" + "11" * 20, "0x" + "22" * 20


def file(name: str, sequence: int, step: int, decided: int = 10, code: int = int(Code.ACCEPT)) -> Submission:
    digest = sha256(name.encode()).digest()
    return Submission(
        1, sequence, NODE, step, 0, 5, 2, digest, digest, decided, 0, "", code=code, decided_block=decided
    )


def chain(files: list[Submission], head: int = 100) -> State:
    state = State(head=head)
    state.pools[1] = Pool(1, NODE, bytes(32), TERMS, 0, 0, sequences=[one.sequence for one in files])
    state.submissions = {(1, one.sequence): one for one in files}
    return state


def names(files: tuple[Submission, ...]) -> list[int]:
    return [one.sequence for one in files]


def test_oldest_policy_step_first_and_stale_ones_told() -> None:
    state = chain([file("a", 0, 5), file("b", 1, 3), file("c", 2, 4), file("d", 3, 2), file("e", 4, 3)])
    inbox = look(state, 1, 5, 2, 2, set())
    assert names(inbox.files) == [1, 4, 2, 0]
    assert names(inbox.stale) == [3]


def test_only_acceptances_that_are_deep_enough_and_undisputed() -> None:
    state = chain(
        [
            file("a", 0, 5, decided=98),
            file("b", 1, 5, decided=99),
            file("c", 2, 5, code=0),
            file("d", 3, 5, code=int(Code.REJECT_WEIGHTS)),
            replace(file("e", 4, 5), disputed=True),
            replace(file("f", 5, 5), node=CARRIER),
            file("g", 6, 5, code=int(Code.UNSURE)),
        ]
    )
    assert names(look(state, 1, 5, 2, 2, set(), {CARRIER}).files) == [0, 6]


def test_the_same_bytes_twice_count_once_and_a_reused_sequence_is_another_file() -> None:
    consumed = {file_id(file("a", 0, 5))}
    # A reorganisation: file a came back under sequence 1, sequence 0 now holds b.
    state = chain([file("b", 0, 5), file("a", 1, 5), file("b", 2, 5)])
    assert names(look(state, 1, 5, 2, 2, consumed).files) == [0]


def test_acceptances_overturned_after_training_are_reported() -> None:
    files = [
        file("a", 0, 5),
        file("b", 1, 5, code=int(Code.REJECT_SAMPLING)),
        file("c", 2, 5, code=int(Code.MALFORMED)),
    ]
    gone = overturned(chain(files), 1, {file_id(files[0]), file_id(files[1])})
    assert [one.sequence for one in gone] == [1]


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("accept"), st.integers(0, 12)),
        st.tuples(st.just("rollback"), st.integers(1, 6)),
        st.tuples(st.just("train"), st.just(0)),
        st.tuples(st.just("kill"), st.booleans()),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(MOVES)
def test_no_file_is_trained_twice_or_lost(moves: list[tuple[str, int]]) -> None:
    """A model of the daemon: checkpoints hold weights and consumed set together; a kill before the checkpoint undoes
    a step wholly, one after it not at all; rollbacks reorder the chain and give files new sequences."""
    accepted: list[str] = []
    consumed: set[str] = set()
    trained: list[str] = []

    def turn() -> list[str]:
        files = [file(name, place, 5) for place, name in enumerate(accepted)]
        by_id = {file_id(one): name for one, name in zip(files, accepted, strict=True)}
        return [by_id[file_id(one)] for one in look(chain(files), 1, 5, 2, 2, consumed).files[:2]]

    for move, value in moves:
        if move == "accept" and f"file {value}" not in accepted:
            accepted.append(f"file {value}")
        elif move == "rollback":
            accepted = accepted[: -int(value)] + accepted[-int(value) :][::-1]
        elif move == "train" or (move == "kill" and value):
            batch = turn()
            trained += batch
            consumed |= {file_id(file(name, 0, 5)) for name in batch}
        elif move == "kill":
            turn()
    while batch := turn():
        trained += batch
        consumed |= {file_id(file(name, 0, 5)) for name in batch}
    assert sorted(trained) == sorted(accepted)
