// Package s3test is a server in the process that speaks as much of the S3 protocol as package s3
// needs, and fails on demand. It is for tests only.
package s3test

import (
	"bufio"
	"crypto/md5" // the protocol's tag of an object
	"crypto/x509"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The names that the server accepts.
const (
	Bucket    = "prefixes"
	AccessKey = "AKFORETOKEN"
	SecretKey = "secret-of-the-tests"
)

// Fault is a fault of a request.
type Fault int

// The faults.
const (
	None        Fault = iota
	Unavailable       // status 503
	Truncated         // the connection ends in the middle of an object
	WrongBytes        // an object arrives with one bit changed
	Conflict          // status 409: another client is writing it
	Plain             // status 501 for conditional writes
	Hangs             // no answer until the client gives up
)

// Server is such a server. Its methods may be called from several goroutines.
type Server struct {
	URL         string
	Certificate *x509.Certificate // nil without TLS

	mu      sync.Mutex
	objects map[string][]byte
	fault   func(op, key string) Fault
	counts  map[string]int // by operation
}

// New starts a server with an empty bucket, for as long as a test runs.
func New(tb testing.TB) *Server {
	tb.Helper()
	return start(tb, httptest.NewServer)
}

// NewTLS starts one that speaks TLS.
func NewTLS(tb testing.TB) *Server {
	tb.Helper()
	return start(tb, httptest.NewTLSServer)
}

func start(tb testing.TB, listen func(http.Handler) *httptest.Server) *Server {
	tb.Helper()
	s := &Server{objects: map[string][]byte{}, counts: map[string]int{}}
	h := listen(http.HandlerFunc(s.serve))
	tb.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	s.URL, s.Certificate = h.URL, h.Certificate()
	return s
}

// Fail has a function decide about every request: get, put or list of a key or prefix. nil: all go
// well.
func (s *Server) Fail(fault func(op, key string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Keys lists the objects.
func (s *Server) Keys() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.objects {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// Object is an object, or nil.
func (s *Server) Object(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.objects[key])
}

// Set changes an object.
func (s *Server) Set(key string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = data
}

// Count is how many requests of an operation there were.
func (s *Server) Count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[op]
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	op := map[string]string{http.MethodGet: "get", http.MethodPut: "put"}[r.Method]
	if key == "" && op == "get" {
		op, key = "list", r.URL.Query().Get("prefix")
	}
	s.mu.Lock()
	s.counts[op]++
	fault := None
	if s.fault != nil {
		fault = s.fault(op, key)
	}
	s.mu.Unlock()
	switch auth := r.Header.Get("Authorization"); {
	case !strings.Contains(auth, "Credential="+AccessKey+"/"):
		refuse(w, http.StatusNotFound, "InvalidAccessKeyId") // as one server does; others say 403
	case bucket != Bucket:
		refuse(w, http.StatusNotFound, "NoSuchBucket")
	case fault == Unavailable:
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
	case fault == Hangs:
		<-r.Context().Done()
	case op == "list":
		s.list(w, r)
	case op == "put":
		s.put(w, r, key, fault)
	case op == "get":
		s.get(w, key, fault)
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

func (s *Server) get(w http.ResponseWriter, key string, fault Fault) {
	s.mu.Lock()
	data, ok := s.objects[key]
	data = slices.Clone(data)
	s.mu.Unlock()
	if !ok {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	head(w, data)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	switch {
	case fault == Truncated:
		_, _ = w.Write(data[:len(data)/2])
		_ = http.NewResponseController(w).Flush() // or the client would ask again
		panic(http.ErrAbortHandler)
	case fault == WrongBytes && len(data) > 0:
		data[len(data)/2] ^= 1
	}
	_, _ = w.Write(data)
}

func head(w http.ResponseWriter, data []byte) {
	w.Header().Set("ETag", tag(data))
	w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
}

func tag(data []byte) string {
	sum := md5.Sum(data)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func (s *Server) put(w http.ResponseWriter, r *http.Request, key string, fault Fault) {
	data, err := body(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, "IncompleteBody")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.objects[key]
	switch conditional := r.Header.Get("If-None-Match") == "*"; {
	case fault == Conflict:
		refuse(w, http.StatusConflict, "ConditionalRequestConflict")
	case fault == Plain && conditional:
		refuse(w, http.StatusNotImplemented, "NotImplemented")
	case conditional && there:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		s.objects[key] = data
		head(w, data)
	}
}

// body reads an object, which comes in signed chunks where there is no encryption.
func body(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(r.Body)
	}
	var data []byte
	in := bufio.NewReader(r.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		length, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseInt(length, 16, 32)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		chunk := make([]byte, n+2) // and the end of the line
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		data = append(data, chunk[:n]...)
	}
	if want := r.Header.Get("X-Amz-Decoded-Content-Length"); want != strconv.Itoa(len(data)) {
		return nil, errors.New("another length than announced")
	}
	return data, nil
}

type listing struct {
	XMLName     xml.Name `xml:"ListBucketResult"`
	Name        string
	Prefix      string
	KeyCount    int
	MaxKeys     int
	IsTruncated bool
	Next        string `xml:"NextContinuationToken,omitempty"`
	Contents    []item
}

type item struct {
	Key          string
	LastModified string
	ETag         string
	Size         int
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	most, err := strconv.Atoi(q.Get("max-keys"))
	if err != nil || most > 1000 {
		most = 1000
	}
	x := listing{Name: Bucket, Prefix: q.Get("prefix"), MaxKeys: most}
	for _, k := range s.Keys() {
		if !strings.HasPrefix(k, x.Prefix) || k <= q.Get("continuation-token") {
			continue
		}
		if x.KeyCount == most {
			x.IsTruncated, x.Next = true, x.Contents[most-1].Key
			break
		}
		data := s.Object(k)
		x.KeyCount++
		x.Contents = append(x.Contents, item{k, time.Now().UTC().Format(time.RFC3339), tag(data), len(data)})
	}
	w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(w, xml.Header)
	_ = xml.NewEncoder(w).Encode(x)
}
