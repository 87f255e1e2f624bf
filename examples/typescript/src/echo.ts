/** Streams back what it is told. */
import { setTimeout as sleep } from "node:timers/promises";

import { Failure, type Result, type Run, completed, delta, reply } from "@runmesh/sdk";

interface EchoConfig {
  delay_seconds: number;
  interval_seconds: number;
  repeat: number;
  size: number;
  message: boolean;
  failure: "none" | "error";
}

/** Larger messages are left to the host, which completes them from the pieces. */
const messageBytes = 1_000_000;
/** Longer words are cut, so that a piece stays small. */
const wordLength = 4096;

export async function* echo(run: Run): AsyncGenerator<Result> {
  const config = run.config<EchoConfig>();
  const { signal } = run;
  if (config.delay_seconds) await sleep(config.delay_seconds * 1000, undefined, { signal });
  if (config.failure === "error") {
    yield delta("Before the fault. ");
    throw new Failure("echo.asked", "the configuration asks for a failure", { retryable: true });
  }
  const piece = "x".repeat(config.size ?? 6);
  const count = config.repeat ?? 0;
  const answer = run.context.input?.text ?? `Event ${run.context.event?.type}, without text.`;
  const bytes = count ? count * piece.length : Buffer.byteLength(answer);
  for (const text of count ? repeated(piece, count) : pieces(answer)) {
    yield delta(text);
    if (config.interval_seconds) await sleep(config.interval_seconds * 1000, undefined, { signal });
  }
  if (bytes === 0) yield completed("silent");
  else if ((config.message ?? true) && bytes <= messageBytes) yield reply(count ? piece.repeat(count) : answer);
}

/** The words of a text, each with the space behind it; no character is cut in two. */
export function* pieces(text: string): Generator<string> {
  for (const [word] of text.matchAll(/\s*\S+\s*|\s+/gu)) {
    for (let start = 0; start < word.length;) {
      let end = start + wordLength;
      if (isHighSurrogate(word.charCodeAt(end - 1))) end -= 1;
      yield word.slice(start, end);
      start = end;
    }
  }
}

function* repeated(piece: string, count: number): Generator<string> {
  for (let index = 0; index < count; index++) yield piece;
}

function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit < 0xdc00;
}
