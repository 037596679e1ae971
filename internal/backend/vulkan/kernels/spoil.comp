#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel spoil: fills shared memory with what is not a number. A kernel that reads what it did not write then has wrong results in a proof,
// whatever ran before.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Uints never; uint nan; int at; } g;
shared uint all[8192];
void main() {
  for (int i = int(gl_LocalInvocationID.x); i < 8192; i += 256) all[i] = g.nan;
  barrier();
  if (all[g.at] != g.nan) g.never.v[0] = 0u; // keeps a compiler from leaving the writes out
}
