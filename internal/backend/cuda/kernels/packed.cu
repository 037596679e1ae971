// Attention over pages of 4 bits.
#include "coded.cuh"

// Kernel packed, packed_wide: coded for a 4-bit KV cache, whose levels become codes of 8 bits in registers.
// Layout: pages of 64 positions: levels of keys by row, of values by column, two to a byte, steps and lows of 32, and scales.
// Grid: as in coded.
// Sums: as in coded.
extern "C" __global__ void __launch_bounds__(128, 2) packed(const Call *call, const __grid_constant__ Layer a) { coded<true, 4, 2>(call, a); }
extern "C" __global__ void __launch_bounds__(128, 2) packed_wide(const Call *call, const __grid_constant__ Layer a) { coded<true, 8, 1>(call, a); }

// Kernel packed_any: coded_any for a 4-bit KV cache.
// Layout: as in packed.
// Grid: as in coded_any.
// Sums: as in coded.
extern "C" __global__ void __launch_bounds__(128) packed_any(const Call *call, const __grid_constant__ Layer a) { codedAny<true>(call, a); }
