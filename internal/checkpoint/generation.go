package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Generation is the part of generation_config.json that we use. A nil
// field was absent or null. Values are those of the file; the sampler
// validates them.
type Generation struct {
	EOS               TokenIDs `json:"eos_token_id"`
	DoSample          *bool    `json:"do_sample"`
	Temperature       *float64 `json:"temperature"`
	TopK              *Whole   `json:"top_k"`
	TopP              *float64 `json:"top_p"`
	MinP              *float64 `json:"min_p"`
	RepetitionPenalty *float64 `json:"repetition_penalty"`
	PresencePenalty   *float64 `json:"presence_penalty"`
	FrequencyPenalty  *float64 `json:"frequency_penalty"`
}

// Generation decodes generation_config.json; all fields are nil without the file.
func (c *Checkpoint) Generation() (Generation, error) {
	var g Generation
	if c.generation == nil {
		return g, nil
	}
	err := DecodeJSON(generationFile, c.generation, &g)
	return g, err
}

// TokenIDs decodes a token id, a list of them, or null.
type TokenIDs []int32

// UnmarshalJSON implements json.Unmarshaler.
func (ids *TokenIDs) UnmarshalJSON(data []byte) error {
	*ids = nil
	if string(data) == "null" {
		return nil
	}
	if len(data) > 0 && data[0] != '[' {
		data = fmt.Appendf(nil, "[%s]", data)
	}
	var list []Whole
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("token ids %.40s: %w", data, err)
	}
	for _, n := range list {
		if n < 0 || n > math.MaxInt32 {
			return fmt.Errorf("token id %d is out of range", n)
		}
		*ids = append(*ids, int32(n))
	}
	return nil
}

// Whole decodes a whole number, also one that was written as a float, like 20.0.
type Whole int

// UnmarshalJSON implements json.Unmarshaler.
func (n *Whole) UnmarshalJSON(data []byte) error {
	var f *float64
	if err := json.Unmarshal(data, &f); err != nil {
		return errors.New("not a number")
	}
	if f == nil || *f != math.Trunc(*f) || math.Abs(*f) > 1<<53 {
		return fmt.Errorf("%.40s is not a whole number", data)
	}
	*n = Whole(*f)
	return nil
}
