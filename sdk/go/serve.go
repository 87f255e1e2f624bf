package runmesh

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
)

// Version is that of this SDK.
const Version = "0.1.0"

const (
	cleanupTime = 5 * time.Second        // what cancelled runs get
	flushTime   = 300 * time.Millisecond // what the last frames and statuses get to leave
)

var errHostGone = errors.New("the host is gone")

// Options say how a plugin is served. The zero value listens on any free loopback port.
type Options struct {
	Listen            string  // unix:/path or host:port
	TLS               *TLS    // without it only loopback and unix sockets are listened on
	Attach            *Attach // dial this host instead of listening
	MaxConcurrentRuns int     // 0: no limit
	// Grace is how long runs under way have to end once ctx has ended.
	Grace time.Duration
	Log   *slog.Logger
	// Listening is called with the address when the plugin is served, if it is set.
	Listening func(address string)
}

// OptionsFromEnvironment are those that a host, or whoever starts the process, set in variables.
func OptionsFromEnvironment() Options {
	options := Options{
		Listen: os.Getenv("RUNMESH_LISTEN"), TLS: TLSFromEnvironment(), Attach: AttachFromEnvironment(),
		Grace: 30 * time.Second, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if isSupervised() {
		options.Grace = 4 * time.Second // a host gives the process 5
	}
	return options
}

// Main serves runners until the process is told to end, or its host is gone. It does not return.
func Main(files fs.FS, runners map[string]Runner) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if isSupervised() {
		// Noted before anything else: a host that goes while this begins would never be missed.
		go watchParent(os.Getppid(), func() { cancel(errHostGone) })
	}
	plugin, err := NewPlugin(files, runners)
	if err == nil {
		err = Serve(ctx, plugin, OptionsFromEnvironment())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot serve:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Serve serves a plugin until ctx ends; then it takes no more runs, gives those under way their
// grace, and returns.
func Serve(ctx context.Context, plugin *Plugin, options Options) error {
	if options.Log == nil {
		options.Log = slog.Default()
	}
	if err := options.TLS.check(); err != nil {
		return err
	}
	hosts := &hosts{tls: options.TLS, connections: map[string]*grpc.ClientConn{}}
	defer hosts.close()
	service := newService(plugin, options.MaxConcurrentRuns, options.Log, hosts)
	open := service.listen
	if options.Attach != nil {
		open = service.attach
	}
	front, err := open(options)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case err = <-front.failed:
	}
	options.Log.Info("draining", "why", context.Cause(ctx))
	idle := service.drain()
	front.drain()
	grace, why := options.Grace, shutDown
	if errors.Is(context.Cause(ctx), errHostGone) {
		grace = 0
	}
	if options.Attach != nil && options.Attach.Development {
		grace, why = 0, reloaded // whoever saved a file waits for the next one
	}
	select {
	case <-idle:
	case <-time.After(grace):
		service.stopAll(why)
		select {
		case <-idle:
		case <-time.After(cleanupTime):
			options.Log.Warn("code of a run goes on after its cancellation: it is left behind")
		}
	}
	front.close()
	return err
}

// A front is where runs come in: a server, or a stream to a host.
type front struct {
	failed <-chan error // why it cannot go on
	drain  func()       // says that no more runs are taken
	close  func()       // lets the last words leave
}

func (s *service) listen(options Options) (*front, error) {
	address := options.Listen
	if address == "" {
		address = "127.0.0.1:0"
	}
	secure := options.TLS.canListen() && !isUnix(address)
	if !secure && !isPrivate(address) {
		return nil, fmt.Errorf("%q can be reached from other machines, and there is no TLS: "+
			"listen on 127.0.0.1, [::1] or unix:/path, or set RUNMESH_TLS_CERT and RUNMESH_TLS_KEY", address)
	}
	listener, err := openListener(address)
	if err != nil {
		return nil, err
	}
	settings := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(messageBytes), grpc.MaxSendMsgSize(messageBytes),
		// A host may ping a quiet stream: a model can think for minutes.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	}
	if secure {
		settings = append(settings, grpc.Creds(options.TLS.towardsCallers()))
	}
	server, state := grpc.NewServer(settings...), health.NewServer()
	pb.RegisterDiscoveryServiceServer(server, s)
	pb.RegisterRunServiceServer(server, s)
	healthpb.RegisterHealthServer(server, state)
	reflection.Register(server)
	for name := range server.GetServiceInfo() {
		state.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if !isUnix(address) {
		address = listener.Addr().String()
	}
	s.log.Info("listening", "plugin", s.plugin.ID, "address", address)
	if options.Listening != nil {
		options.Listening(address)
	}
	return &front{failed: failed, drain: state.Shutdown, close: func() {
		timer := time.AfterFunc(flushTime, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
	}}, nil
}

func openListener(address string) (net.Listener, error) {
	path, isSocket := strings.CutPrefix(address, "unix:")
	if !isSocket {
		return net.Listen("tcp", address)
	}
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("the socket path %q must be absolute", path)
	}
	// What a process that was killed has left behind; one that lives answers.
	if found, err := net.Dial("unix", path); err == nil {
		_ = found.Close()
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
	before := syscall.Umask(0o077) // the socket is the user's alone
	defer syscall.Umask(before)
	return net.Listen("unix", path)
}

func isUnix(address string) bool { return strings.HasPrefix(address, "unix:") }

// isPrivate says whether an address can be reached from this machine alone.
func isPrivate(address string) bool {
	if isUnix(address) {
		return true
	}
	for _, scheme := range []string{"dns:///", "dns:", "passthrough:///", "ipv4:", "ipv6:"} {
		address = strings.TrimPrefix(address, scheme)
	}
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

func isSupervised() bool { return os.Getenv("RUNMESH_SUPERVISED") == "1" }

// watchParent calls back when the process that started this one has ended.
func watchParent(parent int, gone func()) {
	for os.Getppid() == parent {
		time.Sleep(500 * time.Millisecond)
	}
	gone()
}
