"""`muster swarm open, leave, withdraw, accuse`, and how `join` registers: a swarm's stake on chain."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Acting, DeploymentOption, Paying, RpcOption, YesOption, tokens_option
from cli.output import clock
from cli.plan import PlannedTransaction, act, confirm
from protocol.amounts import show_tokens
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from cli.session import Session
    from protocol.swarm.document import SwarmDocument

CONFIG = "member.json"
_CONSENT_SECONDS = 3600

HomeOption = Annotated[Path, typer.Option("--home", help="Folder of the member's state.", file_okay=False)]
DocumentOption = Annotated[Path, typer.Option(exists=True, dir_okay=False, help="The swarm's document, JSON or TOML.")]
SwarmOption = Annotated[int, typer.Option("--swarm", min=1, help="Number of the swarm on chain.")]


@dataclass(frozen=True)
class Registering:
    """Options of joining a swarm that the chain knows."""

    swarm: Annotated[
        int | None, typer.Option("--swarm", min=1, help="Lock the stake of this swarm on chain, and read its members.")
    ] = None
    deployment: DeploymentOption = None
    rpc: RpcOption = None
    owner_keystore: Annotated[
        Path | None, typer.Option(help="Key that pays the stake and gets it back; the member's own if missing.")
    ] = None
    owner_password_file: Annotated[Path | None, typer.Option(help="Password of that key.")] = None
    yes: YesOption = False

    def check(self, named: list[str] | None) -> None:
        """Raises ConfigError where members are `named` that the chain knows."""
        if self.swarm is not None and named:
            raise ConfigError("the chain says whose envelopes are read", "leave --member out, or --swarm")


def open_swarm(
    document: DocumentOption,
    stake: Annotated[int, tokens_option("--stake", "Tokens that each member locks.")],
    by: Paying,
    delay: Annotated[int, typer.Option(min=1, help="Seconds that stake stays after leaving.")] = 7 * 86_400,
) -> None:
    """Open a swarm on chain: its document, and the stake that members lock. It has no owner, and nothing of it can
    change."""
    from protocol.documents import load_document
    from protocol.swarm.document import SwarmDocument

    session, digest = by.open(), load_document(document, SwarmDocument).digest
    title = f"open a swarm with {show_tokens(stake)} tokens of stake, {delay} s after leaving"
    call = session.suite.swarms.open(digest, stake, delay)

    def outcome(receipts: list[Any]) -> tuple[dict[str, Any], str]:
        number = call.result(receipts[0])
        return {"swarm": number}, f"swarm {number}; members: muster swarm join --swarm {number}"

    act(session, [PlannedTransaction(title, call)], by, outcome, document=digest.hex(), stake=stake, delay=delay)


def leave(home: HomeOption, by: Acting) -> None:
    """End the membership: nobody reads its envelopes any more. Its stake can be withdrawn after the swarm's delay."""
    session, swarm, member = _membership(home, by)
    swarms = session.suite.swarms
    delay = swarms.swarm_of(swarm).delay
    planned = PlannedTransaction(f"leave swarm {swarm}; the stake is free {delay} s later", swarms.leave(swarm, member))
    act(session, [planned], by, swarm=swarm, member=member, delay=delay)


def withdraw(home: HomeOption, by: Acting) -> None:
    """Take an ended membership's stake back, to the key that paid it."""
    session, swarm, member = _membership(home, by)
    view = session.suite.swarms.member_of(swarm, member)
    if not view.joined_block:
        raise ConfigError(f"{member} never joined swarm {swarm}", "is this the home and the deployment that joined it?")
    if not view.release_at:
        what = f"{member} is still a member of swarm {swarm}: its stake is locked as long as it is"
        raise ConfigError(what, f"muster swarm leave --home {home}; {_days(session, swarm)} later it can be withdrawn")
    if view.release_at > session.client.now():
        raise ConfigError(f"the stake of {member} is locked until {clock(view.release_at)}", "run this again then")
    if not view.stake:
        raise ConfigError(f"the stake of {member} in swarm {swarm} was withdrawn already", "nothing has to be done")
    title = f"withdraw {show_tokens(view.stake)} tokens from swarm {swarm}"
    planned = PlannedTransaction(title, session.suite.swarms.withdraw(swarm, member))
    act(session, [planned], by, swarm=swarm, member=member, grains=view.stake)


def _days(session: "Session", swarm: int) -> str:
    """How long stake stays after leaving."""
    delay = session.suite.swarms.swarm_of(swarm).delay
    return f"{delay // 86_400} days" if delay % 86_400 == 0 else f"{delay} s"


def accuse(
    first: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="An envelope's bytes.")],
    second: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Another one's of the same round.")],
    document: DocumentOption,
    swarm: SwarmOption,
    by: Acting,
) -> None:
    """Show that a member signed two envelopes of one round: it loses half of its stake and its place, and you get a
    twentieth."""
    from protocol.documents import load_document
    from protocol.swarm.document import SwarmDocument
    from protocol.swarm.envelope import EnvelopeLimits
    from protocol.swarm.equivocation import equivocation

    session = by.open()
    swarms = session.suite.swarms
    limits = EnvelopeLimits.of(swarms.swarm_id(swarm), load_document(document, SwarmDocument))
    proof = equivocation(first.read_bytes(), second.read_bytes(), limits)
    planned = PlannedTransaction(f"show two envelopes of round {proof.round} of {proof.member}", swarms.accuse(proof))
    act(session, [planned], by, swarm=swarm, member=proof.member, round=proof.round)


def register(
    options: Registering, document: "SwarmDocument", keystore: Path, password_file: Path | None
) -> dict[str, Any] | None:
    """Lock the swarm's stake for the member's key, unless it is a member already; the part of its configuration that
    names chain and swarm, None without --swarm. Raises ConfigError for another document, for a key that has left, and
    where nobody agrees; ContractError, UnreachableError."""
    from cli.session import deployment_file, open_session
    from runtime.keystore import address_of, open_key

    if options.swarm is None:
        return None
    swarm, member = options.swarm, address_of(keystore)
    payer = (
        (options.owner_keystore, options.owner_password_file) if options.owner_keystore else (keystore, password_file)
    )
    session = open_session(options.deployment, options.rpc, *payer)
    swarms, owner = session.suite.swarms, session.client.address
    view, known = swarms.swarm_of(swarm), swarms.member_of(swarm, member)
    if view.document != document.digest:
        other = f"has the document {view.document.hex()[:16]}…, yours is {document.digest.hex()[:16]}…"
        raise ConfigError(f"swarm {swarm} {other if view.stake else 'is not there'}", "check --swarm and --document")
    if known.joined_block and not known.active:
        raise ConfigError(f"{member} has left swarm {swarm}, or was ejected", "join with a new key: a key joins once")
    if known.next_round:
        what = f"{member} has recorded rounds before {known.next_round}: it works in another home"
        raise ConfigError(what, "use that home, or a new key: a round that is signed twice costs half of the stake")
    if not known.joined_block:
        stake = f"{show_tokens(view.stake)} tokens, free {view.delay} s after leaving"
        if not options.yes:
            confirm(f"From {owner}: lock {stake}, in swarm {swarm} for {member}.\nGo ahead?")
        expiry = session.client.now() + _CONSENT_SECONDS
        own = member == owner
        consent = b"" if own else swarms.sign_consent(open_key(keystore, password_file), swarm, owner, expiry)
        swarms.join(swarm, view.stake, member, expiry, consent).send()
    assert options.deployment is not None, "the session was opened with it"
    deployment = str(deployment_file(options.deployment).absolute())
    return {"deployment": deployment, "rpc": session.client.provider.urls, "swarm": swarm}


def _membership(home: Path, by: Acting) -> tuple["Session", int, str]:
    """The session of a member's owner, the swarm, and the member's address. The key that joined it is the one in the
    configuration, unless --keystore names another."""
    from dataclasses import replace

    from protocol.documents import load_document
    from runtime.keystore import address_of
    from swarm.config import SwarmMemberConfig

    path = home / CONFIG
    if not path.is_file():
        raise ConfigError(f"no member lives in {home}", "muster swarm join")
    config = load_document(path, SwarmMemberConfig)
    if config.chain is None:
        raise ConfigError(f"the member of {home} is in a swarm that no chain knows", "just end its process")
    if by.keystore is None:
        by = replace(by, keystore=config.key.keystore, password_file=by.password_file or config.key.password_file)
    by = replace(by, deployment=config.chain.deployment, rpc=by.rpc or ",".join(config.chain.rpc))
    return by.open(), config.chain.swarm, address_of(config.key.keystore)
