"""A swarm of sums, its members' keys, envelopes as an honest member makes them, and inboxes that take them."""

from pathlib import Path
from tempfile import mkdtemp

from environments.pool import TextEnvironments
from protocol.accounts import Account, LocalAccount
from protocol.config import EnvironmentConfig
from swarm.config import MixConfig
from swarm.envelope import Envelope, SharedCompletion, SharedGroup, SwarmDocument, question_digest, round_problem, seal
from swarm.inbox import EnvelopeInbox, Inspector

SUMS = EnvironmentConfig(
    name="reasoning_gym/chain_sum", params={"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}
)
DOCUMENT = SwarmDocument(name="sums", environments=(SUMS,), groups=4, samples=2, text_bytes=200)
ENVIRONMENTS = TextEnvironments(DOCUMENT.environments, DOCUMENT.answer_after)
KEYS: list[LocalAccount] = [Account.from_key(bytes([number + 1]) * 32) for number in range(3)]


def honest_group(member: str, number: int, slot: int, texts: tuple[str, ...] = ()) -> SharedGroup:
    """One right answer and one wrong one, unless texts are given."""
    seed = round_problem(DOCUMENT.digest, member, number, slot)
    problem = ENVIRONMENTS.problem(seed)
    made = [
        SharedCompletion(text=text, ended=True, reward=ENVIRONMENTS.score(seed, text), logprob=-1500)
        for text in texts or (problem.answer, "none")
    ]
    return SharedGroup(slot=slot, question=question_digest(problem.question), completions=made)


def honest_envelope(key: int = 0, number: int = 0, slots: tuple[int, ...] = (0, 1)) -> Envelope:
    member = KEYS[key].address
    groups = [honest_group(member, number, slot) for slot in slots]
    return Envelope(document=DOCUMENT.digest.hex(), member=member, round=number, groups=groups)


def signed(key: int = 0, number: int = 0, slots: tuple[int, ...] = (0, 1)) -> bytes:
    return seal(honest_envelope(key, number, slots), KEYS[key])


def inbox_of(
    folder: Path | None = None, inspector: Inspector | None = None, receiver: int = 0, **mix: int
) -> EnvelopeInbox:
    """The inbox of the last key, with a secret of its own for each `receiver`."""
    folder = folder or Path(mkdtemp(prefix="muster-inbox-"))
    inspector = inspector or Inspector(DOCUMENT, ENVIRONMENTS)
    return EnvelopeInbox(inspector, MixConfig.model_validate(mix), KEYS[2].address, bytes([receiver]) * 32, folder)
