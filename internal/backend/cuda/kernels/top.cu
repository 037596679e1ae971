// The highest numbers of rows of logits: backend.Backend.Top. Blocks of topBlock columns have a
// maximum each; the K-th highest of those is a lower bound of the listed numbers.
#include "bits.cuh"

const int topBlock = 64;

// The request for a row: see backend.Ask. room is the capacity of the list, sum whether the sum is requested.
struct Ask {  // shared with Go
  int cols, k, room, sum;
};

// The answer: count is how many numbers are at least low, room of them at most are listed.
struct TopAnswer {  // shared with Go
  float low;
  int count;
  float sum;
  int unused;
};

// A number that is listed.
struct Listed {  // shared with Go
  int id;
  float logit;
};

// ordered maps numbers to integers in the same order, zeros of both signs to one. NaN is
// below everything.
__device__ __forceinline__ unsigned ordered(float z) {
  if (z != z) return 0;
  const unsigned b = __float_as_uint(z == 0.0f ? 0.0f : z);
  return b ^ ((unsigned)((int)b >> 31) | 0x80000000u);
}
__device__ __forceinline__ float unordered(unsigned o) { return __uint_as_float(o ^ ((unsigned)((int)~o >> 31) | 0x80000000u)); }

const unsigned lowest = 0x00800000, highest = 0xff7fffff;  // of -MaxFloat32 and MaxFloat32

// share is exp(z - top) of a number, 0 of NaN. top is at least as high.
__device__ __forceinline__ float share(float z, float top) { return z >= -3.402823466e+38f ? exp32(sub(atMost(z, top), top)) : 0.0f; }

// sum32 is the sum over the lanes of a warp.
__device__ __forceinline__ float sum32(float a) {
#pragma unroll
  for (int w = 16; w > 0; w >>= 1) a = add(a, __shfl_xor_sync(0xffffffffu, a, w));
  return a;
}

// Kernel top_maxima: maxima of blocks of 64 logits, and sums of exponentials where they are asked for.
// Layout: logits float32.
// Grid: x: 8 blocks, a warp each; y: rows.
// Sums: by a tree of 32 lanes; sums of exponentials may differ between devices by rounding (backend.Best).
//
// The maxima of blocks, and on request the sum of exp(x - maximum) of each: a warp has one.
extern "C" __global__ void __launch_bounds__(256) top_maxima(const float *x, int stride, const Ask *asks, unsigned *maxima, float *sums, int blocks) {
  const int r = blockIdx.y, b = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x & 31;
  release();
  await();
  const Ask a = asks[r];
  if (a.k == 0 || b * topBlock >= a.cols) return;
  const float *row = x + (size_t)r * stride;
  const int c = b * topBlock + lane;
  const float none = __int_as_float(0xff800000), z = c < a.cols ? row[c] : none, other = c + 32 < a.cols ? row[c + 32] : none;
  const unsigned o = __reduce_max_sync(0xffffffffu, max(ordered(z), ordered(other)));
  if (lane == 0) maxima[(size_t)r * blocks + b] = o;
  if (!a.sum) return;
  const float top = unordered(min(o, highest)), sum = sum32(add(share(z, top), share(other, top)));
  if (lane == 0) sums[(size_t)r * blocks + b] = sum;
}

// sumOf adds up the sums of blocks, relative to the highest maximum, for the first thread. A block of 32 warps
// computes it; tops and parts are shared.
__device__ __forceinline__ float sumOf(const unsigned *m, const float *sums, int n, unsigned tops[32], float parts[32]) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  unsigned top = 0;
#pragma unroll 1
  for (int b = threadIdx.x; b < n; b += 1024) top = max(top, m[b]);
  top = __reduce_max_sync(0xffffffffu, top);
  if (lane == 0) tops[warp] = top;
  __syncthreads();
  const float peak = unordered(min(__reduce_max_sync(0xffffffffu, tops[lane]), highest));
  float sum = 0;
#pragma unroll 1
  for (int b = threadIdx.x; b < n; b += 1024)
    if (m[b] >= lowest) sum = add(sum, mul(sums[b], share(unordered(m[b]), peak)));
  sum = sum32(sum);
  if (lane == 0) parts[warp] = sum;
  __syncthreads();
  return sum32(parts[lane]);
}

// Kernel top_list: top-k of logits by radix select over block maxima.
// Layout: maxima → listed ids and logits, in any order.
// Grid: x: rows.
// Sums: as in top_maxima.
//
// The K-th highest maximum, digit by digit, and all numbers that are no less, in any order. A block
// has a row.
extern "C" __global__ void __launch_bounds__(1024) top_list(const float *x, int stride, const Ask *asks, const unsigned *maxima, const float *sums, int blocks,
    TopAnswer *answers, Listed *listed, int room) {
  __shared__ int bins[256], numbers, want, count;
  __shared__ unsigned cut, tops[32];
  __shared__ float parts[32];
  const int r = blockIdx.x, tid = threadIdx.x, lane = tid & 31;
  release();
  await();
  const Ask a = asks[r];
  const int n = (a.cols + topBlock - 1) / topBlock;
  const unsigned *m = maxima + (size_t)r * blocks;
  if (a.k == 0) {
    if (tid == 0) answers[r] = TopAnswer{__int_as_float(0x7f800000), 0, 0.0f, 0};
    return;
  }
  if (tid == 0) numbers = count = 0, cut = 0, want = a.k;
  __syncthreads();
#pragma unroll 1
  for (int b = tid; b < n; b += 1024)
    if (m[b] > lowest) atomicAdd(&numbers, 1);
  __syncthreads();
  if (numbers < a.k) {
    if (tid == 0) cut = lowest;
  } else {
#pragma unroll 1
    for (int shift = 24; shift >= 0; shift -= 8) {
      if (tid < 256) bins[tid] = 0;
      __syncthreads();
      const unsigned prefix = cut;
      const int goal = want;
#pragma unroll 1
      for (int b = tid; b < n; b += 1024) {
        const unsigned o = m[b];
        if (shift == 24 || o >> (shift + 8) == prefix >> (shift + 8)) atomicAdd(&bins[o >> shift & 255], 1);
      }
      __syncthreads();
      if (tid < 32) {  // a lane has 8 bins, the first the highest
        int sum = 0;
        for (int i = 0; i < 8; i++) sum += bins[255 - tid * 8 - i];
        int upto = sum;
#pragma unroll
        for (int w = 1; w < 32; w <<= 1) {
          const int below = __shfl_up_sync(0xffffffffu, upto, w);
          if (lane >= w) upto += below;
        }
        int before = upto - sum;
        if (before < goal && upto >= goal) {
          int bin = 255 - tid * 8;
          while (before + bins[bin] < goal) before += bins[bin--];
          cut = prefix | (unsigned)bin << shift;
          want = goal - before;
        }
      }
      __syncthreads();
    }
  }
  __syncthreads();
  const unsigned low = min(cut, highest);
  const float *row = x + (size_t)r * stride;
#pragma unroll 1
  for (int first = tid / 32 * 32; first < n; first += 1024) {
    const unsigned o = first + lane < n ? m[first + lane] : 0;
    unsigned found = __ballot_sync(0xffffffffu, o >= low);
#pragma unroll 1
    for (int bit; found; found ^= 1u << bit) {
      bit = 31 - __clz((int)found);
      const int c = (first + bit) * topBlock + lane;
#pragma unroll 1
      for (int id = c; id < min(a.cols, c - lane + topBlock); id += 32) {
        const float z = row[id];
        if (ordered(z) < low) continue;
        const int at = atomicAdd(&count, 1);
        if (at < a.room) listed[(size_t)r * room + at] = Listed{id, z};
      }
    }
  }
  const float sum = a.sum ? sumOf(m, sums + (size_t)r * blocks, n, tops, parts) : 0.0f;
  __syncthreads();
  if (tid == 0) answers[r] = TopAnswer{unordered(low), count, sum, 0};
}

// Kernel top_also: logits of single columns.
// Layout: places → float32.
// Grid: x: places.
// Sums: none.
//
// Single columns: place i is row places[2i], column places[2i+1].
extern "C" __global__ void top_also(const float *x, int stride, const int *places, float *to, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  release();
  await();
  if (i < n) to[i] = x[(size_t)places[2 * i] * stride + places[2 * i + 1]];
}
