package generatetest

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"weak"

	"github.com/foretoken/foretoken/internal/server/body"
)

// Released reads a request and checks that the result does not keep the body in memory, which
// may be mostly images in base64. read returns the values that are kept while the request is answered.
func Released(t testing.TB, request string, read func(w http.ResponseWriter, r *http.Request) any) {
	t.Helper()
	data := []byte(request)
	left := weak.Make(&data[0])
	r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
	r.Body = body.Held(data)
	kept := read(httptest.NewRecorder(), r)
	data = nil
	runtime.GC()
	if left.Value() != nil {
		t.Errorf("the body is still in memory: %.200s", request)
	}
	runtime.KeepAlive(kept)
	runtime.KeepAlive(r)
}
