#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel convolve: short convolution along the rows of a sequence in the call, with a kernel of its own for each row. Kernels
// are [taps][cols], and what a row adds to them is [taps][groups of columns].
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats x, base, delta, dst; Call call; int xStride, baseStride, deltaStride, dstStride, cols, taps, groups, adds; } g;
void main() {
  int i = int(gl_GlobalInvocationID.x), r = int(gl_WorkGroupID.y);
  if (i >= g.cols) return;
  int owner = g.call.rowSeq.v[r], n = owner < 0 ? 0 : r - g.call.seq.v[owner].first + 1, group = i / (g.cols / g.groups);
  float y = g.adds != 0 ? g.dst.v[r * g.dstStride + i] : 0.0;
  for (int t = 0; t < min(g.taps, n); t++)
    y = add(y, mul(add(g.base.v[t * g.baseStride + i], g.delta.v[r * g.deltaStride + t * g.groups + group]), g.x.v[(r - t) * g.xStride + i]));
  g.dst.v[r * g.dstStride + i] = y;
}
