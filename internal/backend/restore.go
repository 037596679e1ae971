package backend

import "context"

// Restorer is a device that can lose the contents of its memory and continue, as one on another machine. From then on
// operations do nothing and every call that waits fails, until Restore.
type Restorer interface {
	// Restore makes the device usable again, and may wait for that. It reports whether contents were lost: weights are then
	// as before, and so is memory that nothing but Write has written to since it was allocated; all other memory is zero.
	// After an error, for which Lost is true, the device stays unusable. On a device that has lost nothing it does nothing.
	Restore() (lost bool, err error)
	// WhenLost has f called, on another goroutine, when contents are lost that Restore has not brought back, or were before,
	// unless ctx is done first. It may be called several times.
	WhenLost(ctx context.Context, f func())
}

// Restore is Restore of a device that can lose the contents of its memory.
func Restore(b Backend) (lost bool, err error) {
	if r, ok := b.(Restorer); ok {
		return r.Restore()
	}
	return false, nil
}

// WhenLost is WhenLost of a device that can lose the contents of its memory.
func WhenLost(ctx context.Context, b Backend, f func()) {
	if r, ok := b.(Restorer); ok {
		r.WhenLost(ctx, f)
	}
}
