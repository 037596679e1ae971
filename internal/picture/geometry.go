package picture

import (
	"fmt"
	"math"
)

const (
	// maxAspect is how many times longer than the other a side may be.
	maxAspect = 200
	// unknownRate is the frames per second of a video that does not say.
	unknownRate = 24
)

// Grid is the patches of an image or video: groups of Temporal frames, rows and
// columns.
type Grid struct{ Time, Height, Width int }

// Tokens is how many tokens of a prompt a grid takes, for Merge×Merge patches in each.
func (g Grid) Tokens(merge int) int { return g.Time * g.Height * g.Width / (merge * merge) }

// Size is the size that an image is resized to: whole tokens, between MinPixels and MaxPixels as
// long as its shape allows. Sides are rounded to the nearest, halves to even.
func (c Config) Size(width, height int) (w, h int, err error) {
	if err := checkAspect(width, height); err != nil {
		return 0, 0, err
	}
	w, h = c.fit(1, 1, width, height)
	return w, h, nil
}

// VideoSize is likewise the size of each frame. The limits apply to all frames together.
func (c Config) VideoSize(frames, width, height int) (w, h int, err error) {
	if frames < c.Temporal {
		return 0, 0, fmt.Errorf("%w: video of %d frames, at least %d are needed", errShape, frames, c.Temporal)
	}
	if width < 1 || height < 1 {
		return 0, 0, checkAspect(width, height)
	}
	if token := c.Patch * c.Merge; width < token || height < token {
		scale := max(float64(token)/float64(height), float64(token)/float64(width))
		width, height = int(float64(width)*scale), int(float64(height)*scale)
	}
	if err := checkAspect(width, height); err != nil {
		return 0, 0, err
	}
	// The reference rounds the count where it compares with the limits and not where it scales.
	temporal := float64(c.Temporal)
	w, h = c.fit(float64(math.RoundToEven(float64(frames)/temporal)*temporal), float64(frames), width, height)
	return w, h, nil
}

func checkAspect(width, height int) error {
	if width < 1 || height < 1 || float64(max(width, height))/float64(min(width, height)) > maxAspect {
		return fmt.Errorf("%w: %d×%d pixels, no side may be more than %d times the other", errShape, width, height, maxAspect)
	}
	return nil
}

// fit rounds sides to whole tokens, and scales them if counted frames of that size are outside of
// the limits. The order of the operations is the reference's: it decides halves.
func (c Config) fit(counted, frames float64, width, height int) (w, h int) {
	token, fw, fh := float64(c.Patch*c.Merge), float64(width), float64(height)
	w64, h64 := math.RoundToEven(fw/token)*token, math.RoundToEven(fh/token)*token
	least, most := float64(c.MinPixels), float64(c.MaxPixels)
	switch pixels := counted * h64 * w64; {
	case pixels > most:
		scale := math.Sqrt(frames * fh * fw / most)
		h64 = max(token, math.Floor(fh/scale/token)*token)
		w64 = max(token, math.Floor(fw/scale/token)*token)
	case pixels < least:
		scale := math.Sqrt(least / (frames * fh * fw))
		h64 = math.Ceil(float64(fh*scale)/token) * token
		w64 = math.Ceil(float64(fw*scale)/token) * token
	}
	return int(w64), int(h64)
}

// Sample returns the indices of the sampled frames of a video with frames frames, shown at
// rate per second, 0 if unknown: Rate per second, at least MinFrames, at most MaxFrames,
// evenly spaced from the first to the last.
func (c Config) Sample(frames int, rate float64) ([]int, error) {
	rate, err := checkRate(rate)
	if err != nil {
		return nil, err
	}
	if frames < 1 {
		return nil, fmt.Errorf("%w: video of %d frames", errShape, frames)
	}
	n := min(max(int(min(float64(frames)/rate*c.Rate, float64(c.MaxFrames))), c.MinFrames), c.MaxFrames, frames)
	indices := make([]int, n)
	step := float64(frames-1) / float64(max(n-1, 1))
	for i := range indices {
		indices[i] = int(math.RoundToEven(float64(i) * step))
	}
	if n > 1 {
		indices[n-1] = frames - 1
	}
	return indices, nil
}

// Timestamps is the second in which each temporal patch is shown, for the indices of its frames: in
// the middle between its first and its last. A patch that lacks frames repeats the last one.
func (c Config) Timestamps(indices []int, rate float64) ([]float64, error) {
	rate, err := checkRate(rate)
	if err != nil {
		return nil, err
	}
	var seconds []float64
	for i := 0; i < len(indices); i += c.Temporal {
		last := indices[min(i+c.Temporal, len(indices))-1]
		seconds = append(seconds, (float64(indices[i])/rate+float64(last)/rate)/2)
	}
	return seconds, nil
}

func checkRate(rate float64) (float64, error) {
	if rate == 0 {
		return unknownRate, nil
	}
	if !(rate > 0) || math.IsInf(rate, 1) {
		return 0, fmt.Errorf("%w: video of %v frames per second", errShape, rate)
	}
	return rate, nil
}
