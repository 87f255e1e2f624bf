package runmesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
)

const (
	domain       = "runmesh"
	messageBytes = 16 << 20
	chunkBytes   = 1 << 20
)

// A Host makes calls of HostAPIService for one run: all of the contract's, and a few made easier.
// Each carries the run's two tokens, its trace, and a deadline no later than the run's; errors are
// of type [*HostError]. Nothing is repeated by itself.
type Host struct {
	pb.HostAPIServiceClient
}

// A HostError is what a host, or the way to it, made of a call. Decide by its reason.
type HostError struct {
	Method     string
	Reason     string // as in the contract's ErrorReason, such as "NOT_FOUND"
	Message    string // for people
	Retryable  bool   // whether the same call may succeed later in this run
	RetryAfter time.Duration
	Metadata   map[string]string // what helps, such as "resource" or "limit"
	Violations []*errdetails.BadRequest_FieldViolation

	status *status.Status
}

func (e *HostError) Error() string { return fmt.Sprintf("%s: %s: %s", e.Method, e.Reason, e.Message) }

// GRPCStatus is the status that it came as.
func (e *HostError) GRPCStatus() *status.Status { return e.status }

// Unwrap tells a call that its own context ended.
func (e *HostError) Unwrap() error {
	switch e.status.Code() {
	case codes.Canceled:
		return context.Canceled
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	}
	return nil
}

// What a status means that comes without details: from gRPC itself, or from something between.
var reasonOfCode = map[codes.Code]string{
	codes.Unauthenticated:    "UNAUTHENTICATED",
	codes.PermissionDenied:   "UNAUTHORIZED",
	codes.NotFound:           "NOT_FOUND",
	codes.InvalidArgument:    "INVALID_ARGUMENT",
	codes.ResourceExhausted:  "OVERLOADED",
	codes.FailedPrecondition: "INCOMPATIBLE",
	codes.Aborted:            "CONFLICT",
	codes.AlreadyExists:      "ALREADY_EXISTS",
	codes.OutOfRange:         "SEQUENCE_COMPACTED",
	codes.DeadlineExceeded:   "DEADLINE_EXCEEDED",
	codes.Unimplemented:      "NOT_IMPLEMENTED",
	codes.Unavailable:        "UNAVAILABLE",
	codes.Canceled:           "UNAVAILABLE",
}

func hostError(method string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	told, _ := status.FromError(err)
	failed := &HostError{Method: path.Base(method), Reason: reasonOfCode[told.Code()], Message: told.Message(), status: told}
	if failed.Reason == "" {
		failed.Reason = "RUNTIME_ERROR"
	}
	for _, detail := range told.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.Domain == domain {
				failed.Reason, failed.Metadata = detail.Reason, detail.Metadata
			}
		case *errdetails.BadRequest:
			failed.Violations = append(failed.Violations, detail.FieldViolations...)
		case *errdetails.RetryInfo:
			failed.RetryAfter = detail.RetryDelay.AsDuration()
		}
	}
	switch failed.Reason {
	case "RATE_LIMITED", "OVERLOADED", "UNAVAILABLE":
		failed.Retryable = true
	}
	return failed
}

// History yields the transcript before the run's event, page by page as it is wanted.
func (h *Host) History(ctx context.Context, request *pb.PageHistoryRequest) iter.Seq2[*pb.TranscriptItem, error] {
	return func(yield func(*pb.TranscriptItem, error) bool) {
		for {
			page, err := h.PageHistory(ctx, request)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.NextPageToken == "" {
				return
			}
			request.PageToken = page.NextPageToken
		}
	}
}

// Upload stores an artifact of any size; its size and digest are checked where the header has them.
func (h *Host) Upload(ctx context.Context, header *pb.ArtifactHeader, content io.Reader) (*pb.ArtifactRef, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of no effect but where the content cannot be read
	call, err := h.CreateArtifact(ctx)
	if err != nil {
		return nil, err
	}
	request := &pb.CreateArtifactRequest{Item: &pb.CreateArtifactRequest_Header{Header: header}}
	buffer := make([]byte, chunkBytes)
	for err == nil {
		if call.Send(request) != nil {
			break // the host has answered: that tells why
		}
		var read int
		read, err = io.ReadFull(content, buffer)
		request = &pb.CreateArtifactRequest{Item: &pb.CreateArtifactRequest_Chunk{Chunk: bytes.Clone(buffer[:read])}}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			_ = call.Send(request)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	answer, err := call.CloseAndRecv()
	return answer.GetArtifact(), err
}

// hosts keeps one connection to each host that runs come from.
type hosts struct {
	tls *TLS

	mu          sync.Mutex
	connections map[string]*grpc.ClientConn
}

func (h *hosts) to(address string) (*grpc.ClientConn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if found := h.connections[address]; found != nil {
		return found, nil
	}
	made, err := h.dial(address)
	if err == nil {
		h.connections[address] = made
	}
	return made, err
}

func (h *hosts) dial(address string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	var credential credentials.TransportCredentials = insecure.NewCredentials()
	if h.tls.trustsHosts() && !isUnix(address) {
		credential = h.tls.towardsHosts()
	}
	return grpc.NewClient(address, append(options,
		grpc.WithTransportCredentials(credential),
		grpc.WithNoProxy(),
		// A host that comes back is called again at once, and not in two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytes), grpc.MaxCallSendMsgSize(messageBytes)),
	)...)
}

func (h *hosts) arePrivate(address string) bool { return h.tls.trustsHosts() || isPrivate(address) }

func (h *hosts) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, connection := range h.connections {
		_ = connection.Close()
	}
}

// A hostConnection puts into each call what belongs to its run.
type hostConnection struct {
	hosts    *hosts
	access   *pb.HostAccess
	trace    metadata.MD
	deadline time.Time // zero: none
}

func (c *hostConnection) Invoke(ctx context.Context, method string, request, answer any, options ...grpc.CallOption) error {
	connection, err := c.open(method)
	if err != nil {
		return err
	}
	ctx, cancel := c.prepare(ctx)
	defer cancel()
	return hostError(method, connection.Invoke(ctx, method, request, answer, options...))
}

func (c *hostConnection) NewStream(
	ctx context.Context, description *grpc.StreamDesc, method string, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	connection, err := c.open(method)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.prepare(ctx)
	stream, err := connection.NewStream(ctx, description, method, options...)
	if err != nil {
		cancel()
		return nil, hostError(method, err)
	}
	return &hostStream{stream, method, cancel}, nil
}

func (c *hostConnection) open(method string) (*grpc.ClientConn, error) {
	refuse := func(why string) error { return hostError(method, status.Error(codes.Unavailable, why)) }
	switch address := c.access.GetAddress(); {
	case address == "":
		return nil, refuse("the host has no address that this runner could reach")
	case !c.hosts.arePrivate(address):
		return nil, refuse("the host is on another machine, and the run's tokens would travel in the clear: " +
			"set RUNMESH_TLS_HOST_CA")
	default:
		connection, err := c.hosts.to(address)
		if err != nil {
			return nil, refuse(err.Error())
		}
		return connection, nil
	}
}

func (c *hostConnection) prepare(ctx context.Context) (context.Context, context.CancelFunc) {
	own, _ := metadata.FromOutgoingContext(ctx)
	entries := metadata.Join(own, metadata.Pairs(
		"authorization", "Bearer "+c.access.GetRunToken(), "runmesh-instance", c.access.GetInstanceToken()))
	if len(entries.Get("traceparent")) == 0 {
		entries = metadata.Join(entries, c.trace)
	}
	ctx = metadata.NewOutgoingContext(ctx, entries)
	if c.deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, c.deadline)
}

type hostStream struct {
	grpc.ClientStream
	method string
	cancel context.CancelFunc
}

func (s *hostStream) SendMsg(message any) error {
	return hostError(s.method, s.ClientStream.SendMsg(message))
}

func (s *hostStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err != nil {
		s.cancel()
	}
	return hostError(s.method, err)
}
