// A plugin that does not end when it is asked to, and starts a process in a session of its own.
import { spawn } from "node:child_process";
import { createServer } from "node:net";

for (const name of ["SIGTERM", "SIGHUP", "SIGINT"]) process.on(name, () => {});
createServer(() => {}).listen(process.env.RUNMESH_LISTEN.replace(/^unix:/, ""));
spawn("sleep", ["1012"], { detached: true, stdio: "ignore" });
