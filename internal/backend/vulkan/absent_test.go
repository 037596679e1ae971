//go:build !vulkan

package vulkan

import (
	"errors"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

// TestBuildWithoutVulkanSaysSo has a build without the tag know the device, and say which tag adds it.
func TestBuildWithoutVulkanSaysSo(t *testing.T) {
	_, err := backend.Open("vulkan", backend.Options{})
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "the tag vulkan") {
		t.Errorf("error %v", err)
	}
}
