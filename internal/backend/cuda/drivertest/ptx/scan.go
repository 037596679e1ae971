package ptx

import "strings"

// A Finding is arithmetic whose bits a compiler may choose.
type Finding struct {
	Kernel string
	Line   int
	What   string
}

// Scan checks the floating-point instructions of a text, whether or not Parse supports all of its
// instructions: compilers keep only forms that round to nearest. It returns the others.
func Scan(text string) ([]Finding, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens, module: &Module{}, symbols: map[string]variable{}, scan: true}
	for p.peek().kind != tokenEnd {
		if err := p.directive(); err != nil {
			return nil, err
		}
	}
	var found []Finding
	for _, k := range p.module.kernels {
		for _, s := range k.statements {
			words := strings.Split(s.op, ".")
			if what := uncertain(words); what != "" {
				found = append(found, Finding{k.Name, s.line, s.op + ": " + what})
			}
		}
	}
	return found, nil
}

// computes reports whether an instruction calculates with floats.
func computes(words []string) bool {
	switch words[0] {
	case "add", "sub", "mul", "mad", "fma", "div", "sqrt", "rcp", "rsqrt", "sin", "cos", "ex2", "lg2", "tanh":
		last := words[len(words)-1]
		return strings.HasPrefix(last, "f") || strings.HasPrefix(last, "bf")
	}
	return false
}

// exactSums reports whether an instruction is the product of halves whose sums Machine finds to be exact, or a fault.
func exactSums(words []string) bool {
	return strings.HasSuffix(strings.Join(words, "."), ".m16n8k16.row.col.f32.f16.f16.f32")
}

// uncertain is the reason against an instruction, or "".
func uncertain(words []string) string {
	has := func(w string) bool {
		for _, x := range words[1:] {
			if x == w {
				return true
			}
		}
		return false
	}
	switch {
	case has("ftz"):
		return "subnormal numbers become zero"
	case has("approx") || has("full"):
		return "an approximation"
	case computes(words) && !has("rn"):
		return "no rounding to nearest: it may be fused with another"
	case words[0] == "mma" && !exactSums(words) && (has("f16") || has("bf16") || has("f32") || has("tf32") || has("f64")):
		return "tensor cores add floats in an order of their own"
	case words[0] == "atom" && (has("f32") || has("f64") || has("f16")), words[0] == "red" && (has("f32") || has("f64") || has("f16")):
		return "the order of additions is that of threads"
	}
	return ""
}
