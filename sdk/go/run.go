package runmesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
)

// A Run is one execution: what it was handed, and where its results go. The methods of the
// contract's RunContext are its own.
type Run struct {
	*pb.RunContext
	Host *Host        // calls to the host that it came from
	Log  *slog.Logger // for whoever reads the process's log

	settings string
	out      *outbox
}

// Text is what was said; empty where nothing was.
func (r *Run) Text() string { return r.GetInput().GetText() }

// Config decodes the agent's configuration.
func (r *Run) Config(into any) error { return json.Unmarshal([]byte(r.GetConfigJson()), into) }

// Settings decodes what the host's operator set for the plugin as a whole.
func (r *Run) Settings(into any) error { return json.Unmarshal([]byte(r.settings), into) }

// StateAtStart decodes a value of state as it was when the run started; false where there was none.
func (r *Run) StateAtStart(scope pb.StateScope, key string, into any) (bool, error) {
	state := r.GetState()
	value, found := map[pb.StateScope]map[string]string{
		pb.StateScope_STATE_SCOPE_CONVERSATION: state.GetConversationJson(),
		pb.StateScope_STATE_SCOPE_ACTOR:        state.GetActorJson(),
		pb.StateScope_STATE_SCOPE_SUBJECT:      state.GetSubjectJson(),
		pb.StateScope_STATE_SCOPE_RUNNER:       state.GetRunnerJson(),
		pb.StateScope_STATE_SCOPE_BINDING:      state.GetBindingJson(),
		pb.StateScope_STATE_SCOPE_WORKSPACE:    state.GetWorkspaceJson(),
	}[scope][key]
	if !found {
		return false, nil
	}
	return true, json.Unmarshal([]byte(value), into)
}

// Send sends results, in order. It waits while the reader is slow, and fails when ctx has ended:
// what an interrupted run still has to say goes with context.WithoutCancel(ctx).
func (r *Run) Send(ctx context.Context, results ...*Result) error {
	for _, result := range results {
		if err := r.out.put(ctx, result); err != nil {
			return err
		}
	}
	return nil
}

// An ending is why a run was stopped from outside, and what is said of it then.
type ending struct{ failure Failure }

func (e *ending) Error() string { return e.failure.Message }

var (
	timedOut    = &ending{Failure{Code: "runner.timeout", Message: "the run took longer than it may"}}
	interrupted = &ending{Failure{Code: "cancelled", Message: "the run was interrupted"}}
	shutDown    = &ending{Failure{
		Code: "runner.unavailable", Message: "the runner's process is shutting down", Retryable: true,
	}}
	reloaded = &ending{Failure{
		Code: "runner.unavailable", Message: "the development instance was reloaded or stopped", Retryable: true,
	}}
)

// do runs the author's code to its end, and says how it ended.
func (r *Run) do(ctx context.Context, runner Runner) {
	err := guarded(ctx, runner, r)
	if err == nil && ctx.Err() == nil {
		r.out.end(Completed("stop"))
		return
	}
	r.out.end(r.failureOf(ctx, err).result())
}

func (r *Run) failureOf(ctx context.Context, err error) *Failure {
	var failure *Failure
	if errors.As(err, &failure) {
		return failure
	}
	var stopped *ending
	if errors.As(context.Cause(ctx), &stopped) && (err == nil || isStop(err)) {
		return &stopped.failure
	}
	if ctx.Err() != nil && (err == nil || isStop(err)) {
		return &interrupted.failure // the caller left: nobody reads it
	}
	r.Log.Error("the run failed", "error", err)
	return &Failure{Code: "runner.error", Message: err.Error()}
}

// isStop says whether an error is no more than the end of its context.
func isStop(err error) bool {
	var stopped *ending
	code := status.Code(err)
	return errors.As(err, &stopped) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, ErrEnded) || code == codes.Canceled || code == codes.DeadlineExceeded
}

// guarded keeps a runner that panics from taking the other runs along.
func guarded(ctx context.Context, runner Runner, run *Run) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			run.Log.Error("the runner panicked", "reason", reason, "stack", string(debug.Stack()))
			err = fmt.Errorf("the runner panicked: %v", reason)
		}
	}()
	return runner(ctx, run)
}
