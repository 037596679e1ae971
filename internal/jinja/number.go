package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

var (
	errZeroDivision = errors.New("division by zero")
	errIntRange     = errors.New("integer result does not fit 64 bits")
)

// arithmetic applies + - * / // % to two numbers.
func arithmetic(op string, a, b Value) (Value, error) {
	if a.big() || b.big() {
		return Value{}, errIntRange
	}
	m, isInt := a.integer()
	n, alsoInt := b.integer()
	if isInt && alsoInt && op != "/" {
		return intArithmetic(op, m, n)
	}
	x, ok := a.number()
	y, also := b.number()
	if !ok || !also {
		return Value{}, fmt.Errorf("unsupported operand type(s) for %s: '%s' and '%s'", op, a.typeName(), b.typeName())
	}
	return floatArithmetic(op, x, y)
}

func intArithmetic(op string, m, n int64) (Value, error) {
	var result int64
	ok := true
	switch op {
	case "+":
		result = m + n
		ok = (result > m) == (n > 0)
	case "-":
		result = m - n
		ok = (result < m) == (n > 0)
	case "*":
		result, ok = multiply(m, n)
	default:
		if n == 0 {
			return Value{}, errZeroDivision
		}
		if m == math.MinInt64 && n == -1 {
			return Value{}, errIntRange
		}
		quotient, rest := m/n, m%n
		if rest != 0 && (rest < 0) != (n < 0) { // Python rounds down
			quotient, rest = quotient-1, rest+n
		}
		if result = quotient; op == "%" {
			result = rest
		}
	}
	if !ok {
		return Value{}, errIntRange
	}
	return intValue(result), nil
}

func multiply(m, n int64) (int64, bool) {
	hi, lo := bits.Mul64(magnitude(m), magnitude(n))
	switch {
	case hi != 0:
		return 0, false
	case (m < 0) != (n < 0):
		return -int64(lo), lo <= 1<<63
	}
	return int64(lo), lo < 1<<63
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

func floatArithmetic(op string, x, y float64) (Value, error) {
	switch op {
	case "+":
		return floatValue(x + y), nil
	case "-":
		return floatValue(x - y), nil
	case "*":
		return floatValue(x * y), nil
	}
	if y == 0 {
		return Value{}, errZeroDivision
	}
	if op == "/" {
		return floatValue(x / y), nil
	}
	rest := math.Mod(x, y)
	quotient := (x - rest) / y
	switch {
	case rest == 0:
		rest = math.Copysign(0, y)
	case (rest < 0) != (y < 0):
		rest += y
		quotient--
	}
	if op == "%" {
		return floatValue(rest), nil
	}
	return floatValue(math.Round(quotient)), nil
}

// negate is Python's -v.
func negate(v Value) (Value, error) {
	if v.kind == KindFloat {
		return floatValue(-v.float()), nil
	}
	if v.big() {
		return Value{}, errIntRange
	}
	n, ok := v.integer()
	if !ok {
		return Value{}, fmt.Errorf("bad operand type for unary -: '%s'", v.typeName())
	}
	if n == math.MinInt64 {
		return Value{}, errIntRange
	}
	return intValue(-n), nil
}

// parseBytes is how many bytes parseInt and parseFloat together may make of each of a text.
const parseBytes = 4

// parseInt is Python's int(s, base).
func parseInt(s string, base int) (Value, bool) {
	s = strings.TrimFunc(s, isSpace)
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") ||
		strings.Contains(digits, "__") || base < 2 || base > 36 {
		return Value{}, false
	}
	lower := strings.ToLower(digits)
	for prefix, b := range map[string]int{"0x": 16, "0o": 8, "0b": 2} {
		if base == b && strings.HasPrefix(lower, prefix) {
			digits = digits[2:]
		}
	}
	n, err := strconv.ParseInt(s[:len(s)-len(strings.TrimLeft(s, "+-"))]+strings.ReplaceAll(digits, "_", ""), base, 64)
	return intValue(n), err == nil
}

// parseFloat is Python's float(s).
func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	if strings.ContainsAny(s, "xXpP") { // Go reads hexadecimal floats, Python does not
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}
