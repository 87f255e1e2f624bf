/** Calls of `HostAPIService` for one run. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";

import { HostError } from "./errors.js";
import {
  type ArtifactHeaderSchema,
  type CreateArtifactRequestSchema,
  HostAPIService,
  type PageHistoryRequestSchema,
  type TranscriptItem,
} from "./gen/runmesh/v1/host_api_pb.js";
import type { HostAccess } from "./gen/runmesh/v1/run_pb.js";
import type { ArtifactRef } from "./gen/runmesh/v1/types_pb.js";
import { type Client, channelOptions, clientOf, deadlineAfter, metadataOf } from "./rpc.js";
import { type Tls, hostCredentials, hostFilesStamp, isPrivate } from "./tls.js";

export { HostError };

const chunkBytes = 1024 * 1024;

/**
 * All calls of `HostAPIService`, and a few made easier. Each carries the run's two tokens, its trace, and a deadline no
 * later than the run's, and ends with the run's signal. Nothing is repeated by itself.
 */
export interface Host extends Client<typeof HostAPIService> {
  /** The transcript before the run's event, page by page as it is wanted. */
  history(request?: MessageInitShape<typeof PageHistoryRequestSchema>): AsyncGenerator<TranscriptItem, void>;
  /** Stores an artifact of any size; its size and digest are checked where the header has them. */
  upload(
    header: MessageInitShape<typeof ArtifactHeaderSchema>,
    content: string | Uint8Array | AsyncIterable<Uint8Array>,
  ): Promise<ArtifactRef>;
}

/** What a run's calls have in common. */
export interface Circumstances {
  access: HostAccess | undefined;
  /** `traceparent` and `tracestate`, as they came with the run. */
  trace: Record<string, string>;
  /** In milliseconds since 1970; Infinity: none. */
  deadline: number;
  signal: AbortSignal;
}

/** Keeps one connection to each host that runs come from. */
export class Hosts {
  readonly #connections = new Map<string, { stamp: string; channel: grpc.Client }>();

  constructor(private readonly tls: Tls | undefined) {}

  /** The host of one run. */
  of({ access, trace, deadline, signal }: Circumstances): Host {
    const client = clientOf(HostAPIService, (method, options) => {
      const metadata = metadataOf({
        ...trace,
        ...options.metadata,
        authorization: `Bearer ${access?.runToken ?? ""}`,
        "runmesh-instance": access?.instanceToken ?? "",
      });
      const channel = this.#to(method.name, access?.address ?? "");
      const earliest = Math.min(deadlineAfter(options.timeoutMs), deadline);
      return { channel, metadata, deadline: earliest, signal: options.signal ?? signal };
    });
    return {
      ...client,
      history: (request = {}) => history(client, request),
      upload: (...all) => upload(client, ...all),
    };
  }

  /** Whether nobody else can listen in on what is said to a host. */
  isPrivateTo(address: string): boolean {
    return this.tls?.hostCa !== undefined || isPrivate(address);
  }

  /** A connection to a host, with the certificates of now. */
  dial(address: string, options: grpc.ChannelOptions = {}): grpc.Client {
    return new grpc.Client(address, hostCredentials(address, this.tls), { ...channelOptions, ...options });
  }

  close(): void {
    for (const { channel } of this.#connections.values()) channel.close();
    this.#connections.clear();
  }

  #to(method: string, address: string): grpc.Client {
    if (!address) throw new HostError(method, "UNAVAILABLE", "the host has no address that this runner could reach");
    if (!this.isPrivateTo(address)) {
      const why = "the host is on another machine, and the run's tokens would travel in the clear";
      throw new HostError(method, "UNAVAILABLE", `${why}: set RUNMESH_TLS_HOST_CA`);
    }
    const stamp = hostFilesStamp(this.tls);
    const found = this.#connections.get(address);
    if (found?.stamp === stamp) return found.channel;
    found?.channel.close(); // calls under way go on
    const channel = this.dial(address);
    this.#connections.set(address, { stamp, channel });
    return channel;
  }
}

type Api = Client<typeof HostAPIService>;

async function* history(
  client: Api,
  request: MessageInitShape<typeof PageHistoryRequestSchema>,
): AsyncGenerator<TranscriptItem, void> {
  let pageToken = request.pageToken ?? "";
  do {
    const page = await client.pageHistory({ ...request, pageToken });
    yield* page.items;
    pageToken = page.nextPageToken;
  } while (pageToken);
}

async function upload(
  client: Api,
  header: MessageInitShape<typeof ArtifactHeaderSchema>,
  content: string | Uint8Array | AsyncIterable<Uint8Array>,
): Promise<ArtifactRef> {
  async function* requests(): AsyncGenerator<MessageInitShape<typeof CreateArtifactRequestSchema>> {
    yield { item: { case: "header", value: header } };
    for await (const piece of piecesOf(content)) {
      for (let start = 0; start < piece.length; start += chunkBytes) {
        yield { item: { case: "chunk", value: piece.subarray(start, start + chunkBytes) } };
      }
    }
  }
  const { artifact } = await client.createArtifact(requests());
  if (!artifact) throw new HostError("CreateArtifact", "RUNTIME_ERROR", "the host answered without an artifact");
  return artifact;
}

function piecesOf(content: string | Uint8Array | AsyncIterable<Uint8Array>) {
  if (typeof content === "string") return [new TextEncoder().encode(content)];
  return content instanceof Uint8Array ? [content] : content;
}
