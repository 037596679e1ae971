#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "bits.glsl"
#include "memory.glsl"
#include "codes.glsl"
// Kernel glu_codes: kernels glu and quantize in one. A workgroup has a group of a row, of at most 128 columns.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args {
  Floats dst, gate, up;
  int dstStride, gateStride, upStride, cols, byTanh;
  Bytes codes;
  Pairs tails;
  int codeStride, group, tailRows;
} g;
shared uint top;
shared int total;
shared float factors[2];
void main() {
  int i = int(gl_LocalInvocationID.x), r = int(gl_WorkGroupID.y), first = int(gl_WorkGroupID.x) * g.group, end = min(g.cols, first + g.group);
  if (i == 0) top = 0u, total = 0;
  barrier();
  float x[2], y[2]; // columns of a thread
  uint own = 0u;
  [[unroll]] for (int k = 0; k < 2; k++) {
    int c = min(first + i + 64 * k, g.cols - 1);
    x[k] = g.gate.v[r * g.gateStride + c], y[k] = g.up.v[r * g.upStride + c];
  }
  [[unroll]] for (int k = 0; k < 2; k++) {
    int c = first + i + 64 * k;
    if (c >= end) break;
    y[k] = mul(g.byTanh != 0 ? geluTanh32(x[k]) : silu32(x[k]), y[k]);
    g.dst.v[r * g.dstStride + c] = y[k];
    own = max(own, floatBitsToUint(y[k]) & 0x7fffffffu);
  }
  atomicMax(top, own);
  barrier();
  if (i < 2) factors[i] = factorOf(top, i == 1);
  barrier();
  int sum = 0;
  [[unroll]] for (int n = 0; n < 2; n++) {
    int c = first + i + 64 * n;
    if (c >= end) break;
    int code = codeOf(factors[0], y[n]);
    g.codes.v[r * g.codeStride + c] = uint8_t(code & 255);
    sum += code;
  }
  atomicAdd(total, sum);
  barrier();
  if (i == 0) g.tails.v[int(gl_WorkGroupID.x) * g.tailRows + r] = vec2(factors[1], mul(float(total), factors[1]));
}
