package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// maxElements bounds arrays. Vocabularies have a quarter of a million entries.
const maxElements = 1 << 24

// valueType is the type of a value, as the format numbers them.
type valueType uint32

const (
	typeU8 valueType = iota
	typeI8
	typeU16
	typeI16
	typeU32
	typeI32
	typeF32
	typeBool
	typeString
	typeArray
	typeU64
	typeI64
	typeF64
	valueTypes
)

// scalarBytes are the sizes of the types that have one.
var scalarBytes = [valueTypes]int{
	typeU8: 1, typeI8: 1, typeU16: 2, typeI16: 2, typeU32: 4, typeI32: 4, typeF32: 4, typeBool: 1,
	typeU64: 8, typeI64: 8, typeF64: 8,
}

// value is one value of the metadata: n elements of a type; n is 1 unless it is an array.
type value struct {
	typ   valueType
	n     int
	array bool
	raw   []byte // a view of the file
}

// value reads a value without decoding it.
func (c *cursor) value() value {
	v := value{typ: valueType(c.u32()), n: 1}
	if v.typ == typeArray {
		v.array = true
		v.typ = valueType(c.u32())
		n := c.u64()
		if c.err == nil && n > maxElements {
			c.err = fmt.Errorf("an array of %d elements, want at most %d", n, maxElements)
			return v
		}
		v.n = int(n)
	}
	if c.err == nil && (v.typ >= valueTypes || v.typ == typeArray) {
		c.err = fmt.Errorf("values of type %d are not supported", v.typ)
	}
	start := c.at
	if v.typ != typeString {
		if c.err == nil {
			c.take(uint64(v.n) * uint64(scalarBytes[v.typ]))
		}
	} else {
		for i := 0; i < v.n && c.err == nil; i++ {
			c.take(c.u64())
		}
	}
	v.raw = c.data[start:c.at]
	return v
}

// number is element i of a value that is not of strings: as an integer, or a float if it is
// one.
func (v *value) number(i int) (n int64, f float64, isFloat bool) {
	b := v.raw[i*scalarBytes[v.typ]:]
	switch v.typ {
	case typeU8, typeBool:
		n = int64(b[0])
	case typeI8:
		n = int64(int8(b[0]))
	case typeU16:
		n = int64(binary.LittleEndian.Uint16(b))
	case typeI16:
		n = int64(int16(binary.LittleEndian.Uint16(b)))
	case typeU32:
		n = int64(binary.LittleEndian.Uint32(b))
	case typeI32:
		n = int64(int32(binary.LittleEndian.Uint32(b)))
	case typeU64:
		n = int64(min(binary.LittleEndian.Uint64(b), math.MaxInt64))
	case typeI64:
		n = int64(binary.LittleEndian.Uint64(b))
	case typeF32:
		return 0, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), true
	default:
		return 0, math.Float64frombits(binary.LittleEndian.Uint64(b)), true
	}
	return n, float64(n), false
}

// whole is a single integer.
func (v *value) whole() (int, error) {
	if v.array || v.typ == typeString {
		return 0, fmt.Errorf("not a number")
	}
	n, _, isFloat := v.number(0)
	if isFloat || int64(int(n)) != n {
		return 0, fmt.Errorf("not a whole number")
	}
	return int(n), nil
}

// Has reports whether the metadata have the key.
func (f *File) Has(key string) bool {
	_, ok := f.values[key]
	return ok
}

// find is the value of a key, which must be there.
func (f *File) find(key string) (value, error) {
	v, ok := f.values[key]
	if !ok {
		return v, fmt.Errorf("gguf: the metadata have no key %q", key)
	}
	return v, nil
}

// Whole is the integer, or the truth value as 0 or 1, under a key.
func (f *File) Whole(key string) (int, error) {
	v, err := f.find(key)
	if err != nil {
		return 0, err
	}
	n, err := v.whole()
	if err != nil {
		return 0, fmt.Errorf("gguf: key %q: %w", key, err)
	}
	return n, nil
}

// Number is the number under a key, of any type.
func (f *File) Number(key string) (float64, error) {
	v, err := f.find(key)
	if err != nil {
		return 0, err
	}
	if v.array || v.typ == typeString {
		return 0, fmt.Errorf("gguf: key %q: not a number", key)
	}
	_, x, _ := v.number(0)
	return x, nil
}

// Numbers are the numbers of the array, or the one number, under a key, of any type.
func (f *File) Numbers(key string) ([]float64, error) {
	v, err := f.find(key)
	if err != nil {
		return nil, err
	}
	if v.typ == typeString {
		return nil, fmt.Errorf("gguf: key %q: not numbers", key)
	}
	list := make([]float64, v.n)
	for i := range list {
		_, list[i], _ = v.number(i)
	}
	return list, nil
}

// Wholes are the integers of the array, or the one integer, under a key.
func (f *File) Wholes(key string) ([]int, error) {
	v, err := f.find(key)
	if err != nil {
		return nil, err
	}
	if v.typ == typeString {
		return nil, fmt.Errorf("gguf: key %q: not numbers", key)
	}
	list := make([]int, v.n)
	for i := range list {
		n, _, isFloat := v.number(i)
		if isFloat || int64(int(n)) != n {
			return nil, fmt.Errorf("gguf: key %q: element %d is not a whole number", key, i)
		}
		list[i] = int(n)
	}
	return list, nil
}

// Text is the string under a key.
func (f *File) Text(key string) (string, error) {
	list, err := f.Texts(key)
	if err == nil && f.values[key].array {
		err = fmt.Errorf("gguf: key %q: an array, want a string", key)
	}
	if err != nil {
		return "", err
	}
	return list[0], nil
}

// Texts are the strings of the array, or the one string, under a key.
func (f *File) Texts(key string) ([]string, error) {
	v, err := f.find(key)
	if err != nil {
		return nil, err
	}
	if v.typ != typeString {
		return nil, fmt.Errorf("gguf: key %q: not a string", key)
	}
	list := make([]string, v.n)
	c := &cursor{data: v.raw} // which has been read once
	for i := range list {
		list[i] = c.text()
	}
	return list, nil
}
