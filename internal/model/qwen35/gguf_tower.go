package qwen35

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf"
	"github.com/foretoken/foretoken/internal/dtype"
)

// ggufTower is a GGUF file with a vision tower, a projector as llama.cpp calls it: mmproj. Its
// converter has cut the kernel of the patches in two, one for each frame.
type ggufTower struct {
	*gguf.File
	layers, width, patch int
}

// Names of tensors in such files, and in checkpoints.
var (
	ggufTowerTop = map[string]string{
		"v.patch_embd.bias":      "patch_embed.proj.bias",
		"v.position_embd.weight": "pos_embed.weight",
		"v.post_ln.weight":       "merger.norm.weight",
		"v.post_ln.bias":         "merger.norm.bias",
		"mm.0.weight":            "merger.linear_fc1.weight",
		"mm.0.bias":              "merger.linear_fc1.bias",
		"mm.2.weight":            "merger.linear_fc2.weight",
		"mm.2.bias":              "merger.linear_fc2.bias",
	}
	ggufTowerBlock = map[string]string{
		"ln1": "norm1", "ln2": "norm2", "attn_qkv": "attn.qkv", "attn_out": "attn.proj",
		"ffn_up": "mlp.linear_fc1", "ffn_down": "mlp.linear_fc2",
	}
	ggufKernels = [2]string{"v.patch_embd.weight", "v.patch_embd.weight.1"}
)

const (
	ggufProjector = "qwen3vl_merger" // the kind of projector that is read
	ggufTowerName = "vision_tower."  // what names of the tower begin with in converted checkpoints
	ggufFrames    = 2                // of a patch: no file says otherwise
)

// addGGUFTower makes the tower of a projector part of a checkpoint, of which it changes nothing if
// it fails.
func addGGUFTower(a *checkpoint.Assembly, from *gguf.File) error {
	g := &ggufTower{File: from}
	if err := g.check(); err != nil {
		return err
	}
	top, err := checkpoint.DecodeObject(a.Config)
	if err != nil {
		return err
	}
	vision, err := g.config()
	if err != nil {
		return err
	}
	if width := fmt.Sprint(top["text_config"].(map[string]any)["hidden_size"]); fmt.Sprint(vision["out_hidden_size"]) != width {
		return fmt.Errorf("its rows have %v numbers, but the rows of the model have %s: it belongs to another model", vision["out_hidden_size"], width)
	}
	top["vision_config"] = vision
	config, err := json.MarshalIndent(top, "", "  ")
	if err != nil {
		return err
	}
	texts, err := g.preprocessors(vision)
	if err != nil {
		return err
	}
	tensors, err := g.sources()
	if err != nil {
		return err
	}
	a.Config = config
	maps.Copy(a.Texts, texts)
	a.Tensors, a.Files = slices.Concat(a.Tensors, tensors), slices.Concat(a.Files, g.Parts)
	return nil
}

// sources are the tower's tensors.
func (g *ggufTower) sources() ([]checkpoint.Source, error) {
	kernel, err := g.kernel()
	if err != nil {
		return nil, err
	}
	list := []checkpoint.Source{kernel}
	for _, t := range g.Tensors {
		if slices.Contains(ggufKernels[:], t.Name) {
			continue
		}
		name, err := g.name(t.Name)
		if err != nil {
			return nil, err
		}
		p, err := t.Piece(ggufTowerName + name)
		if err != nil {
			return nil, err
		}
		list = append(list, p.Source())
	}
	return list, nil
}

// check reports a file that is something else.
func (g *ggufTower) check() error {
	arch, err := g.Text("general.architecture")
	if err != nil {
		return err
	}
	if arch != gguf.ProjectorArchitecture {
		return fmt.Errorf("architecture %q, want %s: it has no vision tower", arch, gguf.ProjectorArchitecture)
	}
	for _, key := range []string{"clip.vision.projector_type", "clip.projector_type"} {
		if !g.Has(key) {
			continue
		}
		kind, err := g.Text(key)
		if err == nil && kind != ggufProjector {
			err = fmt.Errorf("%s is %q, want %s: it belongs to another family", key, kind, ggufProjector)
		}
		return err
	}
	return fmt.Errorf("the metadata have no key %q: the kind of the tower is unknown", "clip.projector_type")
}

// config is vision_config.
func (g *ggufTower) config() (map[string]any, error) {
	config := map[string]any{"temporal_patch_size": ggufFrames}
	sizes := map[string]int{}
	for _, x := range []struct {
		key, name string
		usual     int // 0: it must be there
	}{
		{"block_count", "depth", 0},
		{"embedding_length", "hidden_size", 0},
		{"attention.head_count", "num_heads", 0},
		{"feed_forward_length", "intermediate_size", 0},
		{"projection_dim", "out_hidden_size", 0},
		{"patch_size", "patch_size", 16},
		{"spatial_merge_size", "spatial_merge_size", 2},
	} {
		key, n := "clip.vision."+x.key, x.usual
		if n == 0 || g.Has(key) {
			var err error
			if n, err = g.Whole(key); err != nil {
				return nil, err
			}
		}
		config[x.name], sizes[x.key] = n, n
	}
	g.layers, g.width, g.patch = sizes["block_count"], sizes["embedding_length"], sizes["patch_size"]
	positions := g.Tensor("v.position_embd.weight")
	if positions == nil {
		return nil, fmt.Errorf("tensor v.position_embd.weight is missing")
	}
	config["num_position_embeddings"] = positions.Shape[0]
	if key := "clip.vision.is_deepstack_layers"; g.Has(key) {
		is, err := g.Wholes(key)
		if err != nil {
			return nil, err
		}
		deep := []int{}
		for i, yes := range is {
			if yes != 0 {
				deep = append(deep, i)
			}
		}
		config["deepstack_visual_indexes"] = deep
	}
	return config, nil
}

// preprocessors are the files that say how images and videos are prepared, as far as the metadata
// do.
func (g *ggufTower) preprocessors(vision map[string]any) (map[string]func() ([]byte, error), error) {
	videos := map[string]any{
		"patch_size": vision["patch_size"], "temporal_patch_size": ggufFrames, "merge_size": vision["spatial_merge_size"],
	}
	for _, name := range []string{"image_mean", "image_std"} {
		if key := "clip.vision." + name; g.Has(key) {
			list, err := g.Numbers(key)
			if err != nil {
				return nil, err
			}
			videos[name] = list
		}
	}
	images := maps.Clone(videos)
	for _, name := range []string{"min_pixels", "max_pixels"} {
		if key := "clip.vision.image_" + name; g.Has(key) {
			n, err := g.Whole(key)
			if err != nil {
				return nil, err
			}
			images[name] = n
		}
	}
	return map[string]func() ([]byte, error){
		"preprocessor_config.json":       func() ([]byte, error) { return json.Marshal(images) },
		"video_preprocessor_config.json": func() ([]byte, error) { return json.Marshal(videos) },
	}, nil
}

// name returns the name of a tensor in checkpoints, after the prefix of the tower.
func (g *ggufTower) name(name string) (string, error) {
	if mine, ok := ggufTowerTop[name]; ok {
		return mine, nil
	}
	if rest, ok := strings.CutPrefix(name, "v.blk."); ok {
		block, rest, _ := strings.Cut(rest, ".")
		module, kind, _ := strings.Cut(rest, ".")
		i, err := strconv.Atoi(block)
		if mine, ok := ggufTowerBlock[module]; ok && err == nil && i >= 0 && i < g.layers && (kind == "weight" || kind == "bias") {
			return fmt.Sprintf("blocks.%d.%s.%s", i, mine, kind), nil
		}
	}
	return "", fmt.Errorf("tensor %q is not part of a vision tower of %d blocks of this family", name, g.layers)
}

// kernel puts the parts of the patches' kernel, [width, 3, patch, patch] each, together again.
func (g *ggufTower) kernel() (s checkpoint.Source, err error) {
	var parts [ggufFrames]*gguf.Tensor
	var m [ggufFrames]dtype.Matrix
	pixels := g.patch * g.patch
	for i, name := range ggufKernels {
		if parts[i] = g.Tensor(name); parts[i] == nil {
			return s, fmt.Errorf("tensor %s is missing", name)
		}
		if m[i], err = parts[i].Encoding(); err != nil {
			return s, err
		}
		if m[i].Format != dtype.Plain || m[i].Type != m[0].Type {
			return s, fmt.Errorf("tensor %q: %v, want F32, F16 or BF16 in both parts of the kernel", name, parts[i].Type)
		}
		const most = 1 << 16 // of what is multiplied: far from any tower
		if n := m[i].Rows * m[i].Cols; min(g.width, g.patch) < 1 || max(g.width, g.patch) > most || n != g.width*3*pixels {
			return s, fmt.Errorf("tensor %q: %d numbers, want %d×3×%d×%d", name, n, g.width, g.patch, g.patch)
		}
	}
	return checkpoint.Source{
		Decl: checkpoint.Decl{Name: ggufTowerName + "patch_embed.proj.weight", Type: m[0].Type, Shape: []int{g.width, 3, ggufFrames, g.patch, g.patch}},
		File: parts[0].File,
		Read: func() ([]byte, error) {
			var data [ggufFrames][]byte
			for i, t := range parts {
				m, err := t.Matrix()
				if err != nil {
					return nil, err
				}
				data[i] = m.Data
			}
			return interleave(data[:], pixels*m[0].Type.Size()), nil
		},
	}, nil
}

// interleave takes n bytes of each list in turn.
func interleave(lists [][]byte, n int) []byte {
	var out bytes.Buffer
	for at := 0; at < len(lists[0]); at += n {
		for _, b := range lists {
			out.Write(b[at : at+n])
		}
	}
	return out.Bytes()
}
