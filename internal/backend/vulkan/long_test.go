//go:build vulkan && long

package vulkan

import "github.com/foretoken/foretoken/internal/model"

func init() {
	modelCases = append(modelCases, modelCase{"dense", model.Options{Quantize: 4}}, modelCase{"dense", model.Options{KVBits: 32}})
	probeLevels = cheapest
}
