// Package runmeshtest runs a runner in a test, over a real connection, as a host does.
package runmeshtest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	runmesh "github.com/runmesh/runmesh/sdk/go"
	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
)

const (
	manifest  = "{apiVersion: runmesh/v1, kind: Plugin, metadata: {author: a, name: test, version: 0.1.0}, components: [runner]}"
	component = "{apiVersion: runmesh/v1, kind: AgentRunner, metadata: {name: runner, label: Runner}, " +
		"capabilities: {streaming: true, interrupt: true}}"
)

// An Outcome is how a run ended, and what it said before.
type Outcome struct {
	Text    string // of its messages, or of its deltas where it sent no whole message
	Results []*runmesh.Result
	Failure *pb.RunFailed // nil: it ended well
}

// Message is a request to answer a text.
func Message(text string) *pb.RunRequest {
	return &pb.RunRequest{
		RunnerId:   "plugin:a/test/runner",
		Context:    &pb.RunContext{RunId: "run-1", ConfigJson: "{}", Input: &pb.EventInput{Text: &text}},
		HostAccess: &pb.HostAccess{HostId: "test", RunToken: "run-token", InstanceToken: "instance-token"},
	}
}

// Serve serves a runner for as long as the test lasts, and returns a connection to it.
func Serve(t testing.TB, runner runmesh.Runner) *grpc.ClientConn {
	t.Helper()
	files := fstest.MapFS{"manifest.yaml": {Data: []byte(manifest)}, "runner": {Data: []byte(component)}}
	plugin, err := runmesh.NewPlugin(files, map[string]runmesh.Runner{"runner": runner})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	address, ended := make(chan string, 1), make(chan error, 1)
	options := runmesh.Options{Listen: socket(t), Listening: func(where string) { address <- where }}
	go func() { ended <- runmesh.Serve(ctx, plugin, options) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case where := <-address:
		return dial(t, where)
	case err := <-ended:
		ended <- err
		t.Fatal(err)
		return nil
	}
}

// Run runs a runner once. Its calls to the host are answered by api, if one is given. A run that
// breaks a rule of the contract fails the test.
func Run(t testing.TB, runner runmesh.Runner, request *pb.RunRequest, api ...pb.HostAPIServiceServer) *Outcome {
	t.Helper()
	for _, each := range api {
		request.HostAccess.Address = Host(t, each)
	}
	stream, err := pb.NewRunServiceClient(Serve(t, runner)).Run(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	outcome, ended := &Outcome{}, false
	var deltas, messages string
	for {
		response, err := stream.Recv()
		if err != nil {
			break
		}
		for _, result := range response.Results {
			outcome.Results = append(outcome.Results, result)
			if result.Sequence != int64(len(outcome.Results)) || result.RunId != request.Context.RunId || ended {
				t.Errorf("result %d of run %s breaks the contract: %v", len(outcome.Results), request.Context.RunId, result)
			}
			deltas += result.GetMessageDelta().GetText()
			for _, part := range result.GetMessageCompleted().GetMessage().GetParts() {
				messages += part.GetText()
			}
			outcome.Failure = result.GetRunFailed()
			ended = outcome.Failure != nil || result.GetRunCompleted() != nil
		}
	}
	if !ended {
		t.Errorf("the run has no end: %v", outcome.Results)
	}
	outcome.Text = messages
	if messages == "" {
		outcome.Text = deltas
	}
	return outcome
}

// Host serves what answers the calls of a run, for as long as the test lasts, and returns its
// address.
func Host(t testing.TB, api pb.HostAPIServiceServer) string {
	t.Helper()
	address := socket(t)
	listener, err := net.Listen("unix", address[len("unix:"):])
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterHostAPIServiceServer(server, api)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return address
}

// socket is the address of a new socket; a test's own folder may have too long a path for one.
func socket(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "runmesh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return "unix:" + filepath.Join(folder, "s")
}

func dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}
