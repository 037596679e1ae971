package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestKeys(t *testing.T) {
	keys := keysOf(t, "first", "second key")
	r := start(t, func(o *Options) { o.Keys = keys })
	for _, x := range []struct {
		path   string
		head   []string
		status int
		says   string
	}{
		{"/v1/models", nil, 401, "an API key is required"},
		{"/v1/models", []string{"Authorization", "Bearer first"}, 200, "tiny"},
		{"/v1/models", []string{"Authorization", "bearer second key"}, 200, "tiny"},
		{"/v1/models", []string{"X-Api-Key", "first"}, 200, "tiny"},
		{"/v1/models", []string{"Authorization", "Bearer wrong"}, 401, "not valid for this server"},
		{"/v1/models", []string{"Authorization", "Basic first"}, 401, "an API key is required"},
		{"/v1/models", []string{"Authorization", "first"}, 401, "an API key is required"},
		{"/v1/models", []string{"X-Api-Key", "firs"}, 401, "not valid for this server"},
		{"/v1/status", nil, 401, "required"},
		{"/metrics", nil, 401, "required"},
		{"/metrics", []string{"Authorization", "Bearer first"}, 200, "foretoken_ready 1"},
		{"/api/tags", nil, 401, "required"},
		{"/healthz", nil, 200, "ok"},
		{"/readyz", nil, 200, "ready"},
	} {
		if a := r.do("GET", x.path, "", x.head...); a.status != x.status || !strings.Contains(a.body, x.says) {
			t.Errorf("%s %q: %d %s, want %d %s", x.path, x.head, a.status, a.body, x.status, x.says)
		}
	}
	if a := r.do("POST", chatPath, hello); a.status != 401 || a.header.Get("WWW-Authenticate") == "" {
		t.Errorf("chat without a key: %+v", a)
	}
	if a := r.do("POST", chatPath, hello, "Authorization", "Bearer first"); a.status != 200 {
		t.Errorf("chat with a key: %+v", a)
	}
	for _, secret := range []string{"first", "second", "wrong"} {
		if strings.Contains(r.log.String(), secret) {
			t.Errorf("the key %q is in the log", secret)
		}
	}
}

// The errors of the server itself are in the words of whose endpoint it is.
func TestErrorsSpeakTheProtocol(t *testing.T) {
	keys, _ := NewKeys("k")
	r := start(t, func(o *Options) { o.Keys = keys })
	for path, want := range map[string]string{
		chatPath:       `{"error":{"message":"an API key`,
		"/v1/messages": `{"type":"error","error":{"type":"authentication_error","message":"an API key`,
		"/api/chat":    `{"error":"an API key`,
	} {
		if a := r.do("POST", path, "{}"); a.status != 401 || !strings.HasPrefix(a.body, want) {
			t.Errorf("%s: %d %s, want %s", path, a.status, a.body, want)
		}
	}
}

func TestOrigins(t *testing.T) {
	const page = "https://page.example"
	allow := func(list ...string) func(*Options) { return func(o *Options) { o.Origins = list } }
	r := start(t, allow(page))
	a := r.do("OPTIONS", chatPath, "", "Origin", page, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization")
	if a.status != http.StatusNoContent || a.header.Get("Access-Control-Allow-Origin") != page || a.header.Get("Access-Control-Allow-Headers") != "authorization" {
		t.Errorf("preflight: %+v", a)
	}
	if a := r.do("POST", chatPath, hello, "Origin", page, "Sec-Fetch-Site", "cross-site"); a.status != 200 || a.header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("a page that may: %+v", a)
	}
	for _, head := range [][]string{{"Origin", "https://evil.example"}, {"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}} {
		if a := r.do("POST", chatPath, hello, head...); a.status != 403 || a.header.Get("Access-Control-Allow-Origin") != "" || !strings.Contains(a.body, "--cors") {
			t.Errorf("a page that may not: %+v", a)
		}
	}
	if a := r.do("POST", chatPath, hello, "Origin", r.url); a.status != 200 {
		t.Errorf("our own page: %+v", a)
	}
	all := start(t, allow("*"))
	if a := all.do("POST", chatPath, hello, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"); a.status != 200 || a.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("with *: %+v", a)
	}
}

func TestLocalNamesOnly(t *testing.T) {
	r := start(t, func(o *Options) { o.Local = true })
	for host, status := range map[string]int{
		"localhost": 200, "LocalHost:99": 200, "127.0.0.1:1": 200, "[::1]:5": 200, "[::1]": 200, "app.localhost": 200, "localhost.": 200,
		"evil.example": 403, "127.0.0.1.evil.example": 403, "192.168.1.5:80": 403, "localhost.evil.example:80": 403,
	} {
		if a := r.do("GET", "/healthz", "", "Host", host); a.status != status {
			t.Errorf("%s: %d %s, want %d", host, a.status, a.body, status)
		}
	}
}

func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, func(o *Options) {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	})
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	q, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+chatPath, strings.NewReader(hello))
	a, err := (&http.Client{Transport: transport}).Do(q)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.read(a); got.status != 200 || a.ProtoMajor != 2 {
		t.Errorf("%s %d %s", a.Proto, got.status, got.body)
	}
}

func TestPerKeyLimit(t *testing.T) {
	keys, _ := NewKeys("a", "b")
	r := start(t, func(o *Options) { o.Keys, o.PerKey = keys, 1 })
	entered, leave := make(chan struct{}), make(chan struct{})
	r.mux.HandleFunc("POST /v1/wait", func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	})
	done := make(chan reply)
	go func() { done <- r.do("POST", "/v1/wait", "", "X-Api-Key", "a") }()
	<-entered
	if a := r.do("POST", chatPath, hello, "X-Api-Key", "a"); a.status != 429 || a.header.Get("Retry-After") != "1" || !strings.Contains(a.body, "of this client") {
		t.Errorf("a second request: %+v", a)
	}
	if a := r.do("GET", "/v1/models", "", "X-Api-Key", "a"); a.status != 200 {
		t.Errorf("a look: %+v", a)
	}
	if a := r.do("POST", chatPath, hello, "X-Api-Key", "b"); a.status != 200 {
		t.Errorf("another key: %+v", a)
	}
	close(leave)
	<-done
	if a := r.do("POST", chatPath, hello, "X-Api-Key", "a"); a.status != 200 {
		t.Errorf("after it: %+v", a)
	}
	r.perKey.mu.Lock()
	defer r.perKey.mu.Unlock()
	if len(r.perKey.running) != 0 {
		t.Errorf("places that were not given back: %v", r.perKey.running)
	}
}
