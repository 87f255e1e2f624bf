"""Which files `runmesh kb add` means."""

import os
from pathlib import Path

import pytest
import typer

from host_service.cli.failures import CommandError
from host_service.cli.kb_files import find_files
from host_service.cli.kb_search import named_values


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def ids(*given: Path | str) -> list[str]:
    return [each.document_id for each in find_files([str(each) for each in given]).files]


def test_folder_is_walked_without_what_is_hidden_or_made_by_programs(tmp_path: Path) -> None:
    write(tmp_path, "b.md", "a/c.txt", ".git/d.md", "a/.e.md", "node_modules/f.md", "g.MD")
    found = find_files([str(tmp_path)])
    assert [each.document_id for each in found.files] == ["a/c.txt", "b.md", "g.MD"]
    assert found.folders == [tmp_path.resolve()]
    assert found.skipped == []


def test_other_files_of_a_folder_are_named_and_one_that_is_given_is_sent(tmp_path: Path) -> None:
    write(tmp_path, "a.png", "LICENSE")
    found = find_files([str(tmp_path)])
    assert (found.files, len(found.skipped)) == ([], 2)
    assert ids(tmp_path / "LICENSE") == ["LICENSE"]


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path, "a/b.md")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    assert ids(tmp_path) == ["a/b.md"]


def test_pattern_names_documents_below_its_fixed_part(tmp_path: Path) -> None:
    write(tmp_path, "a/b.md", "a/c/d.md", "a/e.txt", "a/.f/g.md")
    assert ids(f"{tmp_path}/a/**/*.md") == ["b.md", "c/d.md"]


def test_same_file_twice_is_one_and_two_with_one_id_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a/x.md", "b/x.md")
    assert ids(tmp_path / "a" / "x.md", tmp_path / "a") == ["x.md"]
    with pytest.raises(CommandError, match=r"would be the same document 'x\.md'"):
        ids(tmp_path / "a", tmp_path / "b")


def test_name_that_is_not_text_is_named_and_skipped(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.md"))).write_text("x")
    found = find_files([str(tmp_path)])
    assert [why for _, why in found.skipped] == ["its name is not UTF-8"]


def test_values_keep_their_digits_and_kinds() -> None:
    given = ["id=9007199254740993", "x=1.50", "yes=true", "name=a=b", "list=[1]", "n=NaN"]
    assert named_values(given) == (
        '{"id":9007199254740993,"x":1.50,"yes":true,"name":"a=b","list":"[1]","n":"NaN"}'
    )
    with pytest.raises(typer.BadParameter, match="is not NAME=VALUE"):
        named_values(["name"])
