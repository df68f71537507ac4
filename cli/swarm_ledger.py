"""`muster swarm ledger`: who contributed what to a swarm, for members and onlookers."""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.swarm_chain import CONFIG
from cli.options import JsonOption
from cli.output import emit, table
from protocol.amounts import show_tokens
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from swarm.config import SwarmMemberConfig
    from swarm.ledger import SwarmLedger


def ledger(
    home: Annotated[
        list[Path],
        typer.Option(file_okay=False, help="Home of a member, which names swarm and bucket; more add what they took."),
    ],
    page: Annotated[Path | None, typer.Option(dir_okay=False, help="Write it as an HTML page, too.")] = None,
    most: Annotated[int, typer.Option(min=1, max=1_000_000, help="Envelopes judged, as many of each member.")] = 10_000,
    seconds: Annotated[float, typer.Option(min=1, max=86_400, help="Time for reading and judging them.")] = 300.0,
    json: JsonOption = False,
) -> None:
    """What each member shared, found true by scoring it again here, and what members whose homes are given took of it.

    Envelopes come from the bucket, stakes from the chain; no member's word is believed about itself or others."""
    from protocol.files import explained
    from swarm.assembly import exchange_of
    from swarm.environments import load_swarm
    from swarm.ledger_page import ledger_page
    from swarm.ledger_reader import LedgerReader

    configs = [_config(one) for one in home]
    swarm, texts = load_swarm(configs[0])
    if any((one.chain, load_swarm(one)[0]) != (configs[0].chain, swarm) for one in configs[1:]):
        raise ConfigError("these homes are of members of different swarms", "name those of one swarm")
    limits, standings = _whose(configs[0], swarm)
    found = LedgerReader(limits, texts, standings).read(exchange_of(configs[0]), most, seconds)
    for one in home:
        _add(found, one)
    document = {"swarm": swarm.name, **found.document()}
    if page is not None:
        with explained(f"write {page}", "check the folder"):
            page.write_text(ledger_page(swarm.name, document), encoding="utf-8")
    emit(document, json, lambda: _text(document))


def _whose(config: "SwarmMemberConfig", swarm: Any) -> tuple[Any, Any]:
    """Limits of its envelopes, and who answers for keys."""
    from protocol.swarm.envelope import EnvelopeLimits
    from protocol.swarm.identity import NO_CHAIN
    from swarm.standings import friends, on_chain

    if config.chain is None:
        return EnvelopeLimits.of(NO_CHAIN, swarm), friends(config.members)
    from cli.session import open_session

    swarms = open_session(config.chain.deployment, ",".join(config.chain.rpc)).suite.swarms
    number = config.chain.swarm
    return EnvelopeLimits.of(swarms.swarm_id(number), swarm), on_chain(swarms, number, config.chain.confirmations)


def _add(found: "SwarmLedger", home: Path) -> None:
    from swarm.journal import JOURNAL, STATUS, read_journal

    if not (home / STATUS).is_file():
        return
    try:
        status = json_module.loads((home / STATUS).read_bytes())
        found.add_home(status["member"], read_journal(home / JOURNAL), status)
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        raise ConfigError(f"what {home} says of its rounds is damaged", "name another --home") from None


def _config(home: Path) -> "SwarmMemberConfig":
    from protocol.documents import load_document
    from swarm.config import SwarmMemberConfig

    if not (home / CONFIG).is_file():
        raise ConfigError(f"no member lives in {home}", "muster swarm join")
    return load_document(home / CONFIG, SwarmMemberConfig)


def _text(document: dict[str, Any]) -> str:
    heads = ("member", "standing", "stake", "rounds", "groups", "trained on", "unfit", "doubted", "took", "breaches")
    names = ("rounds", "groups", "trained", "unfit", "doubted", "took")
    rows = [
        (address, one["standing"], show_tokens(one["stake"]), *(one[name] for name in names),
         ", ".join(f"{count} {kind}" for kind, count in one["breaches"].items()) or "-")
        for address, one in document["members"].items()
    ]  # fmt: skip
    said = f"{document['envelopes']} envelopes, {document['refused']} refused, {document['unjudged']} not judged"
    left_out = sum(one["left_out"] for one in document["members"].values())
    more = "" if document["whole"] else f"; there is more, {left_out} older ones of members (--most, --seconds)"
    return table(heads, rows, "nobody has shared anything") + f"\n{said}{more}"
