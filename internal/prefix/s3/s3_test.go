package s3

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/prefix/s3/s3test"
	"github.com/foretoken/foretoken/internal/prefix/store"
)

var _ store.Store = (*Bucket)(nil)

func options(s *s3test.Server) Options {
	return Options{Endpoint: s.URL, AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey}
}

func open(t *testing.T, s *s3test.Server) *Bucket {
	t.Helper()
	b, err := Open(t.Context(), "s3://"+s3test.Bucket+"/a/b", options(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func TestBucketKeepsTheFirstObject(t *testing.T) {
	s := s3test.New(t)
	b := open(t, s)
	ctx := t.Context()
	if _, err := b.Get(ctx, "x", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 300_000)
	for name, data := range map[string][]byte{"x": []byte("first"), "empty": {}, "large": large} {
		if err := b.Put(ctx, name, data, false); err != nil {
			t.Fatal(err)
		}
		if err := b.Put(ctx, name, []byte("second"), false); err != nil {
			t.Errorf("the second writer: %v", err)
		}
		if got, err := b.Get(ctx, name, int64(len(data))); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if len(data) > 0 {
			if _, err := b.Get(ctx, name, int64(len(data))-1); err == nil || !strings.Contains(err.Error(), "at most") {
				t.Errorf("%s beyond its limit: %v", name, err)
			}
		}
	}
	if err := b.Put(ctx, "x", []byte("third"), true); err != nil {
		t.Fatal(err)
	}
	if got := s.Object("a/b/x"); string(got) != "third" {
		t.Errorf("replaced: %q; available: %q", got, s.Keys())
	}
}

func TestBucketListsInOneRequest(t *testing.T) {
	s := s3test.New(t)
	b := open(t, s)
	for i := range 1500 {
		s.Set(fmt.Sprintf("a/b/k%04d", i), []byte("12345"))
	}
	s.Set("a/bc", []byte("of another program"))
	s.Set("z", []byte("likewise"))
	for prefix, want := range map[string]int{"": 1000, "k": 1000, "k01": 100, "k0007": 1, "l": 0} {
		before := s.Count("list")
		items, err := b.List(t.Context(), prefix, 5000)
		if err != nil || len(items) != want || s.Count("list") != before+1 {
			t.Errorf("%q: %d items in %d requests, %v", prefix, len(items), s.Count("list")-before, err)
		}
		for _, x := range items {
			if !strings.HasPrefix(x.Name, prefix) || x.Size != 5 || x.Used.IsZero() {
				t.Errorf("%q: %+v", prefix, x)
			}
		}
	}
}

// TestBucketFaults has the server fail in each way: an error that is no other, or none where
// nothing is lost.
func TestBucketFaults(t *testing.T) {
	s := s3test.New(t)
	b := open(t, s)
	s.Set("a/b/x", []byte(strings.Repeat("contents", 100)))
	for _, fault := range []s3test.Fault{s3test.Unavailable, s3test.Truncated, s3test.Hangs} {
		s.Fail(func(string, string) s3test.Fault { return fault })
		ctx := t.Context()
		if fault == s3test.Hangs {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
		}
		before := s.Count("get")
		data, err := b.Get(ctx, "x", 1000)
		if err == nil || errors.Is(err, fs.ErrNotExist) || fault == s3test.Hangs && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("fault %d: %d bytes, %v", fault, len(data), err)
		}
		if n := s.Count("get") - before; n > 1 {
			t.Errorf("fault %d: %d requests", fault, n)
		}
		if fault == s3test.Truncated {
			continue
		}
		if _, err := b.List(ctx, "", 10); err == nil {
			t.Errorf("fault %d: listed", fault)
		}
		if err := b.Put(ctx, "y", []byte("y"), false); err == nil {
			t.Errorf("fault %d: put", fault)
		}
	}
	s.Fail(func(string, string) s3test.Fault { return s3test.Conflict })
	if err := b.Put(t.Context(), "y", []byte("y"), false); err != nil {
		t.Errorf("another client writes it: %v", err)
	}
	s.Fail(func(string, string) s3test.Fault { return s3test.Plain })
	for range 2 {
		if err := b.Put(t.Context(), "y", []byte("y"), false); err != nil || string(s.Object("a/b/y")) != "y" {
			t.Errorf("a server without conditional writes: %v", err)
		}
	}
}

// TestOpenSaysWhatIsWrong in one line with the remedy.
func TestOpenSaysWhatIsWrong(t *testing.T) {
	s := s3test.New(t)
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = dead.Close()
	wrong := options(s)
	wrong.AccessKey = "another"
	for _, c := range []struct {
		address string
		o       Options
		want    string
	}{
		{"s3://nothing/x", options(s), "there is no bucket nothing at " + s.URL},
		{"s3://" + s3test.Bucket, wrong, "check AWS_ACCESS_KEY_ID"},
		{"s3://" + s3test.Bucket, Options{Endpoint: "http://" + dead.Addr().String(), AccessKey: "a", SecretKey: "b"}, "cannot be reached: check AWS_ENDPOINT_URL"},
		{"s3://" + s3test.Bucket, Options{Endpoint: "localhost:9000", AccessKey: "a", SecretKey: "b"}, "want http://HOST:PORT"},
		{"s3://", options(s), "want s3://BUCKET"},
		{"s3://b/../c", options(s), "must not contain the part"},
		{"/folder", options(s), "want s3://BUCKET"},
	} {
		b, err := Open(t.Context(), c.address, c.o)
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), c.address) {
			t.Errorf("%s: %v, want %q", c.address, err, c.want)
		}
	}
}

// TestBucketOverTLS: the system says whose certificates count, and what they are not for is refused.
func TestBucketOverTLS(t *testing.T) {
	s := s3test.NewTLS(t)
	file := filetest.Write(t, filepath.Join(t.TempDir(), "roots.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate.Raw}))
	if runtime.GOOS == "linux" { // elsewhere the system's own store decides, and trusts no certificate of tests
		t.Setenv("SSL_CERT_FILE", file) // read once, by the first verification: these tests have no other
		b := open(t, s)
		if err := b.Put(t.Context(), "x", []byte("contents"), false); err != nil {
			t.Fatal(err)
		}
		if data, err := b.Get(t.Context(), "x", 100); err != nil || string(data) != "contents" {
			t.Errorf("%q, %v", data, err)
		}
	}
	wrong := options(s)
	wrong.Endpoint = strings.Replace(s.URL, "127.0.0.1", "localhost", 1) // which the certificate is not for
	if _, err := Open(t.Context(), "s3://"+s3test.Bucket, wrong); err == nil || !strings.Contains(err.Error(), "add the authority of its certificate") || strings.Contains(err.Error(), "\n") {
		t.Errorf("another host's certificate: %v", err)
	}
	wrong.Endpoint = strings.Replace(s.URL, "https", "http", 1)
	if _, err := Open(t.Context(), "s3://"+s3test.Bucket, wrong); err == nil || !strings.Contains(err.Error(), wrong.Endpoint) || strings.Contains(err.Error(), "\n") {
		t.Errorf("without TLS: %v", err)
	}
}

func TestCredentialsOfTheFile(t *testing.T) {
	s := s3test.New(t)
	file := filepath.Join(t.TempDir(), "credentials")
	text := "[default]\naws_access_key_id = other\naws_secret_access_key = other\n[work]\naws_access_key_id = " + s3test.AccessKey + "\naws_secret_access_key = " + s3test.SecretKey + "\n"
	filetest.Write(t, file, text)
	for profile, good := range map[string]bool{"work": true, "": false, "none": false} {
		b, err := Open(t.Context(), "s3://"+s3test.Bucket, Options{Endpoint: s.URL, CredentialsFile: file, Profile: profile})
		if err == nil {
			b.Close()
		}
		if good != (err == nil) {
			t.Errorf("profile %q: %v", profile, err)
		}
	}
}

// TestSecretIsOneForAll has processes ask at the same time, and later ones.
func TestSecretIsOneForAll(t *testing.T) {
	s := s3test.New(t)
	var group sync.WaitGroup
	list := make([][secretBytes]byte, 8)
	for i := range list {
		b := open(t, s)
		group.Go(func() {
			var err error
			if list[i], err = b.OpenSecret(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, x := range list {
		if x != list[0] || x == ([secretBytes]byte{}) {
			t.Errorf("%x and %x", x, list[0])
		}
	}
	s.Set("a/b/"+Secret, []byte("short"))
	if _, err := open(t, s).OpenSecret(t.Context()); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a damaged secret: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("s3://bucket/a/b/")
	f.Add("s3://bucket")
	f.Add("s3:///")
	f.Fuzz(func(t *testing.T, address string) {
		bucket, prefix, err := Parse(address)
		if err != nil {
			return
		}
		if bucket == "" || strings.Contains(bucket, "/") || strings.HasPrefix(prefix, "/") || strings.HasSuffix(prefix, "/") {
			t.Errorf("%q: bucket %q, prefix %q", address, bucket, prefix)
		}
		if b, p, err := Parse(Scheme + bucket + "/" + prefix); err != nil || b != bucket || p != prefix {
			t.Errorf("%q is read again as %q, %q, %v", address, b, p, err)
		}
	})
}
