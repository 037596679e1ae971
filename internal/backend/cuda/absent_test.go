//go:build !cuda

package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

// A build without the tag knows the device, and says what it would take.
func TestBuildWithoutCUDASaysSo(t *testing.T) {
	_, err := backend.Open("cuda", backend.Options{})
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "built without CUDA: use a build with the tag cuda") {
		t.Errorf("error %v", err)
	}
	for _, d := range backend.List() {
		if d.Name == "cuda" && (d.Missing == "" || d.Default) {
			t.Errorf("%+v", d)
		}
	}
}
