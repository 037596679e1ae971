package network

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/checkpoint"
)

// Settings are what the resolved configs of all families have in common: every field has its final
// value.
type Settings struct {
	Package   string // of the family: errors begin with it
	ModelType string
	Kind      string // of the model, for people

	Vocab, Width  int
	Eps           float32
	Context       int
	Tied          bool // the embedding is also the output matrix
	Experts, TopK int  // experts of a layer, and how many of them a token uses; Experts 0: dense
	Stop          []int32
	EmbedFactor   float32 // of the rows of tokens; 0: 1
	LogitCap      float32 // logits are c·tanh(x/c); 0: as they are

	MTPLayers int  // heads that the config declares
	PreNorm   bool // the head is fed the hidden state before the final norm
	OwnTables bool // a head may store an embedding and an output matrix of its own
}

// Common implements Config.
func (s *Settings) Common() *Settings { return s }

// File is the part of config.json that all families read, as it is written. Numbers are pointers where
// absence differs from zero.
type File struct {
	ModelType     string              `json:"model_type"`
	Architectures []string            `json:"architectures"`
	Tied          *bool               `json:"tie_word_embeddings"`
	Vocab         *checkpoint.Whole   `json:"vocab_size"`
	Hidden        *checkpoint.Whole   `json:"hidden_size"`
	Layers        *checkpoint.Whole   `json:"num_hidden_layers"`
	Intermediate  *checkpoint.Whole   `json:"intermediate_size"`
	Heads         *checkpoint.Whole   `json:"num_attention_heads"`
	KVHeads       *checkpoint.Whole   `json:"num_key_value_heads"`
	Activation    string              `json:"hidden_act"`
	Context       *checkpoint.Whole   `json:"max_position_embeddings"`
	Eps           *float64            `json:"rms_norm_eps"`
	Theta         *float64            `json:"rope_theta"`
	PartialRotary *float64            `json:"partial_rotary_factor"`
	TopK          *checkpoint.Whole   `json:"num_experts_per_tok"`
	ExpertWidth   *checkpoint.Whole   `json:"moe_intermediate_size"`
	NormTopK      *bool               `json:"norm_topk_prob"`
	SparseStep    *checkpoint.Whole   `json:"decoder_sparse_step"`
	NextLayers    *checkpoint.Whole   `json:"num_nextn_predict_layers"`
	EOS           checkpoint.TokenIDs `json:"eos_token_id"`
}

// Nullable is a number in JSON that distinguishes null from absence.
type Nullable struct {
	Value *checkpoint.Whole // nil if it was absent or null
	Null  bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *Nullable) UnmarshalJSON(data []byte) error {
	*n = Nullable{Null: string(data) == "null"}
	if n.Null {
		return nil
	}
	n.Value = new(checkpoint.Whole)
	return n.Value.UnmarshalJSON(data)
}

// Reader checks values of a config and keeps the first error.
type Reader struct{ Err error }

func (r *Reader) fail(format string, args ...any) {
	if r.Err == nil {
		r.Err = fmt.Errorf(format, args...)
	}
}

// Size is a number from 1 to limit, def if it is absent. If def is 0 too, the number is required.
func (r *Reader) Size(name string, v *checkpoint.Whole, def, limit int) int {
	n := Or(v, checkpoint.Whole(def))
	switch {
	case n >= 1 && int(n) <= limit:
	case v == nil && def == 0:
		r.fail("%s is missing", name)
	case v == nil:
		r.fail("%s is missing, and its default %d is not a number from 1 to %d", name, n, limit)
	default:
		r.fail("%s is %d, want a number from 1 to %d", name, n, limit)
	}
	return int(n)
}

// Common reads the settings whose checks all families share. The values of def stand for absent ones.
func (r *Reader) Common(s *Settings, f *File, def Settings) {
	s.Vocab = r.Size("vocab_size", f.Vocab, def.Vocab, 1<<24)
	s.Width = r.Size("hidden_size", f.Hidden, def.Width, 1<<20)
	s.Context = r.Size("max_position_embeddings", f.Context, def.Context, 1<<30)
	eps := Or(f.Eps, float64(def.Eps))
	if s.Eps = float32(eps); !(eps >= 0 && eps < 1) {
		r.fail("rms_norm_eps is %v, want a small positive number", eps)
	}
	if f.Activation != "" && f.Activation != "silu" && f.Activation != "swish" {
		r.fail("hidden_act %q is not supported, want silu", f.Activation)
	}
	if Or(f.SparseStep, 1) != 1 {
		r.fail("decoder_sparse_step %d is not supported, want 1", *f.SparseStep)
	}
}

// Or is the number at v, def if there is none.
func Or[T any](v *T, def T) T {
	if v == nil {
		return def
	}
	return *v
}

// ReadStop sets the ids that end a text: those of generation_config.json and of the lists, in ascending order.
func (s *Settings) ReadStop(c *checkpoint.Checkpoint, lists ...checkpoint.TokenIDs) error {
	gen, err := c.Generation()
	if err != nil {
		return err
	}
	for _, id := range slices.Concat(append(lists, gen.EOS)...) {
		if int(id) < s.Vocab {
			s.Stop = append(s.Stop, id)
		}
	}
	slices.Sort(s.Stop)
	s.Stop = slices.Compact(s.Stop)
	return nil
}
