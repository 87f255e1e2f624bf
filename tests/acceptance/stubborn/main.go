// A plugin that does not end when it is asked to, and starts a process in a session of its own.
package main

import (
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	listener, err := net.Listen("unix", strings.TrimPrefix(os.Getenv("RUNMESH_LISTEN"), "unix:"))
	if err != nil {
		os.Exit(3)
	}
	sleeper := exec.Command("sleep", "1011")
	sleeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if sleeper.Start() != nil {
		os.Exit(4)
	}
	for {
		connection, err := listener.Accept()
		if err == nil {
			defer connection.Close()
		}
	}
}
