"""What the rehearsal model says to a request, or which tool it calls. The same, every time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from host_service.rehearsal.arguments import fill_arguments
from host_service.rehearsal.choosing import choose_tool
from host_service.rehearsal.passages import passages_of, question_of, quotes
from host_service.rehearsal.request import AskedCall, ChatRequest, OfferedTool
from host_service.rehearsal.script import Rule

_WHO = "This is the rehearsal model, no language model: it repeats and quotes, and knows nothing."
_LONGEST_RESULT = 1000
_LONGEST_QUESTION = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer as a whole.

    Attributes:
        text: What is said; empty where tools are called.
        reasoning: What is thought aloud before.
        calls: Tools that are called.
    """

    text: str = ""
    reasoning: str = ""
    calls: Sequence[AskedCall] = ()

    @property
    def finish_reason(self) -> str:
        """Why the answer ends."""
        return "tool_calls" if self.calls else "stop"


def answer_by_rule(rule: Rule, request: ChatRequest) -> Answer:
    """Return what a script's rule answers; what it leaves open is answered without it."""
    calls = tuple(
        AskedCall(_call_id(request, place), each.name, each.arguments_json)
        for place, each in enumerate(rule.tool_calls)
    )
    if rule.answer is None and not calls:
        told = answer(request)
        return Answer(text=told.text, reasoning=rule.reasoning, calls=told.calls)
    return Answer(text=rule.answer or "", reasoning=rule.reasoning, calls=calls)


def answer(request: ChatRequest) -> Answer:
    """Return what a request is answered."""
    question = question_of(request)
    tool = _wanted_tool(request, question)
    if tool is None:
        return Answer(text=_said(request, question))
    arguments_json = fill_arguments(tool.parameters, question)
    if arguments_json is None:
        why = f"I would call the tool {tool.name}, and cannot tell its arguments from your message."
        return Answer(text=f"{_WHO} {why}")
    return Answer(calls=(AskedCall(_call_id(request, 0), tool.name, arguments_json),))


def _wanted_tool(request: ChatRequest, question: str) -> OfferedTool | None:
    called = {call.name for each in request.since for call in each.calls}
    left = [each for each in request.tools if each.name not in called]
    if request.forced_tool:
        return next((each for each in left if each.name == request.forced_tool), None)
    chosen = choose_tool(question, request.tools, already=called)
    if chosen is None and request.must_call:
        return next(iter(left), None)
    return chosen


def _call_id(request: ChatRequest, place: int) -> str:
    digest = hashlib.sha256(f"{request.digest} {place}".encode()).hexdigest()
    return f"call_{digest[:24]}"


def _said(request: ChatRequest, question: str) -> str:
    parts = [_WHO, *_results(request)]
    passages = passages_of(request)
    found = quotes(question, passages)
    asked = _shortened(question, _LONGEST_QUESTION)
    if len(parts) > 1:
        # What a tool gave is the answer, and passages only came along.
        parts.append(f"That was for: “{asked}”")
    elif found:
        parts.append(f"You asked: “{asked}” The passages that I was given say:")
        parts += [f"> {each.text}\n> — {each.source}" for each in found]
    elif passages:
        parts.append(f"You asked: “{asked}” None of the passages that I was given has it.")
    else:
        parts.append(f"You said: “{asked}”" if asked else "You said nothing in words.")
    if request.question.others:
        kinds = ", ".join(dict.fromkeys(request.question.others))
        parts.append(f"I cannot see what came along ({kinds}).")
    return "\n\n".join(parts)


def _results(request: ChatRequest) -> list[str]:
    """Return what tools gave since the question, as sentences."""
    named = {call.id: call.name for each in request.since for call in each.calls}
    return [
        f"The tool {named.get(each.call_id, 'that was called')} gave: "
        f"{_shortened(each.text, _LONGEST_RESULT)}"
        for each in request.since
        if each.role == "tool"
    ]


def _shortened(text: str, most: int) -> str:
    text = text.strip()
    return text if len(text) <= most else f"{text[:most]}…"
