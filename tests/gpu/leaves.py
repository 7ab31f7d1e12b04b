"""Configs compared key by key; unlike reprise.core.nested, an empty mapping is a value."""


def leaves(node: object, prefix: str = "") -> dict[str, object]:
    if not isinstance(node, dict) or not node:
        return {prefix: node}
    found: dict[str, object] = {}
    for key, value in node.items():
        found |= leaves(value, f"{prefix}.{key}" if prefix else str(key))
    return found
