/** The contract: every message, enum and service of `runmesh.v1`. */
export * from "./gen/runmesh/v1/context_pb.js";
export * from "./gen/runmesh/v1/discovery_pb.js";
export * from "./gen/runmesh/v1/errors_pb.js";
export * from "./gen/runmesh/v1/event_pb.js";
export * from "./gen/runmesh/v1/gateway_pb.js";
export * from "./gen/runmesh/v1/host_api_pb.js";
export * from "./gen/runmesh/v1/manifest_pb.js";
export * from "./gen/runmesh/v1/result_pb.js";
export * from "./gen/runmesh/v1/run_pb.js";
export * from "./gen/runmesh/v1/types_pb.js";
export * from "./gen/runmesh/v1/attach_pb.js";
