"""Whether a `requires-python` allows a version of Python (the version specifiers of PyPA)."""

import re

_CLAUSE = re.compile(r"(~=|==|!=|<=|>=|<|>)\s*v?(\d+(?:\.\d+)*)(\.\*)?")


def allows(specifier: str, version: tuple[int, ...]) -> bool:
    """Whether all clauses of a specifier hold.

    Args:
        specifier: Such as `>=3.11,<4`; empty: any version.
        version: Such as `(3, 11, 7)`.

    Raises:
        ValueError: The specifier has another form. Pre-releases are not told apart: no host runs
            on one.
    """
    return all(_holds(each.strip(), version) for each in specifier.split(",") if each.strip())


def _holds(clause: str, version: tuple[int, ...]) -> bool:
    match = _CLAUSE.fullmatch(clause)
    if match is None or (match[3] and match[1] not in {"==", "!="}):
        raise ValueError(f"{clause!r} is no clause such as '>=3.11'")
    bound = tuple(int(part) for part in match[2].split("."))
    if match[1] == "~=":
        if len(bound) == 1:
            raise ValueError(f"{clause!r} must have two numbers at least")
        return version >= bound and version[: len(bound) - 1] == bound[:-1]
    if match[3]:
        return (version[: len(bound)] == bound) is (match[1] == "==")
    length = max(len(bound), len(version))
    ours, theirs = (each + (0,) * (length - len(each)) for each in (version, bound))
    return {
        "==": ours == theirs,
        "!=": ours != theirs,
        "<=": ours <= theirs,
        ">=": ours >= theirs,
        "<": ours < theirs,
        ">": ours > theirs,
    }[match[1]]
