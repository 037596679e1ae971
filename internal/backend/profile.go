package backend

// Profiler is a device that queues its work, so that a caller cannot time single operations.
type Profiler interface {
	// Profile runs the last pass again, repeats times, and returns the medians of what its kernels
	// took, those of one kind together, the longest first. They run one after another for it, so their sum is
	// more than the pass takes. What the pass has computed, states included, is of no use afterwards.
	Profile(repeats int) ([]Cost, error)
}

// Cost is what the kernels of one kind take in a pass.
type Cost struct {
	Kernel  string  `json:"kernel"` // its name, and of a product the outputs and columns
	Count   int     `json:"count"`
	Seconds float64 `json:"seconds"` // of all of them
}
