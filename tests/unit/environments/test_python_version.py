"""Whether a plugin's `requires-python` allows the host's."""

import pytest

from host_service.environments.python_version import allows


@pytest.mark.parametrize(
    ("specifier", "is_allowed"),
    [
        ("", True),
        (">=3.11", True),
        (" >= 3.11 , < 4 ", True),
        (">=3.11.7", True),
        (">=3.11.8", False),
        (">=3.12", False),
        (">3.11.7", False),
        ("<3.11", False),
        ("<=3.11.7", True),
        ("<4,>=3.9,!=3.10.*", True),
        ("!=3.11.*", False),
        ("!=3.11.7", False),
        ("!=3.11", True),
        ("==3.11", False),
        ("==3.11.*", True),
        ("==3.*", True),
        ("==3.11.7", True),
        ("==3.11.7.0", True),
        ("~=3.10", True),
        ("~=3.11.2", True),
        ("~=3.12", False),
        ("~=3.10.2", False),
        (">=3.2", True),
    ],
)
def test_clauses_hold_as_pypa_says(specifier: str, is_allowed: bool) -> None:
    assert allows(specifier, (3, 11, 7)) is is_allowed


@pytest.mark.parametrize(
    "specifier", ["3.11", "^3.11", ">=three", "~=3", ">=3.*", "===3.11", "=>3"]
)
def test_other_forms_are_refused(specifier: str) -> None:
    with pytest.raises(ValueError, match=r"3|three"):
        allows(specifier, (3, 11, 7))
