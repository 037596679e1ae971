// Attention without mask and cache: backend.Ops.Mix. The order of additions is that of the CPU's
// Mix: a score is a chain over the columns, sums of weights and of values are chains over the keys,
// and after every mixKeys keys they are rescaled by the increase of the highest score.
#include "bits.cuh"

const int mixQueries = 16, mixKeys = 64;

// Kernel mix: full (bidirectional) attention without mask and cache, for vision towers.
// Layout: float32 rows of heads.
// Grid: x: 16 queries, y: heads.
// Sums: scores are chains over columns, weights and values chains over keys, rescaled after every 64 keys (Mix of the CPU).
//
// A block has mixQueries queries of a head.
extern "C" __global__ void __launch_bounds__(256) mix(float *dst, int dstStride, const float *q, int qStride, const float *k, int kStride,
    const float *v, int vStride, int rows, int keys, int dim, float scale) {
  extern __shared__ float shared[];
  __shared__ float top[mixQueries], weight[mixQueries], down[mixQueries];
  float *queries = shared;                         // [mixQueries][dim]
  float *out = queries + mixQueries * dim;         // likewise
  float *rowsOf = out + mixQueries * dim;          // [mixKeys][dim+1]: keys, then values
  float *scores = rowsOf + mixKeys * (dim + 1);    // [mixQueries][mixKeys+1]
  const int tid = threadIdx.x, first = blockIdx.x * mixQueries, head = blockIdx.y * dim, n = min(mixQueries, rows - first);
  release();
  await();
#pragma unroll 1
  for (int i = tid; i < mixQueries * dim; i += blockDim.x) {
    const int r = i / dim;
    queries[i] = r < n ? mul(q[(size_t)(first + r) * qStride + head + i % dim], scale) : 0.0f;
    out[i] = 0.0f;
  }
  if (tid < mixQueries) top[tid] = __int_as_float(0xff800000), weight[tid] = 0.0f;
#pragma unroll 1
  for (int from = 0; from < keys; from += mixKeys) {
    const int count = min(mixKeys, keys - from);
    auto bring = [&](const float *x, int stride) {
      __syncthreads();
#pragma unroll 4
      for (int i = tid; i < count * dim; i += blockDim.x) rowsOf[i / dim * (dim + 1) + i % dim] = x[(size_t)(from + i / dim) * stride + head + i % dim];
      __syncthreads();
    };
    bring(k, kStride);
#pragma unroll 1
    for (int i = tid; i < mixQueries * mixKeys; i += blockDim.x) {
      const int r = i / mixKeys, j = i % mixKeys;
      if (j >= count) continue;
      float sum = 0.0f;
#pragma unroll 8
      for (int c = 0; c < dim; c++) sum = fused(queries[r * dim + c], rowsOf[j * (dim + 1) + c], sum);
      scores[r * (mixKeys + 1) + j] = sum;
    }
    bring(v, vStride);
    if (tid < mixQueries) {
      float *x = scores + tid * (mixKeys + 1), highest = top[tid];
#pragma unroll 4
      for (int j = 0; j < count; j++)
        if (x[j] > highest) highest = x[j];
      const float by = exp32(sub(top[tid], highest));
      float sum = mul(weight[tid], by);
#pragma unroll 1
      for (int j = 0; j < count; j++) {
        x[j] = exp32(sub(x[j], highest));
        sum = add(sum, x[j]);
      }
      top[tid] = highest, weight[tid] = sum, down[tid] = by;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = tid; i < mixQueries * dim; i += blockDim.x) {
      const int r = i / dim, c = i % dim;
      float sum = mul(out[i], down[r]);
#pragma unroll 8
      for (int j = 0; j < count; j++) sum = fused(rowsOf[j * (dim + 1) + c], scores[r * (mixKeys + 1) + j], sum);
      out[i] = sum;
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int i = tid; i < n * dim; i += blockDim.x) dst[(size_t)(first + i / dim) * dstStride + head + i % dim] = quot(out[i], weight[i / dim]);
}
