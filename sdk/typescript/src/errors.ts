/** What goes wrong, in the contract's words: errors of calls to a host, and refusals of calls by one. */
import { type DescMessage, type MessageInitShape, create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { type Any, anyPack, anyUnpack, durationMs } from "@bufbuild/protobuf/wkt";
import * as grpc from "@grpc/grpc-js";

import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "./gen/google/rpc/status_pb.js";
import type { ErrorReason } from "./gen/runmesh/v1/errors_pb.js";

const domain = "runmesh";
const detailsKey = "grpc-status-details-bin";

/** A reason of the contract, as its `ErrorReason` has them; a later version may have more. */
export type Reason = Exclude<keyof typeof ErrorReason, "UNSPECIFIED"> | (string & {});

// What a status means that comes without details: from gRPC itself, or from something between.
const reasonOfCode: Partial<Record<grpc.status, Reason>> = {
  [grpc.status.UNAUTHENTICATED]: "UNAUTHENTICATED",
  [grpc.status.PERMISSION_DENIED]: "UNAUTHORIZED",
  [grpc.status.NOT_FOUND]: "NOT_FOUND",
  [grpc.status.INVALID_ARGUMENT]: "INVALID_ARGUMENT",
  [grpc.status.RESOURCE_EXHAUSTED]: "OVERLOADED",
  [grpc.status.FAILED_PRECONDITION]: "INCOMPATIBLE",
  [grpc.status.ABORTED]: "CONFLICT",
  [grpc.status.ALREADY_EXISTS]: "ALREADY_EXISTS",
  [grpc.status.OUT_OF_RANGE]: "SEQUENCE_COMPACTED",
  [grpc.status.DEADLINE_EXCEEDED]: "DEADLINE_EXCEEDED",
  [grpc.status.UNIMPLEMENTED]: "NOT_IMPLEMENTED",
  [grpc.status.UNAVAILABLE]: "UNAVAILABLE",
  [grpc.status.CANCELLED]: "UNAVAILABLE",
};

/** What a host, or the way to it, made of a call. Decide by its reason. */
export class HostError extends Error {
  override readonly name = "HostError";
  /** Whether the same call may succeed later in this run. */
  readonly retryable: boolean;
  /** How long the host advises to wait. */
  readonly retryAfterMs: number | undefined;
  /** What helps, such as `resource` or `limit`. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Fields of the request that broke a rule. */
  readonly violations: readonly { field: string; description: string }[];

  constructor(
    readonly method: string,
    readonly reason: Reason,
    message: string,
    facts: Partial<Pick<HostError, "retryAfterMs" | "metadata" | "violations">> = {},
  ) {
    super(message);
    this.retryable = ["RATE_LIMITED", "OVERLOADED", "UNAVAILABLE"].includes(reason);
    this.retryAfterMs = facts.retryAfterMs;
    this.metadata = facts.metadata ?? {};
    this.violations = facts.violations ?? [];
  }
}

/** Reads the status of a call that failed. */
export function hostError(method: string, error: grpc.ServiceError): HostError {
  let reason: Reason = reasonOfCode[error.code] ?? "RUNTIME_ERROR";
  let metadata: Record<string, string> = {};
  let retryAfterMs: number | undefined;
  const violations: { field: string; description: string }[] = [];
  for (const detail of detailsOf(error)) {
    const info = anyUnpack(detail, ErrorInfoSchema);
    if (info?.domain === domain) ({ reason, metadata } = info);
    const retry = anyUnpack(detail, RetryInfoSchema);
    if (retry?.retryDelay) retryAfterMs = durationMs(retry.retryDelay);
    violations.push(...(anyUnpack(detail, BadRequestSchema)?.fieldViolations ?? []));
  }
  return new HostError(method, reason, error.details || error.message, { retryAfterMs, metadata, violations });
}

function detailsOf(error: grpc.ServiceError): Any[] {
  const [bytes] = error.metadata?.get(detailsKey) ?? [];
  try {
    return bytes instanceof Uint8Array ? fromBinary(StatusSchema, bytes).details : [];
  } catch {
    return []; // something between wrote it: the code says enough
  }
}

const codeOfReason = {
  NOT_FOUND: grpc.status.NOT_FOUND,
  INVALID_ARGUMENT: grpc.status.INVALID_ARGUMENT,
  NOT_IMPLEMENTED: grpc.status.UNIMPLEMENTED,
  OVERLOADED: grpc.status.RESOURCE_EXHAUSTED,
  UNAVAILABLE: grpc.status.UNAVAILABLE,
} satisfies Partial<Record<keyof typeof ErrorReason, grpc.status>>;

/** A status with which this process refuses a call, with its reason in the details. */
export function refusal(
  reason: keyof typeof codeOfReason,
  message: string,
  metadata: Record<string, string> = {},
  more: Any[] = [],
): grpc.ServerErrorResponse {
  const info = packed(ErrorInfoSchema, { domain, reason, metadata });
  const status = create(StatusSchema, { code: codeOfReason[reason], message, details: [info, ...more] });
  const trailers = new grpc.Metadata();
  trailers.set(detailsKey, Buffer.from(toBinary(StatusSchema, status)));
  return Object.assign(new Error(message), { code: status.code, details: message, metadata: trailers });
}

/** A refusal of a request whose field breaks a rule. */
export function invalid(field: string, rule: string): grpc.ServerErrorResponse {
  const broken = packed(BadRequestSchema, { fieldViolations: [{ field, description: rule }] });
  return refusal("INVALID_ARGUMENT", `${field}: ${rule}`, {}, [broken]);
}

/** Advice to wait. */
export function retryAfter(seconds: number): Any {
  return packed(RetryInfoSchema, { retryDelay: { seconds: BigInt(seconds) } });
}

function packed<S extends DescMessage>(schema: S, value: MessageInitShape<S>): Any {
  return anyPack(schema, create(schema, value));
}
