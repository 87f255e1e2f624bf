"""`runmesh certs`: an authority for development, what it issues, and what is refused."""

import pytest

from tests.acceptance.commands import CommandLine


@pytest.fixture
def with_authority(alone: CommandLine) -> CommandLine:
    """The command line on a data folder that has an authority, and no host."""
    made = alone("certs", "init")
    assert (made.status, made.out) == (0, f"{alone.data}/certs/ca.pem\n")
    return alone


def test_certificates_are_issued_and_shown(with_authority: CommandLine) -> None:
    issued = with_authority(
        "certs", "issue", "runner", "--host", "runner.lan", "--host", "10.0.0.7"
    )
    folder = with_authority.data / "certs"
    assert issued.out.splitlines() == [f"{folder}/runner.pem", f"{folder}/runner.key"]
    assert with_authority("certs", "issue", "--client", "ops", "--days", "7").status == 0
    shown = {each["name"]: each for each in with_authority("certs", "show", "--json").json()}
    assert {name: each["for"] for name, each in shown.items()} == {
        "ca": "authority",
        "ops": "clients",
        "runner": "servers and clients",
    }
    assert shown["runner"]["hosts"] == ["runner.lan", "10.0.0.7"]
    table = with_authority("certs", "show", "runner").out.splitlines()
    assert table[0].split()[:2] == ["NAME", "FOR"]
    assert "(89 days)" in table[1]
    assert len(table) == 2


def test_a_certificate_for_no_named_host_is_for_this_machine(with_authority: CommandLine) -> None:
    with_authority("certs", "issue", "host")
    (shown,) = with_authority("certs", "show", "host", "--json").json()
    assert {"localhost", "127.0.0.1", "::1"} <= {*shown["hosts"]}


@pytest.mark.parametrize("options", [["--host", "a.lan", "--host", "b.lan"], ["--client"]])
def test_renewing_keeps_what_a_certificate_is_for(
    with_authority: CommandLine, options: list[str]
) -> None:
    with_authority("certs", "issue", "it", *options)
    (before,) = with_authority("certs", "show", "it", "--json").json()
    key = (with_authority.data / "certs" / "it.key").read_bytes()
    assert with_authority("certs", "issue", "it", "--days", "30").status == 0
    (after,) = with_authority("certs", "show", "it", "--json").json()
    assert (after["hosts"], after["for"]) == (before["hosts"], before["for"])
    assert after["expires_at"] < before["expires_at"]
    assert (with_authority.data / "certs" / "it.key").read_bytes() != key


def test_a_broken_certificate_can_be_issued_again(with_authority: CommandLine) -> None:
    with_authority("certs", "issue", "host")
    (with_authority.data / "certs" / "host.pem").write_text("broken")
    told = with_authority("certs", "show").error_line()
    assert "host.pem holds no certificate" in told
    assert with_authority("certs", "issue", "host").status == 0
    assert with_authority("certs", "show").status == 0


def test_an_authority_is_not_replaced_by_mistake(with_authority: CommandLine) -> None:
    before = (with_authority.data / "certs" / "ca.pem").read_bytes()
    told = with_authority("certs", "init").error_line()
    assert "there is an authority in" in told
    assert (with_authority.data / "certs" / "ca.pem").read_bytes() == before
    assert with_authority("certs", "init", "--replace").status == 0
    assert (with_authority.data / "certs" / "ca.pem").read_bytes() != before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["issue", "ca"], "'ca' cannot be the name of a certificate"),
        (["issue", "../x"], "'../x' cannot be the name of a certificate"),
        (["issue", "x", "--host", "http://x"], "'http://x' is neither a DNS name nor an IP"),
        (["show", "x"], "there is no certificate 'x'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    with_authority: CommandLine, words: list[str], told: str
) -> None:
    ran = with_authority("certs", *words)
    assert ran.status == 1
    assert told in ran.error_line()


def test_a_lifetime_of_years_is_refused(with_authority: CommandLine) -> None:
    ran = with_authority("certs", "issue", "x", "--days", "4000")
    assert (ran.status, "--days is at most 398" in ran.err) == (2, True)


def test_without_an_authority_that_is_said(alone: CommandLine) -> None:
    assert "make one with 'runmesh certs init'" in alone("certs", "issue", "host").error_line()
    shown = alone("certs", "show")
    assert (shown.status, shown.out) == (0, "")
    assert "runmesh certs init" in shown.err
