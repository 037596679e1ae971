//go:build noembed

package tiny_test

import (
	"testing"

	"github.com/foretoken/foretoken/internal/models/tiny"
)

func TestFilesIsNilWithoutEmbedding(t *testing.T) {
	if files := tiny.Files(); files != nil {
		t.Errorf("got %d files in a build with the tag noembed", len(files))
	}
}
