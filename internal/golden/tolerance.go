package golden

// Tol is the allowed distance from the reference; no test has its own figure.
// Differences are absolute unless the field says otherwise.
var Tol = Tolerances{
	Logits:       2e-3,
	Hidden:       1e-3,
	State:        1e-3,
	MTPLogits:    3e-3,
	MTPMargin:    1e-2,
	MTPClose:     0.005,
	Int8Margin:   0.2,
	Int8Rows:     0.1,
	Perplexity:   0.005,
	Perplexity4:  0.06,
	PerplexityKV: 0.002, PerplexityKV4: 0.02,
	Spec:        2e-4,
	Tower:       2e-5,
	Tower8:      0.03,
	Acceptance:  0.01,
	Taps:        2e-3,
	DraftMargin: 1e-3,
}

// Tolerances are the fields of Tol. The margins are between the two highest
// logits of a row of the reference: below them a token may rightly differ.
type Tolerances struct {
	// The float32 path against the stored arrays.
	Logits    float64
	Hidden    float64 // residual stream and post-norm output
	State     float64 // recurrent and convolution state
	MTPLogits float64
	MTPMargin float64 // the head's argmax must be the reference's above this margin
	MTPClose  float64 // and below it may differ in this share of all rows

	// The int8 path, whose activations are rounded.
	Int8Margin                  float64 // greedy tokens must be the reference's above this margin
	Int8Rows                    float64 // of logits of small models, the median of rows, relative to the row
	Perplexity                  float64 // of the float32 path's perplexity, relative
	Perplexity4                 float64 // the same with weights quantized to 4 bits on load, relative
	PerplexityKV, PerplexityKV4 float64 // of the perplexity of the int8 path with 16-bit keys and values, if they have 8 or 4, relative

	// Float32 arithmetic against the numbers of the specification.
	Spec float64

	// Rows of a vision tower on the float32 path, relative to the largest number of the array.
	Tower  float64
	Tower8 float64 // and with matrices of 8 bits and integer products

	// Acceptance rate of the head's drafts, from the reference's.
	Acceptance float64

	// Rows of the model that a drafter reads, and the margin above which its drafts must be the reference's. The
	// drafter's own rows have the tolerance Hidden.
	Taps        float64
	DraftMargin float64
}
