"""Folders, access key, rings and configuration files of a one-disk Swift. Idempotent: a restart finds its data."""

import json
import os
import pwd
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import ConfigError
from protocol.files import explained, write_atomic
from storage.s3 import AccessKey

PORTS = {"account": 6200, "container": 6201, "object": 6202}
"""Numbers of the storage servers in the ring. They listen on Unix sockets, so these are only names."""
CHUNK = 1 << 20
_SLOW = "node_timeout = 60\nconn_timeout = 10\n"


@dataclass(frozen=True)
class Layout:
    """Where one server's files lie: configuration, objects, sockets; and which port it answers on."""

    etc: Path
    objects: Path
    run: Path
    port: int
    bucket: str
    region: str
    access: AccessKey
    suffix: str

    @property
    def credentials(self) -> Path:
        return self.etc / "credentials.json"


def prepare(data: Path, port: int, bucket: str) -> Layout:
    """Make (or find) everything Swift needs under `data`. Raises ConfigError if the file system cannot hold it."""
    data = data.resolve()
    etc, objects, run = data / "etc", data / "srv", data / "run"
    with explained(f"make {data}", "choose another --data"):
        for folder in (data, etc, objects, objects / "d1", run):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    check_attributes(objects)
    stored = _credentials(etc / "credentials.json")
    access = AccessKey(access_key=stored["access_key"], secret_key=stored["secret_key"])
    layout = Layout(etc, objects, run, port, bucket, stored["region"], access, stored["suffix"])
    policy = "[storage-policy:0]\nname = Policy-0\ndefault = yes\n"
    _write(layout.etc / "swift.conf", f"[swift-hash]\nswift_hash_path_suffix = {layout.suffix}\n{policy}")
    _rings(layout)
    for kind in PORTS:
        _write(layout.etc / f"{kind}-server.conf", _storage_conf(layout, kind))
    _write(layout.etc / "proxy-server.conf", _proxy_conf(layout))
    return layout


def check_attributes(folder: Path) -> None:
    """Raise ConfigError unless files in `folder` can have user attributes, in which Swift keeps objects' metadata."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".muster-probe-") as file:
            os.setxattr(file.name, "user.muster.probe", b"x" * 2000)
    except (OSError, AttributeError) as error:
        hint = "choose a --data on ext4, xfs, btrfs or a recent tmpfs"
        raise ConfigError(f"{folder} cannot hold objects ({error})", hint) from None


def _credentials(path: Path) -> dict[str, str]:
    if not path.exists():
        settings = {
            "access_key": "local:muster",
            "secret_key": secrets.token_hex(20),
            "region": "us-east-1",
            "suffix": secrets.token_hex(16),  # part of every object's place on disk: never changed
        }
        _write(path, json.dumps(settings))
        return settings
    try:
        stored = json.loads(path.read_text())
        return {name: str(stored[name]) for name in ("access_key", "secret_key", "region", "suffix")}
    except (OSError, ValueError, KeyError, TypeError):
        hint = "restore it from a copy, or remove the whole --data folder to start empty"
        raise ConfigError(f"{path} is damaged", hint) from None


def _write(path: Path, text: str) -> None:
    write_atomic(path, text.encode(), 0o600)


def _rings(layout: Layout) -> None:
    """One partition on one device, so that new port numbers never move data."""
    from swift.common.ring import RingBuilder

    for kind, port in PORTS.items():
        builder = RingBuilder(0, 1, 0)
        address = {"ip": "127.0.0.1", "port": port}
        replication = {"replication_ip": "127.0.0.1", "replication_port": port}
        device = {"id": 0, "region": 1, "zone": 1, "weight": 1.0, "device": "d1", "meta": ""}
        builder.add_dev(device | address | replication)
        builder.rebalance()
        builder.get_ring().save(str(layout.etc / f"{kind}.ring.gz"))


def _common(layout: Layout, port: int) -> str:
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = "root"  # a uid without passwd entry; only Swift's daemons would look it up
    return (
        f"[DEFAULT]\nuser = {user}\nswift_dir = {layout.etc}\nbind_ip = 127.0.0.1\nbind_port = {port}\n"
        f"workers = 0\nlog_level = WARNING\nlog_address = {layout.run}/no-syslog\n"
        "log_udp_host = 127.0.0.1\nlog_udp_port = 9\n"
    )


def _storage_conf(layout: Layout, kind: str) -> str:
    extra = ""
    if kind == "object":
        extra = f"{_SLOW}container_update_timeout = 30\ndisk_chunk_size = {CHUNK}\nnetwork_chunk_size = {CHUNK}\n"
    return (
        f"{_common(layout, PORTS[kind])}devices = {layout.objects}\nmount_check = false\n"
        f"fallocate_reserve = 0\n[pipeline:main]\npipeline = {kind}-server\n"
        f"[app:{kind}-server]\nuse = egg:swift#{kind}\nlog_requests = false\n{extra}"
        f"recon_cache_path = {layout.run}\n[object-updater]\nrecon_cache_path = {layout.run}\n{_SLOW}"
    )


def _proxy_conf(layout: Layout) -> str:
    account, user = layout.access.access_key.split(":")
    stock = ("catch_errors", "gatekeeper", "healthcheck", "listing_formats", "copy", "bulk")
    return (
        f"{_common(layout, layout.port)}[pipeline:main]\npipeline = guard catch_errors gatekeeper healthcheck cache "
        "listing_formats s3api tempauth copy bulk slo proxy-server\n"
        f"[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\n{_SLOW}"
        f"recoverable_node_timeout = 60\nobject_chunk_size = {CHUNK}\nclient_chunk_size = {CHUNK}\n"
        f"[filter:s3api]\nuse = egg:swift#s3api\nlocation = {layout.region}\nmax_upload_part_num = 10000\n"
        # Without the second line parts of deleted multipart objects wait for a daemon we do not run.
        "[filter:slo]\nuse = egg:swift#slo\nmax_manifest_segments = 10000\nallow_async_delete = false\n"
        f"[filter:tempauth]\nuse = egg:swift#tempauth\nuser_{account}_{user} = {layout.access.secret_key} .admin\n"
        + "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n" for name in stock)
        + "[filter:guard]\npaste.filter_factory = localnet.services.swift:guard_factory\n"
        + "[filter:cache]\npaste.filter_factory = localnet.services.swift:cache_factory\n"
    )
