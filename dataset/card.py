"""The data set's card: `README.md` in the form that Hugging Face reads. It says nothing but what the document says."""

import json

from dataset.document import DatasetDocument, Format

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_LARGEST = "1M<n<10M"
_WITHOUT_NAME = ("", "unknown")


def card(document: DatasetDocument) -> str:
    """The whole file. The same document gives the same text."""
    return "\n".join([*_header(document), "", *_text(document), ""])


def _header(document: DatasetDocument) -> list[str]:
    """YAML; texts as JSON strings, which YAML reads alike whatever is in them."""
    licence = document.licences.dataset
    lines = ["---"]
    if licence in _WITHOUT_NAME:
        lines += ["license: other", "license_name: unknown"]
    else:
        lines += [f"license: {json.dumps(licence)}"]
    size = next((name for most, name in _SIZES if document.totals.rows < most), _LARGEST)
    lines += [f"pretty_name: {json.dumps(document.name)}", "size_categories:", f"- {size}"]
    lines += ["tags:", "- muster", "- rollouts", "configs:"]
    for number, kind in enumerate(formats(document)):
        lines += [f"- config_name: {kind}", "  data_files:", f"  - split: train\n    path: data/*.{kind}"]
        lines += ["  default: true"] if number == 0 else []
    return [*lines, "---"]


def formats(document: DatasetDocument) -> list[Format]:
    """Those that its rows are stored in, Parquet first."""
    found = {one.format for one in document.files}
    return [kind for kind in ("parquet", "jsonl") if kind in found]


def _text(document: DatasetDocument) -> list[str]:
    totals, licences = document.totals, document.licences
    share = f"{totals.rows / totals.problems:.2f}" if totals.problems else "0"
    lines = [
        f"# {_plain(document.name)}",
        "",
        f"{totals.rows} verified rollouts of {_plain(document.model)} ({document.dtype}): {totals.problems} different "
        f"problems, {share} answers to each on average, {totals.prompt_tokens} prompt tokens and "
        f"{totals.output_tokens} output tokens. {totals.nodes} nodes generated them in {totals.submissions} files, and "
        "for each file a committee drawn by lot checked that it was made with these weights, sampled as the protocol "
        "says and scored rightly.",
        "",
        f"The mean task reward is {totals.task_reward_mean:.6f}, the mean reward {totals.reward_mean:.6f}.",
        "",
        "| environment | rows | problems | mean task reward | rows with task reward 1 | licence |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in sorted(totals.environments.items()):
        licence = licences.environments.get(name, "unknown")
        lines.append(
            f"| {_plain(name)} | {one.rows} | {one.problems} | {one.task_reward_mean:.6f} | {one.solved} | "
            f"{_plain(licence)} |"
        )
    lines += [
        "",
        "## Where it comes from",
        "",
        f"- pool {document.pool} of the contract `{document.contracts['Pools']}` on chain {document.chain_id}, "
        f"owned by `{document.owner}`",
        f"- its configuration, `pool.json`: SHA-256 `{document.config_hash}`",
        f"- every submission that was accepted for good at block {document.as_of.block} (`{document.as_of.hash}`)",
        f"- policy steps {', '.join(sorted(document.manifests, key=int)) or 'none'}; their manifests, with the hashes "
        "of all weights, are in `manifests/`",
        "",
        "## Licences",
        "",
        f"Data set: {_plain(licences.dataset)}. Model: {_plain(licences.model)}. Environments: see the table.",
        "",
        "## Verify it",
        "",
        "`muster dataset verify . --deployment FILE --rpc URL` compares every row with the chain; it needs no trust in "
        "whoever hands this folder out. docs/datasets.md of muster describes the columns.",
    ]
    return lines


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, in a table too."""
    return "".join("\\" + c if c in "\\`*_{}[]<>#|" else c for c in text)
