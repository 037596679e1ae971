//go:build unix

package doctor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
)

// large is the released model of 122 billion parameters, in bf16 as published: fused
// experts in the model, single ones in the head.
type large struct {
	files [][]checkpoint.Decl
	index map[string]string
}

const largeShard = 40 // tensors of most files

func (l *large) add(name string, shape ...int) {
	last := len(l.files) - 1
	if last < 0 || len(l.files[last]) == largeShard {
		l.files = append(l.files, nil)
		last++
	}
	l.files[last] = append(l.files[last], checkpoint.Decl{Name: name, Type: dtype.BF16, Shape: shape})
	l.index[name] = shardName(last)
}

func shardName(i int) string { return fmt.Sprintf("model-%05d.safetensors", i) }

func (l *large) attention(p string) {
	l.add(p+"q_proj.weight", 2*32*256, 3072)
	l.add(p+"k_proj.weight", 2*256, 3072)
	l.add(p+"v_proj.weight", 2*256, 3072)
	l.add(p+"o_proj.weight", 3072, 32*256)
	l.add(p+"q_norm.weight", 256)
	l.add(p+"k_norm.weight", 256)
}

func (l *large) delta(p string) {
	l.add(p+"in_proj_qkv.weight", 12288, 3072)
	l.add(p+"in_proj_z.weight", 64*128, 3072)
	l.add(p+"in_proj_b.weight", 64, 3072)
	l.add(p+"in_proj_a.weight", 64, 3072)
	l.add(p+"conv1d.weight", 12288, 1, 4)
	l.add(p+"A_log", 64)
	l.add(p+"dt_bias", 64)
	l.add(p+"norm.weight", 128)
	l.add(p+"out_proj.weight", 3072, 64*128)
}

func (l *large) mlp(p string, fused bool) {
	l.add(p+"gate.weight", 256, 3072)
	l.add(p+"shared_expert_gate.weight", 1, 3072)
	l.add(p+"shared_expert.gate_proj.weight", 1024, 3072)
	l.add(p+"shared_expert.up_proj.weight", 1024, 3072)
	l.add(p+"shared_expert.down_proj.weight", 3072, 1024)
	if fused {
		l.add(p+"experts.gate_up_proj", 256, 2048, 3072)
		l.add(p+"experts.down_proj", 256, 3072, 1024)
		return
	}
	for e := range 256 {
		l.add(fmt.Sprintf("%sexperts.%d.gate_proj.weight", p, e), 1024, 3072)
		l.add(fmt.Sprintf("%sexperts.%d.up_proj.weight", p, e), 1024, 3072)
		l.add(fmt.Sprintf("%sexperts.%d.down_proj.weight", p, e), 3072, 1024)
	}
}

// write makes the folder of files that are all holes after their headers.
func (l *large) write(t *testing.T) string {
	t.Helper()
	const prefix = "model.language_model."
	l.index = map[string]string{}
	l.add(prefix+"embed_tokens.weight", 248320, 3072)
	l.add("lm_head.weight", 248320, 3072)
	l.add(prefix+"norm.weight", 3072)
	for i := range 48 {
		p := fmt.Sprintf("%slayers.%d.", prefix, i)
		l.add(p+"input_layernorm.weight", 3072)
		l.add(p+"post_attention_layernorm.weight", 3072)
		if (i+1)%4 == 0 {
			l.attention(p + "self_attn.")
		} else {
			l.delta(p + "linear_attn.")
		}
		l.mlp(p+"mlp.", true)
	}
	l.add("mtp.fc.weight", 3072, 2*3072)
	for _, n := range []string{"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm"} {
		l.add("mtp."+n+".weight", 3072)
	}
	l.attention("mtp.layers.0.self_attn.")
	l.mlp("mtp.layers.0.mlp.", false)
	dir := t.TempDir()
	for i, decls := range l.files {
		if err := writeHoles(filepath.Join(dir, shardName(i)), decls); err != nil {
			t.Fatal(err)
		}
	}
	config := map[string]any{"model_type": "qwen3_5_moe", "text_config": map[string]any{
		"model_type": "qwen3_5_moe_text", "hidden_size": 3072, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 2,
		"linear_num_value_heads": 64, "moe_intermediate_size": 1024, "shared_expert_intermediate_size": 1024, "mtp_num_hidden_layers": 1,
		"max_position_embeddings": 262144,
	}}
	for name, v := range map[string]any{"config.json": config, "model.safetensors.index.json": map[string]any{"weight_map": l.index}} {
		text, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func writeHoles(path string, decls []checkpoint.Decl) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // a test's file
	header, err := checkpoint.FileHeader(decls, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	if _, err := f.Write(header); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	for _, d := range decls {
		n := int64(d.Type.Size())
		for _, x := range d.Shape {
			n *= int64(x)
		}
		size += n
	}
	return f.Truncate(size)
}

// TestInspectReadsHeadersOnly inspects a folder of 249 GB, and counts the pages that this
// brought into memory.
func TestInspectReadsHeadersOnly(t *testing.T) {
	dir := (&large{}).write(t)
	faults := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return int64(u.Minflt) + int64(u.Majflt) // their type differs between systems
	}
	before := faults()
	c := golden.Open(t, dir)
	f := Inspect(c, InspectOptions{Context: 262144})
	if touched := (faults() - before) * int64(os.Getpagesize()); touched > 64<<20 {
		t.Errorf("%d bytes were touched of %d", touched, f.Bytes)
	}
	n := f.Model
	if n == nil || len(n.Missing)+len(n.Unknown)+len(n.Errors) > 0 || f.Bytes < 249e9 {
		t.Fatalf("%+v", f)
	}
	// The counts are published.
	if n.Parameters != 122_111_526_912 || n.Active < 9e9 || n.Active > 11e9 || f.Memory.KV != 24_576*262_144 || f.Memory.Head != 2_048*(262_144+64)+32*4*int64(n.Hidden) {
		t.Errorf("%d parameters, %d active, memory %+v", n.Parameters, n.Active, f.Memory)
	}
	for _, p := range n.Parts {
		if p.Name == "mtp head" && (p.Parameters != 2_523_679_232 || p.Tensors != 785) {
			t.Errorf("%+v", p)
		}
	}
}
