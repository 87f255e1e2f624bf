"""Which files of a plugin's folder stay out of its package.

A file `.rmpkgignore` in the folder has a pattern a line, in the form that .gitignore made common:
`*` and `?` within a name, `**` across names, a slash at the end for folders only, a slash elsewhere
for a path from the folder itself, `!` to take back. The last pattern that matches decides.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

IGNORE_FILE = ".rmpkgignore"

# What tools leave behind, what belongs to whoever works on the plugin, and keys, which must not
# leave by accident. A plugin's own patterns come after these.
USUAL = (
    ".git", ".hg", ".svn", ".gitignore", IGNORE_FILE, ".venv/", "venv/", "__pycache__/",
    "*.py[cod]", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", "*.egg-info/", ".DS_Store",
    ".idea/", ".vscode/", "*.rmpkg", "*.key", ".env", "/.package",
)  # fmt: skip

_SPECIAL = re.compile(r"\*\*/|/\*\*|\*\*|\*|\?|\[[^\]/]+\]")


@dataclass(frozen=True, slots=True)
class _Pattern:
    form: re.Pattern[str]
    takes_back: bool
    folders_only: bool


class IgnoreRules:
    """Decides which files stay out.

    Args:
        lines: The plugin's own patterns.
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        own = [line.rstrip() for line in lines]
        given = [line for line in (*USUAL, *own) if line and not line.startswith("#")]
        self._patterns = [_compile(line) for line in given]

    def leaves_out(self, path: str, *, is_folder: bool) -> bool:
        """Whether a path, relative to the plugin's folder, stays out; a folder with all in it."""
        for pattern in reversed(self._patterns):
            if pattern.folders_only and not is_folder:
                continue
            if pattern.form.fullmatch(path):
                return not pattern.takes_back
        return False


def _compile(line: str) -> _Pattern:
    takes_back = line.startswith("!")
    body = line[1:] if takes_back else line
    folders_only = body.endswith("/")
    body = body.rstrip("/")
    anywhere = "/" not in body
    parts, end = [], 0
    body = body.removeprefix("/")
    for special in _SPECIAL.finditer(body):
        parts += [re.escape(body[end : special.start()]), _translate(special[0])]
        end = special.end()
    form = "".join([*parts, re.escape(body[end:])])
    return _Pattern(re.compile(f"(?:.*/)?{form}" if anywhere else form), takes_back, folders_only)


def _translate(special: str) -> str:
    if special.startswith("["):
        inside = special[1:-1].replace("\\", r"\\")
        return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
    return {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}[special]
