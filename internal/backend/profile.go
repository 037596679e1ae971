package backend

// Profiler is a device that queues its work, so that a caller cannot time single operations.
type Profiler interface {
	// Profile runs the last pass again, repeats times, and returns the median times of its kernels,
	// those of one kind together, the longest first. They run one after another for it, so their sum is
	// more than the time of the pass. The results of the pass, states included, are undefined afterwards.
	Profile(repeats int) ([]Cost, error)
}

// Cost is the time of the kernels of one kind in a pass.
type Cost struct {
	Kernel  string  `json:"kernel"` // its name, and of a product the outputs and columns
	Count   int     `json:"count"`
	Seconds float64 `json:"seconds"` // of all of them
}
