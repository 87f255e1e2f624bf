// The plugin examples/go: the runners echo and desk in one process.
package main

import (
	"embed"

	runmesh "github.com/runmesh/runmesh/sdk/go"
)

//go:embed manifest.yaml components/*.yaml
var files embed.FS

var runners = map[string]runmesh.Runner{"echo": echo, "desk": desk}

func main() { runmesh.Main(files, runners) }
