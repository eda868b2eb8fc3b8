"""Writes parts of policy files as YAML that every reader takes for the same values."""

import re
from typing import Any, cast

import yaml

#: What every reader of YAML takes for a text, without quotes.
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./ -]*(?<! )")


def to_yaml(document: Any) -> str:
    """Format a document as ASCII-only YAML in its given order."""
    return yaml.dump(document, Dumper=_YamlDumper, sort_keys=False, allow_unicode=False, width=110)


class _YamlDumper(yaml.SafeDumper):
    """Every text that some reader may take for something else is in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(writer: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(text) else '"'
    return cast(Any, writer).represent_scalar("tag:yaml.org,2002:str", text, style=style)


_YamlDumper.add_representer(str, _represent_text)
