"""Trees as YAML for people: in the order given, without aliases, with nothing that another reader takes for a number.

Given a tree of plain values. Control characters are written as escapes. Never prints.
"""

from __future__ import annotations

import re
from typing import Any, Final

from dovetail.model import plaintext

UNFOLDED: Final = 10**6  # columns
_NUMBER_LIKE: Final = re.compile(r"[-+.]?[0-9][0-9_.,:eExXoOa-fA-F+-]*")


def text(tree: Any, columns: int = UNFOLDED) -> str:
    """A tree as a YAML document; long texts are folded to so many columns."""
    import yaml

    class Dumper(yaml.CSafeDumper):
        """Quotes text that some YAML reader would take for a number."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent(dumper: Any, value: str) -> Any:
        is_quoted = _NUMBER_LIKE.fullmatch(value) or not value.replace("\n", "").isprintable()
        style = '"' if is_quoted else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, represent)
    dumped: str = yaml.dump(tree, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=columns)
    return plaintext.escaped_json(dumped)  # what it changes stands in double quotes, see above


def lines(tree: Any, columns: int) -> list[str]:
    """A tree as YAML, line by line, to be part of a text."""
    return text(tree, columns).splitlines()
