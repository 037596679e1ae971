package backend

import "errors"

// Lost reports whether an error says that its device is lost to this process: every later call
// fails, and only Close is useful. Any other error concerns single operations,
// and the device continues. Devices report it with an error that has a method DeviceLost.
func Lost(err error) bool {
	var e interface {
		error
		DeviceLost() bool
	}
	return errors.As(err, &e) && e.DeviceLost()
}
