package qwen35

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Raw releases store the weight w of a norm whose gain is 1+w. Converted checkpoints store
// the gain itself. Artifacts mix the two, down to single tensors of one head, and getting it
// wrong costs the text (model) or every accepted draft token (head). So the convention is
// decided tensor by tensor: by what a file says of itself, by the layout of the model, by
// the other norms of the head, and only then by its numbers.

// normRule decides the convention of norm tensors.
type normRule struct {
	model weights.Convention
	head  weights.Convention // of the majority
	votes bool               // head tensors may differ from the majority by their own numbers
}

// findNormRule looks at the layout of the model and at the head's norms.
func findNormRule(c *checkpoint.Checkpoint, found *weights.Files, cfg *config, log *slog.Logger) (normRule, error) {
	r := normRule{}
	for i, attention := range cfg.layers {
		if attention {
			continue
		}
		p, ok := found.Place(fmt.Sprintf("layers.%d.linear_attn.conv1d.weight", i))
		if !ok {
			break // reported when the weight is loaded
		}
		conv, err := p.From.Tensor(p.Name)
		if err != nil {
			return r, err
		}
		r.model = conventionBy(conv.Shape, p.From.Metadata(conv.File)["format"])
		break
	}
	p, ok := found.Place("mtp.norm.weight")
	if !ok {
		return r, nil
	}
	head, err := p.From.Tensor(p.Name)
	if err != nil {
		return r, err
	}
	switch said := p.From.Metadata(head.File); {
	case said["format"] == "mlx" || manifestConverted(c, p):
		r.head = weights.Effective
	case said[checkpoint.NormsKey] == weights.LessOne.String(), !p.Beside && r.model == weights.LessOne:
		r.head = weights.LessOne
	default:
		r.votes = true
		if r.head, err = headMajority(found); err != nil {
			return r, err
		}
	}
	log.Info("norm convention", "model", r.model, "head", r.head, "by_numbers", r.votes)
	return r, nil
}

// conventionBy is the convention of a file's norms by the shape of a convolution, and by the
// format that the file's metadata names.
func conventionBy(conv []int, format string) weights.Convention {
	if n := len(conv); n > 0 && conv[n-1] != 1 && format != "mlx" {
		return weights.LessOne
	}
	return weights.Effective
}

// manifestConverted reports whether the head's manifest says that it is converted.
func manifestConverted(c *checkpoint.Checkpoint, p weights.Place) bool {
	for _, s := range c.Sidecars {
		var m struct {
			Format string `json:"rmsnorm_weight_format"`
		}
		if s.Weights == p.From && json.Unmarshal(s.Manifest, &m) == nil && m.Format == "mlx_gamma" {
			return true
		}
	}
	return false
}

// headNorms are the head's norms in the order of a report.
var headNorms = []string{
	"mtp.pre_fc_norm_embedding.weight",
	"mtp.pre_fc_norm_hidden.weight",
	"mtp.layers.0.input_layernorm.weight",
	"mtp.layers.0.post_attention_layernorm.weight",
	"mtp.layers.0.self_attn.q_norm.weight",
	"mtp.layers.0.self_attn.k_norm.weight",
	"mtp.norm.weight",
}

// voters are those whose numbers tell the conventions apart: near 0 or near 1.
var voters = headNorms[2:6]

// headMajority is the convention of most of the head's layer norms, a tie being converted.
func headMajority(found *weights.Files) (weights.Convention, error) {
	raw, converted := 0, 0
	for _, v := range voters {
		p, ok := found.Place(v)
		if !ok {
			continue
		}
		t, err := p.From.Tensor(p.Name)
		if err != nil {
			return weights.Effective, err
		}
		x, err := p.From.Vector(p.Name, weights.Elements(t.Shape))
		if err != nil {
			return weights.Effective, err
		}
		if weights.Mean(x) < 0.5 {
			raw++
		} else {
			converted++
		}
	}
	if raw > converted {
		return weights.LessOne, nil
	}
	return weights.Effective, nil
}

// of decides the convention of one norm of the head, given its canonical name and its numbers.
func (r *normRule) of(name string, x []float32) weights.Convention {
	if !r.votes {
		return r.head
	}
	m := weights.Mean(x)
	switch {
	case strings.Contains(name, "pre_fc_norm"):
		// Their gains are well below one: converted means of 0.27 have been seen.
		if m < 0 {
			return weights.LessOne
		}
		if m >= 0.5 {
			return weights.Effective
		}
	case name == "mtp.norm.weight":
		// Final norms have large gains, so only a negative mean says anything.
		if m < 0 {
			return weights.LessOne
		}
	case m < 0.25:
		return weights.LessOne
	case m > 0.75:
		return weights.Effective
	}
	return r.head
}
