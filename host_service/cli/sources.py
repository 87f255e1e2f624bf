"""Where an answer comes from, as runners that search knowledge bases note it in its metadata.

`sources` is a JSON list of `{"number", "document", "position", "score", "base"}`; the number is the
one that the answer names it by, else its place in the list. What did not fit goes on in
`sources.2`, `sources.3` and so on.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def told_sources(metadata: Mapping[str, str]) -> list[str]:
    """Returns a few words for each source; none where metadata means something else by it."""
    return [
        f"[{_number(source, place)}] {_told(source)}"
        for place, source in enumerate(_sources(metadata), start=1)
    ]


def _number(source: Mapping[str, Any], place: int) -> int:
    number = source.get("number")
    return number if isinstance(number, int) else place


def _sources(metadata: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    name, number = "sources", 1
    while name in metadata:
        try:
            listed = json.loads(metadata[name])
        except (ValueError, RecursionError):
            return
        if not isinstance(listed, list):
            return
        yield from (each for each in listed if isinstance(each, dict) and each.get("document"))
        number += 1
        name = f"sources.{number}"


def _told(source: Mapping[str, Any]) -> str:
    base = source.get("base")
    kept_in = f" in {base}" if base else ""
    position = source.get("position")
    place = f", at {position}" if isinstance(position, int) else ""
    return f"{source['document']}{kept_in}{place}"
