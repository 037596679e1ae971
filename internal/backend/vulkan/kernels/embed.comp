#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "weight.glsl"
// Kernel embed: rows of a table by the ids of the call or those that were drawn, multiplied with a factor.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Weight w; Floats dst; Call call; Floats drawn; int dstStride, drawnStride; float factor; } g;
void main() {
  int i = int(gl_GlobalInvocationID.x), r = int(gl_WorkGroupID.y);
  if (i >= g.w.cols) return;
  int id = none(g.drawn) ? g.call.ids.v[r] : max(int(g.drawn.v[r * g.drawnStride]), 0);
  float x = numberAt(g.w, id, i);
  g.dst.v[r * g.dstStride + i] = g.factor == 1.0 ? x : mul(x, g.factor);
}
