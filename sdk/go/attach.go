package runmesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
)

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
	welcomeTime  = 15 * time.Second
)

// Attach names a host to dial instead of listening for one.
type Attach struct {
	Host        string // host:port or unix:/path
	Token       string // secret: issued for the plugin
	Development bool   // take the runs of the plugin's other instances
	Insecure    bool   // let token and runs go without TLS to where others can listen in
}

// AttachFromEnvironment reads RUNMESH_ATTACH and its like; nil without that.
func AttachFromEnvironment() *Attach {
	host := os.Getenv("RUNMESH_ATTACH")
	if host == "" {
		return nil
	}
	return &Attach{
		Host: host, Token: os.Getenv("RUNMESH_ATTACH_TOKEN"),
		Development: os.Getenv("RUNMESH_DEVELOPMENT") == "1", Insecure: os.Getenv("RUNMESH_ATTACH_INSECURE") == "1",
	}
}

// An attachment keeps the process attached to a host, and comes back when the stream is dropped.
type attachment struct {
	*service
	to   Attach
	life context.Context

	mu      sync.Mutex
	stream  *attachedStream // nil: not attached
	leaving bool
	told    sync.WaitGroup // ends when the host has been told of it
}

func (s *service) attach(options Options) (*front, error) {
	to := *options.Attach
	if to.Token == "" {
		return nil, errors.New("there is no token to attach with: `runmesh runners token` makes one")
	}
	if !to.Insecure && !s.hosts.arePrivate(to.Host) {
		return nil, fmt.Errorf("%q can be listened in on, and there is no TLS: "+
			"set RUNMESH_TLS_HOST_CA, or RUNMESH_ATTACH_INSECURE=1", to.Host)
	}
	life, end := context.WithCancel(context.Background())
	a := &attachment{service: s, to: to, life: life}
	failed, left := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(left)
		if err := a.keep(); err != nil {
			failed <- err
		}
	}()
	return &front{failed: failed, drain: a.leave, close: func() {
		if stream := a.current(); stream != nil {
			// A host that reads no more must not keep the process from ending.
			go func() {
				a.told.Wait()
				stream.say(nil)
			}()
			select {
			case <-left:
			case <-time.After(flushTime):
			}
		}
		end()
		<-left
	}}, nil
}

func (a *attachment) current() *attachedStream {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stream
}

// leave says that no more runs are taken; what ends the stream then is not dialled again.
func (a *attachment) leave() {
	a.mu.Lock()
	a.leaving = true
	stream := a.stream
	a.mu.Unlock()
	if stream != nil {
		a.told.Go(func() {
			stream.say(&pb.AttachRequest{Message: &pb.AttachRequest_Health{Health: &pb.AttachHealth{Serving: false}}})
		})
	}
}

// keep attaches again and again; it returns an error when the host will not have this process.
func (a *attachment) keep() error {
	pause := firstPause
	for {
		welcome, err := a.once()
		a.mu.Lock()
		a.stream = nil
		leaving := a.leaving
		a.mu.Unlock()
		if leaving || a.life.Err() != nil {
			return nil
		}
		switch status.Code(err) {
		case codes.Unauthenticated, codes.PermissionDenied, codes.FailedPrecondition, codes.InvalidArgument, codes.Unimplemented:
			return fmt.Errorf("%s refuses: %w", a.to.Host, err)
		}
		if welcome {
			pause = firstPause
		}
		a.log.Warn("not attached", "host", a.to.Host, "error", err)
		select {
		// All that lost the same host shall not come back in the same moment.
		case <-time.After(time.Duration(float64(pause) * (0.5 + rand.Float64()))):
		case <-a.life.Done():
		}
		pause = min(2*pause, longestPause)
	}
}

// once attaches for as long as it lasts; it returns whether it did, and why it ended.
func (a *attachment) once() (bool, error) {
	// A connection of its own: what runs up- and download does not come in its way. A host that is
	// gone without a word is noticed by pings.
	connection, err := a.hosts.dial(a.to.Host, grpc.WithKeepaliveParams(keepalive.ClientParameters{
		Time: 10 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true,
	}))
	if err != nil {
		return false, err
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithCancel(a.life)
	defer cancel()
	late := time.AfterFunc(welcomeTime, cancel)
	defer late.Stop()
	call, err := pb.NewAttachServiceClient(connection).Attach(
		metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.to.Token))
	if err != nil {
		return false, hostError("Attach", err)
	}
	stream := &attachedStream{
		service: a.service, call: call, ctx: ctx, host: a.to.Host,
		up: make(chan *pb.AttachRequest), runs: map[string]*attachedRun{},
	}
	go stream.write()
	stream.say(&pb.AttachRequest{Message: &pb.AttachRequest_Hello{Hello: &pb.AttachHello{
		ProtocolVersions: []string{protocolVersion}, Handshake: a.introduction(), Runners: a.plugin.manifests,
		Development: a.to.Development, HostAddress: a.to.Host,
	}}})
	answer, err := call.Recv()
	if err != nil {
		return false, hostError("Attach", err)
	}
	welcome := answer.GetWelcome()
	if welcome == nil || !late.Stop() {
		return false, errors.New("what answers is no host: it sent no welcome")
	}
	a.welcomed(welcome.Host)
	stream.credit = int(welcome.InitialCredit)
	a.log.Info("attached", "plugin", a.plugin.ID, "host", a.to.Host, "host_id", welcome.GetHost().GetHostId())
	a.mu.Lock()
	a.stream = stream
	leaving := a.leaving
	a.mu.Unlock()
	if leaving {
		return true, nil
	}
	return true, hostError("Attach", stream.read())
}

// An attachedStream is one stream to a host: runs come down it, their results go up, and none
// waits for another. Only the writer sends, only the reader receives.
type attachedStream struct {
	*service
	call   grpc.BidiStreamingClient[pb.AttachRequest, pb.AttachResponse]
	ctx    context.Context
	host   string
	credit int // of each run at its start
	up     chan *pb.AttachRequest

	mu   sync.Mutex
	runs map[string]*attachedRun
}

// An attachedRun is what the stream knows of a run.
type attachedRun struct {
	cancel context.CancelFunc

	mu     sync.Mutex
	credit int
	more   chan struct{} // has one entry when credit has come
}

// say sends a message, nil to close this side, unless the stream has ended.
func (s *attachedStream) say(message *pb.AttachRequest) {
	select {
	case s.up <- message:
	case <-s.ctx.Done():
	}
}

func (s *attachedStream) write() {
	for {
		select {
		case message := <-s.up:
			if message == nil {
				_ = s.call.CloseSend()
				return
			}
			if s.call.Send(message) != nil {
				return // the reader hears how the stream ended, and ends ctx
			}
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *attachedStream) read() error {
	for {
		answer, err := s.call.Recv()
		if err != nil {
			return err
		}
		switch message := answer.Message.(type) {
		case *pb.AttachResponse_Run:
			s.start(message.Run, answer.Metadata)
		case *pb.AttachResponse_Credit:
			if run := s.run(message.Credit.RunId); run != nil {
				run.add(int(message.Credit.Results))
			}
		case *pb.AttachResponse_Cancel:
			if run := s.run(message.Cancel.RunId); run != nil {
				run.cancel()
			}
		case *pb.AttachResponse_Interrupt:
			go s.interrupt(message.Interrupt)
		}
	}
}

func (s *attachedStream) run(id string) *attachedRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id]
}

func (s *attachedStream) start(request *pb.RunRequest, beside map[string]string) {
	if request.HostAccess != nil && request.HostAccess.Address == "" {
		request.HostAccess.Address = s.host
	}
	id := request.GetContext().GetRunId()
	ctx, cancel := context.WithCancel(s.ctx)
	attached := &attachedRun{cancel: cancel, credit: s.credit, more: make(chan struct{}, 1)}
	active, err := s.accept(ctx, request, metadata.New(beside))
	if err != nil {
		cancel()
		go s.end(id, err)
		return
	}
	s.mu.Lock()
	s.runs[id] = attached
	s.mu.Unlock()
	go func() {
		defer s.working.Done()
		defer cancel()
		s.send(ctx, id, active.out, attached)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.runs[id] == attached {
			delete(s.runs, id)
		}
	}()
}

// send sends a run's results as far as credit goes, and says when they have ended.
func (s *attachedStream) send(ctx context.Context, id string, out *outbox, run *attachedRun) {
	for out.hasMore() {
		results := out.take(run.some(ctx))
		if len(results) == 0 || ctx.Err() != nil {
			continue // it was cancelled meanwhile, and what it has to say of that is for nobody
		}
		run.add(-len(results))
		s.say(&pb.AttachRequest{Message: &pb.AttachRequest_Results{Results: &pb.AttachResults{RunId: id, Results: results}}})
	}
	// The end takes no credit. A cancelled run needs none: the host wants no more of it.
	if ctx.Err() == nil {
		s.end(id, nil)
	}
}

func (s *attachedStream) end(id string, err error) {
	told := status.Convert(err)
	s.say(&pb.AttachRequest{Message: &pb.AttachRequest_RunEnded{RunEnded: &pb.AttachRunEnded{
		RunId: id, StatusCode: int32(told.Code()), StatusMessage: told.Message(),
	}}})
}

func (s *attachedStream) interrupt(request *pb.InterruptRequest) {
	answer, err := s.Interrupt(s.ctx, request)
	// Where it cannot be interrupted, the host's next step is the same: it cancels the run.
	active := answer.GetWasActive() || (err != nil && s.run(request.RunId) != nil)
	s.say(&pb.AttachRequest{Message: &pb.AttachRequest_InterruptAnswer{InterruptAnswer: &pb.AttachInterruptAnswer{
		RunId: request.RunId, WasActive: active,
	}}})
}

func (r *attachedRun) add(results int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.credit += results
	if r.credit > 0 {
		select {
		case r.more <- struct{}{}:
		default:
		}
	}
}

// some waits until results may be sent, and returns how many.
func (r *attachedRun) some(ctx context.Context) int {
	for {
		r.mu.Lock()
		credit := r.credit
		r.mu.Unlock()
		if credit > 0 {
			return credit
		}
		select {
		case <-r.more:
		case <-ctx.Done():
			return 0
		}
	}
}
