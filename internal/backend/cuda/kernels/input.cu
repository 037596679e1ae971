// Transformations of the rows that weights multiply: type Input of package kernel of the CPU backend defines the
// tables.
#include "product.cuh"
#include "quantize.cuh"

// Turn is a transformation: an order of columns or, without one, a rotation of groups of 128.
struct Turn {  // shared with Go
  const int* order;      // [cols]
  const float* scales;   // [cols]
  const float* turns;    // [groups, rounds, 2, 64]
  const byte* places;    // [groups, rounds+1, 128]
  int rounds, cols;
};

// Form is a form of the rows: transformed, as floats at y or, with codes, as integers.
struct Form {  // shared with Go
  Turn turn;
  float* y;
  Codes codes;
};

// Forms are the transformations for the products of a call.
struct Forms {  // shared with Go
  Form form[4];
};

// Round is a lane's part of the tables of a round: two pairs.
struct Round {
  float cos[2], sin[2];
  byte first[2], second[2];
};

// Rounds are a lane's part of the tables of a few rounds, loaded at once.
template <int MOST> struct Rounds {
  Round round[MOST];

  // load loads n rounds; turns and places are those of the first.
  __device__ __forceinline__ void load(const float* turns, const byte* places, int n) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int r = 0; r < MOST; r++)
      if (r < n)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          round[r].cos[i] = turns[128 * r + 32 * i + lane], round[r].sin[i] = turns[128 * r + 64 + 32 * i + lane];
          round[r].first[i] = places[128 * r + 32 * i + lane], round[r].second[i] = places[128 * r + 64 + 32 * i + lane];
        }
  }
};

// transformRow has a warp for 128 columns of a row and a form. With slots, row i is slots[i] of both. Tables of up to MOST rounds
// are loaded before the row is available.
template <int MOST> __device__ __forceinline__ void transformRow(const float* x, int xStride, const int* slots, const Forms& forms) {
  __shared__ float numbers[8][2][128];
  release();
  const Turn& t = forms.form[blockIdx.z].turn;
  const Codes& c = forms.form[blockIdx.z].codes;
  float* y = forms.form[blockIdx.z].y;
  const int lane = threadIdx.x & 31, group = blockIdx.x * 8 + threadIdx.x / 32, first = 128 * group;
  const float* turns = t.turns + (long long)group * t.rounds * 128;
  const byte* places = t.places + (long long)group * (t.rounds + 1) * 128;
  Rounds<MOST> rounds;
  float scale[4];
  byte place[4];
  if (!t.order && first < t.cols) {
    rounds.load(turns, places, t.rounds);
#pragma unroll
    for (int i = 0; i < 4; i++) scale[i] = t.scales[first + lane + 32 * i], place[i] = places[128 * t.rounds + lane + 32 * i];
  }
  await();
  if (first >= t.cols) return;
  const int row = slots ? slots[blockIdx.y] : blockIdx.y, columns = min(128, t.cols - first);
  x += (long long)row * xStride;
  float v[4];
  if (t.order) {
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = lane + 32 * i < columns ? x[t.order[first + lane + 32 * i]] : 0;
  } else {
    float(*in)[128] = numbers[threadIdx.x / 32];
#pragma unroll
    for (int i = 0; i < 4; i++) in[0][lane + 32 * i] = mul(x[first + lane + 32 * i], scale[i]);
    for (int r0 = 0; r0 < t.rounds; r0 += MOST) {
      if (r0 > 0) rounds.load(turns + 128 * r0, places + 128 * r0, t.rounds - r0);
#pragma unroll
      for (int r = 0; r < MOST; r++) {
        if (r0 + r >= t.rounds) break;
        const Round& s = rounds.round[r];
        const float* from = in[(r0 + r) & 1];
        float* to = in[~(r0 + r) & 1];
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const float a = from[s.first[i]], b = from[s.second[i]];
          to[32 * i + lane] = __fmaf_rn(a, s.cos[i], __fmul_rn(b, s.sin[i]));
          to[64 + 32 * i + lane] = __fmaf_rn(b, s.cos[i], -__fmul_rn(a, s.sin[i]));
        }
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = in[t.rounds & 1][place[i]];
  }
  if (c.codes) {
    quantizeGroups(v, columns, c, row, first);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (lane + 32 * i < columns) y[(long long)row * t.cols + first + lane + 32 * i] = v[i];
}

// Kernel transform, transform_many: input transformation of weights: Givens rotations of groups of 128 columns (ParoQuant) or
//   a column permutation (GPTQ act-order), fused with quantization; for up to four matrices at once.
// Layout: float32 rows → float32 rows or codes as in quantize.
// Grid: x: 8 groups of 128 columns, a warp each; y: rows; z: transformations.
// Sums: none; a rotation is two products and a sum per number.
//
// transform is for few rows, which wait for their tables, and transform_many has fewer registers for more warps.
extern "C" __global__ void __launch_bounds__(256) transform(const float* x, int xStride, const int* slots, const __grid_constant__ Forms forms) { transformRow<8>(x, xStride, slots, forms); }
extern "C" __global__ void __launch_bounds__(256) transform_many(const float* x, int xStride, const int* slots, const __grid_constant__ Forms forms) { transformRow<1>(x, xStride, slots, forms); }
