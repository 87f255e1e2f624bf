"""Programs of other languages that read messages and write them again.

Each reads lines `NAME hex BYTES`, or `NAME json TEXT` for messages as JSON that a later version may
have written, and answers each with a line `BYTES JSON`, the bytes in hex; JSON is left out by
languages that have none. What cannot be done is answered with `! REASON`.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.polyglot.examples import ROOT, built_example

_PROGRAMS = Path(__file__).with_name("wire")
_BUILD_SECONDS = 600.0
_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Written:
    """A message as a program wrote it.

    Attributes:
        data: Its bytes.
        json: The same as JSON; empty where the language has none.
    """

    data: bytes
    json: str


@dataclass(frozen=True, slots=True)
class WireProgram:
    """A program of a language.

    Attributes:
        language: The language.
        command: What starts it.
        folder: Where.
    """

    language: str
    command: tuple[str, ...]
    folder: Path

    def hex(self, messages: Sequence[tuple[str, bytes]]) -> list[Written]:
        """Has messages read and written again, each by its full name and its bytes."""
        return self._ask([f"{name} hex {data.hex()}" for name, data in messages])

    def json(self, messages: Sequence[tuple[str, str]]) -> list[Written]:
        """Has messages read from JSON, each by its full name and its text."""
        return self._ask([f"{name} json {text}" for name, text in messages])

    def _ask(self, lines: Sequence[str]) -> list[Written]:
        ran = subprocess.run(
            self.command,
            cwd=self.folder,
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            encoding="utf-8",
            timeout=_SECONDS,
            check=False,
        )
        assert ran.returncode == 0, f"{self.language}: {ran.stderr}"
        # Of what ends a line elsewhere, JSON may have some within.
        answers = ran.stdout.removesuffix("\n").split("\n")
        assert len(answers) == len(lines), f"{self.language}: {ran.stderr}"
        return [self._written(line, answer) for line, answer in zip(lines, answers, strict=True)]

    def _written(self, line: str, answer: str) -> Written:
        assert not answer.startswith("!"), f"{self.language}: {line[:120]}: {answer}"
        data, _, json = answer.partition(" ")
        return Written(bytes.fromhex(data), json)


def wire_program(language: str) -> WireProgram:
    """Returns a language's program, built; skips or fails as `built_example` does."""
    folder = built_example(language)
    command: tuple[str, ...]
    match language:
        case "go":
            program = ROOT / "build" / "examples" / "wire-go"
            _run("go", "build", "-o", str(program), str(_PROGRAMS / "wire.go"), folder=folder)
            command = (str(program),)
        case "java":
            jars = f"{folder / 'target' / 'plugin.jar'}:{folder / 'target' / 'lib'}/*"
            command = ("java", "-cp", jars, str(_PROGRAMS / "Wire.java"))
        case "rust":
            _run("cargo", "build", "--quiet", "--release", "--example", "wire", folder=folder)
            command = (str(folder / "target" / "release" / "examples" / "wire"),)
        case "typescript":
            command = ("node", str(_PROGRAMS / "wire.mjs"), str(ROOT / "sdk" / "typescript"))
        case _:
            raise ValueError(f"there is no program in {language}")
    return WireProgram(language, command, folder)


def _run(*command: str, folder: Path) -> None:
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
    )
    assert ran.returncode == 0, f"{' '.join(command)}: {ran.stdout}{ran.stderr}"
