/** Does what the first word of a message asks for, each with a call of its host. */
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import {
  Failure,
  HostError,
  type Result,
  type Run,
  artifact,
  delta,
  reply,
  toolCompleted,
  toolFailed,
  toolStarted,
} from "@runmesh/sdk";
import { type CallToolResponse, ChatRole, StateScope, TranscriptKind } from "@runmesh/sdk/v1";

const usage = "Ask me to: count, recall, file NAME, tool NAME JSON, or wait SECONDS.";
/** How many messages `recall` recalls. */
const recalled = 5;

export async function* desk(run: Run): AsyncGenerator<Result> {
  const [word, rest] = cut(run.text);
  try {
    if (word === "count") yield* count(run);
    else if (word === "recall") yield reply(await transcript(run, recalled));
    else if (word === "file" && rest) yield* file(run, rest);
    else if (word === "tool" && rest) yield* tool(run, rest);
    else if (word === "wait" && isSeconds(rest)) yield* wait(run, rest);
    else yield reply(usage);
  } catch (error) {
    if (!(error instanceof HostError)) throw error;
    const { method, reason, retryable } = error;
    throw new Failure("desk.refused", `the host refused: ${error.message}`, { retryable, details: { method, reason } });
  }
}

/** Adds one to a number in the conversation's state, again where another run was faster. */
async function* count({ host }: Run): AsyncGenerator<Result> {
  const place = { scope: StateScope.CONVERSATION, key: "count" };
  for (;;) {
    const before = await host.getState(place).catch(onReason("NOT_FOUND"));
    const number = (before?.entry ? (JSON.parse(before.entry.valueJson) as number) : 0) + 1;
    // Version 0 is that of no value.
    const expectedVersion = before?.entry?.version ?? 0n;
    const written = await host
      .setState({ ...place, valueJson: JSON.stringify(number), expectedVersion })
      .catch(onReason("CONFLICT"));
    if (!written) continue;
    yield reply(`message ${number} of this conversation`);
    return;
  }
}

/** Stores the conversation so far as an artifact. */
async function* file(run: Run, name: string): AsyncGenerator<Result> {
  const content = Buffer.from(await transcript(run));
  const sha256 = createHash("sha256").update(content).digest();
  const ref = await run.host.upload(
    { type: "file", mimeType: "text/plain; charset=utf-8", name, sizeBytes: BigInt(content.length), sha256 },
    content,
  );
  yield artifact(ref);
  yield reply(`${name}, ${content.length} bytes, sha256 ${sha256.toString("hex")}`);
}

/** The conversation's last messages, or all of them, oldest first. */
async function transcript({ host }: Run, most = Infinity): Promise<string> {
  const lines: string[] = [];
  for await (const item of host.history(Number.isFinite(most) ? { pageSize: most } : {})) {
    if (item.kind !== TranscriptKind.MESSAGE) continue;
    lines.unshift(`${ChatRole[item.role]?.toLowerCase()}: ${item.text ?? ""}`);
    if (lines.length >= most) break;
  }
  return lines.join("\n") || "nothing yet";
}

/** Calls a tool with a text of JSON, as it is. */
async function* tool({ host }: Run, rest: string): AsyncGenerator<Result> {
  const callId = "desk-1";
  const [toolName, parameters] = cut(rest);
  const parametersJson = parameters || "{}";
  yield toolStarted(callId, toolName, parametersJson);
  const answer = await host.callTool({ toolName, parametersJson, callId });
  const text = textOf(answer);
  yield answer.isError ? toolFailed(callId, toolName, "failed", text) : toolCompleted(callId, toolName, text);
  yield reply(answer.isError ? `${toolName} failed: ${text}` : text);
}

function textOf({ parts, resultJson, preview }: CallToolResponse): string {
  const texts = parts.flatMap(({ content }) => (content.case === "text" && content.value ? [content.value] : []));
  return texts.join("\n") || resultJson || preview || "(no text)";
}

/** Says at once that it waits, and after a time that it has; a stopped run stops waiting. */
async function* wait({ signal }: Run, seconds: string): AsyncGenerator<Result> {
  yield delta("waiting");
  await sleep(Number(seconds) * 1000, undefined, { signal });
  yield reply(`waited ${seconds} s`);
}

function isSeconds(text: string): boolean {
  return text !== "" && Number(text) >= 0 && Number(text) < 1e6;
}

/** Takes the first word off a text. */
function cut(text: string): [word: string, rest: string] {
  const trimmed = text.trim();
  const end = trimmed.search(/\s/);
  return end < 0 ? [trimmed, ""] : [trimmed.slice(0, end), trimmed.slice(end).trim()];
}

/** Makes nothing of an error of this reason; any other one is thrown on. */
function onReason(reason: string): (error: unknown) => undefined {
  return (error) => {
    if (!(error instanceof HostError) || error.reason !== reason) throw error;
  };
}
