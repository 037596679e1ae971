package qwen35

import "fmt"

// lister goes through a network as loader does, but notes where its weights are instead of
// loading them: a converter writes them one by one and never needs the network.
type lister struct {
	cfg     *config
	names   names
	norms   *normRule
	any     bool // every weight is there: only names and shapes are wanted
	weights []Weight
	missing []string // canonical names
	err     error
}

// verdict is the error of what is missing.
func (l *lister) verdict() error {
	if l.err != nil || len(l.missing) == 0 {
		return l.err
	}
	return (&loader{missing: l.missing}).verdict()
}

func (l *lister) miss(name string) {
	if len(l.missing) < mostMissing {
		l.missing = append(l.missing, name)
	}
}

// find is where a module is stored, all rows of it.
func (l *lister) find(module string, stacked, rows, cols int) stretch {
	from, path, ok := l.names.module(module)
	if !ok && !l.any {
		l.miss(module + ".weight")
	}
	return stretch{from: from, path: path, stacked: stacked, rows: rows, cols: cols, r1: rows}
}

func (l *lister) add(kind Kind, name string, experts, rows, cols int, stretches ...stretch) {
	l.weights = append(l.weights, Weight{
		Name: name, Kind: kind, Experts: experts, Rows: rows, Cols: cols, stretches: stretches, norms: l.norms,
	})
}

func (l *lister) matrix(kind Kind, module string, rows, cols int) {
	l.add(kind, module+".weight", 0, rows, cols, l.find(module, 0, rows, cols))
}

// numbers adds a weight that is no matrix.
func (l *lister) numbers(kind Kind, name string, rows, cols int) {
	p, ok := l.names[name]
	if !ok && !l.any {
		l.miss(name)
	}
	l.add(kind, name, 0, rows, cols, stretch{from: p.from, path: p.name})
}

func (l *lister) gain(module string, n int) { l.numbers(Gain, module+".weight", 1, n) }

// trunk lists the backbone.
func (l *lister) trunk() {
	c := l.cfg
	l.matrix(Matrix, "embed_tokens", c.vocab, c.hidden)
	for i, attention := range c.layers {
		l.layer(fmt.Sprintf("layers.%d.", i), attention)
	}
	l.gain("norm", c.hidden)
	if !c.tied {
		l.matrix(Matrix, "lm_head", c.vocab, c.hidden)
	}
}

// head lists the multi-token-prediction head.
func (l *lister) head() {
	if depth := l.names.headDepth(); depth > 1 {
		l.err = fmt.Errorf("qwen35: the head has %d layers, want 1", depth)
	}
	n := l.cfg.hidden
	l.matrix(Matrix, "mtp.fc", n, 2*n)
	l.layer("mtp.layers.0.", true)
	l.gain("mtp.norm", n)
	l.gain("mtp.pre_fc_norm_embedding", n)
	l.gain("mtp.pre_fc_norm_hidden", n)
}

func (l *lister) layer(p string, attention bool) {
	n := l.cfg.hidden
	l.gain(p+"input_layernorm", n)
	if attention {
		l.attention(p + "self_attn.")
	} else {
		l.deltaNet(p + "linear_attn.")
	}
	l.gain(p+"post_attention_layernorm", n)
	if l.cfg.experts > 0 {
		l.experts(p + "mlp.")
	} else {
		l.mlp(p+"mlp.", l.cfg.intermediate)
	}
}

func (l *lister) attention(p string) {
	c := l.cfg
	d := c.headDim
	l.matrix(Matrix, p+"q_proj", 2*c.heads*d, c.hidden)
	l.matrix(Matrix, p+"k_proj", c.kvHeads*d, c.hidden)
	l.matrix(Matrix, p+"v_proj", c.kvHeads*d, c.hidden)
	l.matrix(Matrix, p+"o_proj", c.hidden, c.heads*d)
	l.gain(p+"q_norm", d)
	l.gain(p+"k_norm", d)
}

func (l *lister) deltaNet(p string) {
	c := l.cfg
	values := c.valueHeads * c.valueDim
	channels := 2*c.keyHeads*c.keyDim + values
	if l.names.has(p+"in_proj_qkvz", p+"in_proj_ba") {
		l.fusedProjections(p)
	} else {
		l.matrix(Matrix, p+"in_proj_qkv", channels, c.hidden)
		l.matrix(Matrix, p+"in_proj_z", values, c.hidden)
		l.matrix(Matrix, p+"in_proj_b", c.valueHeads, c.hidden)
		l.matrix(Matrix, p+"in_proj_a", c.valueHeads, c.hidden)
	}
	l.numbers(Conv, p+"conv1d.weight", channels, c.kernel)
	l.numbers(Decay, p+"A_log", 1, c.valueHeads)
	l.numbers(Vector, p+"dt_bias", 1, c.valueHeads)
	l.numbers(Vector, p+"norm.weight", 1, c.valueDim)
	l.matrix(Matrix, p+"out_proj", c.hidden, values)
}

// fusedProjections lists Qwen3-Next's projections as the four that they are.
func (l *lister) fusedProjections(p string) {
	c := l.cfg
	both := l.find(p+"in_proj_qkvz", 0, 2*(c.keyHeads*c.keyDim+c.valueHeads*c.valueDim), c.hidden)
	ba := l.find(p+"in_proj_ba", 0, 2*c.valueHeads, c.hidden)
	if len(l.missing) > 0 {
		return // before the lists below are as long as the config says
	}
	rows := fusedRows(c)
	for _, x := range []struct {
		name string
		from stretch
		pick []int
	}{
		{"in_proj_qkv", both, rows.qkv}, {"in_proj_z", both, rows.z}, {"in_proj_b", ba, rows.b}, {"in_proj_a", ba, rows.a},
	} {
		x.from.pick = x.pick
		l.add(Matrix, p+x.name+".weight", 0, len(x.pick), c.hidden, x.from)
	}
}

func (l *lister) mlp(p string, width int) {
	n := l.cfg.hidden
	l.matrix(Matrix, p+"gate_proj", width, n)
	l.matrix(Matrix, p+"up_proj", width, n)
	l.matrix(Matrix, p+"down_proj", n, width)
}

// experts lists a mixture of experts in whichever of the layouts it is stored.
func (l *lister) experts(p string) {
	c := l.cfg
	l.matrix(Router, p+"gate", c.experts, c.hidden)
	l.stack(p, "gate_proj", c.expertWidth, c.hidden)
	l.stack(p, "up_proj", c.expertWidth, c.hidden)
	l.stack(p, "down_proj", c.hidden, c.expertWidth)
	l.mlp(p+"shared_expert.", c.sharedWidth)
	l.matrix(Router, p+"shared_expert_gate", 1, c.hidden)
}

// stack lists one projection of all experts.
func (l *lister) stack(p, name string, rows, cols int) {
	n := l.cfg.experts
	var stretches []stretch
	switch {
	case l.any:
	case l.names.has(p+"experts.gate_up_proj", p+"experts.down_proj"):
		fused, at := "gate_up_proj", 0
		stored := 2 * rows
		switch name {
		case "up_proj":
			at = rows
		case "down_proj":
			fused, stored = name, rows
		}
		x := l.find(p+"experts."+fused, n, stored, cols)
		x.r0, x.r1 = at, at+rows
		stretches = []stretch{x}
	case l.names.has(p+"switch_mlp.gate_proj", p+"switch_mlp.up_proj", p+"switch_mlp.down_proj"):
		stretches = []stretch{l.find(p+"switch_mlp."+name, n, rows, cols)}
	default:
		for i := range n {
			if len(l.missing) == mostMissing {
				break
			}
			stretches = append(stretches, l.find(fmt.Sprintf("%sexperts.%d.%s", p, i, name), 0, rows, cols))
		}
	}
	l.add(Matrix, p+"switch_mlp."+name+".weight", n, rows, cols, stretches...)
}
