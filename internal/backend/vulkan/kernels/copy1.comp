#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel copy1: copies rows of numbers of 1 bytes.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Bytes dst, x; int dstStride, xStride, cols; } g;
void main() {
  int i = int(gl_GlobalInvocationID.x), r = int(gl_WorkGroupID.y);
  if (i < g.cols) g.dst.v[r * g.dstStride + i] = g.x.v[r * g.xStride + i];
}
