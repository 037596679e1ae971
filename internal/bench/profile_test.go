package bench

import (
	"errors"
	"log/slog"
	"math"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	_ "github.com/foretoken/foretoken/internal/model/qwen35" // the family of the model
	"github.com/foretoken/foretoken/internal/state"
)

// profiled is a device that says of every pass the same.
type profiled struct{ backend.Backend }

func (profiled) Profile(repeats int) ([]backend.Cost, error) {
	return []backend.Cost{{Kernel: "product 8×8", Count: repeats, Seconds: 1e-6}}, nil
}

// A device that queues its work says where the time of passes, of the draft token and of prompts goes.
func TestProfileOfAModel(t *testing.T) {
	b := profiled{open(t)}
	files := golden.Open(t, golden.Dir(t, "dense"))
	m, err := model.Open(files, newTimed(b), model.Options{Quantize: 8, MaxDrafts: 3, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	run := &modelRun{
		m: m, b: newTimed(b), pool: state.NewPool(b, 1<<40), say: func(string) {},
		o: ModelOptions{Rows: []int{1, 2}, Prompts: []int{5}, Repeats: 1},
	}
	if err := run.open(); err != nil {
		t.Fatal(err)
	}
	if err := run.repeat(); err != nil {
		t.Fatal(err)
	}
	r := &ModelReport{}
	run.report(r)
	if err := run.profile(b, r); err != nil {
		t.Fatal(err)
	}
	if len(r.Kernels) != 2 || len(r.DraftKernels) == 0 || len(r.Prompts[0].Kernels) == 0 {
		t.Fatalf("report %+v", r)
	}
	for _, shares := range [][]Share{r.Shares[0], r.Shares[1], r.DraftShare, r.Prompts[0].Shares} {
		sum := 0.0
		for _, s := range shares {
			sum += s.Part
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("shares %+v", shares)
		}
	}
}

// Shares of kernels are of the pass if it is longer than they are together, else of their sum.
func TestKernelSharesSumToOne(t *testing.T) {
	costs := []backend.Cost{{Kernel: "relay 8×4", Count: 2, Seconds: 3}, {Kernel: "norm", Count: 1, Seconds: 2}, {Kernel: "relay 4×4", Count: 1, Seconds: 1}}
	for _, whole := range []float64{0, 5, 6, 8} {
		sum := 0.0
		shares := kernelShares(costs, whole)
		for _, s := range shares {
			sum += s.Part
		}
		if math.Abs(sum-1) > 1e-12 || len(shares) != 3 || shares[0].Op != "relay" || math.Abs(shares[0].Part-4/max(whole, 6)) > 1e-12 {
			t.Errorf("of %v: %+v", whole, shares)
		}
	}
	if got := kernelShares(nil, 0); got != nil {
		t.Errorf("of nothing: %+v", got)
	}
}

// A model on two devices has its parts where they belong, also where it is timed, and the memory of the first is measured.
func TestTimedModelOnTwoDevices(t *testing.T) {
	asked := map[backend.PartKind]bool{}
	d, err := split.New(func(p backend.Part) int {
		asked[p.Kind] = true
		if p.Kind == backend.LayerPart && p.Layer < 2 {
			return 1
		}
		return 0
	}, open(t), open(t))
	if err != nil {
		t.Fatal(err)
	}
	files := golden.Open(t, golden.Dir(t, "dense"))
	m, err := model.Open(files, newTimed(d), model.Options{Quantize: 8, MaxDrafts: 3, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	run := &modelRun{
		m: m, b: newTimed(d), pool: state.NewPool(d, 1<<40), say: func(string) {},
		o: ModelOptions{Rows: []int{1, 2}, Prompts: []int{5}, Repeats: 1},
	}
	if err := run.open(); err != nil {
		t.Fatal(err)
	}
	if err := run.repeat(); err != nil {
		t.Fatal(err)
	}
	run.seq.Close()
	if !asked[backend.LayerPart] || !asked[backend.OutputPart] {
		t.Errorf("parts %v were placed", asked)
	}
	s, err := newStream(d, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := errors.Join(m.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}
