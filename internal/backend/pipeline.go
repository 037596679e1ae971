package backend

import "time"

// Pipeline is a device of several that compute at the same time. Each computes a part of a pass, a stage of the pipeline, and
// passes that were launched follow one another through the stages in the order of their launch.
type Pipeline interface {
	Backend
	// Stages is how many passes can be computed at the same time.
	Stages() int
	// Launch calls f and returns before the passes that f queues are computed. All other calls, of f too, work as usual
	// meanwhile: those that use memory of a launched pass wait for it. The results are the same bits in any order.
	Launch(f func()) Flight
}

// Flight is launched passes.
type Flight interface {
	// Ended is closed when the passes are computed.
	Ended() <-chan struct{}
	// Wait returns when the passes are computed, with their error, which no other call reports. A panic of a device is one
	// of Wait.
	Wait() (Trip, error)
}

// Trip is the time that devices took for launched passes. Waiting for other passes is not counted.
type Trip struct {
	Took     time.Duration // by all devices
	Longest  time.Duration // by the one that took longest
	Prepared bool          // it was longer than that of later passes of the shape, see Preparer
}
