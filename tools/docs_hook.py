"""Generate the documentation's reference and results pages while mkdocs builds the site.

- `reference/cli.md` from the `muster` command, `reference/configuration.md` from the configuration classes,
  `reference/api.md` from the service's routes;
- `results/NAME.md` for each `benchmarks/results/NAME.json`;
- in every page, `{{ results:NAME/path/to/value:.1f }}` becomes that value of `benchmarks/results/NAME.json`, so prose
  cannot differ from what was measured. A value that is missing fails the build.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
FIGURE = re.compile(r"\{\{ results:([\w-]+)/([^:}]+?)(?::([^}]+?))? \}\}")
MOST_ROWS = 40
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
PARTS = (
    "ChatTurn", "Curriculum", "EvaluationSet", "OnlineFilter", "ProblemFilter", "Profile", "ProfileEngine",
    "ProfileKey",
)  # fmt: skip
CONFIGURED = (
    "protocol", "cli", "worker", "validator", "trainer", "orchestrator", "storage", "runtime", "diloco", "swarm",
)  # fmt: skip


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List a page for every results file below the results' index."""
    pages = ["results/index.md", *(f"results/{path.stem}.md" for path in sorted(RESULTS.glob("*.json")))]
    config.nav = [*(config.nav or []), {"Results": pages}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    sys.path.insert(0, str(ROOT))
    makers = {"cli": command_page, "configuration": configuration_page, "api": api_page}
    pages = {f"reference/{name}.md": page() for name, page in makers.items()}
    pages |= {f"results/{path.stem}.md": result_page(path) for path in sorted(RESULTS.glob("*.json"))}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the figures of a page by their measured values."""
    return FIGURE.sub(lambda match: figure(*match.groups(), source=page.file.src_path), markdown)


def figure(name: str, path: str, format_spec: str | None, *, source: str) -> str:
    """Return one value of a results file. Raises PluginError where it is missing."""
    try:
        value = json.loads((RESULTS / f"{name}.json").read_text())
        for key in path.split("/"):
            value = value[int(key)] if isinstance(value, list) else value[key]
    except (OSError, KeyError, IndexError, ValueError) as error:
        raise PluginError(f"{source}: no figure {path} in benchmarks/results/{name}.json") from error
    return format(value, format_spec or "")


# Command line


def command_page() -> str:
    """Return the reference of every `muster` command, and the meaning of every exit code."""
    from typer import Context
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from cli.main import app
    from runtime.entry import Exit

    command = get_command(app)
    page = get_docs_for_click(obj=command, ctx=Context(command), name="muster", title="Command line")
    codes = [f"| {code.value} | {_cell(code.meaning)} |" for code in Exit]
    return "\n".join([page, "## Exit codes", "", "| code | what |", "|---|---|", *codes])


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text.strip()).replace("|", "\\|").replace("<", "&lt;")


# Configuration


def configuration_page() -> str:
    """Return every configuration class with its fields, defaults and meanings, read from the source."""
    lines = ["# Configuration", "", "Pools are JSON, processes TOML. This page is generated from their classes.", ""]
    for package in CONFIGURED:
        classes = list(_config_classes(package))
        if classes:
            lines += ["", f"## {package}", ""]
        for path, node in classes:
            rows = list(_field_rows(node))
            if rows:
                lines += [f"### {node.name}", "", _cell(ast.get_docstring(node) or ""), "", f"Read by `{path}`.", ""]
                lines += ["| field | type | default | what |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _config_classes(package: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and (node.name.endswith(("Config", "Settings")) or node.name in PARTS):
                yield path.relative_to(ROOT).as_posix(), node


def _field_rows(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if statement.target.id.startswith("_") or "ClassVar" in ast.unparse(statement.annotation):
            continue
        default, meaning = _default_and_meaning(statement.value)
        shown = "required" if default is None else f"`{_cell(ast.unparse(default))}`"
        kind = _cell(ast.unparse(statement.annotation))
        yield f"| `{statement.target.id}` | `{kind}` | {shown} | {_cell(meaning)} |"


def _default_and_meaning(value: ast.expr | None) -> tuple[ast.expr | None, str]:
    """Return the default of a field, and the description that its `Field(…)` carries, with its bounds."""
    if not (isinstance(value, ast.Call) and getattr(value.func, "id", "") == "Field"):
        return value, ""
    given = {keyword.arg: keyword.value for keyword in value.keywords}
    default = value.args[0] if value.args else given.get("default", given.get("default_factory"))
    meaning = given.pop("description", None)
    text = str(ast.literal_eval(meaning)) if meaning else ""
    bounds = [f"{BOUNDS[name]} {ast.unparse(bound)}" for name, bound in given.items() if name in BOUNDS]
    return default, text + (f" ({', '.join(bounds)})" if bounds else "")


# Service


def api_page() -> str:
    """Return the service's routes, read from the routers that serve them."""
    from fastapi import FastAPI

    from orchestrator import app as app_routes
    from orchestrator.dashboard import views as dashboard_routes

    app = FastAPI()
    for router in (app_routes.signed, app_routes.router, dashboard_routes.router):
        app.include_router(router)
    lines = ["# Service API", "", "Routes of the orchestrator. This page is generated from them.", ""]
    lines += ["| method | path | what |", "|---|---|---|"]
    for path, operations in sorted(app.openapi()["paths"].items()):
        lines += [f"| {name.upper()} | `{path}` | {_cell(what['summary'])} |" for name, what in operations.items()]
    return "\n".join(lines)


# Results


def result_page(path: Path) -> str:
    """Return one results file as tables."""
    results = json.loads(path.read_text())
    lines = [f"# {path.stem}", "", f"From [`benchmarks/results/{path.name}`](../results/index.md), generated.", ""]
    scalars = {key: value for key, value in results.items() if not isinstance(value, dict | list)}
    tables = {"figures": scalars} if scalars else {}
    for key, value in (tables | {key: value for key, value in results.items() if key not in scalars}).items():
        lines += [f"## {_name(key)}", "", *_table(value), ""]
    return "\n".join(lines)


def _table(value: Mapping[str, Any] | Sequence[Any]) -> list[str]:
    if isinstance(value, Mapping):
        rows = list(value.items())
        if not all(isinstance(row, Mapping) for _, row in rows):
            return ["| | value |", "|---|---|", *(f"| {_cell(str(key))} | {_value(row)} |" for key, row in rows)]
        return _rows([{"": key} | dict(row) for key, row in rows])
    if value and all(isinstance(row, Mapping) for row in value):
        return _rows(value)
    return [", ".join(map(_value, value)) or "none"]


def _rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(map(_name, columns)) + " |", "|" + "---|" * len(columns)]
    for row in rows[:MOST_ROWS]:
        lines.append("| " + " | ".join(_value(row.get(column, "")) for column in columns) + " |")
    return lines if len(rows) <= MOST_ROWS else [*lines, "", f"… and {len(rows) - MOST_ROWS} more rows in the JSON."]


def _name(key: str) -> str:
    return _cell(str(key).replace("_", " "))


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return _cell(", ".join(f"{key} {_value(item)}" for key, item in value.items()))[:200]
    if isinstance(value, list):
        return _cell(", ".join(map(_value, value)))[:200]
    return _cell(str(value))
