/** What one process serves: its manifests, and the code of each runner. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import {
  type DescField,
  type DescMessage,
  type JsonValue,
  type MessageInitShape,
  create,
  fromJson,
} from "@bufbuild/protobuf";
import { parse } from "yaml";

import { type RunnerManifest, RunnerManifestSchema } from "./gen/runmesh/v1/manifest_pb.js";
import { LocalizedTextSchema } from "./gen/runmesh/v1/types_pb.js";
import type { Result } from "./results.js";
import type { Run } from "./run.js";

const apiVersion = "runmesh/v1";
export const protocolVersion = "1";
const idPart = /^[a-z0-9][a-z0-9._-]{0,63}$/;

/**
 * Answers one event: yields results, and returns when it has said everything. A `Failure` that it throws ends the run
 * with its code, any other error with `runner.error`. It gives `run.signal` to whatever it waits for.
 */
export type Runner = (run: Run) => AsyncIterable<Result>;

/** Runners by name. */
export type Runners = Readonly<Record<string, Runner>>;

/** What one process serves. */
export interface Plugin {
  /** `author/name`. */
  readonly id: string;
  readonly version: string;
  /** By id, in its order. */
  readonly served: ReadonlyMap<string, { readonly manifest: RunnerManifest; readonly runner: Runner }>;
}

/**
 * Reads `manifest.yaml` and the components that it lists, the only place where a plugin is described, and gives each of
 * its runners the code that has its name.
 *
 * @param folder - The plugin's folder.
 */
export function readPlugin(folder: string | URL, runners: Runners): Plugin {
  const place = folder instanceof URL ? fileURLToPath(folder) : folder;
  const head = readYaml(place, "manifest.yaml");
  if (head["apiVersion"] !== apiVersion || head["kind"] !== "Plugin") {
    throw new Error(`manifest.yaml: must be of apiVersion ${apiVersion} and kind Plugin`);
  }
  const { author, name, version } = (head["metadata"] ?? {}) as Record<string, string>;
  const components = (head["components"] ?? []) as string[];
  const described = components.flatMap((file) => {
    const values = readYaml(place, file);
    if (values["kind"] !== "AgentRunner") return [];
    try {
      return [readRunner(values)];
    } catch (error) {
      throw new Error(`${file}: ${(error as Error).message}`, { cause: error });
    }
  });
  return definePlugin({ author: author ?? "", name: name ?? "", version: version ?? "" }, described, runners);
}

/** Describes a plugin in code; what identifies its runners follows from the plugin. */
export function definePlugin(
  { author, name, version }: { author: string; name: string; version: string },
  manifests: readonly (MessageInitShape<typeof RunnerManifestSchema> & { name?: string })[],
  runners: Runners,
): Plugin {
  if (!idPart.test(author) || !idPart.test(name) || typeof version !== "string" || !version) {
    throw new Error(`a plugin needs author and name, matching ${idPart.source}, and version`);
  }
  const served = new Map<string, { manifest: RunnerManifest; runner: Runner }>();
  for (const own of [...manifests].sort((a, b) => ((a.name ?? "") < (b.name ?? "") ? -1 : 1))) {
    const id = `plugin:${author}/${name}/${own.name}`;
    const runner = Object.hasOwn(runners, own.name ?? "") ? runners[own.name ?? ""] : undefined;
    if (!own.name || !idPart.test(own.name)) throw new Error(`a runner's name must match ${idPart.source}`);
    if (!runner || served.has(id)) throw new Error(`${id}: there must be exactly one runner of that name`);
    const manifest = create(RunnerManifestSchema, own as MessageInitShape<typeof RunnerManifestSchema>);
    served.set(id, { manifest: Object.assign(manifest, { id, protocolVersion, version }), runner });
  }
  for (const missing of Object.keys(runners)) {
    if (!served.has(`plugin:${author}/${name}/${missing}`))
      throw new Error(`no manifest describes the runner '${missing}'`);
  }
  return { id: `${author}/${name}`, version, served };
}

function readRunner({ kind: _, apiVersion: version, metadata, ...values }: Record<string, unknown>): RunnerManifest {
  if (version !== apiVersion) throw new Error(`apiVersion must be ${apiVersion}`);
  const { notes, ...about } = (metadata ?? {}) as Record<string, unknown>;
  const manifest = adapt(RunnerManifestSchema, { ...values, ...about, ...(notes ? { metadata: notes } : {}) });
  return fromJson(RunnerManifestSchema, manifest as JsonValue);
}

/**
 * Turns what a manifest says in YAML into the contract's JSON: enum values go by their short names, a LocalizedText may
 * be one plain text, and a field `x_json` is written as `x` with any value. What is not known stays as it is, and is
 * refused when it is read.
 */
function adapt(schema: DescMessage, value: unknown): unknown {
  if (schema.typeName === LocalizedTextSchema.typeName) {
    return { text: typeof value === "string" ? { en_US: value } : value };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const fields = new Map(schema.fields.map((field) => [field.name, field]));
  return Object.fromEntries(
    Object.entries(value).map(([name, own]) => {
      if (fields.has(`${name}_json`)) return [`${name}_json`, JSON.stringify(own)];
      const field = fields.get(name);
      return [name, field ? adaptField(field, own) : own];
    }),
  );
}

function adaptField(field: DescField, value: unknown): unknown {
  if (field.fieldKind === "list" && Array.isArray(value)) return value.map((entry) => adaptOne(field, entry));
  return field.fieldKind === "map" ? value : adaptOne(field, value);
}

function adaptOne(field: DescField, value: unknown): unknown {
  if (field.message) return adapt(field.message, value);
  if (field.enum && typeof value === "string") {
    return (field.enum.values[0]?.name ?? "").replace(/UNSPECIFIED$/, "") + value.toUpperCase();
  }
  return value;
}

function readYaml(folder: string, file: string): Record<string, unknown> {
  try {
    const values: unknown = parse(readFileSync(join(folder, file), "utf8"));
    if (typeof values === "object" && values !== null) return values as Record<string, unknown>;
  } catch (error) {
    throw new Error(`${file}: ${(error as Error).message}`, { cause: error });
  }
  throw new Error(`${file}: must be a mapping`);
}
