package runmesh_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	runmesh "github.com/runmesh/runmesh/sdk/go"
	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
	"github.com/runmesh/runmesh/sdk/go/runmeshtest"
)

// plugin is one whose only runner does as it is told.
func plugin(t *testing.T, runner runmesh.Runner) *runmesh.Plugin {
	t.Helper()
	folder := t.TempDir()
	write(t, filepath.Join(folder, "manifest.yaml"), "{apiVersion: runmesh/v1, kind: Plugin, "+
		"metadata: {author: a, name: test, version: 0.1.0}, components: [c.yaml]}", 0o644)
	write(t, filepath.Join(folder, "c.yaml"), "{apiVersion: runmesh/v1, kind: AgentRunner, "+
		"metadata: {name: runner, label: R}, capabilities: {streaming: true, interrupt: true}}", 0o644)
	made, err := runmesh.NewPlugin(os.DirFS(folder), map[string]runmesh.Runner{"runner": runner})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// serving serves until stop is called; it gives the address, and later how serving ended.
func serving(t *testing.T, plugin *runmesh.Plugin, options runmesh.Options) (string, context.CancelFunc, <-chan error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	address, ended := make(chan string, 1), make(chan error, 1)
	options.Listening = func(where string) { address <- where }
	go func() { ended <- runmesh.Serve(ctx, plugin, options); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
	if options.Attach != nil {
		return "", stop, ended
	}
	select {
	case where := <-address:
		return where, stop, ended
	case err := <-ended:
		t.Fatal(err)
		return "", stop, ended
	}
}

func dialled(t *testing.T, address string, credential credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(credential))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func TestDrainingFinishesRunsAndTakesNoMore(t *testing.T) {
	began, finish := make(chan error, 1), make(chan bool)
	runner := func(ctx context.Context, run *runmesh.Run) error {
		began <- nil
		<-finish
		return run.Send(ctx, runmesh.Reply("finished"))
	}
	address, stop, ended := serving(t, plugin(t, runner), runmesh.Options{Grace: time.Minute})
	connection := dialled(t, address, insecure.NewCredentials())
	runs, health := pb.NewRunServiceClient(connection), healthpb.NewHealthClient(connection)
	stream, err := runs.Run(t.Context(), runmeshtest.Message("hi"))
	if err = errors.Join(err, <-began); err != nil {
		t.Fatal(err)
	}
	if answer, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("healthy before: %v, %v", answer, err)
	}
	stop()
	for {
		answer, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if answer.Status == healthpb.HealthCheckResponse_NOT_SERVING {
			break
		}
	}
	refused, err := runs.Run(t.Context(), runmeshtest.Message("hi"))
	if err == nil {
		_, err = refused.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("while draining: %v", err)
	}
	close(finish)
	var text string
	for response, err := stream.Recv(); err == nil; response, err = stream.Recv() {
		for _, result := range response.Results {
			for _, part := range result.GetMessageCompleted().GetMessage().GetParts() {
				text += part.GetText()
			}
			text += result.GetRunCompleted().GetFinishReason()
		}
	}
	if err := <-ended; err != nil || text != "finishedstop" {
		t.Errorf("said %q, ended with %v", text, err)
	}
}

func TestRunThatOutlastsTheGraceEndsAsUnavailable(t *testing.T) {
	began := make(chan error, 1)
	address, stop, ended := serving(t, plugin(t, waits(began)), runmesh.Options{})
	runs := pb.NewRunServiceClient(dialled(t, address, insecure.NewCredentials()))
	stream, err := runs.Run(t.Context(), runmeshtest.Message("hi"))
	if err = errors.Join(err, <-began); err != nil {
		t.Fatal(err)
	}
	stop()
	var last *runmesh.Result
	for response, err := stream.Recv(); err == nil; response, err = stream.Recv() {
		last = response.Results[len(response.Results)-1]
	}
	if failed := last.GetRunFailed(); failed.GetCode() != "runner.unavailable" || !failed.GetRetryable() || <-ended != nil {
		t.Errorf("it ended as %v", last)
	}
}

func TestLimitOfRunsIsKept(t *testing.T) {
	began := make(chan error, 1)
	address, _, _ := serving(t, plugin(t, waits(began)), runmesh.Options{MaxConcurrentRuns: 1})
	runs := pb.NewRunServiceClient(dialled(t, address, insecure.NewCredentials()))
	if _, err := runs.Run(t.Context(), runmeshtest.Message("hi")); err != nil {
		t.Fatal(err)
	}
	<-began
	refused, err := runs.Run(t.Context(), runmeshtest.Message("hi"))
	if err == nil {
		_, err = refused.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
}

func TestAddressesThatOthersReachNeedTLS(t *testing.T) {
	for _, options := range []runmesh.Options{
		{Listen: "0.0.0.0:0"},
		{Listen: "unix:relative"},
		{TLS: &runmesh.TLS{Certificate: "/nowhere.pem", Key: "/nowhere.key"}},
		{TLS: &runmesh.TLS{Certificate: "/nowhere.pem"}},
		{Attach: &runmesh.Attach{Host: "127.0.0.1:1"}},
		{Attach: &runmesh.Attach{Host: "host.example:7443", Token: "rma_x"}},
	} {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := runmesh.Serve(ctx, plugin(t, nothing), options); err == nil {
			t.Errorf("%+v is served", options)
		}
	}
}

func TestRunnerWithTLSTakesOnlyHostsThatShowACertificateAndReadsItsOwnAgain(t *testing.T) {
	folder := t.TempDir()
	authority := newAuthority(t)
	paths := map[string]string{}
	for _, name := range []string{"ca.pem", "runner.pem", "runner.key"} {
		paths[name] = filepath.Join(folder, name)
	}
	issue := func(number int64) tls.Certificate {
		certificate, key := authority.issue(t, number)
		write(t, paths["runner.pem"], certificate, 0o644)
		write(t, paths["runner.key"], key, 0o600)
		pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	write(t, paths["ca.pem"], authority.pem, 0o644)
	shown := issue(1)
	address, _, _ := serving(t, plugin(t, nothing), runmesh.Options{TLS: &runmesh.TLS{
		Certificate: paths["runner.pem"], Key: paths["runner.key"], ClientCA: paths["ca.pem"],
	}})
	number := func(certificates ...tls.Certificate) (int64, error) {
		config := &tls.Config{RootCAs: authority.pool, ServerName: "localhost", Certificates: certificates}
		seen := int64(0)
		config.VerifyConnection = func(state tls.ConnectionState) error {
			seen = state.PeerCertificates[0].SerialNumber.Int64()
			return nil
		}
		client := pb.NewDiscoveryServiceClient(dialled(t, address, credentials.NewTLS(config)))
		_, err := client.ListRunners(t.Context(), &pb.ListRunnersRequest{})
		return seen, err
	}
	if _, err := number(); err == nil {
		t.Error("a host without a certificate was answered")
	}
	if seen, err := number(shown); err != nil || seen != 1 {
		t.Errorf("certificate %d, %v", seen, err)
	}
	issue(2)
	if seen, err := number(shown); err != nil || seen != 2 {
		t.Errorf("renewed: certificate %d, %v", seen, err)
	}
	if err := os.Chmod(paths["runner.key"], 0o644); err != nil {
		t.Fatal(err)
	}
	err := runmesh.Serve(t.Context(), plugin(t, nothing), runmesh.Options{TLS: &runmesh.TLS{
		Certificate: paths["runner.pem"], Key: paths["runner.key"],
	}})
	if err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others may read: %v", err)
	}
}

func TestCallsToAHostWithTLSShowTheRunnersCertificate(t *testing.T) {
	authority, stranger, folder := newAuthority(t), newAuthority(t), t.TempDir()
	certificate, key := authority.issue(t, 7)
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"ca.pem": authority.pem, "other.pem": stranger.pem, "own.pem": certificate, "own.key": key,
	} {
		write(t, filepath.Join(folder, name), text, 0o600)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.pool,
	})))
	pb.RegisterHostAPIServiceServer(server, &api{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	for ca, reason := range map[string]string{"ca.pem": "RATE_LIMITED", "other.pem": "UNAVAILABLE"} {
		came := make(chan string, 1)
		asks := func(ctx context.Context, run *runmesh.Run) error {
			_, err := run.Host.GetState(ctx, &pb.GetStateRequest{Key: "seen"})
			var refused *runmesh.HostError
			errors.As(err, &refused)
			came <- refused.Reason
			return nil
		}
		address, _, _ := serving(t, plugin(t, asks), runmesh.Options{TLS: &runmesh.TLS{
			Certificate: filepath.Join(folder, "own.pem"), Key: filepath.Join(folder, "own.key"),
			HostCA: filepath.Join(folder, ca),
		}})
		request := runmeshtest.Message("hi")
		request.HostAccess.Address = listener.Addr().String()
		dialling := credentials.NewTLS(&tls.Config{RootCAs: authority.pool, ServerName: "localhost"})
		if _, err := pb.NewRunServiceClient(dialled(t, address, dialling)).Run(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		if got := <-came; got != reason {
			t.Errorf("trusting %s: %s", ca, got)
		}
	}
}

type authority struct {
	pem         string
	pool        *x509.CertPool
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	made := &x509.Certificate{
		SerialNumber: big.NewInt(100), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, made, made, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, _ := x509.ParseCertificate(der)
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	return &authority{asPEM("CERTIFICATE", der), pool, certificate, key}
}

func (a *authority) issue(t *testing.T, number int64) (certificate, key string) {
	t.Helper()
	own, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	made := &x509.Certificate{
		SerialNumber: big.NewInt(number), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, made, a.certificate, &own.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, _ := x509.MarshalPKCS8PrivateKey(own)
	return asPEM("CERTIFICATE", der), asPEM("PRIVATE KEY", encoded)
}

func asPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// attachHost is a host's side of attaching: each stream goes to whoever takes it.
type attachHost struct {
	pb.UnimplementedAttachServiceServer
	streams chan grpc.BidiStreamingServer[pb.AttachRequest, pb.AttachResponse]
	ends    chan error
}

func (h *attachHost) Attach(stream grpc.BidiStreamingServer[pb.AttachRequest, pb.AttachResponse]) error {
	came, _ := metadata.FromIncomingContext(stream.Context())
	if token := came.Get("authorization"); len(token) != 1 || token[0] != "Bearer rma_good" {
		return status.Error(codes.Unauthenticated, "the token is not known")
	}
	h.streams <- stream
	return <-h.ends
}

func attachable(t *testing.T) (*attachHost, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := &attachHost{
		streams: make(chan grpc.BidiStreamingServer[pb.AttachRequest, pb.AttachResponse]), ends: make(chan error),
	}
	server := grpc.NewServer()
	pb.RegisterAttachServiceServer(server, host)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return host, listener.Addr().String()
}

func welcomed(t *testing.T, host *attachHost, credit int32) grpc.BidiStreamingServer[pb.AttachRequest, pb.AttachResponse] {
	t.Helper()
	stream := <-host.streams
	hello := heard(t, stream).GetHello()
	if hello.GetHandshake().GetPluginId() != "a/test" || len(hello.GetRunners()) != 1 || hello.HostAddress == "" {
		t.Fatalf("it says hello with %v", hello)
	}
	say(t, stream, &pb.AttachResponse{Message: &pb.AttachResponse_Welcome{Welcome: &pb.AttachWelcome{
		Host: &pb.HandshakeRequest{HostId: "test"}, ProtocolVersion: "1", InitialCredit: credit,
	}}})
	return stream
}

func heard(t *testing.T, stream grpc.BidiStreamingServer[pb.AttachRequest, pb.AttachResponse]) *pb.AttachRequest {
	t.Helper()
	message, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return message
}

func say(t *testing.T, stream grpc.BidiStreamingServer[pb.AttachRequest, pb.AttachResponse], message *pb.AttachResponse) {
	t.Helper()
	if err := stream.Send(message); err != nil {
		t.Fatal(err)
	}
}

func TestAttachedRunSendsNoMoreThanItIsCredited(t *testing.T) {
	host, address := attachable(t)
	talks := func(ctx context.Context, run *runmesh.Run) error {
		for range 5 {
			if err := run.Send(ctx, runmesh.Delta("x")); err != nil {
				return err
			}
		}
		return nil
	}
	_, stop, ended := serving(t, plugin(t, talks), runmesh.Options{Attach: &runmesh.Attach{Host: address, Token: "rma_good"}})
	stream := welcomed(t, host, 2)
	say(t, stream, &pb.AttachResponse{Message: &pb.AttachResponse_Run{Run: runmeshtest.Message("hi")}})
	// Five pieces and the end: the credit below is just enough, and the end of the stream takes none.
	came := make(chan *pb.AttachRequest, 10)
	go func() {
		for {
			message, err := stream.Recv()
			if err != nil {
				close(came)
				return
			}
			came <- message
		}
	}()
	for number, allowed := int64(0), int64(2); number < 6; {
		for number < allowed {
			for _, result := range (<-came).GetResults().GetResults() {
				if number++; result.Sequence != number || number > allowed {
					t.Fatalf("result %d has number %d, and %d are allowed", number, result.Sequence, allowed)
				}
			}
		}
		if number < 6 {
			select {
			case message := <-came:
				t.Fatalf("without credit came %v", message)
			case <-time.After(100 * time.Millisecond):
			}
			allowed += 2
			say(t, stream, &pb.AttachResponse{Message: &pb.AttachResponse_Credit{Credit: &pb.AttachCredit{RunId: "run-1", Results: 2}}})
		}
	}
	if end := (<-came).GetRunEnded(); end.GetRunId() != "run-1" || end.GetStatusCode() != 0 {
		t.Errorf("it ended with %v", end)
	}
	stop()
	leaving := <-came
	if health := leaving.GetHealth(); health == nil || health.Serving {
		t.Errorf("leaving, it says %v", leaving)
	}
	if message, open := <-came; open {
		t.Errorf("it does not close its side: %v", message)
	}
	host.ends <- nil
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAttachedRunIsCancelledAndInterrupted(t *testing.T) {
	host, address := attachable(t)
	began := make(chan error, 2)
	serving(t, plugin(t, waits(began)), runmesh.Options{Attach: &runmesh.Attach{Host: address, Token: "rma_good"}})
	stream := welcomed(t, host, 10)
	say(t, stream, &pb.AttachResponse{Message: &pb.AttachResponse_Run{Run: runmeshtest.Message("hi")}})
	<-began
	heard(t, stream) // that it is waiting
	say(t, stream, &pb.AttachResponse{Message: &pb.AttachResponse_Interrupt{Interrupt: &pb.InterruptRequest{RunId: "run-1"}}})
	var said []string
	for len(said) < 3 {
		switch message := heard(t, stream); {
		case message.GetInterruptAnswer() != nil:
			if !message.GetInterruptAnswer().WasActive {
				t.Error("the run was not active")
			}
			said = append(said, "answer")
		case message.GetRunEnded() != nil:
			said = append(said, "ended")
		default:
			results := message.GetResults().GetResults()
			if code := results[len(results)-1].GetRunFailed().GetCode(); code == "cancelled" {
				said = append(said, code)
			}
		}
	}
	// A cancelled run is dropped: the next thing that is said is about another.
	say(t, stream, &pb.AttachResponse{Message: &pb.AttachResponse_Run{Run: runmeshtest.Message("hi")}})
	<-began
	heard(t, stream)
	say(t, stream, &pb.AttachResponse{Message: &pb.AttachResponse_Cancel{Cancel: &pb.AttachCancel{RunId: "run-1"}}})
	other := runmeshtest.Message("hi")
	other.RunnerId, other.Context.RunId = "plugin:a/test/none", "run-2"
	say(t, stream, &pb.AttachResponse{Message: &pb.AttachResponse_Run{Run: other}})
	next := heard(t, stream)
	if end := next.GetRunEnded(); end.GetRunId() != "run-2" || codes.Code(end.GetStatusCode()) != codes.NotFound {
		t.Errorf("said of the other: %v", next)
	}
	host.ends <- nil
}

func TestDroppedStreamIsDialledAgainAndARefusalEndsIt(t *testing.T) {
	host, address := attachable(t)
	_, _, ended := serving(t, plugin(t, nothing), runmesh.Options{Attach: &runmesh.Attach{Host: address, Token: "rma_good"}})
	welcomed(t, host, 1)
	host.ends <- status.Error(codes.Unavailable, "restarting")
	welcomed(t, host, 1)
	host.ends <- status.Error(codes.Unauthenticated, "revoked")
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("it ended with %v", err)
	}
}
