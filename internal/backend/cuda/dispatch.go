package cuda

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// A rule is a row of a table of kernels: an operation takes the first rule of its table whose conditions hold.
// docs/kernels.md is made from the tables.
type rule[T any] struct {
	kernels string         // that it launches, after their module; capitals stand for the format and the shape
	when    []condition[T] // all of them
	run     func(b *Backend, x T)
	most    int // instead of run: pieces of most rows are dispatched again
}

// A condition is one that an operation and a device fulfill or do not.
type condition[T any] struct {
	words string // for people
	holds func(b *Backend, x T) bool
}

// find is the first rule of a table that takes x.
func find[T any](b *Backend, table []rule[T], x T) *rule[T] {
next:
	for i := range table {
		for _, c := range table[i].when {
			if !c.holds(b, x) {
				continue next
			}
		}
		return &table[i]
	}
	panic("cuda: no kernel for an operation")
}

// between is "n to m things", of which 0 for m is any number.
func between(n, m int, what string) string {
	switch {
	case n == m && n == 1:
		return "1 " + what
	case m == 0:
		return fmt.Sprintf("%d %ss or more", n, what)
	case n <= 1:
		return fmt.Sprintf("up to %d %ss", m, what)
	}
	return fmt.Sprintf("%d to %d %ss", n, m, what)
}

// Conditions of products: those of a list are alike, and multiply the same rows.
var (
	superblocks = condition[[]product]{"superblocks", func(_ *Backend, list []product) bool { return list[0].w.laid() && list[0].w.super() }}
	groupBlocks = condition[[]product]{"blocks of groups", func(_ *Backend, list []product) bool { return list[0].w.laid() && !list[0].w.super() }}
	plainFloats = condition[[]product]{"bf16, f16 or f32", func(_ *Backend, list []product) bool { return list[0].w.Kind == kernel.Plain }}
	otherFloats = condition[[]product]{"other formats, computed with float rows", func(_ *Backend, list []product) bool { return !list[0].w.Integer() }}
	allOutputs  = condition[[]product]{"all outputs", func(_ *Backend, list []product) bool { return list[0].only == 0 }}
	noExperts   = condition[[]product]{"no experts", func(_ *Backend, list []product) bool { return list[0].jobs == 0 }}
	hasPanels   = condition[[]product]{"a panel of the format fits the tiles and the shared memory", func(b *Backend, list []product) bool {
		_, ok := b.paneled(list)
		return ok
	}}
	inHalves = condition[[]product]{
		between(maxRelay+1, 2*maxRelay, "row") + ", no experts, panels of 4 bits",
		func(_ *Backend, list []product) bool { return list[0].inHalves() },
	}
	hasFew = condition[[]product]{"the format has kernels for few rows, and their shared memory is available", func(b *Backend, list []product) bool {
		w, few := list[0].w, list[0].w.forms().few
		if few == "" {
			return false
		}
		name, form := fewKernel(w, list[0].rows)
		return b.allows(name, form.shared(&w.Layout))
	}}
	large  = condition[[]product]{between(manyTiles, 0, "tile") + " of a format without panels", func(_ *Backend, list []product) bool { return list[0].large() }}
	narrow = condition[[]product]{
		fmt.Sprintf("at most %d blocks of a tile and %d rows, and their shared memory is available", narrowBlocks, strip),
		func(_ *Backend, list []product) bool { return list[0].narrow },
	}
)

// rowsOf is how many rows products have.
func rowsOf(n, m int) condition[[]product] {
	return condition[[]product]{between(n, m, "row"), func(_ *Backend, list []product) bool {
		return list[0].rows >= n && (m == 0 || list[0].rows <= m)
	}}
}

// productRules say which kernel multiplies rows with weights.
var productRules = []rule[[]product]{
	{kernels: "one_FORMAT", when: []condition[[]product]{superblocks, rowsOf(1, 1)}, run: (*Backend).superRow},
	{kernels: "relay_FORMAT_STRIPS", when: []condition[[]product]{superblocks, rowsOf(2, superRelay)}, run: (*Backend).relaySuper},
	{kernels: "panel_FORMAT", when: []condition[[]product]{superblocks, rowsOf(superRelay+1, maxRelay), allOutputs}, run: (*Backend).panelSuper},
	{kernels: "many_FORMAT", when: []condition[[]product]{superblocks, rowsOf(maxRelay+1, 0), allOutputs}, run: (*Backend).manySuper},
	{when: []condition[[]product]{superblocks, rowsOf(superRelay+1, 0)}, most: superRelay},
	{kernels: "few_BITS_COLUMNS_ROWS, row_BITS_COLUMNS, gated_BITS_COLUMNS", when: []condition[[]product]{groupBlocks, rowsOf(1, packedRows), hasFew}, run: (*Backend).few},
	{kernels: "panel_BITS_COLUMNS_SHAPE", when: []condition[[]product]{groupBlocks, rowsOf(packedRows+1, maxRelay), noExperts, hasPanels}, run: (*Backend).panels},
	{kernels: "many_BITS_COLUMNS_STRIPS", when: []condition[[]product]{groupBlocks, rowsOf(2*strip+1, maxRelay), allOutputs, noExperts, large}, run: (*Backend).many},
	{kernels: "relay_BITS_COLUMNS_STRIPS", when: []condition[[]product]{groupBlocks, rowsOf(1, maxRelay)}, run: (*Backend).relay},
	{when: []condition[[]product]{groupBlocks, inHalves}, most: maxRelay},
	{kernels: "many_BITS_COLUMNS_STRIPS", when: []condition[[]product]{groupBlocks, rowsOf(maxRelay+1, 0), allOutputs}, run: (*Backend).many},
	{when: []condition[[]product]{groupBlocks, rowsOf(maxRelay+1, 0)}, most: maxRelay},
	{kernels: "narrow_TYPE", when: []condition[[]product]{plainFloats, allOutputs, noExperts, narrow}, run: (*Backend).launchNarrow},
	{kernels: "floats_TYPE_ROWS", when: []condition[[]product]{plainFloats}, run: (*Backend).floats},
	{kernels: "floatPlain", when: []condition[[]product]{otherFloats}, run: (*Backend).floatPlain},
	{kernels: "integerPlain", run: (*Backend).integerPlain},
}

// Conditions of attention.
var (
	appends = condition[*attendLayer]{"keys and values are appended, without queries", func(_ *Backend, l *attendLayer) bool { return l.queries == 0 }}
	codes   = condition[*attendLayer]{"8-bit cache", func(_ *Backend, l *attendLayer) bool { return l.kind == kindCoded }}
	nibbles = condition[*attendLayer]{"4-bit cache", func(_ *Backend, l *attendLayer) bool { return l.kind == kindPacked }}
	odd     = condition[*attendLayer]{"latent, or heads of more than 512 numbers", func(_ *Backend, l *attendLayer) bool { return l.odd() }}
	numbers = condition[*attendLayer]{"16-bit or 32-bit cache", func(_ *Backend, l *attendLayer) bool { return !l.coded() }}
	small   = condition[*attendLayer]{"heads of up to 256 numbers", func(_ *Backend, l *attendLayer) bool { return l.key <= 256 && l.value <= 256 }}
	wide    = condition[*attendLayer]{"values of more than 256 numbers", func(_ *Backend, l *attendLayer) bool { return l.value > 256 }}
	usual   = condition[*attendLayer]{
		fmt.Sprintf("not latent, keys of 32n and values of 8n numbers up to 256, no window below %d positions, keys to append", backend.PageTokens),
		func(_ *Backend, l *attendLayer) bool {
			return !l.reads && !l.latent && l.key <= 256 && l.value <= 256 && l.key%32 == 0 && l.value%8 == 0 && (l.window == 0 || l.window >= backend.PageTokens)
		},
	}
	blocks = condition[*attendLayer]{
		fmt.Sprintf("%s of blocks, a 16-bit cache, heads of up to 128 numbers", between(1, blockRows, "row")),
		func(_ *Backend, l *attendLayer) bool { return l.blocks },
	}
	splits = condition[*attendLayer]{between(1, splitRows, "row"), func(_ *Backend, l *attendLayer) bool { return l.rows <= splitRows }}
)

// attendRules say which kernels compute attention.
var attendRules = []rule[*attendLayer]{
	{kernels: "attend_prepare", when: []condition[*attendLayer]{appends}, run: (*Backend).attendPrepare},
	{kernels: "attend_block_halves, attend_join", when: []condition[*attendLayer]{blocks, usual}, run: (*Backend).attendBlock},
	{kernels: "attend_few_TYPE, attend_join", when: []condition[*attendLayer]{numbers, splits, usual}, run: (*Backend).attendFew},
	{kernels: "attend_prepare, coded_any", when: []condition[*attendLayer]{codes, odd}, run: (*Backend).attendAny},
	{kernels: "attend_prepare, coded, attend_join", when: []condition[*attendLayer]{codes, small}, run: (*Backend).attendCodes},
	{kernels: "attend_prepare, coded_wide, attend_join", when: []condition[*attendLayer]{codes}, run: (*Backend).attendCodesWide},
	{kernels: "attend_prepare, packed_any", when: []condition[*attendLayer]{nibbles, odd}, run: (*Backend).attendPackedAny},
	{kernels: "attend_prepare, packed, attend_join", when: []condition[*attendLayer]{nibbles, small}, run: (*Backend).attendPacked},
	{kernels: "attend_prepare, packed_wide, attend_join", when: []condition[*attendLayer]{nibbles}, run: (*Backend).attendPackedWide},
	{kernels: "attend_prepare, attend_TYPE_wide, attend_join", when: []condition[*attendLayer]{wide}, run: (*Backend).attendWide},
	{kernels: "attend_prepare, attend_TYPE, attend_join", run: (*Backend).attendFloats},
}

// Conditions of a DeltaNet layer.
var (
	oneToken = condition[*deltaCall]{"1 row", func(_ *Backend, c *deltaCall) bool { return c.in.QKV.Rows == 1 }}
	short    = condition[*deltaCall]{
		fmt.Sprintf("%s, at most %d of a sequence", between(1, deltaRows, "row"), deltaLong),
		func(_ *Backend, c *deltaCall) bool { return c.in.QKV.Rows <= deltaRows && !long(c.batch) },
	}
	square = condition[*deltaCall]{"heads of 128 keys and 128 values, convolution of 4", func(_ *Backend, c *deltaCall) bool {
		return c.d.KeyDim == 128 && c.d.ValueDim == 128 && c.d.Kernel == 4
	}}
	keys128 = condition[*deltaCall]{fmt.Sprintf("heads of 128 keys and %dn values", deltaStrip), func(_ *Backend, c *deltaCall) bool {
		return c.d.KeyDim == 128 && c.d.ValueDim%deltaStrip == 0
	}}
)

// deltaRules say which kernels compute a DeltaNet layer.
var deltaRules = []rule[*deltaCall]{
	{kernels: "delta_one", when: []condition[*deltaCall]{square, oneToken}, run: (*Backend).deltaOne},
	{kernels: "delta_few", when: []condition[*deltaCall]{square, short}, run: (*Backend).deltaFew},
	{kernels: "delta_mix, delta_recur128, delta_gate", when: []condition[*deltaCall]{keys128}, run: (*Backend).delta128},
	{kernels: "delta_mix, delta_recur, delta_gate", run: (*Backend).deltaAny},
}

// Conditions of a mixture of experts.
var (
	oneRowExperts = condition[*mixture]{
		fmt.Sprintf("1 row, at most %d experts of it, all of one format that has kernels for few rows, and their shared memory is available", maxPicks),
		func(_ *Backend, m *mixture) bool { return m.few() },
	}
	softmaxChoice = condition[*mixture]{
		fmt.Sprintf("softmax over at most %d experts, without biases, factors and groups", maxPicked),
		func(_ *Backend, m *mixture) bool { return m.picks() },
	}
	oneChoice  = condition[*mixture]{"1 row", func(_ *Backend, m *mixture) bool { return m.x.Rows == 1 }}
	fewChoices = condition[*mixture]{
		fmt.Sprintf("%s, and a block has shared memory for the logits of all warps", between(1, fewRows, "row")),
		func(_ *Backend, m *mixture) bool { return m.x.Rows <= fewRows && m.choiceBytes() <= choiceRoom },
	}
)

// expertRules say which kernels compute a mixture of experts, after the products with the router.
var expertRules = []rule[*mixture]{
	{kernels: "gated_BITS_COLUMNS, answer_BITS_COLUMNS", when: []condition[*mixture]{oneRowExperts, softmaxChoice}, run: (*Backend).answerOne},
	{kernels: "choose_one, gated_BITS_COLUMNS, answer_BITS_COLUMNS", when: []condition[*mixture]{oneRowExperts}, run: (*Backend).answerListed},
	{kernels: "a choice, two or three products, swiglu, combine", run: (*Backend).answerAll},
}

// choiceRules say which kernels choose experts and list their jobs.
var choiceRules = []rule[*mixture]{
	{kernels: "choose_one", when: []condition[*mixture]{oneChoice}, run: (*Backend).chooseOne},
	{kernels: "choose_assign", when: []condition[*mixture]{fewChoices}, run: (*Backend).chooseFew},
	{kernels: "choose, assign", run: (*Backend).chooseMany},
}
