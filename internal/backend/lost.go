package backend

import "errors"

// Lost reports whether an error says that its device is lost to this process: whatever is asked of
// it fails from now on, and only Close is of use. Any other error is of the operations it is about,
// and the device goes on. Devices say so with an error that has a method DeviceLost.
func Lost(err error) bool {
	var e interface {
		error
		DeviceLost() bool
	}
	return errors.As(err, &e) && e.DeviceLost()
}
