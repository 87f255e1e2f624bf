package runmesh_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	runmesh "github.com/runmesh/runmesh/sdk/go"
	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
	"github.com/runmesh/runmesh/sdk/go/runmeshtest"
)

func TestResultsAreNumberedAndTheRunIsEnded(t *testing.T) {
	same := runmesh.Delta("twice ")
	outcome := runmeshtest.Run(t, func(ctx context.Context, run *runmesh.Run) error {
		return run.Send(ctx, same, same, runmesh.ToolStarted("1", "lookup", "{}"), runmesh.ToolFailed("1", "lookup", "timeout", "late"),
			runmesh.LogLine(pb.LogLevel_LOG_LEVEL_INFO, "noted"), runmesh.Reply("both \xff"))
	}, runmeshtest.Message("hi"))
	if outcome.Text != "both \uFFFD" || len(outcome.Results) != 7 {
		t.Errorf("it said %q in %d results", outcome.Text, len(outcome.Results))
	}
	if reason := outcome.Results[6].GetRunCompleted().GetFinishReason(); reason != "stop" {
		t.Errorf("it ended with %q", reason)
	}
}

func TestErrorsEndTheRunAsFailed(t *testing.T) {
	failure := &runmesh.Failure{Code: "acme.closed", Message: "closed", Retryable: true, Details: map[string]string{"day": "Sunday"}}
	for name, each := range map[string]struct {
		runner        runmesh.Runner
		code, message string
	}{
		"failure": {func(context.Context, *runmesh.Run) error { return errors.Join(failure) }, "acme.closed", "closed"},
		"error":   {func(context.Context, *runmesh.Run) error { return errors.New("broken") }, "runner.error", "broken"},
		"panic":   {func(context.Context, *runmesh.Run) error { panic("no") }, "runner.error", "panicked: no"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runmeshtest.Run(t, each.runner, runmeshtest.Message("hi")).Failure
			if got.GetCode() != each.code || !strings.Contains(got.GetMessage(), each.message) {
				t.Errorf("it failed with %v", got)
			}
			if name == "failure" && (!got.Retryable || got.Details["day"] != "Sunday") {
				t.Errorf("it failed with %v", got)
			}
		})
	}
}

func TestResultThatCannotBeSentIsAnErrorOfItsAuthor(t *testing.T) {
	outcome := runmeshtest.Run(t, func(ctx context.Context, run *runmesh.Run) error {
		for _, result := range []*runmesh.Result{
			{}, runmesh.Delta(strings.Repeat("x", 1<<20)), runmesh.ToolStarted("1", "\xff", "{}"),
			runmesh.InlineArtifact("a", "b/c", make([]byte, 1<<20+1)),
		} {
			if run.Send(ctx, result) == nil {
				t.Errorf("%.50v was sent", result)
			}
		}
		if err := run.Send(ctx, runmesh.InlineArtifact("a", "b/c", make([]byte, 1<<20)), runmesh.Completed("silent")); err != nil {
			t.Error(err)
		}
		if err := run.Send(ctx, runmesh.Delta("late")); !errors.Is(err, runmesh.ErrEnded) {
			t.Errorf("after its end: %v", err)
		}
		return errors.New("this comes too late as well")
	}, runmeshtest.Message("hi"))
	if len(outcome.Results) != 2 || outcome.Failure != nil {
		t.Errorf("it ended as %v", outcome.Failure)
	}
}

func TestConfigurationAndStateAreDecoded(t *testing.T) {
	request := runmeshtest.Message("hi")
	request.Context.ConfigJson = `{"chat": 9007199254740993}`
	request.Context.State = &pb.StateSnapshot{ActorJson: map[string]string{"seen": "3"}}
	runmeshtest.Run(t, func(_ context.Context, run *runmesh.Run) error {
		var config struct{ Chat int64 }
		var seen int
		found, err := run.StateAtStart(pb.StateScope_STATE_SCOPE_ACTOR, "seen", &seen)
		if err = errors.Join(err, run.Config(&config)); err != nil || config.Chat != 1<<53+1 || !found || seen != 3 {
			t.Errorf("got %v, %v %d, %v", config, found, seen, err)
		}
		if found, _ := run.StateAtStart(pb.StateScope_STATE_SCOPE_ACTOR, "other", &seen); found {
			t.Error("there is state that was never kept")
		}
		return run.Settings(&config)
	}, request)
}

// waits says that it has begun, and waits for its end.
func waits(began chan<- error) runmesh.Runner {
	return func(ctx context.Context, run *runmesh.Run) error {
		err := run.Send(ctx, runmesh.Delta("waiting"))
		if began != nil {
			began <- err
		}
		<-ctx.Done()
		if run.Send(ctx, runmesh.Delta("never said")) == nil {
			return errors.New("a stopped run goes on")
		}
		// What an interrupted run still has to say.
		if err := run.Send(context.WithoutCancel(ctx), runmesh.LogLine(pb.LogLevel_LOG_LEVEL_INFO, "cleaned up")); err != nil {
			return nil
		}
		return ctx.Err()
	}
}

func TestRunThatIsOutOfTimeIsStopped(t *testing.T) {
	request := runmeshtest.Message("hi")
	request.Timeout = durationpb.New(50 * time.Millisecond)
	outcome := runmeshtest.Run(t, waits(nil), request)
	if outcome.Failure.GetCode() != "runner.timeout" || outcome.Results[1].GetLog().GetText() != "cleaned up" {
		t.Errorf("it ended as %v", outcome.Results)
	}
}

func TestInterruptStopsARunAndAnswersThen(t *testing.T) {
	began := make(chan error, 1)
	runs := pb.NewRunServiceClient(runmeshtest.Serve(t, waits(began)))
	stream, err := runs.Run(t.Context(), runmeshtest.Message("hi"))
	if err = errors.Join(err, <-began); err != nil {
		t.Fatal(err)
	}
	answer, err := runs.Interrupt(t.Context(), &pb.InterruptRequest{RunId: "run-1"})
	if err != nil || !answer.WasActive {
		t.Fatalf("answered %v, %v", answer, err)
	}
	var last *runmesh.Result
	for response, err := stream.Recv(); err == nil; response, err = stream.Recv() {
		last = response.Results[len(response.Results)-1]
	}
	if last.GetRunFailed().GetCode() != "cancelled" {
		t.Errorf("it ended as %v", last)
	}
	if again, err := runs.Interrupt(t.Context(), &pb.InterruptRequest{RunId: "run-1"}); err != nil || again.WasActive {
		t.Errorf("answered %v, %v", again, err)
	}
}

func TestCancelledCallStopsARunAtOnce(t *testing.T) {
	began, ended := make(chan error, 1), make(chan bool)
	runs := pb.NewRunServiceClient(runmeshtest.Serve(t, func(ctx context.Context, run *runmesh.Run) error {
		defer close(ended)
		return waits(began)(ctx, run)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := runs.Run(ctx, runmeshtest.Message("hi")); err != nil {
		t.Fatal(err)
	}
	<-began
	cancel()
	<-ended
}

func TestSlowReaderHoldsItsRunBack(t *testing.T) {
	sent := make(chan int, 20_000)
	runs := pb.NewRunServiceClient(runmeshtest.Serve(t, func(ctx context.Context, run *runmesh.Run) error {
		for index := range cap(sent) {
			if err := run.Send(ctx, runmesh.Delta(strings.Repeat("x", 1000))); err != nil {
				return err
			}
			sent <- index
		}
		return nil
	}))
	stream, err := runs.Run(t.Context(), runmeshtest.Message("hi"))
	if err != nil {
		t.Fatal(err)
	}
	for before := -1; before != len(sent); time.Sleep(300 * time.Millisecond) {
		before = len(sent)
	}
	if len(sent) == cap(sent) {
		t.Error("20 MB were sent to nobody")
	}
	count := int64(0)
	for response, err := stream.Recv(); err == nil; response, err = stream.Recv() {
		for _, result := range response.Results {
			if count++; result.Sequence != count {
				t.Fatalf("result %d has number %d", count, result.Sequence)
			}
		}
	}
	if count != int64(cap(sent)+1) {
		t.Errorf("%d results came", count)
	}
}

func TestRunsThatCannotBeRunAreRefusedWithAReason(t *testing.T) {
	runs := pb.NewRunServiceClient(runmeshtest.Serve(t, nothing))
	for reason, change := range map[string]func(*pb.RunRequest){
		"NOT_FOUND":        func(r *pb.RunRequest) { r.RunnerId = "plugin:a/test/other" },
		"INVALID_ARGUMENT": func(r *pb.RunRequest) { r.Context.ConfigJson = "[]" },
	} {
		request := runmeshtest.Message("hi")
		change(request)
		stream, err := runs.Run(t.Context(), request)
		if err == nil {
			_, err = stream.Recv()
		}
		details := status.Convert(err).Details()
		if len(details) == 0 || details[0].(*errdetails.ErrorInfo).Reason != reason {
			t.Errorf("%s: refused with %v", reason, err)
		}
	}
}

// api answers calls as a host does that is asked for "missing" things, and notes what came along.
type api struct {
	pb.UnimplementedHostAPIServiceServer
	came     metadata.MD
	deadline time.Time
	uploaded []byte
}

func (a *api) GetState(ctx context.Context, _ *pb.GetStateRequest) (*pb.GetStateResponse, error) {
	a.came, _ = metadata.FromIncomingContext(ctx)
	a.deadline, _ = ctx.Deadline()
	told, _ := status.New(codes.ResourceExhausted, "too fast").WithDetails(
		&errdetails.ErrorInfo{Domain: "runmesh", Reason: "RATE_LIMITED", Metadata: map[string]string{"resource": "seen"}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(250 * time.Millisecond)},
	)
	return nil, told.Err()
}

func (a *api) PageHistory(_ context.Context, request *pb.PageHistoryRequest) (*pb.PageHistoryResponse, error) {
	if request.PageToken == "" {
		return &pb.PageHistoryResponse{Items: []*pb.TranscriptItem{{Cursor: "a"}, {Cursor: "b"}}, NextPageToken: "2"}, nil
	}
	return &pb.PageHistoryResponse{Items: []*pb.TranscriptItem{{Cursor: "c"}}}, nil
}

func (a *api) CreateArtifact(stream grpc.ClientStreamingServer[pb.CreateArtifactRequest, pb.CreateArtifactResponse]) error {
	first, err := stream.Recv()
	if err != nil || first.GetHeader().GetName() == "refused" {
		return status.Error(codes.InvalidArgument, "the header is wrong")
	}
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&pb.CreateArtifactResponse{Artifact: &pb.ArtifactRef{SizeBytes: int64(len(a.uploaded))}})
		}
		if err != nil {
			return err
		}
		a.uploaded = append(a.uploaded, request.GetChunk()...)
	}
}

func TestCallsCarryBothTokensTraceAndDeadlineAndFailByReason(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	host := &api{}
	request := runmeshtest.Message("hi")
	request.Timeout = durationpb.New(time.Minute)
	request.HostAccess.Address = runmeshtest.Host(t, host)
	runner := func(ctx context.Context, run *runmesh.Run) error {
		_, err := run.Host.GetState(context.WithoutCancel(ctx), &pb.GetStateRequest{Key: "seen"})
		return err
	}
	failed := make(chan *runmesh.HostError, 1)
	runs := pb.NewRunServiceClient(runmeshtest.Serve(t, func(ctx context.Context, run *runmesh.Run) error {
		var refused *runmesh.HostError
		errors.As(runner(ctx, run), &refused)
		failed <- refused
		return nil
	}))
	stream, err := runs.Run(metadata.AppendToOutgoingContext(t.Context(), "traceparent", trace, "tracestate", "a=b"), request)
	if err != nil {
		t.Fatal(err)
	}
	for ; err == nil; _, err = stream.Recv() {
	}
	refused := <-failed
	if refused == nil || refused.Method != "GetState" || refused.Reason != "RATE_LIMITED" || !refused.Retryable ||
		refused.RetryAfter != 250*time.Millisecond || refused.Metadata["resource"] != "seen" {
		t.Errorf("it failed with %#v", refused)
	}
	for key, want := range map[string]string{
		"authorization": "Bearer run-token", "runmesh-instance": "instance-token", "traceparent": trace, "tracestate": "a=b",
	} {
		if got := host.came.Get(key); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q", key, got)
		}
	}
	if left := time.Until(host.deadline); left <= 0 || left > time.Minute {
		t.Errorf("the call had %v left", left)
	}
}

func TestHistoryIsPagedAndArtifactsAreUploadedWhole(t *testing.T) {
	host, cursors := &api{}, ""
	content := bytes.Repeat([]byte("0123456789"), 250_000)
	outcome := runmeshtest.Run(t, func(ctx context.Context, run *runmesh.Run) error {
		for item, err := range run.Host.History(ctx, &pb.PageHistoryRequest{}) {
			if err != nil {
				return err
			}
			cursors += item.Cursor
		}
		ref, err := run.Host.Upload(ctx, &pb.ArtifactHeader{Type: "file"}, bytes.NewReader(content))
		if err != nil || ref.SizeBytes != int64(len(content)) {
			t.Errorf("uploaded as %v, %v", ref, err)
		}
		_, err = run.Host.Upload(ctx, &pb.ArtifactHeader{Name: "refused"}, bytes.NewReader(content))
		var refused *runmesh.HostError
		if !errors.As(err, &refused) || refused.Reason != "INVALID_ARGUMENT" {
			t.Errorf("refused with %v", err)
		}
		return run.Send(ctx, runmesh.Completed("silent"))
	}, runmeshtest.Message("hi"), host)
	if outcome.Failure != nil || cursors != "abc" || sha256.Sum256(host.uploaded) != sha256.Sum256(content) {
		t.Errorf("%v, history %q, %d bytes", outcome.Failure, cursors, len(host.uploaded))
	}
}

func TestTokensDoNotTravelInTheClear(t *testing.T) {
	for _, address := range []string{"", "host.example:7443", "10.0.0.1:7443"} {
		request := runmeshtest.Message("hi")
		request.HostAccess.Address = address
		outcome := runmeshtest.Run(t, func(ctx context.Context, run *runmesh.Run) error {
			_, err := run.Host.GetPrompt(ctx, &pb.GetPromptRequest{})
			var refused *runmesh.HostError
			if !errors.As(err, &refused) || refused.Reason != "UNAVAILABLE" {
				t.Errorf("%q: %v", address, err)
			}
			return nil
		}, request)
		if outcome.Failure != nil {
			t.Error(outcome.Failure)
		}
	}
}
