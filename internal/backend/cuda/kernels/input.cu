// Transformations of the rows that weights multiply: type Input of package kernel of the CPU backend says what the
// tables are.
#include "product.cuh"
#include "quantize.cuh"

// Turn is a transformation: an order of columns or, without one, a rotation of groups of 128.
struct Turn {
  const int* order;      // [cols]
  const float* scales;   // [cols]
  const float* turns;    // [groups, rounds, 2, 64]
  const byte* places;    // [groups, rounds+1, 128]
  int rounds, cols;
};

// Form is a form of the rows: transformed, as floats at y or, with codes, as integers.
struct Form {
  Turn turn;
  float* y;
  Codes codes;
};

// Forms are those that the products of a call want.
struct Forms {
  Form form[4];
};

// transform has a warp for 128 columns of a row and a form. With slots, row i is slots[i] of both.
extern "C" __global__ void __launch_bounds__(256) transform(const float* x, int xStride, const int* slots, const __grid_constant__ Forms forms) {
  __shared__ float numbers[8][2][128];
  release();
  const Turn& t = forms.form[blockIdx.z].turn;
  const Codes& c = forms.form[blockIdx.z].codes;
  float* y = forms.form[blockIdx.z].y;
  const int lane = threadIdx.x & 31, group = blockIdx.x * 8 + threadIdx.x / 32, first = 128 * group;
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
    const float* turns = t.turns + (long long)group * t.rounds * 128;
    const byte* places = t.places + (long long)group * (t.rounds + 1) * 128;
#pragma unroll
    for (int i = 0; i < 4; i++) in[0][lane + 32 * i] = mul(x[first + lane + 32 * i], t.scales[first + lane + 32 * i]);
    for (int r = 0; r < t.rounds; r++, turns += 128, places += 128) {
      const float* from = in[r & 1];
      float* to = in[~r & 1];
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 64; i += 32) {
        const float a = from[places[i + lane]], b = from[places[64 + i + lane]], cos = turns[i + lane], sin = turns[64 + i + lane];
        to[i + lane] = __fmaf_rn(a, cos, __fmul_rn(b, sin));
        to[64 + i + lane] = __fmaf_rn(b, cos, -__fmul_rn(a, sin));
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = in[t.rounds & 1][places[lane + 32 * i]];
  }
  if (c.codes) {
    quantizeGroups(v, columns, c, row, first);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (lane + 32 * i < columns) y[(long long)row * t.cols + first + lane + 32 * i] = v[i];
}
