#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel top_also: single columns: place i is row places[2i], column places[2i+1].
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats x; Ints places; Floats dst; int stride, n; } g;
void main() {
  int i = int(gl_GlobalInvocationID.x);
  if (i < g.n) g.dst.v[i] = g.x.v[g.places.v[2 * i] * g.stride + g.places.v[2 * i + 1]];
}
