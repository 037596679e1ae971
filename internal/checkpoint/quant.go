package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/dtype"
)

// quantization is what config.json says about encoded weights. Which encoding a
// matrix has is decided by its tensors, whose types and shapes leave no choice;
// the config is compared with them where it speaks of that very module.
type quantization struct {
	method string              // quant_method of a foreign scheme, "" for MLX's or none
	block  [2]int              // rows and columns that share an FP8 scale
	paths  map[string]override // module → its own parameters
}

// usualBlock is the block of the releases.
var usualBlock = [2]int{128, 128}

// override is what the config says about one module. Zero fields are not given.
type override struct {
	Plain bool   `json:"-"`
	Mode  string `json:"mode"`
	Bits  int    `json:"bits"`
	Group int    `json:"group_size"`
}

// check compares what the config says about a module with what its tensors are.
func (o override) check(e *entry, m *dtype.Matrix) error {
	bits := m.ElementBits()
	if (o.Mode == "" || o.Mode == m.Format.String()) && (o.Bits == 0 || o.Bits == bits) && (o.Group == 0 || o.Group == m.Group) {
		return nil
	}
	return e.errorf("%s says %s with %d bits in groups of %d, its tensors are %v with %d bits in groups of %d",
		configFile, o.Mode, o.Bits, o.Group, m.Format, bits, m.Group)
}

var modes = []string{"", "affine", "mxfp4", "nvfp4", "mxfp8"}

// parseQuantization reads the block from config.json, where it may have two names
// and two places. The first that is there counts; tools that write two write the same.
func parseQuantization(config []byte) (quantization, error) {
	type blocks struct {
		Quantization       map[string]json.RawMessage `json:"quantization"`
		QuantizationConfig map[string]json.RawMessage `json:"quantization_config"`
	}
	var c struct {
		blocks
		TextConfig blocks `json:"text_config"`
	}
	q := quantization{block: usualBlock}
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
		break
	}
	return q, nil
}

func (q *quantization) parse(block map[string]json.RawMessage) error {
	if err := field(block, "quant_method", &q.method); err != nil {
		return err
	}
	if q.method != "" {
		return q.parseBlockSize(block)
	}
	var global override
	if err := cmp.Or(field(block, "mode", &global.Mode), field(block, "bits", &global.Bits),
		field(block, "group_size", &global.Group)); err != nil {
		return err
	}
	if !slices.Contains(modes, global.Mode) {
		return fmt.Errorf("mode %q is not supported, want one of %q", global.Mode, modes[1:])
	}
	q.paths = map[string]override{}
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
		q.paths[path] = o
	}
	return nil
}

func (q *quantization) parseBlockSize(block map[string]json.RawMessage) error {
	var size []int
	if err := field(block, "weight_block_size", &size); err != nil || size == nil {
		return err
	}
	if len(size) != 2 || size[0] < 1 || size[1] < 1 {
		return fmt.Errorf("weight_block_size %v, want two positive numbers", size)
	}
	q.block = [2]int(size)
	return nil
}

// field decodes one member of an object; absent and null leave v as it is.
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
