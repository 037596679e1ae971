#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel cap: c·tanh(x/c), in place. Minus infinity stays.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats x; int xStride, cols; float c; } g;
void main() {
  int i = int(gl_GlobalInvocationID.x), at = int(gl_WorkGroupID.y) * g.xStride + i;
  if (i >= g.cols) return;
  float v = g.x.v[at];
  if (floatBitsToUint(v) == 0xff800000u) return;
  float y = fused(mul(-2.0, g.c), sigmoid32(quot(mul(-2.0, magnitude(v)), g.c)), g.c);
  g.x.v[at] = below0(v) ? negated(y) : y;
}
