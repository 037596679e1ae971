// Attention of the rows of blocks, with the new rows of pages: see attendfew.cuh. Keys and values have at most 128 numbers.
#include "attendfew.cuh"

// Kernel attend_block_halves: paged attention for blocks of draft tokens (FlashDecoding) with QK norm, rotary embedding and append
//   fused in, over a 16-bit KV cache.
// Layout: as in attend_TYPE.
// Grid: persistent: blocks take up to 16 queries of a KV head and some pages.
// Sums: as in attend_few_TYPE.
extern "C" __global__ void __launch_bounds__(256, 2) attend_block_halves(const Call *call, const __grid_constant__ Layer a) {
  release();
  const bool split = apart(a, call);
  pieces<__half, 16, 8, 64>(call, a, split, split ? chunkOf(a, call, 16) : 0);
  await();
}
