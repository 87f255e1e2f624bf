/** The services that every gRPC process has: health and reflection. */
import { type DescFile, type DescService, create, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import * as grpc from "@grpc/grpc-js";

import {
  Health as HealthService,
  HealthCheckResponseSchema,
  HealthCheckResponse_ServingStatus as Status,
  type HealthCheckRequest,
  type HealthCheckResponse,
  HealthListResponseSchema,
} from "./gen/grpc/health/v1/health_pb.js";
import {
  type ServerReflectionRequest,
  type ServerReflectionResponse,
  ServerReflectionResponseSchema,
  ServerReflection as ReflectionV1,
} from "./gen/grpc/reflection/v1/reflection_pb.js";
import { ServerReflection as ReflectionV1Alpha } from "./gen/grpc/reflection/v1alpha/reflection_pb.js";
import { definitionOf } from "./rpc.js";

/** Says whether the process takes runs; being busy is not being ill. */
export class Health {
  #status = Status.SERVING;
  readonly #names: ReadonlySet<string>;
  readonly #watching = new Set<grpc.ServerWritableStream<HealthCheckRequest, HealthCheckResponse>>();

  constructor(services: readonly DescService[]) {
    this.#names = new Set(["", ...services.map((service) => service.typeName)]);
  }

  addTo(server: grpc.Server): void {
    server.addService(definitionOf(HealthService), {
      check: (call: grpc.ServerUnaryCall<HealthCheckRequest, unknown>, answer: grpc.sendUnaryData<unknown>) => {
        if (this.#names.has(call.request.service)) answer(null, this.#answerFor(call.request));
        else answer({ code: grpc.status.NOT_FOUND, details: "there is no such service" });
      },
      list: (_: unknown, answer: grpc.sendUnaryData<unknown>) => {
        const statuses = Object.fromEntries([...this.#names].map((name) => [name, { status: this.#status }]));
        answer(null, create(HealthListResponseSchema, { statuses }));
      },
      watch: (call: grpc.ServerWritableStream<HealthCheckRequest, HealthCheckResponse>) => {
        this.#watching.add(call);
        call.on("cancelled", () => this.#watching.delete(call));
        call.write(this.#answerFor(call.request));
      },
    });
  }

  /** Says that the process takes no more runs. */
  shutDown(): void {
    this.#status = Status.NOT_SERVING;
    for (const call of this.#watching) call.write(this.#answerFor(call.request));
  }

  #answerFor({ service }: HealthCheckRequest): HealthCheckResponse {
    return create(HealthCheckResponseSchema, {
      status: this.#names.has(service) ? this.#status : Status.SERVICE_UNKNOWN,
    });
  }
}

/** The services of this module, to be described with the others. */
export const standardServices: readonly DescService[] = [HealthService, ReflectionV1, ReflectionV1Alpha];

/** Describes services to tools such as grpcurl. */
export function addReflection(server: grpc.Server, services: readonly DescService[]): void {
  const files = new Map<string, DescFile>();
  for (const service of services) collect(service.file, files);
  const symbols = new Map<string, DescFile>();
  for (const file of files.values()) for (const name of namesIn(file)) symbols.set(name, file);

  const describe = (call: grpc.ServerDuplexStream<ServerReflectionRequest, ServerReflectionResponse>): void => {
    call.on("data", (request: ServerReflectionRequest) => call.write(answerTo(request)));
    call.on("end", () => call.end());
  };
  function answerTo(request: ServerReflectionRequest): ServerReflectionResponse {
    const { messageRequest: asked } = request;
    const file =
      asked.case === "fileByFilename"
        ? files.get(asked.value)
        : asked.case === "fileContainingSymbol"
          ? symbols.get(asked.value)
          : undefined;
    const answer = create(ServerReflectionResponseSchema, { validHost: request.host, originalRequest: request });
    if (asked.case === "listServices") {
      const service = services.map(({ typeName }) => ({
        $typeName: "grpc.reflection.v1.ServiceResponse" as const,
        name: typeName,
      }));
      answer.messageResponse = {
        case: "listServicesResponse",
        value: { $typeName: "grpc.reflection.v1.ListServiceResponse", service },
      };
    } else if (file) {
      const fileDescriptorProto = [...collect(file, new Map()).values()].map(({ proto }) =>
        toBinary(FileDescriptorProtoSchema, proto),
      );
      answer.messageResponse = {
        case: "fileDescriptorResponse",
        value: { $typeName: "grpc.reflection.v1.FileDescriptorResponse", fileDescriptorProto },
      };
    } else {
      answer.messageResponse = {
        case: "errorResponse",
        value: {
          $typeName: "grpc.reflection.v1.ErrorResponse",
          errorCode: grpc.status.NOT_FOUND,
          errorMessage: "not found",
        },
      };
    }
    return answer;
  }
  // The two differ in their names alone: what is read and written is the same.
  server.addService(definitionOf(ReflectionV1), { serverReflectionInfo: describe });
  const older = definitionOf(ReflectionV1)["serverReflectionInfo"];
  const path = definitionOf(ReflectionV1Alpha)["serverReflectionInfo"]?.path;
  if (older && path)
    server.addService({ serverReflectionInfo: { ...older, path } }, { serverReflectionInfo: describe });
}

/** A file and all that it imports, by name, itself first. */
function collect(file: DescFile, found: Map<string, DescFile>): Map<string, DescFile> {
  if (!found.has(file.proto.name)) {
    found.set(file.proto.name, file);
    for (const dependency of file.dependencies) collect(dependency, found);
  }
  return found;
}

function* namesIn(file: DescFile): Generator<string> {
  for (const service of file.services) {
    yield service.typeName;
    for (const method of service.methods) yield `${service.typeName}.${method.name}`;
  }
  for (const { typeName } of file.enums) yield typeName;
  const messages = [...file.messages];
  for (let message = messages.pop(); message; message = messages.pop()) {
    yield message.typeName;
    for (const { typeName } of message.nestedEnums) yield typeName;
    messages.push(...message.nestedMessages);
  }
}
