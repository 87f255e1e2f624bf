package runmesh

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
)

// TLS names PEM files; they are read for each connection, so that new ones need no restart.
type TLS struct {
	Certificate, Key string // what the runner shows, to hosts that call it and that it calls
	ClientCA         string // who signs hosts' certificates: only a host that shows one may call
	HostCA           string // who signs the certificate of a host's server; "system": the machine's
}

// TLSFromEnvironment reads RUNMESH_TLS_CERT, _KEY, _CLIENT_CA and _HOST_CA; nil when none is set.
func TLSFromEnvironment() *TLS {
	found := TLS{
		Certificate: os.Getenv("RUNMESH_TLS_CERT"), Key: os.Getenv("RUNMESH_TLS_KEY"),
		ClientCA: os.Getenv("RUNMESH_TLS_CLIENT_CA"), HostCA: os.Getenv("RUNMESH_TLS_HOST_CA"),
	}
	if found == (TLS{}) {
		return nil
	}
	return &found
}

func (t *TLS) canListen() bool   { return t != nil && t.Certificate != "" }
func (t *TLS) trustsHosts() bool { return t != nil && t.HostCA != "" }

// check reads everything once, so that a file that cannot be used is told at the start.
func (t *TLS) check() error {
	if t == nil {
		return nil
	}
	if (t.Certificate == "") != (t.Key == "") {
		return errors.New("tls: certificate and key go together")
	}
	if t.ClientCA != "" && t.Certificate == "" {
		return errors.New("tls: a client CA is for a runner that listens, which needs a certificate")
	}
	_, serverErr := t.serverConfig()
	_, hostErr := t.hostConfig()
	return errors.Join(serverErr, hostErr)
}

func (t *TLS) serverConfig() (*tls.Config, error) {
	config, err := t.withCertificate()
	if err == nil && t.ClientCA != "" {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.ClientCAs, err = authorities(t.ClientCA)
	}
	return config, err
}

func (t *TLS) hostConfig() (*tls.Config, error) {
	config, err := t.withCertificate()
	if err == nil && t.HostCA != "" && t.HostCA != "system" {
		config.RootCAs, err = authorities(t.HostCA)
	}
	return config, err
}

func (t *TLS) withCertificate() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.Certificate == "" {
		return config, nil
	}
	found, err := os.Stat(t.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	if mode := found.Mode().Perm(); mode&0o037 != 0 {
		return nil, fmt.Errorf("tls: %s may be read or written by others (mode %04o): chmod 600 it", t.Key, mode)
	}
	pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: %s and %s: %w", t.Certificate, t.Key, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

func authorities(file string) (*x509.CertPool, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("tls: %s has no certificate in PEM form", file)
	}
	return pool, nil
}

func (t *TLS) towardsCallers() credentials.TransportCredentials {
	return &freshCredentials{credentials.NewTLS(nil), t.serverConfig}
}

func (t *TLS) towardsHosts() credentials.TransportCredentials {
	return &freshCredentials{credentials.NewTLS(nil), t.hostConfig}
}

// freshCredentials are TLS whose files are read at each handshake.
type freshCredentials struct {
	credentials.TransportCredentials
	read func() (*tls.Config, error)
}

func (c *freshCredentials) ClientHandshake(
	ctx context.Context, authority string, connection net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	config, err := c.read()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, connection)
}

func (c *freshCredentials) ServerHandshake(connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := c.read()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ServerHandshake(connection)
}

func (c *freshCredentials) Clone() credentials.TransportCredentials {
	return &freshCredentials{c.TransportCredentials.Clone(), c.read}
}
