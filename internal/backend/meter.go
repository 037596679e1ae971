package backend

// Meter is a device that reports its usage. Unlike all other methods of a device, any goroutine
// may call it, at any time.
type Meter interface {
	// Usage is that of the device, or of each where it is several.
	Usage() []Usage
}

// Usage is how much of a device is in use.
type Usage struct {
	Device string // its name, for people
	Memory int64  // bytes there are; 0: not known
	Free   int64  // bytes of Memory that can still be taken; other processes are considered
	Used   int64  // bytes that this Backend has taken: weights, state, activations

	Recordings int   // passes that were recorded and can be replayed: graphs, on a GPU
	Recorded   int64 // how often one was, so far
	Replayed   int64 // passes that were replayed
}

// UsageOf is the usage of a device; none if it does not report it.
func UsageOf(b Backend) []Usage {
	if m, ok := b.(Meter); ok {
		return m.Usage()
	}
	return nil
}
