#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "bits.glsl"
#include "memory.glsl"
#include "squares.glsl"
#include "codes.glsl"
// Kernel rms_norm_codes: kernels rms_norm and quantize in one. A workgroup has a row, 8 threads a group of columns. dst may be x.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args {
  Floats dst, x, gain;
  int dstStride, xStride, cols;
  float eps;
  Bytes codes;
  Pairs tails;
  int codeStride, group, tailRows;
} g;
shared uint tops[32];
shared int totals[32];
void main() {
  int i = int(gl_LocalInvocationID.x), row = int(gl_WorkGroupID.x), from = row * g.xStride, to = row * g.dstStride;
  float scale = rsqrt32(add(quot(sumOfSquares(g.x, from, g.cols), float(g.cols)), g.eps));
  int groups = (g.cols + g.group - 1) / g.group, q = i / 8;
  for (int n = 0; n < groups; n += 32) {
    int first = (n + q) * g.group, end = min(first + g.group, g.cols);
    if (i < 32) tops[i] = 0u, totals[i] = 0;
    barrier();
    uint own = 0u;
    for (int c = first + i % 8; c < end; c += 8) {
      float y = mul(mul(g.x.v[from + c], scale), g.gain.v[c]);
      g.dst.v[to + c] = y;
      own = max(own, floatBitsToUint(y) & 0x7fffffffu);
    }
    if (n + q < groups) atomicMax(tops[q], own);
    barrier();
    Codes k = codesOf(tops[q]);
    int sum = 0;
    for (int c = first + i % 8; c < end; c += 8) {
      int code = codeOf(k, g.dst.v[to + c]);
      g.codes.v[row * g.codeStride + c] = uint8_t(code & 255);
      sum += code;
    }
    if (n + q < groups) atomicAdd(totals[q], sum);
    barrier();
    if (i % 8 == 0 && n + q < groups) g.tails.v[(n + q) * g.tailRows + row] = vec2(k.scale, mul(float(totals[q]), k.scale));
    barrier();
  }
}
