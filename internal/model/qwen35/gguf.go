package qwen35

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// ggufFile is a GGUF file of the family. Its converter changed more than names: it added
// one to the norms of the offset form, in the head too; it stored -exp(A_log); and where
// there are more value heads than key heads it put the first value head of every key head
// first, then the second of every one, and so on. The first is how converted checkpoints are
// anyway, a logarithm undoes the second, and the layers know both orders of heads.
type ggufFile struct {
	*gguf.File
	arch                 string
	layers, nextn        int // of the model, of the head
	keyHeads, valueHeads int
	keyDim, valueDim     int
	tiled                bool // value heads are in the converter's order
}

// ggufTypes are the architectures that are read, with the model types they are.
var ggufTypes = map[string]string{"qwen35": "qwen3_5", "qwen35moe": "qwen3_5_moe", "qwen3next": "qwen3_next"}

// assembleGGUF presents a GGUF file as a checkpoint folder in the layout of converted
// checkpoints.
func assembleGGUF(f *gguf.File) (a checkpoint.Assembly, err error) {
	g := &ggufFile{File: f}
	if err := g.measure(); err != nil {
		return a, err
	}
	config, err := g.config()
	if err != nil {
		return a, err
	}
	a, err = f.Assembly(config, ggufWords, g.pieces)
	a.Metadata = map[string]string{"format": "mlx"} // which says that one was added to norms
	return a, err
}

// measure reads the sizes that the tensors' order depends on.
func (g *ggufFile) measure() (err error) {
	if g.arch, err = g.Text("general.architecture"); err != nil {
		return err
	}
	var inner int
	for _, x := range []struct {
		key      string
		to       *int
		min, max int
	}{
		{"block_count", &g.layers, 1, 1 << 12},
		{"nextn_predict_layers", &g.nextn, 0, 1 << 12},
		{"ssm.group_count", &g.keyHeads, 1, 1 << 12},
		{"ssm.time_step_rank", &g.valueHeads, 1, 1 << 12},
		{"ssm.state_size", &g.keyDim, 1, 1 << 12},
		{"ssm.inner_size", &inner, 1, 1 << 24},
	} {
		key := g.arch + "." + x.key
		if x.min == 0 && !g.Has(key) {
			continue
		}
		if *x.to, err = g.Whole(key); err != nil {
			return err
		}
		if *x.to < x.min || *x.to > x.max {
			return fmt.Errorf("%s is %d, want a number from %d to %d", key, *x.to, x.min, x.max)
		}
	}
	if g.layers -= g.nextn; g.layers < 1 {
		return fmt.Errorf("all blocks belong to the head")
	}
	g.valueDim = inner / g.valueHeads
	if g.valueHeads%g.keyHeads != 0 || inner%g.valueHeads != 0 {
		return fmt.Errorf("%d key heads do not divide %d value heads, or the value heads do not divide %d channels", g.keyHeads, g.valueHeads, inner)
	}
	g.tiled = g.arch != "qwen3next" && g.valueHeads != g.keyHeads
	if key := g.arch + ".ssm.v_head_reordered"; g.Has(key) { // some converters say
		yes, err := g.Whole(key)
		g.tiled = g.tiled && yes != 0
		return err
	}
	return nil
}

// pieces are the weights in a tensor.
func (g *ggufFile) pieces(t *gguf.Tensor) ([]gguf.Piece, error) {
	if strings.HasPrefix(t.Name, "v.") || strings.HasPrefix(t.Name, "mm.") {
		return nil, nil // vision
	}
	p, err := t.Piece("")
	if err != nil {
		return nil, err
	}
	var last string
	if p.Name, last, err = g.name(t.Name); err != nil {
		return nil, err
	}
	switch last {
	case "ssm_conv1d.weight":
		p.Shape = append(slices.Clone(p.Shape), 1)
	case "ssm_a", "ssm_dt", "ssm_dt.bias":
		if p.Encoding.Format != dtype.Plain {
			return nil, fmt.Errorf("%v, want F32, F16 or BF16", t.Type)
		}
		if last == "ssm_a" {
			p.Convert = decayLogs
		}
	case "ffn_gate_inp_shexp.weight":
		p.Shape = []int{1, p.Encoding.Cols}
	case "ffn_gate_up_exps.weight":
		return p.Halves(t.Shape[max(len(t.Shape)-2, 0)], "switch_mlp.gate_proj.weight", "switch_mlp.up_proj.weight")
	case "ssm_ba.weight":
		if g.tiled {
			return nil, fmt.Errorf("the tensor needs value heads that follow their key heads, but this file has another order")
		}
		return p.Halves(2*g.valueHeads/g.keyHeads, "in_proj_b.weight", "in_proj_a.weight")
	}
	return []gguf.Piece{p}, nil
}

// decayLogs turns decay rates, which are -exp(A_log), back into A_log.
func decayLogs(b []byte, typ dtype.Type) ([]byte, error) {
	v := make([]float32, len(b)/typ.Size())
	dtype.ToF32(v, typ, b)
	out := make([]byte, 0, 4*len(v))
	for _, x := range v {
		if !(x < 0 && x >= -math.MaxFloat32) {
			return nil, fmt.Errorf("decay rate %g, want a negative number", x)
		}
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(exactmath.LogOfExp(-float64(x)))))
	}
	return out, nil
}
