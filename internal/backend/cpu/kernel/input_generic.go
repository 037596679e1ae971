package kernel

import "github.com/foretoken/foretoken/internal/exactmath"

// turn scales the groups of a row and rotates their pairs, by the tables of an Input.
func turn(dst, src, scales []float32, places []uint8, turns []float32, rounds int) {
	var one, two [turnGroup]float32
	x, y := &one, &two
	for g := 0; g < len(dst); g += turnGroup {
		for i, s := range scales[g:][:turnGroup] {
			x[i] = src[g+i] * s
		}
		for range rounds {
			first, second := places[:turnPairs], places[turnPairs:turnGroup]
			cos, sin := turns[:turnPairs], turns[turnPairs:turnGroup]
			for t := range turnPairs {
				a, b := x[first[t]%turnGroup], x[second[t]%turnGroup]
				p, m := float32(b*sin[t]), float32(a*sin[t])
				y[t], y[turnPairs+t] = exactmath.FMA32(a, cos[t], p), exactmath.FMA32(b, cos[t], -m)
			}
			x, y = y, x
			places, turns = places[turnGroup:], turns[turnGroup:]
		}
		for i, p := range places[:turnGroup] {
			dst[g+i] = x[p%turnGroup]
		}
		places = places[turnGroup:]
	}
}
