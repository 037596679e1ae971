package drafter

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// layer is a layer of attention and a dense feed-forward, as Qwen3 and Llama have them.
type layer struct {
	at                  backend.Place
	inputNorm, postNorm backend.Tensor // [1, width]
	attn                backend.Attention
	q, k, v, o          projection
	gate, up            backend.Weight // [intermediate, width]
	down                backend.Weight // [width, intermediate]

	hiddenNorm        backend.Tensor // EAGLE-3
	mixConv, feedConv conv           // DFlash2
}

// projection is a matrix of attention, with a bias if the config says so.
type projection struct {
	w    backend.Weight
	bias backend.Tensor
}

// to is the product with dst.
func (p *projection) to(dst backend.Tensor) backend.Product {
	return backend.Product{Dst: dst, W: p.w, Bias: p.bias}
}

// added is the product that is added to dst.
func (p *projection) added(dst backend.Tensor) backend.Product {
	return backend.Product{Dst: dst, W: p.w, Bias: p.bias, Add: true}
}

// conv is a convolution along the rows of a block, on both sides of a part of a layer.
type conv struct {
	base backend.Tensor // [2*kernel, width]
	proj backend.Weight // [2*kernel*groups, width]
}

// newLayer is layer i of a drafter without weights.
func newLayer(c *config, i int) layer {
	return layer{attn: backend.Attention{
		Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.headDim, Eps: c.eps, Freqs: c.freqs(), Interleaved: c.interleaved, Window: c.layers[i].window,
	}}
}

// weights appends the layer's rows of the table to a list. in is the width of the input of attention.
func (y *layer) weights(list []weights.Weight, c *config, i, in int) []weights.Weight {
	p := fmt.Sprintf("%slayers.%d.", weights.DrafterPrefix, i)
	q, kv := c.heads*c.headDim, c.kvHeads*c.headDim
	list = append(list, weights.NewGain(&y.inputNorm, p+"input_layernorm", c.width))
	list = y.q.weights(list, c, p+"self_attn.q_proj", q, in)
	list = y.k.weights(list, c, p+"self_attn.k_proj", kv, in)
	list = y.v.weights(list, c, p+"self_attn.v_proj", kv, in)
	list = y.o.weights(list, c, p+"self_attn.o_proj", c.width, q)
	if c.headNorms {
		list = append(list,
			weights.NewGain(&y.attn.QNorm, p+"self_attn.q_norm", c.headDim),
			weights.NewGain(&y.attn.KNorm, p+"self_attn.k_norm", c.headDim))
	}
	list = append(list,
		weights.NewGain(&y.postNorm, p+"post_attention_layernorm", c.width),
		weights.NewMatrix(&y.gate, p+"mlp.gate_proj", c.intermediate, c.width),
		weights.NewMatrix(&y.up, p+"mlp.up_proj", c.intermediate, c.width),
		weights.NewMatrix(&y.down, p+"mlp.down_proj", c.width, c.intermediate))
	if c.kind == EAGLE3 {
		list = append(list, weights.NewGain(&y.hiddenNorm, p+"hidden_norm", c.width))
	}
	if c.kind == DFlash2 {
		list = y.mixConv.weights(list, c, p+"attention_conv.")
		list = y.feedConv.weights(list, c, p+"mlp_conv.")
	}
	return list
}

func (p *projection) weights(list []weights.Weight, c *config, module string, rows, cols int) []weights.Weight {
	list = append(list, weights.NewMatrix(&p.w, module, rows, cols))
	if c.bias {
		list = append(list, weights.NewVector(&p.bias, weights.Vector, module+".bias", 1, rows))
	}
	return list
}

func (v *conv) weights(list []weights.Weight, c *config, p string) []weights.Weight {
	return append(list,
		weights.NewVector(&v.base, weights.Vector, p+"base_kernel", 2*c.kernel, c.width),
		weights.NewMatrix(&v.proj, p+"kernel_projection", 2*c.kernel*c.width/c.group, c.width))
}

// transformer is what the networks of this package have in common.
type transformer struct {
	network.Network
	cfg *config
	ids []int64 // d2t
	// The model's matrices, in place of equal ones of the file; nil without a model.
	lentEmbed, lentOutput backend.Weight
	columns               backend.Tensor // the tokens of columns of logits, as numbers, on a device that draws; without rows: columns are tokens

	// What layers compute in.
	q, k, v, mixed backend.Tensor
	gate, up       backend.Tensor
}

// begin makes a network of a config, without weights, whose operations queue queues.
func (n *transformer) begin(c *config, queue func()) {
	n.cfg = c
	n.Package, n.Vocab, n.Width, n.Eps, n.Queue = "drafter", c.target.Vocab, c.width, c.eps, queue
	heads, kv := c.heads*c.headDim, c.kvHeads*c.headDim
	n.Parts = []network.Part{
		{To: &n.q, Width: heads},
		{To: &n.k, Width: kv},
		{To: &n.v, Width: kv},
		{To: &n.mixed, Width: heads},
		{To: &n.gate, Width: c.intermediate},
		{To: &n.up, Width: c.intermediate},
	}
}

// feed is the feed-forward of x, which is added to or stored in dst.
func (n *transformer) feed(y *layer, x, dst backend.Tensor, add bool) {
	n.MatMul(x, backend.Product{Dst: n.gate, W: y.gate}, backend.Product{Dst: n.up, W: y.up})
	n.Backend.GLU(n.gate, n.gate, n.up, backend.SiLU)
	n.MatMul(n.gate, backend.Product{Dst: dst, W: y.down, Add: add})
}
