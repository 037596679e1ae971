// Operations on rows: a block has a row, or a piece of one where columns do not depend on one
// another. Strides are in numbers.
#include "bits.cuh"
#include "call.cuh"
#include "quantize.cuh"

// Kernel fill: sets numbers.
// Layout: float32 rows.
// Grid: x: columns, y: rows.
// Sums: none.
//
// fill sets rows×cols numbers.
extern "C" __global__ void __launch_bounds__(256) fill(float *dst, int stride, int cols, float x) {
  release();
  await();
  float *y = dst + (size_t)blockIdx.y * stride;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < cols; i += gridDim.x * blockDim.x) y[i] = x;
}

template <typename T>
__device__ __forceinline__ void copyRow(T *dst, int dstStride, const T *src, int srcStride, int cols) {
  release();
  await();
  T *y = dst + (size_t)blockIdx.y * dstStride;
  const T *x = src + (size_t)blockIdx.y * srcStride;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < cols; i += gridDim.x * blockDim.x) y[i] = x[i];
}

// Kernel copyBYTES: strided copy of rows of 1-, 2- or 4-byte numbers.
// Layout: rows.
// Grid: x: columns, y: rows.
// Sums: none.
extern "C" __global__ void __launch_bounds__(256) copy1(uint8_t *dst, int dstStride, const uint8_t *src, int srcStride, int cols) {
  copyRow(dst, dstStride, src, srcStride, cols);
}

extern "C" __global__ void __launch_bounds__(256) copy2(uint16_t *dst, int dstStride, const uint16_t *src, int srcStride, int cols) {
  copyRow(dst, dstStride, src, srcStride, cols);
}

extern "C" __global__ void __launch_bounds__(256) copy4(uint32_t *dst, int dstStride, const uint32_t *src, int srcStride, int cols) {
  copyRow(dst, dstStride, src, srcStride, cols);
}

// Kernel gather, gather_super: gathers the rows that the call wants, fused with quantization where a product asks for it.
// Layout: float32 rows → float32 rows and codes as in quantize.
// Grid: x: groups, a warp each; y: rows.
// Sums: none.
extern "C" __global__ void __launch_bounds__(256) gather(float *dst, int dstStride, const float *x, int stride, int cols, const Call *call, Codes c) {
  release();
  await();
  const size_t r = blockIdx.y;
  const float *from = x + (size_t)call->want[r] * stride;
  const int lane = threadIdx.x & 31;
  for (int g = blockIdx.x * 8 + threadIdx.x / 32; g * c.group < cols; g += gridDim.x * 8) {
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int k = g * c.group + lane + 32 * i;
      v[i] = 0.0f;
      if (lane + 32 * i < c.group && k < cols) v[i] = dst[r * dstStride + k] = from[k];
    }
    if (c.codes) quantizeGroup(v, c.group, c.codes + r * c.stride, g * c.group, c.tails + (size_t)g * c.tailRows + r, c.whole);
  }
}

// superColumn is column i of the eight of a superblock that a lane has.
__device__ __forceinline__ int superColumn(int i) { return 128 * (i / 4) + 4 * (threadIdx.x & 31) + i % 4; }

// roundSuper rounds superblock g of row r, of which lanes have their columns.
__device__ __forceinline__ void roundSuper(const float v[8], const Codes &c, size_t r, int g) {
  quantizeSuper(v, c.codes + r * c.stride + g * c.group, c.tails + (size_t)g * 3 * c.tailRows + r, c.tailRows);
}

// gather_super is gather for products with superblocks.
extern "C" __global__ void __launch_bounds__(256) gather_super(float *dst, int dstStride, const float *x, int stride, int cols, const Call *call, Codes c) {
  release();
  await();
  const size_t r = blockIdx.y;
  const float *from = x + (size_t)call->want[r] * stride;
  for (int g = blockIdx.x * 8 + threadIdx.x / 32; g * c.group < cols; g += gridDim.x * 8) {
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int k = g * c.group + superColumn(i);
      v[i] = dst[r * dstStride + k] = from[k];
    }
    roundSuper(v, c, r, g);
  }
}

// Kernel rms_norm, rms_norm_super: RMSNorm, fused with quantization where a product asks for it.
// Layout: float32 rows → float32 rows and codes as in quantize.
// Grid: x: rows, y: parts of a row, each of which sums the whole row.
// Sums: squares in wide lane order: 64 chains, then a tree of halves (exactmath).
//
// rms_norm: the first 64 threads of a block sum a row's squares, a lane each; then a warp has groups
// of columns, and also quantizes them if a product needs that. In the second dimension of the grid
// every block sums the row and has some of its groups; there is one if dst is x. A warp has eight groups of 16 at a time,
// unless rows are few. Gains are weights,
// so those of a warp's first group are loaded before it waits.
template <bool SUPER>
__device__ __forceinline__ void norm(float *dst, int dstStride, const float *x, int stride, const float *gain, int cols, float eps, const Codes &c) {
  constexpr int N = SUPER ? 8 : 4;  // columns of a lane
  extern __shared__ float4 space[];
  __shared__ float upper[33];
  release();
  const int lane = threadIdx.x & 31, warps = blockDim.x / 32, first = blockIdx.y * warps + threadIdx.x / 32;
  const int unit = !SUPER && c.group == 16 && gridDim.y == 1 ? 128 : c.group;
  float *row = (float *)space, gains[N];
  auto column = [&](int i) { return SUPER ? superColumn(i) : lane + 32 * i; };
  auto ask = [&](int g) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      const int k = g * unit + column(i);
      gains[i] = column(i) < unit && k < cols ? gain[k] : 0.0f;
    }
  };
  ask(first);
  const float *from = x + (size_t)blockIdx.x * stride;
  await();
  if (((size_t)from & 15) == 0 && cols % 4 == 0)
    for (int i = threadIdx.x; i < cols / 4; i += blockDim.x) space[i] = ((const float4 *)from)[i];
  else
    for (int i = threadIdx.x; i < cols; i += blockDim.x) row[i] = from[i];
  __syncthreads();
  float s = 0.0f;
  if (threadIdx.x < 64) {
#pragma unroll 8
    for (int i = threadIdx.x; i < cols; i += 64) s = fused(row[i], row[i], s);
  }
  float scale = rsqrt32(add(quot(wideSum(s, upper), (float)cols), eps));
  float *y = dst + (size_t)blockIdx.x * dstStride;
  for (int g = first; g * unit < cols; g += gridDim.y * warps) {
    float v[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
      int k = g * unit + column(i);
      v[i] = 0.0f;
      if (column(i) < unit && k < cols) {
        v[i] = mul(mul(row[k], scale), gains[i]);
        y[k] = v[i];
      }
    }
    ask(g + gridDim.y * warps);
    if (SUPER) roundSuper(v, c, blockIdx.x, g);
    else if (c.codes && unit != c.group) quantizeSixteens(v, min(unit, cols - g * unit), c, blockIdx.x, g * unit);
    else if (c.codes) quantizeGroup(v, c.group, c.codes + (size_t)blockIdx.x * c.stride, g * c.group, c.tails + (size_t)g * c.tailRows + blockIdx.x, c.whole);
  }
}

extern "C" __global__ void __launch_bounds__(512) rms_norm(float *dst, int dstStride, const float *x, int stride, const float *gain, int cols, float eps, Codes c) {
  norm<false>(dst, dstStride, x, stride, gain, cols, eps, c);
}

// rms_norm_super is rms_norm for products with superblocks.
extern "C" __global__ void __launch_bounds__(512) rms_norm_super(float *dst, int dstStride, const float *x, int stride, const float *gain, int cols, float eps, Codes c) {
  norm<true>(dst, dstStride, x, stride, gain, cols, eps, c);
}

// Kernel layer_norm: LayerNorm with gain and bias. dst may be x.
// Layout: float32 rows.
// Grid: x: rows.
// Sums: as in rms_norm, for the mean and for the variance.
extern "C" __global__ void __launch_bounds__(256) layer_norm(float *dst, int dstStride, const float *x, int stride, const float *gain, const float *bias, int cols, float eps) {
  __shared__ float upper[33];
  release();
  await();
  const float *row = x + (size_t)blockIdx.x * stride;
  float *y = dst + (size_t)blockIdx.x * dstStride;
  float s = 0.0f;
  if (threadIdx.x < 64) {
#pragma unroll 8
    for (int i = threadIdx.x; i < cols; i += 64) s = add(s, row[i]);
  }
  float mean = quot(wideSum(s, upper), (float)cols);
  s = 0.0f;
  if (threadIdx.x < 64) {
#pragma unroll 8
    for (int i = threadIdx.x; i < cols; i += 64) {
      float v = sub(row[i], mean);
      s = fused(v, v, s);
    }
  }
  float scale = rsqrt32(add(quot(wideSum(s, upper), (float)cols), eps));
  for (int i = threadIdx.x; i < cols; i += blockDim.x) y[i] = fused(mul(sub(row[i], mean), scale), gain[i], bias[i]);
}

// Kernel swiglu, swiglu_super: SwiGLU (silu(gate)·up) or, with GELU by tanh instead of SiLU, GEGLU, fused with quantization where a product asks for it.
// Layout: float32 rows → float32 rows and codes as in quantize.
// Grid: x: groups or 128 columns, a warp each; y: rows.
// Sums: none.
//
// swiglu: a warp has `unit` columns at a time, a group or 128, and also quantizes them if a product needs that.
// dst may be gate or up. With slots, row i is slots[i], and only codes are written.
extern "C" __global__ void __launch_bounds__(256) swiglu(float *dst, int dstStride, const float *gate, int gateStride, const float *up, int upStride, int cols, int unit, int gelu, const int *slots, Codes c) {
  release();
  await();
  const size_t r = slots ? slots[blockIdx.y] : blockIdx.y;
  const bool write = !slots || !c.codes;
  const int lane = threadIdx.x & 31;
  for (int g = blockIdx.x * 8 + threadIdx.x / 32; g * unit < cols; g += gridDim.x * 8) {
    float v[4], by[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int k = g * unit + lane + 32 * i;
      const bool there = lane + 32 * i < unit && k < cols;
      v[i] = there ? gate[r * gateStride + k] : 0.0f, by[i] = there ? up[r * upStride + k] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int k = g * unit + lane + 32 * i;
      if (32 * i >= unit) break;
      v[i] = mul(gelu ? geluTanh32(v[i]) : silu32(v[i]), by[i]);
      if (write && lane + 32 * i < unit && k < cols) dst[r * dstStride + k] = v[i];
    }
    if (!c.codes) continue;
    if (unit != c.group && c.group == 16) quantizeSixteens(v, unit, c, r, g * unit);
    else if (unit != c.group) quantizeRow(v, unit, c, r, g * unit);
    else quantizeGroup(v, c.group, c.codes + r * c.stride, g * c.group, c.tails + (size_t)g * c.tailRows + r, c.whole);
  }
}

// swiglu_super is swiglu for products with superblocks, of which a warp has one at a time.
extern "C" __global__ void __launch_bounds__(256) swiglu_super(float *dst, int dstStride, const float *gate, int gateStride, const float *up, int upStride, int cols, int unit, int gelu, const int *slots, Codes c) {
  release();
  await();
  const size_t r = slots ? slots[blockIdx.y] : blockIdx.y;
  for (int g = blockIdx.x * 8 + threadIdx.x / 32; g * unit < cols; g += gridDim.x * 8) {
    float v[8], by[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int k = g * unit + superColumn(i);
      v[i] = gate[r * gateStride + k], by[i] = up[r * upStride + k];
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
      v[i] = mul(gelu ? geluTanh32(v[i]) : silu32(v[i]), by[i]);
      if (!slots) dst[r * dstStride + g * unit + superColumn(i)] = v[i];
    }
    roundSuper(v, c, r, g);
  }
}

// Kernel norm_add: RMSNorm added to a residual, and the sum multiplied with a scale.
// Layout: float32 rows.
// Grid: x: rows, y: parts of a row, each of which sums the whole row of x.
// Sums: as in rms_norm.
//
// norm_add: what a thread adds to is on its way while the row is summed.
extern "C" __global__ void __launch_bounds__(512) norm_add(float *dst, int dstStride, const float *x, int stride, const float *gain, int cols, float eps, float scale) {
  extern __shared__ float4 vectors[];
  __shared__ float upper[33];
  release();
  const int first = blockIdx.y * blockDim.x + threadIdx.x, step = gridDim.y * blockDim.x;
  float *row = (float *)vectors, *y = dst + (size_t)blockIdx.x * dstStride;
  float g = first < cols ? gain[first] : 0.0f;
  await();
  const float *from = x + (size_t)blockIdx.x * stride;
  float old = first < cols ? y[first] : 0.0f;
  if (((size_t)from & 15) == 0 && cols % 4 == 0)
    for (int i = threadIdx.x; i < cols / 4; i += blockDim.x) vectors[i] = ((const float4 *)from)[i];
  else
    for (int i = threadIdx.x; i < cols; i += blockDim.x) row[i] = from[i];
  __syncthreads();
  float s = 0.0f;
  if (threadIdx.x < 64) {
#pragma unroll 8
    for (int i = threadIdx.x; i < cols; i += 64) s = fused(row[i], row[i], s);
  }
  const float by = rsqrt32(add(quot(wideSum(s, upper), (float)cols), eps));
#pragma unroll 1
  for (int i = first; i < cols; i += step) {
    const int next = i + step;
    const float v = mul(add(old, mul(mul(row[i], by), g)), scale);
    if (next < cols) g = gain[next], old = y[next];
    y[i] = v;
  }
}

// Kernel cap: c·tanh(x/c), in place. Minus infinity stays.
// Layout: float32 rows.
// Grid: x: columns, y: rows.
// Sums: none.
extern "C" __global__ void __launch_bounds__(256) cap(float *x, int stride, int cols, float c) {
  release();
  await();
  float *row = x + (size_t)blockIdx.y * stride;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < cols; i += gridDim.x * blockDim.x) {
    const float v = row[i];
    if (v < -3.402823466e+38f) continue;
    const float y = fused(mul(-2.0f, c), sigmoid32(quot(mul(-2.0f, fabsf(v)), c)), c);
    row[i] = v < 0.0f ? -y : y;
  }
}

// Kernel gelu: GELU, exact or by tanh. dst may be x.
// Layout: float32 rows.
// Grid: x: columns, y: rows.
// Sums: none.
extern "C" __global__ void __launch_bounds__(256) gelu(float *dst, int dstStride, const float *x, int stride, int cols, int tanh) {
  release();
  await();
  size_t r = blockIdx.y;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < cols; i += gridDim.x * blockDim.x) {
    float v = x[r * stride + i];
    dst[r * dstStride + i] = tanh ? geluTanh32(v) : gelu32(v);
  }
}

// A convolution: backend.Convolution. Strides are in numbers.
struct Taps {  // shared with Go
  const float *x, *base, *delta;
  float *dst;
  int xStride, baseStride, deltaStride, dstStride;
  int cols, taps, groups, adds;

  // at is column i of row r, of whose sequence there are n rows in the call up to r.
  __device__ __forceinline__ float at(size_t r, int n, int i) const {
    float y = adds ? dst[r * dstStride + i] : 0.0f;
    const int g = i / (cols / groups);
#pragma unroll 2
    for (int t = 0; t < min(taps, n); t++)
      y = add(y, mul(add(base[(size_t)t * baseStride + i], delta[r * deltaStride + t * groups + g]), x[(r - t) * xStride + i]));
    return dst[r * dstStride + i] = y;
  }
};

// rowsUpTo is how many rows of a row's sequence the call has up to it.
__device__ __forceinline__ int rowsUpTo(const Call *call, int r) {
  const int owner = call->rowSeq[r];
  return owner < 0 ? 0 : r - call->seq[owner].first + 1;
}

// Kernel convolve, convolve_super: short convolution along the rows of a sequence in the call, with a kernel of its own for
//   each row, fused with quantization where a product asks for it.
// Layout: float32 rows → float32 rows and codes as in quantize. Kernels are [taps][columns], and what a row adds to them is
//   [taps][groups of columns].
// Grid: x: groups, a warp each; y: rows.
// Sums: taps in order, from zero or from what is there; products are rounded.
extern "C" __global__ void __launch_bounds__(256) convolve(const Call *call, const __grid_constant__ Taps t, Codes c) {
  release();
  const size_t r = blockIdx.y;
  const int n = rowsUpTo(call, r), lane = threadIdx.x & 31;
  await();
  for (int g = blockIdx.x * 8 + threadIdx.x / 32; g * c.group < t.cols; g += gridDim.x * 8) {
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int k = g * c.group + lane + 32 * i;
      v[i] = lane + 32 * i < c.group && k < t.cols ? t.at(r, n, k) : 0.0f;
    }
    if (c.codes) quantizeGroup(v, c.group, c.codes + r * c.stride, g * c.group, c.tails + (size_t)g * c.tailRows + r, c.whole);
  }
}

// convolve_super is convolve for products with superblocks.
extern "C" __global__ void __launch_bounds__(256) convolve_super(const Call *call, const __grid_constant__ Taps t, Codes c) {
  release();
  const size_t r = blockIdx.y;
  const int n = rowsUpTo(call, r);
  await();
  for (int g = blockIdx.x * 8 + threadIdx.x / 32; g * c.group < t.cols; g += gridDim.x * 8) {
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = t.at(r, n, g * c.group + superColumn(i));
    roundSuper(v, c, r, g);
  }
}

// Kernel rotate: rotary position embedding of a vision tower, with given cosines and sines.
// Layout: float32 rows of heads.
// Grid: x: pairs, y: rows.
// Sums: none.
//
// rotate turns the pairs (i, i+half) of each head of a row.
extern "C" __global__ void __launch_bounds__(256) rotate(float *x, int stride, const float *cosines, int cosStride, const float *sines, int sinStride, int heads, int half) {
  release();
  await();
  size_t r = blockIdx.y;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < heads * half; i += gridDim.x * blockDim.x) {
    int p = i % half;
    float *pair = x + r * stride + (size_t)(i / half) * 2 * half + p;
    float c = cosines[r * cosStride + p], s = sines[r * sinStride + p], a = pair[0], b = pair[half];
    pair[0] = fused(a, c, -mul(b, s));
    pair[half] = fused(b, c, mul(a, s));
  }
}

// Kernel read_all: bandwidth benchmark: reads memory once.
// Layout: vectors of 16 bytes.
// Grid: persistent.
// Sums: none.
//
// read_all only reads memory: the reference for every kernel that reads weights.
// n counts vectors of 16 bytes; out is never written, which the compiler does not know.
extern "C" __global__ void __launch_bounds__(512) read_all(const uint4 *p, long long n, uint32_t *out) {
  release();
  await();
  uint32_t x = 0;
  long long step = (long long)gridDim.x * blockDim.x, i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + 7 * step < n; i += 8 * step) {
    uint4 v[8];
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = p[i + j * step];
#pragma unroll
    for (int j = 0; j < 8; j++) x |= v[j].x | v[j].y | v[j].z | v[j].w;
  }
  for (; i < n; i += step) x |= p[i].x;
  if (x != 0) *out = x;  // the memory is zero
}
