package driver

import (
	"errors"
	"strings"
	"testing"
)

// TestErrorsNameTheCallAndTheRemedy checks the text of errors, and which of them lose the device.
func TestErrorsNameTheCallAndTheRemedy(t *testing.T) {
	for code, c := range map[Result]struct {
		name, remedy string
		lost         bool
	}{
		OutOfDeviceMemory: {"VK_ERROR_OUT_OF_DEVICE_MEMORY", "smaller model", false},
		DeviceLost:        {"VK_ERROR_DEVICE_LOST", "restart the process", true},
		Timeout:           {"VK_TIMEOUT", "restart the process", true},
		Incompatible:      {"VK_ERROR_INCOMPATIBLE_DRIVER", "mesa-vulkan-drivers", false},
		-77:               {"VkResult -77", "", false},
	} {
		err := error(&Error{Call: "vkQueueSubmit", Code: code, Cause: errors.New("the cause")})
		if text := err.Error(); !strings.HasPrefix(text, "vulkan: vkQueueSubmit: "+c.name+": the cause") || !strings.Contains(text, c.remedy) {
			t.Errorf("%d: %s", code, text)
		}
		var e *Error
		if !errors.Is(err, code) || !errors.As(err, &e) || e.DeviceLost() != c.lost {
			t.Errorf("%v: lost %t", err, e.DeviceLost())
		}
	}
}
