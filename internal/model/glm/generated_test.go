package glm

import (
	"testing"

	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// TestGenerateCountsAsPublished counts the parameters of the released sizes.
func TestGenerateCountsAsPublished(t *testing.T) {
	deepseekV3 := shape{layers: 61, dense: 3, config: config{
		Settings: network.Settings{Vocab: 129280, Width: 7168, Experts: 256, TopK: 8}, intermediate: 18432, heads: 128, queryRank: 1536, rank: 512, nope: 128, rotary: 64, valueDim: 128,
		expertWidth: 2048, sharedWidth: 2048, rope: rope{theta: 1e4},
	}}
	large := shape{layers: 92, dense: 3, config: config{ // GLM-4.5 to 4.7
		Settings: network.Settings{Vocab: 151552, Width: 5120, Experts: 160, TopK: 8}, intermediate: 12288, heads: 96, kvHeads: 8, headDim: 128, rotary: 64, bias: true, headNorms: true,
		expertWidth: 1536, sharedWidth: 1536, rope: rope{theta: 1e6},
	}}
	for _, c := range []struct {
		name        string
		shape       *shape
		trunk, head int64
	}{
		{"glm-4.7-flash", &releasedShapes[0], 29_943_393_920, 643_706_176},
		{"glm-4.5-air", &releasedShapes[1], 106_852_251_264, 2_375_059_584},
		{"deepseek-v3", &deepseekV3, 671_026_419_200, 11_610_068_224},
		{"glm-4.5", &large, 352_797_829_024, 3_988_069_792},
	} {
		tables := network.Tables(c.shape.resolved())
		var trunk, head int64
		for w := range tables.Model {
			trunk += w.Parameters()
		}
		for w := range tables.Head {
			if w.Name != "mtp.embed_tokens.weight" && w.Name != "mtp."+weights.OutputMatrix+".weight" {
				head += w.Parameters()
			}
		}
		if trunk != c.trunk || head != c.head {
			t.Errorf("%s: %d and %d parameters, published are %d and %d", c.name, trunk, head, c.trunk, c.head)
		}
	}
}
