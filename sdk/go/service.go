package runmesh

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
)

// What gRPC is given where a call has no deadline may be far away; a year is no deadline either.
const noDeadline = 365 * 24 * time.Hour

// A service answers hosts, whether they dial it or it has attached to them.
type service struct {
	pb.UnimplementedDiscoveryServiceServer
	pb.UnimplementedRunServiceServer

	plugin   *Plugin
	most     int // runs at once; 0: no limit
	log      *slog.Logger
	hosts    *hosts
	instance string

	mu       sync.Mutex
	settings map[string]string // by host id
	active   map[*activeRun]bool
	draining bool
	working  sync.WaitGroup // runs whose code, or whose stream, has not ended
}

// An activeRun is one whose code has not ended, whoever still reads.
type activeRun struct {
	id            string
	interruptible bool
	out           *outbox
	cancel        context.CancelCauseFunc
	ended         chan struct{}
}

func newService(plugin *Plugin, most int, log *slog.Logger, hosts *hosts) *service {
	return &service{
		plugin: plugin, most: most, log: log, hosts: hosts, instance: rand.Text(),
		settings: map[string]string{}, active: map[*activeRun]bool{},
	}
}

func (s *service) Handshake(_ context.Context, request *pb.HandshakeRequest) (*pb.HandshakeResponse, error) {
	answer := s.introduction()
	if slices.Contains(request.ProtocolVersions, protocolVersion) {
		answer.ProtocolVersion = protocolVersion
		s.welcomed(request)
	}
	return answer, nil
}

// welcomed keeps the settings that a host has for its own runs.
func (s *service) welcomed(host *pb.HandshakeRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings[host.GetHostId()] = host.GetSettingsJson()
}

func (s *service) introduction() *pb.HandshakeResponse {
	return &pb.HandshakeResponse{
		PluginId: s.plugin.ID, PluginVersion: s.plugin.Version, InstanceId: s.instance,
		SdkName: "runmesh-sdk", SdkLanguage: "go", SdkVersion: Version, MaxConcurrentRuns: int32(s.most),
	}
}

func (s *service) ListRunners(context.Context, *pb.ListRunnersRequest) (*pb.ListRunnersResponse, error) {
	return &pb.ListRunnersResponse{Runners: s.plugin.manifests}, nil
}

func (s *service) Run(request *pb.RunRequest, stream grpc.ServerStreamingServer[pb.RunResponse]) error {
	incoming, _ := metadata.FromIncomingContext(stream.Context())
	run, err := s.accept(stream.Context(), request, incoming)
	if err != nil {
		return err
	}
	defer s.working.Done()
	for run.out.hasMore() {
		if err := stream.Send(&pb.RunResponse{Results: run.out.take(waitingResults)}); err != nil {
			return err
		}
	}
	return stream.Context().Err()
}

func (s *service) Interrupt(ctx context.Context, request *pb.InterruptRequest) (*pb.InterruptResponse, error) {
	s.mu.Lock()
	var runs []*activeRun
	able := slices.ContainsFunc(s.plugin.manifests, canBeInterrupted)
	for run := range s.active {
		if run.id == request.RunId {
			runs = append(runs, run)
			able = able && run.interruptible
		}
	}
	s.mu.Unlock()
	if !able {
		return nil, refusal(codes.Unimplemented, "NOT_IMPLEMENTED", "the runner's manifest has no capability `interrupt`",
			map[string]string{"run_id": request.RunId})
	}
	for _, run := range runs {
		run.cancel(interrupted)
	}
	for _, run := range runs {
		select {
		case <-run.ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &pb.InterruptResponse{WasActive: len(runs) > 0}, nil
}

func canBeInterrupted(manifest *pb.RunnerManifest) bool {
	return manifest.GetCapabilities().GetInterrupt()
}

// accept starts a run, whose results are read until reading ends. Whoever reads them calls
// working.Done afterwards.
func (s *service) accept(reading context.Context, request *pb.RunRequest, incoming metadata.MD) (*activeRun, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refusalOf(request); err != nil {
		return nil, err
	}
	trace := metadata.MD{}
	for _, key := range []string{"traceparent", "tracestate"} {
		if values := incoming.Get(key); len(values) > 0 {
			trace.Set(key, values...)
		}
	}
	ctx, cancel := context.WithCancelCause(reading)
	release := func() {}
	if timeout, found := timeoutOf(reading, request.Timeout); found {
		ctx, release = context.WithTimeoutCause(ctx, timeout, timedOut)
	}
	deadline, _ := ctx.Deadline()
	id := request.GetContext().GetRunId()
	settings := s.settings[request.GetHostAccess().GetHostId()]
	if settings == "" {
		settings = "{}"
	}
	run := &Run{
		RunContext: request.Context,
		Host: &Host{pb.NewHostAPIServiceClient(&hostConnection{
			hosts: s.hosts, access: request.HostAccess, trace: trace, deadline: deadline,
		})},
		Log:      s.log.With("run_id", id),
		settings: settings,
		out:      newOutbox(reading, id),
	}
	index := slices.IndexFunc(s.plugin.manifests, func(m *pb.RunnerManifest) bool { return m.Id == request.RunnerId })
	active := &activeRun{
		id: id, interruptible: canBeInterrupted(s.plugin.manifests[index]),
		out: run.out, cancel: cancel, ended: make(chan struct{}),
	}
	s.active[active] = true
	s.working.Add(2) // its code, and its stream
	go func() {
		defer s.working.Done()
		run.do(ctx, s.plugin.runners[request.RunnerId])
		release()
		cancel(nil)
		s.mu.Lock()
		delete(s.active, active)
		s.mu.Unlock()
		close(active.ended)
	}()
	return active, nil
}

func (s *service) refusalOf(request *pb.RunRequest) error {
	switch {
	case s.draining:
		return refusal(codes.Unavailable, "UNAVAILABLE", "the runner's process is shutting down and takes no more runs", nil)
	case s.plugin.runners[request.RunnerId] == nil:
		return refusal(codes.NotFound, "NOT_FOUND", fmt.Sprintf("runner_id: %q is not served here", request.RunnerId),
			map[string]string{"resource": clean(request.RunnerId)})
	case request.GetContext().GetRunId() == "":
		return invalid("context.run_id", "must have 1 to 255 bytes, is empty")
	case s.most > 0 && len(s.active) >= s.most:
		return refusal(codes.ResourceExhausted, "OVERLOADED",
			fmt.Sprintf("%d runs are under way, as many as this process takes", len(s.active)),
			map[string]string{"limit": fmt.Sprint(s.most)}, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	}
	var config map[string]json.RawMessage
	if text := request.Context.ConfigJson; text == "" {
		request.Context.ConfigJson = "{}"
	} else if err := json.Unmarshal([]byte(text), &config); err != nil {
		return invalid("context.config_json", "must be a JSON object: "+err.Error())
	}
	return nil
}

func timeoutOf(reading context.Context, asked *durationpb.Duration) (time.Duration, bool) {
	if asked != nil {
		return asked.AsDuration(), true
	}
	deadline, found := reading.Deadline()
	left := time.Until(deadline)
	return left, found && left < noDeadline
}

// drain takes no more runs; what it returns is closed when those under way have ended.
func (s *service) drain() <-chan struct{} {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		s.working.Wait()
		close(idle)
	}()
	return idle
}

func (s *service) stopAll(why *ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for run := range s.active {
		run.cancel(why)
	}
}

func invalid(field, rule string) error {
	return refusal(codes.InvalidArgument, "INVALID_ARGUMENT", field+": "+rule, nil, &errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: rule}},
	})
}

// refusal makes a status as the contract wants it, with its reason.
func refusal(
	code codes.Code, reason, message string, facts map[string]string, details ...protoadapt.MessageV1,
) error {
	info := &errdetails.ErrorInfo{Domain: domain, Reason: reason, Metadata: facts}
	told, err := status.New(code, message).WithDetails(append([]protoadapt.MessageV1{info}, details...)...)
	if err != nil {
		return status.Error(code, message)
	}
	return told.Err()
}
