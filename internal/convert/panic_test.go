package convert

import (
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
)

// TestWriterSurvivesPanics has the making of a tensor panic on a goroutine of the writer.
func TestWriterSurvivesPanics(t *testing.T) {
	it := &item{decls: []checkpoint.Decl{{Name: "a"}}, data: func() ([]byte, error) { panic("of the test") }}
	if err := (&writer{}).run(t.Context(), []*item{it}, 2); err == nil || err.Error() != "panic: of the test" {
		t.Errorf("%v, want the panic", err)
	}
}
