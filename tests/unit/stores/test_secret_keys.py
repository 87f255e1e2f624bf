"""Where the keys of secrets come from, and what is refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stores.errors import SecretKeyUnusable
from stores.secret_keys import VARIABLE, load_secret_keys, new_secret_key, parse_secret_keys


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "secret.key"


def ids(*keys: str) -> list[str]:
    return [parse_secret_keys(key, source="x").newest.id for key in keys]


def test_first_start_makes_a_key_that_only_its_owner_may_read(file: Path) -> None:
    made = load_secret_keys({}, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(made.newest.material) == 32
    assert load_secret_keys({}, file) == made
    assert list(file.parent.iterdir()) == [file]


def test_all_who_start_at_once_have_one_key(file: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        loaded = list(threads.map(lambda _: load_secret_keys({}, file), range(32)))
    assert {keys.newest.id for keys in loaded} == {loaded[0].newest.id}


def test_environment_comes_first_and_the_file_still_decrypts(file: Path) -> None:
    first, second, kept = new_secret_key(), new_secret_key(), new_secret_key()
    assert [key.id for key in load_secret_keys({VARIABLE: first}, file).keys] == ids(first)
    assert not file.exists()
    file.write_text(f"{kept}\n{first}\n")
    file.chmod(0o600)
    keys = load_secret_keys({VARIABLE: f" {first},{second}\n"}, file)
    assert [key.id for key in keys.keys] == ids(first, second, kept)
    assert keys.newest.id == ids(first)[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no key"),
        (" ,\n", "holds no key"),
        ("hunter2", "key 1 of 1 is none: a key is rms_"),
        ("rms_hunter2", "key 1 of 1 is none"),
        (f"rms_{'A' * 43} hunter2", "key 2 of 2 is none"),
        (f"rms_{'A' * 44}", "key 1 of 1"),
    ],
)
def test_what_is_no_key_is_refused_without_being_told(file: Path, text: str, told: str) -> None:
    with pytest.raises(SecretKeyUnusable, match=told) as caught:
        load_secret_keys({VARIABLE: text}, file)
    assert "hunter2" not in str(caught.value)
    assert VARIABLE in str(caught.value)
    file.write_text(text)
    file.chmod(0o600)
    if text:
        with pytest.raises(SecretKeyUnusable, match=told) as caught:
            load_secret_keys({}, file)
        assert str(file) in str(caught.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_file_that_others_may_read_is_refused(file: Path, mode: int) -> None:
    load_secret_keys({}, file)
    file.chmod(mode)
    with pytest.raises(SecretKeyUnusable, match="chmod 600"):
        load_secret_keys({}, file)


def test_file_that_cannot_be_read_or_made_says_so(file: Path, tmp_path: Path) -> None:
    with pytest.raises(SecretKeyUnusable, match="cannot be made: No such file"):
        load_secret_keys({}, tmp_path / "missing" / "secret.key")
    file.mkdir()
    with pytest.raises(SecretKeyUnusable, match="cannot be read: Is a directory"):
        load_secret_keys({}, file)
    file.rmdir()
    file.write_bytes(b"\xff\xfe")
    file.chmod(0o600)
    with pytest.raises(SecretKeyUnusable, match="it is no text"):
        load_secret_keys({}, file)


def test_empty_file_is_refused_rather_than_made_anew(file: Path) -> None:
    file.touch(0o600)
    with pytest.raises(SecretKeyUnusable, match="holds no key"):
        load_secret_keys({}, file)
    assert file.read_text() == ""


def test_keys_show_nothing_of_themselves() -> None:
    key = new_secret_key()
    shown = repr(parse_secret_keys(key, source="x"))
    assert key[4:] not in shown
    assert "material" not in shown
