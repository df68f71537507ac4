"""An example of every command, shown at the end of its help. With a profile (`muster init`) keys, pool and deployment
need not be named."""

from typing import Any

EXAMPLES = {
    "calibrate": "muster calibrate --pool-config pool.json --weights model --keystore key.json --out calibration.json",
    "demo": "muster demo --seed 7 --steps 30",
    "deploy": "muster deploy --network base-sepolia --keystore deployer.json --dry-run",
    "doctor": "muster doctor --deployment deployment.json --orchestrator https://pool.example",
    "init": "muster init operator --pool https://pool.example",
    "up": "muster up --workers 2 --validators 2",
    "down": "muster down",
    "ps": "muster ps --json",
    "logs": "muster logs trainer -f",
    "status": "muster status --orchestrator https://pool.example",
    "verify": "muster verify 17 33 --deployment deployment.json --orchestrator https://pool.example",
    "watch": "muster watch --config watch.toml",
    "why": "muster why 17 --pool 1 --deployment deployment.json",
    "keys create": "muster keys create --keystore operator.json",
    "keys import": "muster keys import --keystore old.json",
    "keys address": "muster keys address --keystore operator.json",
    "keys change-password": "muster keys change-password --keystore operator.json",
    "keys balance": "muster keys balance --keystore operator.json",
    "keys send": "muster keys send --to ADDRESS --amount 250 --dry-run",
    "data filter": "muster data filter --pool-config pool.json --weights model --out filtered.json",
    "node up": "muster node up --pool https://pool.example",
    "node check": "muster node check --data /var/lib/muster",
    "node rehearse": "muster node rehearse --worker vllm:bfloat16:cuda",
    "node consent": "muster node consent --operator ADDRESS --keystore node.json --out consent.json",
    "node register": "muster node register --node-keystore node.json --stake 250 --dry-run",
    "node stake": "muster node stake --node ADDRESS --amount 50",
    "node join": "muster node join --pool 1 --node ADDRESS",
    "node status": "muster node status --node ADDRESS --orchestrator https://pool.example",
    "node claim": "muster node claim --pool 1 --node ADDRESS",
    "node dispute": "muster node dispute --pool 1 --file 17",
    "node announce": "muster node announce --pool 1 --file 17 --url https://files.example/17.parquet",
    "node leave": "muster node leave --pool 1 --node ADDRESS",
    "node withdraw": "muster node withdraw --node ADDRESS",
    "trainer bench": "muster trainer bench --config trainer.json --pool-config pool.json",
    "trainer run": "muster trainer run --config trainer.json",
    "trainer sft": "muster trainer sft --config sft.toml",
    "validator up": "muster validator up --pool https://pool.example",
    "validator bond": "muster validator bond --pool 1 --voter ADDRESS --dry-run",
    "validator opt-in": "muster validator opt-in --class qwen3-0.6b",
    "validator opt-out": "muster validator opt-out --pool 1 --seat 3",
    "validator status": "muster validator status --address ADDRESS",
    "validator claim": "muster validator claim --dry-run",
    "validator set-voter": "muster validator set-voter --seat 3 --voter ADDRESS",
    "validator top-up": "muster validator top-up --seat 3",
    "validator leave": "muster validator leave --seat 3",
    "validator withdraw": "muster validator withdraw --seat 3",
    "validator run": "muster validator run --config validator.json",
    "pool init": "muster pool init --model my-model --task reasoning_gym/chain_sum --param min_terms=3",
    "pool check": "muster pool check --config pool.toml --terms base-sepolia --budget 1000",
    "pool create": "muster pool create --config pool.toml --terms terms.toml --budget 1000 --dry-run",
    "pool set-service": "muster pool set-service --pool 1 --service ADDRESS --url https://pool.example",
    "pool review": "muster pool review --pool 1",
    "pool fund": "muster pool fund --pool 1 --amount 100",
    "pool status": "muster pool status --pool 1",
    "pool invite": "muster pool invite --pool 1 --node ADDRESS --out invite.json --for 7d",
    "pool pause": "muster pool pause --pool 1",
    "pool resume": "muster pool resume --pool 1",
    "pool close": "muster pool close --pool 1",
    "pool settle": "muster pool settle --pool 1",
    "pool remove-node": "muster pool remove-node --pool 1 --node ADDRESS",
    "governance status": "muster governance status --deployment deployment.json",
    "governance change": "muster governance change --set minority=0.15 --keystore governor.json",
    "governance pause": "muster governance pause --keystore guardian.json",
    "governance resume": "muster governance resume --keystore governor.json",
    "governance mint": "muster governance mint --to ADDRESS --amount 1000 --keystore governor.json",
    "governance execute": "muster governance execute --id 0x12 --keystore governor.json",
    "governance cancel": "muster governance cancel --id 0x12 --keystore governor.json",
    "run report": "muster run report --orchestrator https://pool.example --out report.html",
    "ledger verify": "muster ledger verify --pool 1",
    "ledger export": "muster ledger export --pool 1 --table payouts --out payouts.csv",
    "worker run": "muster worker run --config worker.json",
    "orchestrator run": "muster orchestrator run --config orchestrator.json",
}


def add_examples(app: Any, path: tuple[str, ...] = ()) -> None:
    """Put each command's example at the end of its help."""
    for command in app.registered_commands:
        name = " ".join((*path, command.name or command.callback.__name__.replace("_", "-")))
        if example := EXAMPLES.get(name):
            command.epilog = f"Example: {example}"
    for group in app.registered_groups:
        add_examples(group.typer_instance, (*path, group.name))
