"""What plugins may ask for, and how it is told what they may not."""

import os
from pathlib import Path

import pytest

from host_service.environments import Requirements, RequirementsInvalid
from host_service.environments.requirements import RequirementsReader, package_name


def read(folder: Path, text: str, name: str = "requirements.txt") -> Requirements:
    (folder / name).write_text(text, "utf-8")
    return RequirementsReader().read(folder)


def test_folder_without_files_asks_for_nothing(tmp_path: Path) -> None:
    assert not RequirementsReader().read(tmp_path)


@pytest.mark.parametrize("text", ["", "# nothing\n\n", "--only-binary :all:\n"])
def test_file_without_requirements_asks_for_nothing(tmp_path: Path, text: str) -> None:
    assert not read(tmp_path, text)


def test_requirements_are_the_same_however_they_are_written(tmp_path: Path) -> None:
    plain = read(tmp_path, "lamp==1.0\nshade>=1,<2\n")
    assert plain.lines == ("lamp==1.0", "shade>=1,<2")
    for text in (
        "shade>=1,<2\nlamp==1.0\n",
        "\ufeff# first\n  lamp==1.0   # why\n\n\tshade>=1,<2\nlamp==1.0",
        "lamp==1.0\r\nshade>=1,<2\r\n",
        "lamp\\\n==1.0\nshade>=1,<2",
    ):
        assert [each.replace(" ", "") for each in read(tmp_path, text).lines] == list(plain.lines)


def test_names_extras_markers_and_hashes_are_taken(tmp_path: Path) -> None:
    lines = (
        'A.b-c_d[one, two] >= 1 ; python_version < "4"',
        "lamp (>=1)",
        "pinned==1 --hash=sha256:00 --hash=sha256:11",
        "wild==1.*",
    )
    found = read(tmp_path, "\n".join(lines))
    assert found.lines == lines
    assert found.has_hashes


def test_files_that_others_name_are_taken_in_once(tmp_path: Path) -> None:
    (tmp_path / "deps").mkdir()
    (tmp_path / "deps" / "base.txt").write_text("lamp\n-r ../requirements.txt\n-c bounds.txt\n")
    (tmp_path / "deps" / "bounds.txt").write_text("shade<2\n")
    found = read(tmp_path, "-r deps/base.txt\nshade\n--constraint=deps/bounds.txt\n")
    assert found.lines == ("lamp", "shade")
    assert found.constraints == ("shade<2",)


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://elsewhere.example/simple",
        "--extra-index-url=https://elsewhere.example/simple",
        "-i https://elsewhere.example/simple",
        "--find-links /tmp",
        "-f wheels",
        "--trusted-host elsewhere.example",
        "--pre",
        "-e .",
        "--editable=.",
        ".",
        "./shade",
        "../shade-1.0-py3-none-any.whl",
        "/etc/passwd",
        "shade @ https://elsewhere.example/shade.whl",
        "shade@git+https://elsewhere.example/shade",
        "git+https://elsewhere.example/shade",
        "https://elsewhere.example/shade.whl",
        "file:///etc/passwd",
        "shade --config-settings=x=y",
        "shade --global-option=--evil",
        "shade==1 --hash=sha256:00 --install-option=x",
        "${SECRET}",
        "$(id)",
        "`id`",
        "shade\x00",
        "影",
    ],
)
def test_what_is_no_name_and_version_is_refused_with_its_place(tmp_path: Path, line: str) -> None:
    with pytest.raises(RequirementsInvalid) as refused:
        read(tmp_path, f"lamp\n{line}\n")
    assert refused.value.place == "requirements.txt:2"


def test_files_outside_the_folder_are_refused_and_not_shown(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("secret-of-the-host = 1\n")
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    (plugin / "linked.txt").symlink_to(outside)
    for text in (f"-r {outside}", "-r ../outside.txt", "-r linked.txt", "-r missing.txt"):
        with pytest.raises(RequirementsInvalid) as refused:
            read(plugin, f"{text}\n")
        assert "secret-of-the-host" not in str(refused.value)
        assert refused.value.place == "requirements.txt:1"
    (plugin / "requirements.txt").unlink()
    for name in ("pyproject.toml", "requirements.txt"):
        (plugin / name).symlink_to(outside)
        with pytest.raises(RequirementsInvalid) as refused:
            RequirementsReader().read(plugin)
        assert "secret-of-the-host" not in str(refused.value)
        assert refused.value.place == name


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b"lamp\xff\n"),
        lambda path: path.write_text("# x\n" * 100_000),
        os.mkfifo,
    ],
)
def test_file_that_cannot_be_read_is_refused(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "requirements.txt")
    with pytest.raises(RequirementsInvalid, match=r"^requirements\.txt"):
        RequirementsReader().read(tmp_path)


def test_files_without_end_are_refused(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"-r {number + 1}.txt\n")
    with pytest.raises(RequirementsInvalid, match="at most 32 files"):
        read(tmp_path, "-r 0.txt\n")


def test_project_says_the_same_as_a_file_of_requirements(tmp_path: Path) -> None:
    text = '[project]\nname = "desk"\ndependencies = ["shade>=1", "lamp"]\n'
    assert read(tmp_path, text, "pyproject.toml").lines == ("lamp", "shade>=1")
    # A file of requirements may pin what the project asks for.
    assert read(tmp_path, "lamp==1.0\n").lines == ("lamp==1.0",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[project\n", "must be TOML"),
        ("project = 1\n", "project must be a table"),
        ('[project]\ndynamic = ["dependencies"]\n', "must be written out"),
        ("[project]\ndependencies = 1\n", "must be a list"),
        ("[project]\ndependencies = [1]\n", r"project.dependencies\[0\]: must be a requirement"),
        ('[project]\ndependencies = ["-r x.txt"]\n', "must be a requirement"),
        ('[project]\nrequires-python = ">=3.99"\n', "must allow the host's Python 3.*'>=3.99'"),
        ('[project]\nrequires-python = "3.11"\n', "'3.11' is no clause"),
        ('[project]\ndependencies = ["a @ file:///x"]\n', r"\[0\]: must be a package's name"),
    ],
)
def test_project_that_breaks_a_rule_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(RequirementsInvalid, match=told):
        read(tmp_path, text, "pyproject.toml")


@pytest.mark.parametrize("text", ["", "[tool.x]\ny = 1\n", '[project]\nname = "desk"\n'])
def test_project_without_dependencies_asks_for_nothing(tmp_path: Path, text: str) -> None:
    assert not read(tmp_path, text, "pyproject.toml")


def test_wheels_are_known_by_their_content(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel = wheels / "shade-1.0-py3-none-any.whl"
    wheel.write_bytes(b"one")
    reader = RequirementsReader()
    (tmp_path / "requirements.txt").write_text("shade\n")
    before = reader.read(tmp_path).digests
    assert reader.read(tmp_path).digests == before
    wheel.write_bytes(b"two, and longer")
    assert reader.read(tmp_path).digests != before


def test_wheel_that_a_link_leads_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.whl").write_bytes(b"x")
    plugin = tmp_path / "plugin"
    (plugin / "wheels").mkdir(parents=True)
    (plugin / "wheels" / "shade-1.0-py3-none-any.whl").symlink_to(tmp_path / "elsewhere.whl")
    with pytest.raises(RequirementsInvalid, match="must be a file in the folder"):
        read(plugin, "shade\n")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Runmesh_SDK>=0.1", "runmesh-sdk"),
        ("runmesh.sdk[x]==1", "runmesh-sdk"),
        ("runmesh-sdk-more", "runmesh-sdk-more"),
        ("--require-hashes", ""),
    ],
)
def test_names_have_one_form(text: str, name: str) -> None:
    assert package_name(text) == name
