package spec

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/rescue"
	"github.com/foretoken/foretoken/internal/sampling"
)

// Logits are the rows of logits of a pass, on its device. Each group requests what
// its sampler needs of its rows; all rows of a pass are then read together: the highest logits
// in one call of the device, whole rows in another, and again where the highest were not enough.
// A Logits is used for one pass after another, and keeps its memory.
type Logits struct {
	// Extra is how many more of the highest logits the next groups request than their samplers
	// need, for callers that drop some.
	Extra int
	// Certain makes the next groups compute the likelihood of a greedy draw: sampling.Sampler.Certainty.
	Certain bool
	// Draw lets the device draw for the next groups, whose tokens are then chosen by Sampler.DrawOf.
	Draw bool
	// Tokens are the tokens of columns, ascending, of a vocabulary of Vocab; tokens without a column have minus infinity.
	// Nil: columns are tokens.
	Tokens []int32
	Vocab  int

	device backend.Backend
	at     backend.Tensor
	groups []int // first row of each
	needs  []sampling.Need
	draws  []backend.Draw // of rows that the device is to draw from; others have temperature 0
	rows   []sampling.Row
	failed []int // groups
	calls  []callState

	waited time.Duration

	asks   []backend.Ask
	ids    []int32 // backs Also of needs
	listed []int32 // backs IDs of rows
	logits []float32
	whole  [][]float32 // rows of Vocab logits, kept for the next pass
}

// Begin starts with the rows of a pass: those of a device's tensor, in groups.
func (l *Logits) Begin(device backend.Backend, rows backend.Tensor) {
	l.device, l.at, l.waited = device, rows, 0
	l.groups, l.needs, l.rows, l.draws = l.groups[:0], l.needs[:0], l.rows[:0], l.draws[:0]
	l.ids, l.listed, l.logits = l.ids[:0], l.listed[:0], l.logits[:0]
}

// Waited is how long Resolve has waited for the pass and for its reads.
func (l *Logits) Waited() time.Duration { return l.waited }

// Ask makes the next n rows a group, of which s chooses tokens: the last of them follows the
// tokens ahead, the one before follows one token less, and so on.
func (l *Logits) Ask(s *sampling.Sampler, ahead []int32, n int) {
	l.groups = append(l.groups, len(l.needs))
	_, drawer := l.device.(backend.Drawer)
	for i := len(ahead) - n + 1; i <= len(ahead); i++ {
		// The few logits that top-k needs take as long to read as a draw, and are always enough.
		if p, ok := s.Plain(i); ok && drawer && l.Draw && l.Tokens == nil && p.Temperature > 0 && p.TopK == 0 {
			l.draws, l.needs = append(l.draws, PlainDraw(p)), append(l.needs, sampling.Need{Whole: true})
			continue
		}
		l.draws = append(l.draws, backend.Draw{})
		before := len(l.ids)
		need := s.Need(l.width(), ahead[:i], l.ids)
		need.Also, need.Vocab = l.columns(need.Also), l.counted(need.Vocab)
		l.ids = append(l.ids, need.Also...)
		need.Also = l.ids[before:len(l.ids):len(l.ids)]
		if need.Best > 0 {
			need.Best += l.Extra
		}
		need.Sum = need.Sum && l.Certain
		l.needs = append(l.needs, need)
	}
}

// AskWhole makes the next n rows a group, of which every logit is needed.
func (l *Logits) AskWhole(n int) {
	l.groups = append(l.groups, len(l.needs))
	for range n {
		l.draws, l.needs = append(l.draws, backend.Draw{}), append(l.needs, sampling.Need{Whole: true})
	}
}

// Rows are the rows of group i, as far as they are known; valid until the device's next call.
func (l *Logits) Rows(i int) []sampling.Row {
	from, to := l.group(i)
	return l.rows[from:to]
}

func (l *Logits) group(i int) (from, to int) {
	if i+1 < len(l.groups) {
		return l.groups[i], l.groups[i+1]
	}
	return l.groups[i], len(l.needs)
}

// Resolve waits for the pass, reads the requested logits and calls f with each group and its
// rows, maybe several at a time. If f reports false, the rows of these
// groups are read whole, and f is called again. f changes only data of its group,
// its sampler included.
func (l *Logits) Resolve(f func(i int, rows []sampling.Row) bool) error {
	l.rows = slices.Grow(l.rows, len(l.needs))[:len(l.needs)]
	clear(l.rows)
	start := time.Now()
	err := l.list()
	if err == nil {
		err = l.fetch()
	}
	if l.waited += time.Since(start); err != nil {
		return err
	}
	if l.each(f); len(l.failed) == 0 {
		return nil
	}
	for _, i := range l.failed {
		from, to := l.group(i)
		for r := from; r < to; r++ {
			l.needs[r].Whole = true
		}
	}
	start = time.Now()
	err = l.fetch()
	if l.waited += time.Since(start); err != nil {
		return err
	}
	for _, i := range l.failed {
		f(i, l.Rows(i))
	}
	return nil
}

// callState is the result of calling a function for a group.
type callState uint8

const (
	notCalled callState = iota
	knowsTooLittle
	resolved
)

// spreadFrom is the number of logits that calls must read to be worth several threads: starting
// them takes as long as a thread needs for some thousands.
const spreadFrom = 1 << 15

// each calls f with each group and records where it reports false. If groups have many
// logits, threads share them. The first panic there is the caller's, after all calls: a group that
// panicked is not called again, since it may be in any state.
func (l *Logits) each(f func(i int, rows []sampling.Row) bool) {
	l.failed = l.failed[:0]
	l.calls = slices.Grow(l.calls[:0], len(l.groups))[:len(l.groups)]
	clear(l.calls)
	call := func(i int) {
		if l.calls[i] = knowsTooLittle; f(i, l.Rows(i)) {
			l.calls[i] = resolved
		}
	}
	if len(l.groups) > 1 && l.known() >= spreadFrom {
		var fault atomic.Pointer[error]
		backend.Spread(l.device, len(l.groups), func(i int) {
			if err := rescue.Do(func() error { call(i); return nil }); err != nil {
				fault.CompareAndSwap(nil, &err)
			}
		})
		if err := fault.Load(); err != nil {
			panic(*err)
		}
	}
	for i := range l.calls {
		if l.calls[i] == notCalled {
			call(i)
		}
		if l.calls[i] == knowsTooLittle {
			l.failed = append(l.failed, i)
		}
	}
}

// known is how many logits have been read.
func (l *Logits) known() (n int) {
	for i := range l.rows {
		n += len(l.rows[i].All) + len(l.rows[i].IDs)
	}
	return n
}

// list reads the highest logits of the rows of which not all are needed, and the draws of the device: a
// row with one is not needed whole. It copies them, since the next call of the device ends their life.
func (l *Logits) list() error {
	l.asks = l.asks[:0]
	some := false
	for i := range l.needs {
		n := &l.needs[i]
		var ask backend.Ask
		if !n.Whole {
			ask, some = backend.Ask{Cols: n.Vocab, K: n.Best, Also: n.Also, Sum: n.Sum}, true
		} else if d := &l.draws[i]; d.Temperature > 0 {
			ask.Draw, some = d, true
		}
		l.asks = append(l.asks, ask)
	}
	if !some {
		return nil
	}
	answers, err := l.device.Top(l.at, l.asks)
	if err != nil {
		return err
	}
	for i := range answers {
		a := &answers[i]
		if l.asks[i].Draw != nil && a.Drawn >= 0 {
			l.needs[i].Whole, l.rows[i] = false, sampling.Row{Drawn: true, ID: a.Drawn}
		}
		if l.asks[i].K == 0 {
			continue
		}
		id, z := len(l.listed), len(l.logits)
		l.listed = l.tokens(append(l.listed, a.IDs...), id)
		l.logits = append(append(l.logits, a.Logits...), a.Also...)
		also := z + len(a.Logits)
		l.rows[i] = sampling.Row{
			IDs: l.listed[id:], Logits: l.logits[z:also], Low: a.Low, Sum: a.Sum,
			Also: l.tokens(l.needs[i].Also, 0), AlsoLogits: l.logits[also:],
		}
	}
	return nil
}

// fetch reads the rows that are needed whole, and the rows between them.
func (l *Logits) fetch() error {
	first := slices.IndexFunc(l.needs, isWhole)
	if first < 0 {
		if len(l.needs) == 0 { // nothing else has waited for the pass
			_, err := l.device.Host(l.at)
			return err
		}
		return nil
	}
	last := len(l.needs) - 1
	for !l.needs[last].Whole {
		last--
	}
	all, err := l.device.Host(l.at.RowRange(first, last+1))
	if err != nil {
		return err
	}
	for i := first; i <= last; i++ {
		if l.needs[i].Whole {
			at := (i - first) * l.at.Cols
			l.rows[i] = sampling.Row{All: l.scattered(i, all[at:at+l.at.Cols:at+l.at.Cols])}
		}
	}
	return nil
}

func isWhole(n sampling.Need) bool { return n.Whole }
