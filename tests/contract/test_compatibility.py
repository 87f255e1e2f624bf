"""The contract is clean, and nothing in it breaks what was built against its last release."""

import shutil
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.contract.buf import IMAGE, ROOT, compare_with_image, run_buf


def test_contract_passes_lint() -> None:
    linted = run_buf("lint")
    assert linted.returncode == 0, linted.stdout.decode() + linted.stderr.decode()


def test_lint_makes_no_exceptions() -> None:
    rules = (ROOT / "buf.yaml").read_text("utf-8")
    assert "STANDARD" in rules
    assert "COMMENTS" in rules
    for way_out in ("except", "ignore", "ignore_only", "allow_"):
        assert way_out not in rules
    for file in (ROOT / "proto").rglob("*.proto"):
        assert "buf:lint:ignore" not in file.read_text("utf-8"), file.name


def test_contract_breaks_nothing_built_against_the_released_one() -> None:
    compared = compare_with_image()
    assert compared.returncode == 0, compared.stdout.decode() + compared.stderr.decode()


def test_released_image_holds_the_runners_contract_and_nothing_else() -> None:
    image = FileDescriptorSet.FromString(IMAGE.read_bytes())
    packages = {file.package for file in image.file}
    assert {name for name in packages if not name.startswith("google.protobuf")} == {"runmesh.v1"}


def test_removed_field_is_found_to_break_runners(tmp_path: Path) -> None:
    _copy_contract(tmp_path)
    file = tmp_path / "proto/runmesh/v1/run.proto"
    lines = file.read_text("utf-8").splitlines(keepends=True)
    victim = next(index for index, line in enumerate(lines) if " runner_id = " in line)
    file.write_text("".join(lines[:victim] + lines[victim + 1 :]), "utf-8")

    compared = compare_with_image(tmp_path)

    assert compared.returncode != 0
    assert "runner_id" in compared.stdout.decode()


def test_added_field_is_no_break(tmp_path: Path) -> None:
    _copy_contract(tmp_path)
    file = tmp_path / "proto/runmesh/v1/run.proto"
    text = file.read_text("utf-8")
    opening = "message RunRequest {\n"
    assert opening in text
    file.write_text(text.replace(opening, f"{opening}  string added = 999;\n"), "utf-8")

    compared = compare_with_image(tmp_path)

    assert compared.returncode == 0, compared.stdout.decode() + compared.stderr.decode()


def _copy_contract(destination: Path) -> None:
    shutil.copy(ROOT / "buf.yaml", destination)
    shutil.copytree(ROOT / "proto/runmesh", destination / "proto/runmesh")
