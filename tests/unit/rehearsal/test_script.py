"""Scripts that answer in the rehearsal model's place."""

from pathlib import Path

import pytest

from host_service.configuration.document import ConfigurationError
from host_service.rehearsal.answering import answer, answer_by_rule
from host_service.rehearsal.request import ChatRequest
from host_service.rehearsal.script import Rule, ScriptFile, read_script
from tests.unit.rehearsal.asked import Said, called, request, result

_SCRIPT = """\
rules:
- when: {contains: Weather, turn: 1}
  tool_calls:
  - {name: weather__current, arguments: {city: Paris, id: 9007199254740993}}
- when: {regex: "(?i)^say (hi|ho)$"}
  reasoning: how do I say it
  answer: as told
- when: {contains: twice, round: 1}
  tool_calls: [{name: again}]
- when: {contains: broken}
  answer: one two
  cut: true
  delay_seconds: 0.5
- when: {contains: limited}
  error: {status: 429, message: slow down, retry_after_seconds: 2}
- when: {contains: down}
  error: 503
- when: {contains: late}
  delay_seconds: 1
"""


def _rule(asked: ChatRequest) -> Rule | None:
    return read_script(_SCRIPT, source="s.yaml").rule_for(asked)


def test_the_first_rule_that_fits_answers() -> None:
    rule = _rule(request("say HO"))
    assert rule is not None
    told = answer_by_rule(rule, request("say HO"))
    assert (told.text, told.reasoning, told.calls) == ("as told", "how do I say it", ())
    assert _rule(request("say ho ho")) is None


def test_scripted_calls_keep_the_digits_of_their_arguments() -> None:
    asked = request("how is the weather")
    rule = _rule(asked)
    assert rule is not None
    (call,) = answer_by_rule(rule, asked).calls
    assert call.name == "weather__current"
    assert call.arguments_json == '{"city": "Paris", "id": 9007199254740993}'


def test_a_rule_with_calls_fits_once_for_a_question() -> None:
    asked: list[Said] = ["the weather", called("weather__current"), result("sunny")]
    assert _rule(request(*asked)) is None
    assert _rule(request("the weather", "the weather")) is None


def test_a_rule_may_name_the_round_of_calls_that_it_is_for() -> None:
    assert _rule(request("twice")) is None
    assert _rule(request("twice", called("x"), result("1"))) is not None
    assert _rule(request("twice", called("x"), result("1"), called("y"), result("2"))) is None


def test_failures_cuts_and_delays_are_read() -> None:
    limited, down, broken = (_rule(request(each)) for each in ("limited", "down", "broken"))
    assert limited is not None
    assert limited.error is not None
    assert (limited.error.status, limited.error.message) == (429, "slow down")
    assert limited.error.retry_after_seconds == 2
    assert down is not None
    assert down.error is not None
    assert down.error.status == 503
    assert broken is not None
    assert (broken.cut, broken.delay_seconds) == (True, 0.5)


def test_a_rule_that_only_waits_leaves_the_answer_as_it_is() -> None:
    asked = request("late hello")
    rule = _rule(asked)
    assert rule is not None
    assert answer_by_rule(rule, asked) == answer(asked)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("rules:\n- when: {contain: x}\n  answer: y", ["s.yaml:2: rules[0].when.contain: is not"]),
        ("rules:\n- answer: y\n- when: {}", ["s.yaml:3: rules[1]: does nothing"]),
        ("rules:\n- when: {regex: '('}\n  answer: y", ["s.yaml:2: rules[0].when.regex: is no re"]),
        ("rules:\n- error: 200", ["s.yaml:2: rules[0].error: must be a whole number from 400"]),
        ("rules:\n- error: {status: x}", ["s.yaml:2: rules[0].error.status: must be a number"]),
        ("rules:\n- error: 500\n  answer: y", ["s.yaml:2: rules[0]: has an error"]),
        ("rules:\n- answer: y\n  delay_seconds: -1", ["s.yaml:3: rules[0].delay_seconds: must"]),
        ("rules:\n- answer: y\n  when: {turn: 0}", ["s.yaml:3: rules[0].when.turn: must be"]),
        ("rules:\n- tool_calls: [{arguments: {}}]", ["s.yaml:2: rules[0].tool_calls[0]: must"]),
        ("rules:\n- answer: 4\n- cut: maybe", ["s.yaml:2: rules[0].answer: must be a text",
                                               "s.yaml:3: rules[1].cut: must be true or false"]),
        ("rule: []", ["s.yaml:1: rule: is not known; did you mean rules?"]),
        ("rules: 4", ["s.yaml:1: rules: must be a list"]),
        ("- answer: y", ["s.yaml:1: must be a mapping"]),
        ("a: [", ["s.yaml:1: not YAML"]),
        ("", ["s.yaml: says nothing"]),
    ],
)  # fmt: skip
def test_what_will_not_do_is_told_by_line_and_field(text: str, faults: list[str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_script(text, source="s.yaml")
    told = [str(each) for each in raised.value.faults]
    assert len(told) == len(faults), told
    for line, beginning in zip(told, faults, strict=True):
        assert line.startswith(beginning), line


def test_a_script_may_be_json() -> None:
    script = read_script('{"rules": [{"answer": "hi"}]}', source="s.json")
    assert script.rules == (Rule(answer="hi"),)


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("rules: [{answer: one}]")
    file = ScriptFile(path)
    assert file.current().rules == (Rule(answer="one"),)
    changed = tmp_path / "t.yaml"
    changed.write_text("rules: [{answer: two}]")
    changed.replace(path)
    assert file.current().rules == (Rule(answer="two"),)
    path.write_text("rules: [{answers: two}]")
    with pytest.raises(ConfigurationError):
        file.current()


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        ScriptFile(tmp_path / "none.yaml")
    (tmp_path / "odd.yaml").write_bytes(b"rules: \xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        ScriptFile(tmp_path / "odd.yaml")
