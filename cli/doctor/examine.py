"""Every check of `muster doctor`, in order: machine, profile, chain, the pool's service and storage, files, keys."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.doctor.base import Prerequisite, failed, note
from protocol.errors import MusterError

if TYPE_CHECKING:
    from cli.profile import Profile


@dataclass(frozen=True)
class Examination:
    """What to look at besides the machine and the profile; `data` is where a local network would keep its files."""

    deployment: Path | None = None
    rpc: str | None = None
    chain_id: int | None = None
    s3: Path | None = None
    orchestrator: str | None = None
    keystores: Sequence[Path] = ()
    caches: Sequence[Path] = ()
    pool_configs: Sequence[Path] = ()
    ports: Sequence[int] = ()
    data: Path = Path("runs")
    isolation_image: str = ""


def examine(asked: Examination) -> Iterator[Prerequisite]:
    """Nothing raises: what cannot be looked at is a failure."""
    from cli.doctor import chain, clock, files, hardware, isolation, machine, participant, services, storage, upload
    from cli.hardware import gpus
    from cli.profile import find_profile

    profile: Profile | None = None
    yield from machine.look(asked.data, asked.ports)
    yield isolation.look(asked.isolation_image)
    try:
        profile = find_profile(None)
    except MusterError as error:
        yield failed("profile", error.what, error.hint)
    yield hardware.disk(profile.home if profile else asked.data)
    yield hardware.gpu(profile.engine.device if profile else "cpu", gpus())
    rpc, chain_id = asked.rpc, asked.chain_id
    if asked.deployment is not None:
        found, named_rpc, named_chain = services.deployment(asked.deployment)
        yield found
        rpc, chain_id = rpc or named_rpc, chain_id or named_chain
    lines, said = chain.look(rpc, chain_id)
    yield from lines
    yield clock.look(said, asked.orchestrator)
    yield from services.look(asked.s3, asked.orchestrator)
    if asked.orchestrator:
        yield participant.version(asked.orchestrator)
        yield storage.down(asked.orchestrator)
    if asked.s3:
        yield storage.up(asked.s3)
    else:
        yield upload.up(asked.orchestrator, profile) if asked.orchestrator else note("storage", "up: no pool is named")
    yield from files.look(list(asked.keystores), list(asked.caches), list(asked.pool_configs))
    if profile is not None:
        yield from participant.look_at_keys(profile)
        yield from participant.look_at_custody(profile)
        yield from participant.look_at_engines(profile)
        if profile.deployment and said is not None:
            yield from participant.look_at_money(profile)
