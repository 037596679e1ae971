#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel read_all: reads memory from beginning to end. The result keeps a compiler from leaving that out.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Quads x; Uints result; int quads; } g;
void main() {
  uvec4 all = uvec4(0u);
  int step_ = int(gl_NumWorkGroups.x) * 256;
  for (int i = int(gl_GlobalInvocationID.x); i < g.quads; i += 4 * step_) {
    uvec4 a = g.x.v[i], b = uvec4(0u), c = uvec4(0u), d = uvec4(0u);
    if (i + step_ < g.quads) b = g.x.v[i + step_];
    if (i + 2 * step_ < g.quads) c = g.x.v[i + 2 * step_];
    if (i + 3 * step_ < g.quads) d = g.x.v[i + 3 * step_];
    all ^= a ^ b ^ c ^ d;
  }
  if ((all.x ^ all.y ^ all.z ^ all.w) == 0x12345678u) g.result.v[0] = all.x;
}
