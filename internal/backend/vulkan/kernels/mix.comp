#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel mix: full attention without mask and cache, for vision towers. A workgroup has a query of a head. The order of additions is
// that of the CPU's Mix: a score is a chain over the columns, sums of weights and of values are chains over the keys, and after
// every 64 keys they are rescaled by the increase of the highest score. Heads have at most 256 numbers. dst may be q.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats dst, q, k, v; int dstStride, qStride, kStride, vStride, keys, dim; float scale; } g;
shared float query[256], scores[64];
shared float down;
void main() {
  int i = int(gl_LocalInvocationID.x), row = int(gl_WorkGroupID.x), head = int(gl_WorkGroupID.y) * g.dim;
  float sums[4] = float[](0.0, 0.0, 0.0, 0.0), top = uintBitsToFloat(0xff800000u), weight = 0.0;
  for (int c = i; c < g.dim; c += 64) query[c] = mul(g.q.v[row * g.qStride + head + c], g.scale);
  barrier();
  for (int from = 0; from < g.keys; from += 64) {
    int count = min(64, g.keys - from);
    if (i < count) {
      float s = 0.0;
      for (int c = 0; c < g.dim; c++) s = fused(query[c], g.k.v[(from + i) * g.kStride + head + c], s);
      scores[i] = s;
    }
    barrier();
    float highest = top;
    for (int j = 0; j < count; j++)
      if (scores[j] > highest) highest = scores[j];
    barrier();
    if (i < count) scores[i] = exp32(sub(scores[i], highest));
    if (i == 0) down = exp32(sub(top, highest));
    barrier();
    weight = mul(weight, down);
    for (int j = 0; j < count; j++) weight = add(weight, scores[j]);
    for (int n = 0; n < 4; n++) {
      int c = i + 64 * n;
      if (c >= g.dim) break;
      float s = mul(sums[n], down);
      for (int j = 0; j < count; j++) s = fused(g.v.v[(from + j) * g.vStride + head + c], scores[j], s);
      sums[n] = s;
    }
    top = highest;
    barrier();
  }
  for (int n = 0; n < 4; n++)
    if (i + 64 * n < g.dim) g.dst.v[row * g.dstStride + head + i + 64 * n] = quot(sums[n], weight);
}
