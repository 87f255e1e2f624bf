/** The plugin examples/typescript: the runners echo and desk in one process. */
import { readPlugin, serve } from "@runmesh/sdk";

import { desk } from "./desk.js";
import { echo } from "./echo.js";

await serve(readPlugin(new URL("..", import.meta.url), { echo, desk }));
