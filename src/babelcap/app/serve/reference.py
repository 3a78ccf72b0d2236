"""The page that explains the API, from its own schema: one file, nothing loaded from elsewhere."""

from typing import Any

from babelcap.pages import render


def reference_page(schema: dict[str, Any], model_name: str) -> str:
    components = schema.get("components", {}).get("schemas", {})
    routes = [
        _route(method, path, operation, components)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    ]
    return render(
        "app/serve/reference.html.jinja",
        title=schema["info"]["title"],
        version=schema["info"]["version"],
        about=schema["info"]["description"],
        model_name=model_name,
        routes=routes,
    )


def _route(method: str, path: str, operation: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    content = operation.get("requestBody", {}).get("content", {})
    kind, body = next(iter(content.items())) if content else ("", {})
    given = operation["responses"].get("200", {}).get("content", {}).get("application/json", {})
    return {
        "method": method.upper(),
        "path": path,
        "summary": operation.get("summary", ""),
        "kind": kind,
        "fields": _fields(body.get("schema", {}), components),
        "gives": _fields(given.get("schema", {}), components),
        "refusals": [
            {"code": code, "words": answer["description"]}
            for code, answer in operation["responses"].items()
            if code != "200"
        ],
    }


def _fields(schema: dict[str, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    found = _resolved(schema, components)
    required = set(found.get("required", []))
    return [
        {
            "name": name,
            "kind": _kind(values, components),
            "is_required": name in required,
            "default": _shown(values["default"]) if values.get("default") is not None else "",
            "words": values.get("description", ""),
        }
        for name, values in found.get("properties", {}).items()
    ]


def _resolved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        found: dict[str, Any] = components[schema["$ref"].rpartition("/")[2]]
        return found
    return schema


def _kind(schema: dict[str, Any], components: dict[str, Any]) -> str:
    """A field's kind in a few words: text, number, list of ..."""
    if "$ref" in schema:
        return _kind(_resolved(schema, components), components)
    if "anyOf" in schema or "oneOf" in schema:
        kinds = [_kind(one, components) for one in schema.get("anyOf", schema.get("oneOf", []))]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}), components)}"
    if schema.get("contentMediaType") or schema.get("format") == "binary":
        return "file"
    names = {"string": "text", "integer": "whole number", "number": "number", "boolean": "yes or no", "null": "null"}
    return names.get(schema.get("type", ""), schema.get("title", "object"))


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
