package link

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base32"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Fingerprint identifies a key: the first 160 bits of the SHA-256 of its public part. As text it has 32
// letters and digits.
type Fingerprint [20]byte

var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// String is the fingerprint as ParseFingerprint reads it.
func (f Fingerprint) String() string { return letters.EncodeToString(f[:]) }

// ParseFingerprint reads a fingerprint, in lower or upper case.
func ParseFingerprint(text string) (f Fingerprint, err error) {
	b, err := letters.DecodeString(strings.ToLower(text))
	if err != nil || len(b) != len(f) || Fingerprint(b) == f { // zeros are no key's
		return f, fmt.Errorf("fingerprint %q: want the 32 letters and digits that 'foretoken node --fingerprint' prints on the other machine", text)
	}
	copy(f[:], b)
	return f, nil
}

// Identity is the key of a machine.
type Identity struct {
	cert  tls.Certificate
	print Fingerprint
}

// Fingerprint identifies the key.
func (i *Identity) Fingerprint() Fingerprint { return i.print }

// New makes a key that is kept nowhere.
func New() (*Identity, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	return newIdentity(key)
}

func newIdentity(key ed25519.PrivateKey) (*Identity, error) {
	public, _ := key.Public().(ed25519.PublicKey) // that is what it is
	print, err := fingerprint(public)
	if err != nil {
		return nil, err
	}
	// Only the key counts: neither name nor time is looked at.
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "foretoken"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, public, key)
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	return &Identity{cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, print: print}, nil
}

// pemType is the type of the block in the file of a key.
const pemType = "PRIVATE KEY"

// Open reads the key in a file, and makes one if there is no file. Only its owner may read it.
func Open(path string) (*Identity, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = create(path); err == nil {
			data, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the key of this machine: %w", err)
	}
	if err := private(path, "the key of this machine"); err != nil {
		return nil, err
	}
	bad := func(why string) error {
		return fmt.Errorf("the key of this machine: %s: %s: restore the file, or delete it to have a new key and a new fingerprint", path, why)
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != pemType || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, bad("it is not one PEM block " + pemType)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, bad(err.Error())
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, bad("it is not an Ed25519 key")
	}
	return newIdentity(key)
}

// create writes a new key. If another process is faster, its key stays.
func create(path string) (err error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".key-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	if err := errors.Join(pem.Encode(f, &pem.Block{Type: pemType, Bytes: der}), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// private refuses a file that other users can read.
func private(path, what string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s: %s can be read by other users: chmod 600 it, and make a new one if others have used this machine", what, path)
	}
	return nil
}

// Token is a secret that a leader and its nodes share.
type Token []byte

// leastToken is the length of the shortest token: who answers in place of a node could try shorter ones.
const leastToken = 32

// ReadToken reads a token from a file. Space around it does not count.
func ReadToken(path string) (Token, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t := strings.TrimSpace(string(data))
	if len(t) < leastToken || strings.ContainsAny(t, "\r\n") {
		return nil, fmt.Errorf("%s: want one line of at least %d random characters: 'openssl rand -hex 32' makes one", path, leastToken)
	}
	return Token(t), private(path, "the token")
}
