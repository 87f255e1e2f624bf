// Reads messages of the contract and writes them again, as wire_programs.py says: node wire.mjs SDK-FOLDER
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const resolve = createRequire(new URL("package.json", folder)).resolve;
const protobuf = await import(pathToFileURL(resolve("@bufbuild/protobuf")).href);
const modules = await Promise.all(
  ["v1.js", "gen/google/rpc/status_pb.js", "gen/google/rpc/error_details_pb.js"].map(
    (name) => import(new URL(`dist/${name}`, folder).href),
  ),
);
const files = modules.flatMap((module) => Object.values(module).filter((each) => each?.kind === "file"));
const registry = protobuf.createRegistry(...files);

function again(name, form, content) {
  const schema = registry.getMessage(name);
  if (!schema) throw new Error(`there is no ${name}`);
  const message =
    form === "json"
      ? protobuf.fromJsonString(schema, content, { ignoreUnknownFields: true, registry })
      : protobuf.fromBinary(schema, Buffer.from(content, "hex"));
  const data = Buffer.from(protobuf.toBinary(schema, message)).toString("hex");
  return `${data} ${protobuf.toJsonString(schema, message, { registry })}`;
}

for await (const line of createInterface({ input: process.stdin })) {
  const [name, form] = line.split(" ", 2);
  try {
    console.log(again(name, form, line.slice(name.length + form.length + 2)));
  } catch (error) {
    console.log(`! ${String(error).replaceAll("\n", " ")}`);
  }
}
