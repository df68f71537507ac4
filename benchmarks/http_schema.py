"""schemathesis on the service's own OpenAPI document: requests made from it, sound and unsound, all POSTs signed.

It is installed by `make peers`, beside our own packages. Every answer is held against the document (statuses, types,
bodies, headers), unsound requests must be refused and sound GETs taken, and nothing may answer 5xx.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from protocol.errors import ConfigError

HERE = Path(__file__).parents[1]
INSTALLED = HERE / "build" / "peers-schemathesis"
EXAMPLES, QUICK_EXAMPLES = 300, 5
_LONGEST = 3600.0


def against_document(url: str, folder: Path, quick: bool, seed: int) -> dict[str, Any]:
    """Keys: `operations` tried, `cases` sent, `failures` (kind → operations). Raises ConfigError where schemathesis is
    not installed or could not finish."""
    if not (INSTALLED / "schemathesis").exists():
        raise ConfigError("schemathesis is not installed", "run `make peers`")
    report = folder / "schemathesis.json"
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--no-color"),
        *("--config-file", str(HERE / "benchmarks" / "http_schema.toml"), "run", f"{url}/openapi.json"),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", str(QUICK_EXAMPLES if quick else EXAMPLES)),
        *("--seed", str(seed), "--continue-on-failure", "--request-timeout", "30"),
        *("--report", "json", "--report-json-path", str(report)),
    ]
    environment = os.environ | {
        "PYTHONPATH": f"{INSTALLED}{os.pathsep}{HERE}",
        "SCHEMATHESIS_HOOKS": "benchmarks.http_schema_signer",
        "MUSTER_SCHEMA_URL": url,
    }
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=_LONGEST)
    if not report.exists() or not (found := json.loads(report.read_text()))["complete"]:
        raise ConfigError("schemathesis did not finish", done.stderr[-300:] or done.stdout[-300:])
    return {
        "operations": found["operations"]["tested"],
        "cases": found["test_cases"]["generated"],
        "failures": {one["title"]: one["operations"] for one in found["failures"]},
    }
