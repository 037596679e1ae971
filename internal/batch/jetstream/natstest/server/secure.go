package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// security is how a node is protected: by TLS, whose clients show a certificate, and by users. It is the
// file security.json of a folder, beside ca.pem, cert.pem and key.pem, users.creds with a user of the node,
// and strangers.creds with a user of an account that the node does not have.
type security struct {
	dir string

	Operator string            // its token
	Accounts map[string]string // their tokens, by their names
	System   string            // the account of the node itself
}

// secure protects a server by the files of a folder. An empty folder is filled.
func secure(dir string, o *server.Options) error {
	s := &security{dir: dir, Accounts: map[string]string{}}
	file := s.file("security.json")
	data, err := os.ReadFile(file)
	switch {
	case err == nil:
		err = json.Unmarshal(data, s)
	case errors.Is(err, fs.ErrNotExist):
		if err = errors.Join(s.certify(), s.enroll()); err == nil {
			data, err = json.Marshal(s)
		}
		if err == nil {
			err = os.WriteFile(file, data, 0o600)
		}
	}
	if err != nil {
		return err
	}
	return s.apply(o)
}

func (s *security) file(name string) string { return filepath.Join(s.dir, name) }

// enroll makes an operator, its accounts and their users.
func (s *security) enroll() error {
	operator, err := nkeys.CreateOperator()
	if err != nil {
		return err
	}
	for _, name := range []string{"system", "users", "strangers"} {
		account, err := nkeys.CreateAccount()
		if err != nil {
			return err
		}
		id, err := account.PublicKey()
		if err != nil {
			return err
		}
		claims := jwt.NewAccountClaims(id)
		if name == "users" {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
		}
		text, err := claims.Encode(operator)
		if err != nil {
			return err
		}
		if name != "strangers" {
			s.Accounts[id] = text
		}
		if name == "system" {
			s.System = id
		} else if err := user(account, s.file(name+".creds")); err != nil {
			return err
		}
	}
	id, err := operator.PublicKey()
	if err == nil {
		claims := jwt.NewOperatorClaims(id)
		claims.SystemAccount = s.System
		s.Operator, err = claims.Encode(operator)
	}
	return err
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
func (s *security) certify() error {
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
	}{{"ca.pem", "CERTIFICATE", ca}, {"cert.pem", "CERTIFICATE", cert}, {"key.pem", "PRIVATE KEY", private}} {
		if err := os.WriteFile(s.file(f.name), pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.data}), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// apply protects a server.
func (s *security) apply(o *server.Options) error {
	cert, err := tls.LoadX509KeyPair(s.file("cert.pem"), s.file("key.pem"))
	if err != nil {
		return err
	}
	signers, err := os.ReadFile(s.file("ca.pem"))
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
