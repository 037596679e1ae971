package golden

import (
	"math"
	"strings"
	"testing"
)

func TestWorstErr(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	tests := []struct {
		name      string
		got, want []float32
		message   string // part of the error, "" for none
	}{
		{"equal", []float32{1, 2}, []float32{1, 2}, ""},
		{"within", []float32{1, 2.0009}, []float32{1, 2}, ""},
		{"above", []float32{1, 2.01, 3.1}, []float32{1, 2, 3}, "x[2] = 3.1, want 3"},
		{"empty", nil, nil, "nothing was compared"},
		{"short", []float32{1}, []float32{1, 2}, "x: 1 numbers, want 2"},
		{"nan", []float32{nan}, []float32{1}, "x[0]: NaN, want 1"},
		{"nan in both", []float32{nan}, []float32{nan}, "x[0]: NaN, want NaN"},
		{"inf", []float32{inf}, []float32{1}, "x[0]: +Inf, want 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var w Worst
			w.Add("x", tt.got, tt.want)
			err := w.Err(1e-3)
			if tt.message == "" && err != nil {
				t.Error(err)
			}
			if tt.message != "" && (err == nil || !strings.Contains(err.Error(), tt.message)) {
				t.Errorf("error %v, want %q", err, tt.message)
			}
		})
	}
}

func TestWorstKeepsTheLargest(t *testing.T) {
	var w Worst
	w.Add("first", []float32{1.5}, []float32{1})
	w.Add("second", []float32{1.25}, []float32{1})
	if err := w.Err(0.3); err == nil || !strings.Contains(err.Error(), "first[0]") {
		t.Errorf("error %v, want first[0]", err)
	}
	if err := w.Err(0.5); err != nil {
		t.Error(err)
	}
}
