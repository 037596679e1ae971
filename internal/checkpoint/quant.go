package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/foretoken/foretoken/internal/dtype"
)

// quantization is the part of config.json about encoded weights. The encoding of a
// matrix is determined by its tensors, whose types and shapes are unambiguous;
// the config is compared with them if it names that module. Configs of other tools than
// MLX are compared for integers only: published ones are wrong about other modules.
type quantization struct {
	method    string // quant_method, "" for MLX's or none
	symmetric bool   // zero points are half of the range
	ascending bool   // GPTQ's groups of columns are contiguous
	// zerosAsStored: GPTQ's zero points are those of the file: the first version has them less one.
	zerosAsStored bool
	block         [2]int                // rows and columns that share an FP8 scale; zero: it does not say
	paths         map[string][]override // module → its own parameters; one of several must be right
}

// usualBlock is the block of the releases.
var usualBlock = [2]int{128, 128}

// override is the config of one module. Zero fields are not given.
type override struct {
	Plain bool   `json:"-"`
	Mode  string `json:"mode"`
	Bits  int    `json:"bits"`
	Group int    `json:"group_size"`
}

// confirm compares the config of a module with its tensors. stored is the type
// of its elements: bytes may hold integers of fewer bits.
func (q *quantization) confirm(module string, m *dtype.Matrix, stored dtype.Type) error {
	if q.method != "" && m.Format != dtype.ZeroPoint {
		return nil
	}
	var err error
	for _, o := range q.paths[module] {
		if stored == dtype.I8 && o.Bits < 8 {
			o.Bits = 0
		}
		if o.Group == m.Cols && m.Group == channelGroup(m.Cols) {
			o.Group = 0 // one scale per row
		}
		if err = o.check(m); err == nil {
			return nil
		}
	}
	return err
}

// check compares the parameters of a module with a matrix.
func (o override) check(m *dtype.Matrix) error {
	bits := m.ElementBits()
	switch {
	case o.Plain && m.Format != dtype.Plain:
		return fmt.Errorf("%s says it is not quantized, but its tensors are %v with %d bits", configFile, m.Format, bits)
	case o.Plain:
		return nil
	case m.Format == dtype.Plain:
		return fmt.Errorf("%s says it is quantized, but its type is %v", configFile, m.Type)
	case (o.Mode == "" || o.Mode == m.Format.String()) && (o.Bits == 0 || o.Bits == bits) && (o.Group <= 0 || o.Group == m.Group):
		return nil
	}
	return fmt.Errorf("%s says %s with %d bits in groups of %d, its tensors are %v with %d bits in groups of %d",
		configFile, cmp.Or(o.Mode, "integers"), o.Bits, o.Group, m.Format, bits, m.Group)
}

var modes = []string{"", "affine", "mxfp4", "nvfp4", "mxfp8"}

// parseQuantization reads the block from config.json, where it may have two names
// and two places. The first one counts; tools that write two write the same. Without
// one the file beside it counts, if it exists (nil: it does not).
func parseQuantization(config, beside []byte) (quantization, error) {
	type blocks struct {
		Quantization       map[string]json.RawMessage `json:"quantization"`
		QuantizationConfig map[string]json.RawMessage `json:"quantization_config"`
	}
	var c struct {
		blocks
		TextConfig blocks `json:"text_config"`
	}
	var q quantization
	if !bytes.HasPrefix(bytes.TrimSpace(config), []byte("{")) {
		return q, fmt.Errorf("checkpoint: %s is not a JSON object", configFile)
	}
	if err := DecodeJSON(configFile, config, &c); err != nil {
		return q, err
	}
	for _, b := range []map[string]json.RawMessage{
		c.Quantization, c.QuantizationConfig, c.TextConfig.Quantization, c.TextConfig.QuantizationConfig,
	} {
		if b == nil {
			continue
		}
		if err := q.parse(b); err != nil {
			return q, fmt.Errorf("checkpoint: %s: quantization: %w", configFile, err)
		}
		return q, nil
	}
	if beside == nil {
		return q, nil
	}
	b := map[string]json.RawMessage{}
	if err := DecodeJSON(quantizeFile, beside, &b); err != nil {
		return q, err
	}
	q.method = "gptq"
	if err := q.parseForeign(b); err != nil {
		return q, fmt.Errorf("checkpoint: %s: %w", quantizeFile, err)
	}
	return q, nil
}

func (q *quantization) parse(block map[string]json.RawMessage) error {
	if err := field(block, "quant_method", &q.method); err != nil {
		return err
	}
	if q.method != "" {
		return q.parseForeign(block)
	}
	var global override
	if err := cmp.Or(field(block, "mode", &global.Mode), field(block, "bits", &global.Bits),
		field(block, "group_size", &global.Group)); err != nil {
		return err
	}
	if !slices.Contains(modes, global.Mode) {
		return fmt.Errorf("mode %q is not supported, want one of %q", global.Mode, modes[1:])
	}
	q.paths = map[string][]override{}
	for path, raw := range block {
		var o override
		switch {
		case string(raw) == "false":
			o.Plain = true
		case string(raw) == "true": // quantized like the rest
		case len(raw) > 0 && raw[0] == '{':
			if err := json.Unmarshal(raw, &o); err != nil {
				return fmt.Errorf("%q: %w", path, err)
			}
			if o.Mode == "" {
				o.Mode = modes[1]
			}
			if !slices.Contains(modes, o.Mode) {
				return fmt.Errorf("%q: mode %q is not supported, want one of %q", path, o.Mode, modes[1:])
			}
		default: // a parameter, not a module
			continue
		}
		q.paths[path] = []override{o}
	}
	return nil
}

// parseForeign reads the settings of other tools' formats: sizes of blocks, the meaning of zero points, and
// settings of modules.
func (q *quantization) parseForeign(block map[string]json.RawMessage) error {
	var size []int
	if err := field(block, "weight_block_size", &size); err != nil {
		return err
	}
	if size != nil && (len(size) != 2 || size[0] < 1 || size[1] < 1) {
		return fmt.Errorf("weight_block_size %v, want two positive numbers", size)
	}
	copy(q.block[:], size)
	var format, packing string
	var actOrder *bool
	for key, v := range map[string]any{"sym": &q.symmetric, "packing_format": &packing, "desc_act": &actOrder} {
		_ = field(block, key, v) // of another type: ignored
	}
	for _, key := range []string{"checkpoint_format", "format"} {
		if format == "" {
			_ = field(block, key, &format) // likewise
		}
	}
	q.ascending = actOrder != nil && !*actOrder
	q.zerosAsStored = format == "gptq_v2" || packing == "auto_round" || packing == "auto_round:gptqmodel"
	q.paths = map[string][]override{}
	q.parseModules(block)
	return nil
}

// parseModules reads the settings of modules by their name. Lists of patterns and of unquantized modules only repeat what
// the tensors say, and published files contradict them.
func (q *quantization) parseModules(block map[string]json.RawMessage) {
	type weights struct {
		Bits      optional[int]    `json:"num_bits"`
		Group     optional[int]    `json:"group_size"`
		Structure optional[[2]int] `json:"block_structure"`
	}
	var groups optional[map[string]struct {
		Targets optional[[]string] `json:"targets"`
		Weights optional[weights]  `json:"weights"`
	}]
	var extra optional[map[string]optional[struct {
		Bits  optional[int] `json:"bits"`
		Group optional[int] `json:"group_size"`
	}]]
	_ = cmp.Or(field(block, "config_groups", &groups), field(block, "extra_config", &extra)) // optional has no errors
	for _, name := range slices.Sorted(maps.Keys(groups.is)) {
		w := groups.is[name].Weights.is
		for _, target := range groups.is[name].Targets.is {
			q.paths[target] = append(q.paths[target], override{Bits: w.Bits.is, Group: w.Group.is})
		}
		if s := w.Structure.is; q.block == ([2]int{}) && s[0] > 0 && s[1] > 0 {
			q.block = s
		}
	}
	for module, x := range extra.is {
		q.paths[module] = append(q.paths[module], override{Bits: x.is.Bits.is, Group: x.is.Group.is, Plain: x.is.Bits.is >= 16})
	}
}

// optional is a member of an object that is ignored if it has another type.
type optional[T any] struct{ is T }

// UnmarshalJSON implements json.Unmarshaler.
func (o *optional[T]) UnmarshalJSON(data []byte) error {
	var v T
	if json.Unmarshal(data, &v) == nil {
		o.is = v
	}
	return nil
}

// field decodes one member of an object; absent and null leave v unchanged.
func field(block map[string]json.RawMessage, key string, v any) error {
	raw, ok := block[key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%q: %w", key, err)
	}
	return nil
}
