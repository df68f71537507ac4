"""`/docs`: the OpenAPI document as one plain page. FastAPI's own page loads its scripts from a stranger's server."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
Document = Mapping[str, Any]


def docs_page(document: Document) -> tuple[str, str]:
    """The page and its Content-Security-Policy: nothing in it runs or loads anything."""
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    operations = "".join(
        _operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    models = "".join(_model(name, schema) for name, schema in document["components"]["schemas"].items())
    body = f"<h1>{title}</h1><p>{escape(document['info']['description'])}</p>{operations}<h2>Models</h2>{models}"
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>{body}</html>\n', POLICY


def _operation(path: str, method: str, operation: Document) -> str:
    rows = [("request", content) for content in _contents(operation.get("requestBody", {}))]
    for status, response in operation["responses"].items():
        rows.append((status, f"{escape(response['description'])} {' '.join(_contents(response))}"))
    cells = "".join(f"<dt>{name}</dt><dd>{content}</dd>" for name, content in rows)
    signed = " (signed)" if operation.get("security") else ""
    about = escape(operation["summary"] + ". " + operation.get("description", ""))
    return f"<h2>{method.upper()} {escape(path)}{signed}</h2><p>{about}</p><dl>{cells}</dl>"


def _contents(part: Document) -> Iterator[str]:
    for content in part.get("content", {}).values():
        yield _kind(content.get("schema", {}))


def _model(name: str, schema: Document) -> str:
    required = schema.get("required", ())
    rows = "".join(
        f"<dt>{escape(field)}{'' if field in required else ' (optional)'}</dt><dd>{_kind(kind)}</dd>"
        for field, kind in schema.get("properties", {}).items()
    )
    values = escape(", ".join(map(str, schema.get("enum", ()))))
    return f'<h3 id="{name}">{name}</h3><p>{escape(schema.get("description", ""))} {values}</p><dl>{rows}</dl>'


def _kind(schema: Document) -> str:
    """A field's type in words, with a link to the model that it names."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(_kind(one) for one in schema.get("anyOf") or schema["oneOf"])
    if "items" in schema:
        return f"list of {_kind(schema['items'])}"
    hidden = ("title", "type", "description", "additionalProperties")
    rules = ", ".join(f"{key} {value}" for key, value in schema.items() if key not in hidden)
    return escape(f"{schema.get('type', 'anything')} {rules}".strip())
