"""Which mode is taken, what is said about it, and which files of cgroups are written."""

from pathlib import Path

import pytest

from protocol.errors import ConfigError
from sandbox.containers import narrowed
from sandbox.launch import Choice, Probed, choose, make_cgroup, plan_cgroup
from sandbox.policy import MIB, IsolationPolicy, Mode, NetworkAccess, Wanted, claims

IMAGE = "sha256:" + "00" * 32
P, D, B = Mode.PODMAN, Mode.DOCKER, Mode.BUBBLEWRAP


@pytest.fixture
def machine(works: tuple[Mode, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where these modes work."""

    def probed(mode: Mode, _: str) -> Probed:
        return Probed("", True) if mode in works else Probed("is not there")

    monkeypatch.setattr("sandbox.launch.try_mode", probed)


@pytest.mark.parametrize(
    ("wanted", "works", "mode", "refused"),
    [
        ("auto", (P, D, B), P, ()),
        ("auto", (D, B), D, (P,)),
        ("auto", (B,), B, (P, D)),
        ("auto", (), Mode.PLAIN, (P, D, B)),
        ("container", (P, D, B), P, ()),
        ("container", (D,), D, (P,)),
        ("bubblewrap", (P, D, B), B, ()),
        ("none", (P, D, B), Mode.PLAIN, ()),
    ],
)
@pytest.mark.usefixtures("machine")
def test_the_strongest_mode_that_works(wanted: Wanted, mode: Mode, refused: tuple[Mode, ...]) -> None:
    assert choose(wanted, IMAGE) == Choice(mode, mode is not Mode.PLAIN, dict.fromkeys(refused, "is not there"))


@pytest.mark.parametrize(("wanted", "works"), [("container", (B,)), ("bubblewrap", (P, D))])
@pytest.mark.usefixtures("machine")
def test_what_is_asked_for_by_name_is_not_replaced(wanted: Wanted) -> None:
    with pytest.raises(ConfigError, match=rf"isolation = '{wanted}' does not work here .*is not there.*; install"):
        choose(wanted, IMAGE)


WORKER = IsolationPolicy(network=NetworkAccess.OUTBOUND, memory=None)
KERNEL = "the kernel, against faults of its own"
OPEN = {"machines that this one can reach", "memory (no limit is set)", KERNEL}
UNCOUNTED = "memory of all its processes together (counted per process: no cgroup can be made here)"
LOOPBACK = "services on this machine's loopback and abstract sockets (it uses the host's network)"


@pytest.mark.parametrize(
    ("mode", "policy", "accounting", "protected", "unprotected"),
    [
        (P, IsolationPolicy(), True, {"the network", "memory", "number of processes"}, {KERNEL}),
        (B, IsolationPolicy(), True, {"the network", "memory", "number of processes"}, {KERNEL}),
        (B, IsolationPolicy(), False, {"the network", "number of processes"}, {UNCOUNTED, KERNEL}),
        (P, WORKER, True, {"number of processes"}, OPEN),
        (B, WORKER, True, {"number of processes"}, OPEN | {LOOPBACK}),
    ],
)
def test_a_mode_claims_no_more_than_it_holds(
    mode: Mode, policy: IsolationPolicy, accounting: bool, protected: set[str], unprotected: set[str]
) -> None:
    held, not_held = claims(mode, policy, accounting)
    assert (set(held[4:]), set(not_held)) == (protected, unprotected)
    held, not_held = claims(Mode.PLAIN, policy, accounting)
    assert held == []
    assert not_held[:2] == ["every file of this user, keys included", "the network"]


LIMITED = IsolationPolicy(memory=64 * MIB, scratch=MIB, processes=9)


def test_cgroups_of_version_1_lie_under_our_own_and_one_of_version_2_at_the_top() -> None:
    own = "8:pids:/\n4:memory:/mine/deep\n2:cpu,cpuacct:/\n1:name=systemd:/x\n0::/\n"
    assert plan_cgroup(LIMITED, "box", own, Path("/cg")) == {
        Path("/cg/pids/box"): {"pids.max": "9"},
        Path("/cg/memory/mine/deep/box"): {
            "memory.limit_in_bytes": "67108864",
            "memory.memsw.limit_in_bytes?": "67108864",
        },
    }
    found = plan_cgroup(LIMITED, "box", "0::/user.slice/session\n", Path("/cg"))
    assert found == {Path("/cg/box"): {"pids.max": "9", "memory.max": "67108864", "memory.swap.max?": "0"}}


def test_a_cgroup_writes_what_it_says_and_leaves_nothing_when_it_cannot(tmp_path: Path) -> None:
    settings = plan_cgroup(LIMITED, "box", "0::/\n", tmp_path)
    make_cgroup(settings)
    assert (tmp_path / "box" / "pids.max").read_text() == "9"
    assert not (tmp_path / "box" / "memory.swap.max").exists(), "this kernel has no such file"
    with pytest.raises(FileExistsError):
        make_cgroup(settings)


def test_podmans_filter_is_narrowed() -> None:
    profile = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "syscalls": [
            {"names": ["read", "clone", "unshare", "clone3"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["socket"], "action": "SCMP_ACT_ALLOW"},
        ],
    }
    found = narrowed(profile)
    assert found["defaultAction"] == "SCMP_ACT_ERRNO"
    assert found["syscalls"][0] == {"names": ["read"], "action": "SCMP_ACT_ALLOW"}
    conditions = [(rule["names"][0], rule["args"][0]["op"], rule["args"][0]["value"]) for rule in found["syscalls"][1:]]
    assert conditions == [
        ("clone", "SCMP_CMP_MASKED_EQ", 0x7E020000),
        ("socket", "SCMP_CMP_LT", 38),
        ("socket", "SCMP_CMP_EQ", 39),
        ("socket", "SCMP_CMP_GT", 40),
    ]
