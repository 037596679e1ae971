package console

import (
	"encoding/json"
	"fmt"
)

// Counted is a number with its noun.
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// WriteJSON prints one object, for scripts and for people.
func WriteJSON(c *Console, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return c.Write(string(text) + "\n")
}

// ByteText is a number of bytes for people.
func ByteText(n int64) string {
	v, units := float64(n), []string{"kB", "MB", "GB", "TB"}
	if n < 1000 {
		return fmt.Sprintf("%d bytes", n)
	}
	for i, u := range units {
		if v /= 1000; v < 999.5 || i == len(units)-1 {
			return fmt.Sprintf("%.3g %s", v, u)
		}
	}
	return ""
}
