package natstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// Security is how a node is protected: by TLS, whose clients show a certificate, and by users.
type Security struct {
	// Files in PEM: of who signed certificates, and of one for node and clients.
	CA, Cert, Key string
	// Credentials is the file of a user, and Strangers that of one whom the node does not know.
	Credentials, Strangers string

	Operator string            // as the node knows it
	Accounts map[string]string // likewise, by their names
	System   string            // the account of the node itself
}

// Secure starts a node with TLS and users, and says where it is.
func Secure(t *testing.T) (*Node, string) {
	t.Helper()
	s, err := newSecurity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{Name: "secure", Dir: t.TempDir(), Security: s}
	n.Start(t)
	t.Cleanup(n.end)
	return n, fmt.Sprintf("tls://127.0.0.1:%d", n.Port)
}

func newSecurity(dir string) (*Security, error) {
	s := &Security{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), Accounts: map[string]string{}}
	if err := s.certify(); err != nil {
		return nil, err
	}
	operator, err := nkeys.CreateOperator()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"system", "users", "strangers"} {
		account, err := nkeys.CreateAccount()
		if err != nil {
			return nil, err
		}
		id, err := account.PublicKey()
		if err != nil {
			return nil, err
		}
		claims := jwt.NewAccountClaims(id)
		if name == "users" {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
		}
		text, err := claims.Encode(operator)
		if err != nil {
			return nil, err
		}
		switch file := filepath.Join(dir, name+".creds"); name {
		case "system":
			s.Accounts[id], s.System = text, id
		case "users":
			s.Accounts[id], s.Credentials = text, file
			err = user(account, file)
		default: // an account that the node is not told of
			s.Strangers = file
			err = user(account, file)
		}
		if err != nil {
			return nil, err
		}
	}
	id, err := operator.PublicKey()
	if err == nil {
		claims := jwt.NewOperatorClaims(id)
		claims.SystemAccount = s.System
		s.Operator, err = claims.Encode(operator)
	}
	return s, err
}

// user writes the file of a new user of an account.
func user(account nkeys.KeyPair, file string) error {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return err
	}
	id, err := pair.PublicKey()
	if err != nil {
		return err
	}
	text, err := jwt.NewUserClaims(id).Encode(account)
	if err != nil {
		return err
	}
	seed, err := pair.Seed()
	if err != nil {
		return err
	}
	data, err := jwt.FormatUserConfig(text, seed)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

// certify makes certificates for an hour.
func (s *Security) certify() error {
	signer := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, NotBefore: signer.NotBefore, NotAfter: signer.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signerKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		return err
	}
	ca, err := x509.CreateCertificate(rand.Reader, signer, signer, &signerKey.PublicKey, signerKey)
	if err != nil {
		return err
	}
	cert, err := x509.CreateCertificate(rand.Reader, leaf, signer, &leafKey.PublicKey, signerKey)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name, kind string
		data       []byte
	}{{s.CA, "CERTIFICATE", ca}, {s.Cert, "CERTIFICATE", cert}, {s.Key, "PRIVATE KEY", private}} {
		if err := os.WriteFile(f.name, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.data}), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// apply protects a server.
func (s *Security) apply(o *server.Options) error {
	cert, err := tls.LoadX509KeyPair(s.Cert, s.Key)
	if err != nil {
		return err
	}
	signers, err := os.ReadFile(s.CA)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(signers)
	o.TLS, o.TLSVerify, o.TLSTimeout = true, true, 60
	o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	operator, err := jwt.DecodeOperatorClaims(s.Operator)
	if err != nil {
		return err
	}
	o.TrustedOperators, o.SystemAccount = []*jwt.OperatorClaims{operator}, s.System
	resolver := &server.MemAccResolver{}
	for id, text := range s.Accounts {
		if err := resolver.Store(id, text); err != nil {
			return err
		}
	}
	o.AccountResolver = resolver
	return nil
}
