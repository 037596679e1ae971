package foretoken

// Offload says what of a model lies on a device that has memory of its own, such as a GPU. The rest
// is computed by the host's processor, with the same bits. The zero value is as much as fits, where
// it is fastest.
type Offload struct {
	// Layers is how many layers lie on the device, the last ones, with output and head: a number,
	// LayersAuto or LayersOff. More than there are is all.
	Layers int
	// CPUExperts leaves the experts of all layers to the processor: most of the weights of such a
	// model, of which a token reads few.
	CPUExperts bool
}

const (
	// LayersAuto is the zero value: the number that gives most tokens per second, by free memory
	// and measured bandwidths.
	LayersAuto = 0
	// LayersOff has the processor compute everything.
	LayersOff = -1
)

// Placement is what one device has of a model.
type Placement struct {
	Device  string
	Layers  int      // how many
	Parts   []string // what, for people
	Weights int64    // about how many bytes
}
