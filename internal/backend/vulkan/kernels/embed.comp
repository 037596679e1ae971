#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "weight.glsl"
// Kernel embed: rows of a table by the ids of the call, multiplied with a factor.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Weight w; Floats dst; Call call; int dstStride; float factor; } g;
void main() {
  int i = int(gl_GlobalInvocationID.x), r = int(gl_WorkGroupID.y);
  if (i >= g.w.cols) return;
  float x = numberAt(g.w, g.call.ids.v[r], i);
  g.dst.v[r * g.dstStride + i] = g.factor == 1.0 ? x : mul(x, g.factor);
}
