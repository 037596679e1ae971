#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel rotate: turns the pairs (i, i+pairs) of each head of a row.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats x, cosines, sines; int xStride, cosStride, sinStride, heads, pairs; } g;
void main() {
  int i = int(gl_GlobalInvocationID.x), r = int(gl_WorkGroupID.y);
  if (i >= g.heads * g.pairs) return;
  int p = i % g.pairs, at = r * g.xStride + i / g.pairs * 2 * g.pairs + p;
  float c = g.cosines.v[r * g.cosStride + p], s = g.sines.v[r * g.sinStride + p], a = g.x.v[at], b = g.x.v[at + g.pairs];
  g.x.v[at] = fused(a, c, negated(mul(b, s)));
  g.x.v[at + g.pairs] = fused(b, c, mul(a, s));
}
