// Attention of few rows, with the new rows of pages: see attendfew.cuh. A warp of a block has a query.
#include "attendfew.cuh"

// Fewer queries where there are blocks for them: they read the same pages, but side by side.
// Kernel attend_few_TYPE: paged attention for decoding (FlashDecoding) with QK norm, rotary embedding and append fused in,
//   over a 16-bit or 32-bit KV cache.
// Layout: as in attend_TYPE.
// Grid: persistent: blocks take up to 8 queries of a KV head and some pages.
// Sums: scores and softmax weights in lane order (16 lanes, then a tree), values in order of position, pages merged in order
//   (online softmax per page of 64 positions).
extern "C" __global__ void __launch_bounds__(256, 2) attend_few_halves(const Call *call, const __grid_constant__ Layer a) {
  release();
  const bool split = apart(a, call);
  if (split && chunkOf(a, call, 2) == 1) pieces<__half, 2, 8, 128>(call, a, true, 1);
  else if (split && chunkOf(a, call, 4) == 1) pieces<__half, 4, 8, 128>(call, a, true, 1);
  else pieces<__half, 8, 8, 128>(call, a, split, split ? chunkOf(a, call, 8) : 0);
  await();
}

extern "C" __global__ void __launch_bounds__(256) attend_few_floats(const Call *call, const __grid_constant__ Layer a) {
  release();
  const bool split = apart(a, call);
  pieces<float, 8, 8, 128>(call, a, split, split ? chunkOf(a, call, 8) : 0);
  await();
}
