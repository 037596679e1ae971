// Attention over pages of 8 bits.
#include "coded.cuh"

// Kernel coded, coded_wide: paged attention over an 8-bit KV cache on int8 tensor cores, both products.
// Layout: pages of 64 positions: codes of keys by row, of values by column, and scales.
// Grid: persistent: blocks take 16 or 32 queries of a KV head and some pages.
// Sums: exact integers within a group of 64 columns and for values within a page; groups ascending, softmax weights in lane
//   order, pages in order (Coded of the CPU).
extern "C" __global__ void __launch_bounds__(128, 2) coded(const Call *call, const __grid_constant__ Layer a) { coded<false, 4, 2>(call, a); }
extern "C" __global__ void __launch_bounds__(128, 2) coded_wide(const Call *call, const __grid_constant__ Layer a) { coded<false, 8, 1>(call, a); }

// Kernel coded_any: paged attention over an 8-bit KV cache for latent rows (MLA) and heads of more than 512 numbers, without
//   tensor cores.
// Layout: as in coded.
// Grid: persistent: blocks take 16 queries, page after page.
// Sums: as in coded.
extern "C" __global__ void __launch_bounds__(128) coded_any(const Call *call, const __grid_constant__ Layer a) { codedAny<false>(call, a); }
