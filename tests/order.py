"""The order of the test files. The run of a whole network, whose windows want a processor, comes first, beside files
that mostly wait; then those that take longest, or at the end one process would be alone with them."""

from pathlib import Path

ROOT = Path(__file__).parent
FIRST = (
    "e2e/test_short_run.py",
    "localnet/services/test_chain.py",
    "cli/test_story.py",
    "orchestrator/test_process.py",
    "sandbox/test_escapes.py",
    "cli/test_up.py",
    "cli/test_roles.py",
    "trainer/test_distributed.py",
    "orchestrator/dashboard/test_live.py",
    "runtime/test_hostile_connections.py",
    "runtime/watch/test_watcher.py",
    "chain/test_follower.py",
    "chain/test_chain_kill.py",
    "storage/relay/test_relay.py",
    "storage/relay/test_hostile_sources.py",
    "environments/verifiers/test_turns.py",
    "environments/verifiers/test_environment.py",
    "trainer/test_layouts.py",
    "calibration/test_calibrate.py",
    "validator/test_kills.py",
    "engines/test_vllm.py",
    "swarm/test_plausibility.py",
    "trainer/test_checkpoint.py",
    "benchmarks/test_swarm.py",
    "cli/test_rehearse.py",
    "trainer/test_evaluate.py",
    "trainer/test_train.py",
    "orchestrator/test_fuzzed_requests.py",
    "benchmarks/test_codec.py",
)


def place(path: Path) -> int:
    """Where a file comes: in its place above, or behind all of those."""
    name = path.relative_to(ROOT).as_posix()
    return FIRST.index(name) if name in FIRST else len(FIRST)
