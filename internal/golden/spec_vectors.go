package golden

// SpecPrompt is the prompt of every case, at positions 0 to 4.
var SpecPrompt = []int32{1, 2, 3, 4, 5}

// SpecCase is a model of the specification and its expected results. The
// numbers are those of a float64 implementation, rounded to six decimals;
// float32 arithmetic stays within Tol.Spec of them.
type SpecCase struct {
	Config SpecConfig
	Want   SpecVectors
}

// SpecVectors are the results after SpecPrompt, at its last token unless said
// otherwise. Fields that the specification does not give for a case are nil.
type SpecVectors struct {
	Layers    [][]float32 // [layer][hidden] the residual stream leaving each layer
	Conv      []float32   // [K-1, channels] of layer 0, oldest row first
	Recurrent []float32   // [value heads, key dim, value dim] of layer 0
	Hidden    []float32   // post-norm
	Logits    []float32
	Greedy    []int32 // the first 16 tokens

	// The head, its cache filled with the four pairs of the prompt, fed Hidden
	// and Greedy[0].
	MTPHidden []float32 // after the head's own norm
	MTPLogits []float32
	MTPSecond []float32 // logits of the chained step: MTPHidden and the argmax of MTPLogits

	// Results of two common mistakes in place of MTPLogits, for diagnosis: hidden
	// states from before the final norm, and an empty cache.
	MTPPreNorm []float32
	MTPCold    []float32

	// Greedy speculative decoding by draft depth, with true pairs in the head's
	// cache. It produces Greedy; both caches then have SpecFinalPairs positions.
	Traces map[int][]SpecCycle
}

// SpecFinalPairs is the length of the head's cache at the end of each trace.
const SpecFinalPairs = 20

// SpecCycle is one round of a trace: the committed token it starts from, the
// drafts that follow it, and how many of them, from the first, were accepted.
type SpecCycle struct {
	Token    int32
	Drafts   []int32
	Accepted int
}

// SpecCases returns the four models of the specification.
func SpecCases() []SpecCase {
	a := SpecConfig{Name: "A-dense", Heads: 2, KVHeads: 1, KeyHeads: 1, ValueHeads: 2}
	b := SpecConfig{Name: "B-dense", Heads: 4, KVHeads: 2, KeyHeads: 2, ValueHeads: 4}
	return []SpecCase{
		{a, specADense()},
		{withExperts(a, "A-moe"), specAMoE()},
		{b, specBDense()},
		{withExperts(b, "B-moe"), specBMoE()},
	}
}

func withExperts(c SpecConfig, name string) SpecConfig {
	c.Name, c.Experts, c.ExpertsActive = name, 4, 2
	return c
}

func specADense() SpecVectors {
	return SpecVectors{
		Layers: [][]float32{
			{-0.46911, -1.008548, 0.714074, -0.172921, -1.075009, -1.453775, 0.554518, -0.066741},
			{-0.059447, -1.539033, 0.663903, 0.042239, -0.403939, -1.599377, 0.597651, -0.125697},
			{0.626425, -0.849665, 0.238228, -1.087367, 0.194299, -1.150023, 0.436605, 0.011068},
			{-0.487134, -0.267947, -0.792867, -1.946774, -0.978095, -1.182647, -0.146974, 0.575076},
		},
		Conv: []float32{
			-0.771176, -0.140522, 0.856007, -0.141854, -2.129975, 0.800983, 1.090465, 1.256094,
			1.583462, -0.517361, -1.001525, -0.223625, 1.874423, 0.629668, 0.258604, -1.391002,
			0.694117, -0.597115, -1.064156, 0.801704, 1.210023, -2.046425, -0.015963, 0.866521,
			-0.245273, -0.598387, 0.78648, 0.444544, -3.068145, 0.77773, -0.891699, 2.249697,
			1.146734, -1.195383, 0.12336, -0.166917, -0.770668, -0.403577, -2.202259, -1.014317,
			-0.193405, 0.099635, 0.398636, -0.254671, 0.166407, 0.917269, -1.399099, -1.169603,
		},
		Recurrent: []float32{
			-0.01373, 0.000342, -0.004419, -0.005301,
			0.025305, -0.002086, 0.005971, 0.010306,
			-0.081304, 0.005858, -0.019521, -0.032018,
			0.026938, -0.002252, 0.005903, 0.010662,
			0.129275, 0.008179, -0.011467, -0.004165,
			-0.210347, 0.013364, 0.021785, 0.001368,
			0.687814, -0.017919, -0.07129, -0.003639,
			-0.221481, 0.011218, 0.023886, -0.000508,
		},
		Hidden: []float32{-0.587074, -0.243395, -0.938899, -2.269344, -0.987731, -0.894376, -0.141339, 0.636988},
		Logits: []float32{
			4.313283, 0.915918, 2.090283, 0.621163, -0.948607, -2.012341, -0.564954, -1.177485,
			3.704668, -2.467737, 0.495056, -0.583308, 2.588396, -2.219077, 1.360522, 0.218913,
		},
		Greedy:    []int32{0, 0, 0, 0, 12, 15, 0, 4, 8, 5, 0, 0, 0, 0, 12, 15},
		MTPHidden: []float32{-1.391609, 0.94922, -1.034775, 0.968065, -0.567747, -0.695656, -0.559606, 0.368851},
		MTPLogits: []float32{
			1.185362, 1.238068, 0.833093, -0.484508, 1.226212, -0.021635, -0.245543, -2.103527,
			0.815815, -2.967978, -0.064021, 2.083987, -0.286224, -2.004277, 3.188208, -1.355813,
		},
		MTPSecond: []float32{
			1.19199, 1.417528, 0.897769, 1.007976, -0.345543, 0.215059, -1.504609, -1.448615,
			1.441308, -2.412014, 1.108272, 2.346468, -1.325205, -2.057143, 2.469914, -1.174397,
		},
		MTPPreNorm: []float32{
			1.044802, 1.192331, 1.019735, -0.085338, 1.296637, 0.041183, -0.816562, -2.204445,
			0.943995, -2.934515, -0.048039, 2.25267, -0.684141, -2.033453, 3.071568, -1.233894,
		},
		MTPCold: []float32{
			1.544711, 1.663207, 1.11884, -0.454517, 1.215997, -0.123468, 0.315637, -2.275359,
			0.916271, -3.052237, 0.333356, 2.072658, 0.494554, -1.754603, 3.226841, -1.621809,
		},
		Traces: map[int][]SpecCycle{
			1: {
				{0, []int32{14}, 0},
				{0, []int32{14}, 0},
				{0, []int32{14}, 0},
				{0, []int32{14}, 0},
				{12, []int32{0}, 0},
				{15, []int32{3}, 0},
				{0, []int32{14}, 0},
				{4, []int32{0}, 0},
				{8, []int32{6}, 0},
				{5, []int32{9}, 0},
				{0, []int32{14}, 0},
				{0, []int32{14}, 0},
				{0, []int32{14}, 0},
				{0, []int32{14}, 0},
				{12, []int32{0}, 0},
			},
		},
	}
}

func specAMoE() SpecVectors {
	return SpecVectors{
		Hidden: []float32{1.772829, -0.022559, 0.193876, -0.395921, -1.649561, -0.576471, -0.074714, 1.516021},
		Logits: []float32{
			-0.331698, 2.913479, 2.358509, 2.157009, -0.577086, -2.222187, 1.637253, -1.398611,
			1.292423, 0.374619, -0.747947, 0.615862, 3.716586, 2.312524, -0.81069, 0.743986,
		},
		Greedy: []int32{12, 11, 1, 3, 6, 1, 15, 12, 8, 1, 3, 12, 3, 3, 12, 7},
		MTPLogits: []float32{
			1.769107, -2.257134, 1.763653, 0.090718, 2.463034, 0.356553, 0.14488, -0.090174,
			0.652092, -0.119133, 1.508889, -1.34747, 0.5221, -0.435992, 0.37162, 0.046493,
		},
		MTPSecond: []float32{
			-2.802795, -1.234911, -0.87655, 0.334164, -0.031801, -0.23156, 0.960355, 1.711515,
			-1.224612, 3.207785, -1.841782, -1.191221, -0.051926, 2.554104, -2.485377, 1.684084,
		},
		Traces: map[int][]SpecCycle{
			1: {
				{12, []int32{4}, 0},
				{11, []int32{3}, 0},
				{1, []int32{1}, 0},
				{3, []int32{6}, 1},
				{1, []int32{0}, 0},
				{15, []int32{3}, 0},
				{12, []int32{0}, 0},
				{8, []int32{1}, 1},
				{3, []int32{13}, 0},
				{12, []int32{0}, 0},
				{3, []int32{9}, 0},
				{3, []int32{6}, 0},
				{12, []int32{0}, 0},
			},
		},
	}
}

func specBDense() SpecVectors {
	return SpecVectors{
		Hidden: []float32{2.302854, -0.189212, -0.00695, 0.746724, -1.062483, -0.627686, -0.945662, 0.834357},
		Logits: []float32{
			-2.319731, 2.780994, 1.615164, 1.571415, -0.963962, -2.271437, 1.877803, -1.280057,
			-0.632223, 0.522245, -1.331279, 0.563499, 2.789975, 2.639596, -1.107921, 1.254226,
		},
		Greedy: []int32{12, 7, 6, 11, 1, 11, 6, 11, 1, 6, 11, 1, 6, 3, 6, 6},
		MTPLogits: []float32{
			3.08897, 0.293585, 0.693091, 0.04521, -0.723677, -0.192676, 0.148011, -0.009927,
			1.826652, -1.00992, 1.801256, -0.568279, 1.460938, -1.15107, 0.609547, -0.763804,
		},
		Traces: map[int][]SpecCycle{
			1: {
				{12, []int32{0}, 0},
				{7, []int32{10}, 0},
				{6, []int32{11}, 1},
				{1, []int32{1}, 0},
				{11, []int32{3}, 0},
				{6, []int32{3}, 0},
				{11, []int32{3}, 0},
				{1, []int32{1}, 0},
				{6, []int32{11}, 1},
				{1, []int32{1}, 0},
				{6, []int32{3}, 1},
				{6, []int32{2}, 0},
			},
			2: {
				{12, []int32{0, 7}, 0},
				{7, []int32{10, 2}, 0},
				{6, []int32{11, 3}, 1},
				{1, []int32{1, 1}, 0},
				{11, []int32{3, 15}, 0},
				{6, []int32{3, 3}, 0},
				{11, []int32{3, 2}, 0},
				{1, []int32{1, 1}, 0},
				{6, []int32{11, 3}, 1},
				{1, []int32{1, 1}, 0},
				{6, []int32{3, 15}, 1},
				{6, []int32{2, 3}, 0},
			},
			3: {
				{12, []int32{0, 7, 10}, 0},
				{7, []int32{10, 2, 3}, 0},
				{6, []int32{11, 3, 10}, 1},
				{1, []int32{1, 1, 1}, 0},
				{11, []int32{3, 15, 11}, 0},
				{6, []int32{3, 3, 4}, 0},
				{11, []int32{3, 2, 4}, 0},
				{1, []int32{1, 1, 1}, 0},
				{6, []int32{11, 3, 10}, 1},
				{1, []int32{1, 1, 1}, 0},
				{6, []int32{3, 15, 3}, 1},
				{6, []int32{2, 3, 4}, 0},
			},
		},
	}
}

func specBMoE() SpecVectors {
	return SpecVectors{
		Hidden: []float32{1.437089, -0.080479, 1.619238, 0.555187, -1.173957, -0.67218, 0.326019, 1.423917},
		Logits: []float32{
			-1.873111, 1.188264, 2.56446, 1.85296, 2.129947, -0.615006, 1.204947, -1.545621,
			-0.910679, 1.190736, 0.053322, 0.30907, 2.258999, 3.220054, -1.465811, 0.498556,
		},
		Greedy: []int32{13, 1, 15, 0, 8, 15, 0, 6, 7, 4, 15, 15, 0, 12, 3, 15},
		MTPLogits: []float32{
			-0.516242, -0.519933, 2.031826, 0.203335, 2.147159, -1.16724, 0.597734, -1.141242,
			-0.831221, 0.471841, -0.665152, -1.718709, 2.388096, 1.723201, -1.619288, 1.356097,
		},
	}
}
