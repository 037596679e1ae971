#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "bits.glsl"
#include "memory.glsl"
#include "squares.glsl"
#include "codes.glsl"
// Kernel rms_norm_codes: kernels rms_norm and quantize in one, of at most 8192 columns, which stay in registers: a thread has four
// neighbors of every 4 * THREADS. A workgroup has a row. dst may be x.
layout(local_size_x_id = 1) in;
const int THREADS = int(gl_WorkGroupSize.x);
layout(constant_id = 2) const int HELD = 8; // columns / (4 * THREADS), rounded up
layout(push_constant, scalar) uniform Args {
  Fours dst, x, gain;
  int dstStride, xStride, cols;
  float eps;
  Uints codes;
  Pairs tails;
  int codeStride, group, tailRows;
} g;
const int FOURS = THREADS * HELD, PARTS = PART / (4 * THREADS);
shared uint tops[FOURS + FOURS / 8]; // of four columns, and then the sums of their codes
shared float factors[FOURS / 4][2];  // of groups of at least 16 columns
int placeOf(int four) { return four + four / 8; } // so that threads with neighboring groups use other banks
void main() {
  int i = int(gl_LocalInvocationID.x), row = int(gl_WorkGroupID.x), from = row * g.xStride / 4, to = row * g.dstStride / 4, fours = g.cols / 4;
  vec4 x[HELD], gain[HELD];
  [[unroll]] for (int k = 0; k < HELD; k++) x[k] = i + THREADS * k < fours ? g.x.v[from + i + THREADS * k] : vec4(0.0);
  [[unroll]] for (int k = 0; k < HELD; k++) gain[k] = i + THREADS * k < fours ? g.gain.v[i + THREADS * k] : vec4(0.0);
  float s = 0.0;
  [[unroll]] for (int p = 0; p < HELD; p += PARTS) {
    barrier();
    if (i == 0) faints = 0u;
    barrier();
    [[unroll]] for (int k = p; k < min(HELD, p + PARTS); k++)
      [[unroll]] for (int j = 0; j < 4; j++) {
        part[4 * (i + THREADS * (k - p)) + j] = x[k][j];
        if (faint(x[k][j])) faints = 1u;
      }
    barrier();
    if (i < 64) s = addSquares(s, min(PART, g.cols - 4 * THREADS * p));
  }
  float scale = rsqrt32(add(quot(wideSum(s), float(g.cols)), g.eps));
  [[unroll]] for (int k = 0; k < HELD; k++) {
    uint top = 0u;
    [[unroll]] for (int j = 0; j < 4; j++) {
      x[k][j] = mul(mul(x[k][j], scale), gain[k][j]);
      top = max(top, floatBitsToUint(x[k][j]) & 0x7fffffffu);
    }
    if (i + THREADS * k < fours) g.dst.v[to + i + THREADS * k] = x[k];
    tops[placeOf(i + THREADS * k)] = top;
  }
  barrier();
  int each = g.group / 4, groups = (fours + each - 1) / each;
  for (int n = i; n < 2 * groups; n += THREADS) {
    uint top = 0u;
    for (int f = n / 2 * each; f < min(fours, (n / 2 + 1) * each); f++) top = max(top, tops[placeOf(f)]);
    factors[n / 2][n & 1] = factorOf(top, (n & 1) == 1);
  }
  barrier();
  [[unroll]] for (int k = 0; k < HELD; k++) {
    int four = i + THREADS * k;
    if (four >= fours) break;
    float factor = factors[four / each][0];
    uint codes = 0u;
    int sum = 0;
    [[unroll]] for (int j = 0; j < 4; j++) {
      int code = codeOf(factor, x[k][j]);
      codes |= uint(code & 255) << 8 * j;
      sum += code;
    }
    g.codes.v[row * g.codeStride / 4 + four] = codes;
    tops[placeOf(four)] = uint(sum);
  }
  barrier();
  for (int n = i; n < groups; n += THREADS) {
    int sum = 0;
    for (int f = n * each; f < min(fours, (n + 1) * each); f++) sum += int(tops[placeOf(f)]);
    g.tails.v[n * g.tailRows + row] = vec2(factors[n][1], mul(float(sum), factors[n][1]));
  }
}
