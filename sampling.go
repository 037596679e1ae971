package foretoken

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/sample"
)

// What is recommended where a checkpoint recommends nothing.
const (
	DefaultTemperature = 0.8
	DefaultTopP        = 0.95
	DefaultXTC         = 0.1 // threshold
)

// Generation is what the checkpoint recommends, as its file has it.
func (m *Model) Generation() checkpoint.Generation { return m.generates }

// Sampling is how the checkpoint recommends to choose tokens, with a seed that was just
// drawn. Whether its numbers make sense is for Generate to say.
func (m *Model) Sampling() sample.Options { return Recommended(m.generates) }

// Recommended is how a checkpoint recommends to choose tokens, with a seed that was just
// drawn.
func Recommended(g checkpoint.Generation) sample.Options {
	o := sample.Options{
		Temperature: DefaultTemperature, TopP: DefaultTopP, RepetitionPenalty: 1, XTCThreshold: DefaultXTC, Seed: DrawSeed(),
	}
	if g.DoSample != nil && *g.DoSample && g.Temperature == nil {
		o.Temperature = 1 // the format's own default
	}
	if g.DoSample != nil || g.Temperature != nil || g.TopK != nil || g.TopP != nil {
		o.TopP = 1 // the file does recommend something, and this is not part of it
	}
	set(&o.Temperature, g.Temperature)
	if g.DoSample != nil && !*g.DoSample {
		o.Temperature = 0
	}
	set(&o.TopP, g.TopP)
	set(&o.MinP, g.MinP)
	set(&o.RepetitionPenalty, g.RepetitionPenalty)
	set(&o.PresencePenalty, g.PresencePenalty)
	set(&o.FrequencyPenalty, g.FrequencyPenalty)
	if g.TopK != nil && *g.TopK > 0 { // some files write -1 for all
		o.TopK = int(*g.TopK)
	}
	return o
}

// set makes x the file's value, if it has one.
func set(x, file *float64) {
	if file != nil {
		*x = *file
	}
}

// DrawSeed returns a random seed below 2^53, which every reader of JSON keeps exact.
func DrawSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	return binary.LittleEndian.Uint64(b[:]) >> 11
}
