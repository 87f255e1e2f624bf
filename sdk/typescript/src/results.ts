/**
 * What a runner yields. Its run, number and time are filled in when it is sent.
 *
 * A text may have half a pair of surrogates, which UTF-8 cannot: it is sent as U+FFFD.
 */
import { type MessageInitShape, create } from "@bufbuild/protobuf";

import {
  type ActionRequestedSchema,
  LogLevel,
  type RunResult,
  RunResultSchema,
  type StateScope,
} from "./gen/runmesh/v1/result_pb.js";
import {
  type ArtifactRef,
  type ChatMessageSchema,
  ChatRole,
  type TokenUsageSchema,
} from "./gen/runmesh/v1/types_pb.js";

/** One item of a run's output; the functions below make the usual ones, the contract's own types any other. */
export type Result = Pick<RunResult, "payload"> & Partial<Pick<RunResult, "mustUnderstand" | "metadata" | "timestamp">>;

type Payload = NonNullable<MessageInitShape<typeof RunResultSchema>["payload"]>;

/** A piece of text of the message in progress. */
export function delta(text: string): Result {
  return result({ case: "messageDelta", value: { text } });
}

/** A piece of reasoning, shown apart from the message. */
export function reasoning(text: string): Result {
  return result({ case: "messageDelta", value: { reasoningText: text } });
}

/** A whole message of text; it takes the place of the deltas before it. */
export function reply(text: string): Result {
  return message({ parts: [{ content: { case: "text", value: text } }] });
}

/** A whole message of the assistant's. */
export function message(whole: MessageInitShape<typeof ChatMessageSchema>): Result {
  return result({ case: "messageCompleted", value: { message: { ...whole, role: ChatRole.ASSISTANT } } });
}

/**
 * A tool call has begun; the parameters are one JSON value. Whatever else they are, as a model or a person may write them, is
 * shown as it is.
 */
export function toolStarted(callId: string, toolName: string, parameters: string): Result {
  const told = isJson(parameters) ? { parametersJson: parameters } : { preview: parameters };
  return result({ case: "toolCallStarted", value: { callId, toolName, ...told } });
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** A tool call has ended well, with a short form of what came of it. */
export function toolCompleted(callId: string, toolName: string, preview: string): Result {
  return result({ case: "toolCallCompleted", value: { callId, toolName, preview } });
}

/** A tool call has ended badly, with a word for why and a text for people. */
export function toolFailed(callId: string, toolName: string, errorCode: string, why: string): Result {
  return result({ case: "toolCallCompleted", value: { callId, toolName, errorCode, errorMessage: why } });
}

/** An artifact, uploaded before, belongs to the conversation. */
export function artifact(ref: ArtifactRef): Result {
  return result({ case: "artifactCreated", value: { artifact: { case: "ref", value: ref } } });
}

/** An artifact of at most 1 MiB, carried along. */
export function inlineArtifact(name: string, mimeType: string, data: Uint8Array): Result {
  const inline = { name, mimeType, data: data as Uint8Array<ArrayBuffer> };
  return result({ case: "artifactCreated", value: { artifact: { case: "inline", value: inline } } });
}

/** A value of state to keep, as `JSON.stringify` writes it; nothing says whether it was taken. */
export function setState(scope: StateScope, key: string, value: unknown): Result {
  return result({ case: "stateUpdated", value: { scope, key, valueJson: JSON.stringify(value) ?? "null" } });
}

/** Asks for an action on the platform. */
export function action(asked: MessageInitShape<typeof ActionRequestedSchema>): Result {
  return result({ case: "actionRequested", value: asked });
}

/** Tokens used so far, one entry a model. */
export function usage(...used: MessageInitShape<typeof TokenUsageSchema>[]): Result {
  return result({ case: "usageReported", value: { usage: used } });
}

/** A line for the run's log. */
export function log(text: string, level = LogLevel.INFO): Result {
  return result({ case: "log", value: { level, text } });
}

/** Ends the run well; `silent` says that nothing was to be said. A runner that returns need not yield it. */
export function completed(finishReason = "stop", ...used: MessageInitShape<typeof TokenUsageSchema>[]): Result {
  return result({ case: "runCompleted", value: { finishReason, usage: used } });
}

/** Ends the run as failed, under a code of the plugin's own, when it is thrown. */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly retryable: boolean;
  readonly details: Readonly<Record<string, string>>;

  /**
   * @param code - Such as `desk.refused`.
   * @param message - For people: no stack trace, path or secret.
   * @param more - Whether the same event might succeed later, and facts that help.
   */
  constructor(
    readonly code: string,
    message: string,
    more: { retryable?: boolean; details?: Record<string, string> } = {},
  ) {
    super(message);
    this.retryable = more.retryable ?? false;
    this.details = more.details ?? {};
  }
}

/** The result that ends a run as failed. */
export function failed({ code, message: why, retryable, details }: Failure): Result {
  return result({ case: "runFailed", value: { code, message: why, retryable, details: { ...details } } });
}

export function isTerminal({ payload }: Result): boolean {
  return payload.case === "runCompleted" || payload.case === "runFailed";
}

function result(payload: Payload): Result {
  return { payload: create(RunResultSchema, { payload }).payload };
}
