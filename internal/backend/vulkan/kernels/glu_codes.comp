#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "codes.glsl"
// Kernel glu_codes: kernels glu and quantize in one. A workgroup has a group of a row.
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
void main() {
  int i = int(gl_LocalInvocationID.x), r = int(gl_WorkGroupID.y), first = int(gl_WorkGroupID.x) * g.group, end = min(g.cols, first + g.group);
  if (i == 0) top = 0u, total = 0;
  barrier();
  uint own = 0u;
  for (int c = first + i; c < end; c += 64) {
    float x = g.gate.v[r * g.gateStride + c], y = mul(g.byTanh != 0 ? geluTanh32(x) : silu32(x), g.up.v[r * g.upStride + c]);
    g.dst.v[r * g.dstStride + c] = y;
    own = max(own, floatBitsToUint(y) & 0x7fffffffu);
  }
  atomicMax(top, own);
  barrier();
  Codes k = codesOf(top);
  int sum = 0;
  for (int c = first + i; c < end; c += 64) {
    int n = codeOf(k, g.dst.v[r * g.dstStride + c]);
    g.codes.v[r * g.codeStride + c] = uint8_t(n & 255);
    sum += n;
  }
  atomicAdd(total, sum);
  barrier();
  if (i == 0) g.tails.v[int(gl_WorkGroupID.x) * g.tailRows + r] = vec2(k.scale, mul(float(total), k.scale));
}
