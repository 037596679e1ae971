package batch

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestMemoryOfLines reads lines that take the most memory for their bytes: 8 times these and 32 MiB are
// allowed, as for the requests of a server.
func TestMemoryOfLines(t *testing.T) {
	var fields strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&fields, `"%x":0,`, i)
	}
	ahead := `{"custom_id":"a","method":"POST","url":"/v1/completions",`
	zeros := "[" + strings.Repeat("0,", 1<<20) + "0]"
	for line, want := range map[string]string{
		"{" + fields.String() + `"custom_id":"a"}`:       "more than 1024 fields",
		ahead + `"body":{` + fields.String() + `"a":0}}`: "more than 1024 fields",
		ahead + `"body":` + zeros + `}`:                  "want an object, the request",
		ahead + `"body":{"prompt":` + zeros + `}}`:       "",
		ahead + `"x":` + zeros + `,"body":{}}`:           "",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, fault := parse([]byte(line))
		runtime.ReadMemStats(&after)
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(8*len(line)+32<<20); got > most || (fault == nil) != (want == "") || fault != nil && !strings.Contains(fault.Message, want) {
			t.Errorf("%.80s: %d bytes allocated for %d, want at most %d; %+v, want %q", line, got, len(line), most, fault, want)
		}
	}
}
