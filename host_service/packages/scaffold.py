"""Makes the files of a new plugin, in one of the languages there are templates for.

`scaffolds/LANGUAGE/plugin` has what every plugin of the language has, and `agent-runner` beside it
what each of its runners has. In both, names in double braces stand for values, in paths the words
PACKAGE and RUNNER, DOT for a leading dot, and files lose their ending `.in`. A language is a folder
there, and an entry of `LANGUAGES`.
"""

import getpass
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from host_service.packages.errors import ScaffoldRefused
from host_service.packages.go_scaffold import GoScaffold
from host_service.packages.python_scaffold import PythonScaffold
from host_service.packages.scaffold_language import ScaffoldLanguage
from host_service.packages.typescript_scaffold import TypeScriptScaffold

SCAFFOLDS = Path(__file__).with_name("scaffolds")
#: What `runmesh component add` knows, and the folder of its files.
AGENT_RUNNER = "agent-runner"

LANGUAGES: tuple[ScaffoldLanguage, ...] = (GoScaffold(), PythonScaffold(), TypeScriptScaffold())
"""The languages that plugins can be made in."""

_ID_PART = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_PLACE = re.compile(r"\{\{([a-z_]+)\}\}")
_DEFAULT = "default"


def languages() -> list[str]:
    """The names of the languages that plugins can be made in."""
    return sorted(each.name for each in LANGUAGES)


def checked_name(value: str, what: str) -> str:
    """Returns a name that may be a part of an id.

    Raises:
        ScaffoldRefused: It may not.
    """
    if not _ID_PART.fullmatch(value):
        raise ScaffoldRefused(
            f"{value[:80]!r} is not a name for {what}",
            "use 1 to 64 lower-case letters, digits, '.', '_' and '-', beginning with a letter or "
            "digit",
        )
    return value


def default_author() -> str:
    """The login name as an author's, as far as it can be one."""
    try:
        login = getpass.getuser()
    except (OSError, KeyError):
        return "me"
    return re.sub(r"[^a-z0-9._-]", "-", login.lower()).lstrip("._-")[:64] or "me"


def make_plugin(folder: Path, *, name: str, author: str, language: str) -> None:
    """Makes a plugin with one runner, `default`, in a new or empty folder.

    Args:
        folder: Where.
        name: The plugin's name.
        author: Its author.
        language: One of `languages`.

    Raises:
        ScaffoldRefused: A name cannot be one, or the folder has something in it.
        OSError: The folder cannot be written.
    """
    checked_name(name, "a plugin")
    checked_name(author, "an author")
    chosen = next((each for each in LANGUAGES if each.name == language), None)
    if chosen is None:
        raise ScaffoldRefused(
            f"there is no template for {language!r}", f"there are {', '.join(languages())}"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ScaffoldRefused(f"{folder} is there and not an empty folder", "choose another name")
    values = {
        "author": author,
        "name": name,
        "label": label_of(name),
        **chosen.plugin_values(name),
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".runmesh-init-", dir=folder.parent) as workshop:
        made = Path(workshop, "plugin")
        made.mkdir(mode=0o755)
        for place, content in chosen.further_files(name):
            _write(made / place, content)
        for place, text in plugin_texts(chosen, values):
            _write(made / place, text.encode())
        for place, text in runner_texts(chosen, _DEFAULT, values):
            _write(made / place, text.encode())
        if folder.exists():
            for each in made.iterdir():
                shutil.move(each, folder / each.name)
        else:
            made.rename(folder)


def plugin_texts(
    language: ScaffoldLanguage, values: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yields the path and the text of each file that a plugin has."""
    return _texts(SCAFFOLDS / language.name / "plugin", values)


def runner_texts(
    language: ScaffoldLanguage, runner: str, values: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yields the path and the text of each file that a runner in a plugin has.

    Args:
        language: The plugin's language.
        runner: The runner's name.
        values: At least `package`.
    """
    own = {
        "runner": runner,
        "runner_label": label_of(runner),
        **language.runner_values(runner),
    }
    return _texts(SCAFFOLDS / language.name / AGENT_RUNNER, {**values, **own})


def label_of(name: str) -> str:
    """A name as people write it: `help-desk` is `Help desk`."""
    words = re.sub(r"[._-]+", " ", name).strip()
    return words[:1].upper() + words[1:]


def _texts(templates: Path, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for path in sorted(templates.rglob("*.in")):
        place = path.relative_to(templates).as_posix().removesuffix(".in")
        place = place.replace("DOT", ".").replace("PACKAGE", values["package"])
        text = path.read_text("utf-8")
        yield (
            place.replace("RUNNER", values.get("module", "")),
            _PLACE.sub(lambda found: values[found[1]], text),
        )


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
