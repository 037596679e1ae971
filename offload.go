package foretoken

// Offload is the placement of a model on a device with its own memory, such as a GPU. The CPU computes
// the rest, with the same bits. The zero value places as much as fits, where
// it is fastest.
type Offload struct {
	// Layers is the number of layers on the device, the last ones, with output and head: a number,
	// LayersAuto or LayersOff. More than the model has is all. With several devices it is LayersAuto.
	Layers int
	// CPUExperts leaves the experts of all layers to the processor: most of the weights of such a
	// model, of which a token reads few.
	CPUExperts bool
}

const (
	// LayersAuto is the zero value: the number with the most tokens per second, by free memory
	// and measured bandwidths.
	LayersAuto = 0
	// LayersOff has the processor compute everything.
	LayersOff = -1
)

// Placement is the part of a model on one device.
type Placement struct {
	Device  string
	Layers  int      // how many
	Parts   []string // for people
	Weights int64    // about how many bytes
}
