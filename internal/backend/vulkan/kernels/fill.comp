#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel fill: sets rows of numbers.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats dst; int stride, cols; float x; } g;
void main() {
  int i = int(gl_GlobalInvocationID.x);
  if (i < g.cols) g.dst.v[int(gl_WorkGroupID.y) * g.stride + i] = g.x;
}
