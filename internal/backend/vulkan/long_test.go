//go:build vulkan && long

package vulkan

import "github.com/foretoken/foretoken/internal/model"

func init() {
	modelCases = append(modelCases, model.Options{Quantize: 4}, model.Options{KVBits: 32})
	probeLevels = cheapest
}
