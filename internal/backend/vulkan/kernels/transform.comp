#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
// Kernel transform: the input transformation of a weight: an order of columns or, without one, Givens rotations of groups of 128
// columns. A workgroup has such a group of a row. Tables are those of type Input of internal/backend/cpu/kernel.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Floats x, dst; Ints order; Floats scales, turns; Bytes places; int xStride, cols, rounds; } g;
shared float numbers[2][128];
void main() {
  int i = int(gl_LocalInvocationID.x), group = int(gl_WorkGroupID.x), first = 128 * group, from = int(gl_WorkGroupID.y) * g.xStride, to = int(gl_WorkGroupID.y) * g.cols;
  if (!none(g.order)) {
    for (int c = first + i; c < min(first + 128, g.cols); c += 64) g.dst.v[to + c] = g.x.v[from + g.order.v[c]];
    return;
  }
  for (int c = i; c < 128; c += 64) numbers[0][c] = mul(g.x.v[from + first + c], g.scales.v[first + c]);
  int places = group * (g.rounds + 1) * 128, turns = group * g.rounds * 128;
  for (int r = 0; r < g.rounds; r++) {
    barrier();
    float a = numbers[r & 1][int(g.places.v[places + i])], b = numbers[r & 1][int(g.places.v[places + 64 + i])];
    float c = g.turns.v[turns + i], s = g.turns.v[turns + 64 + i];
    numbers[~r & 1][i] = fused(a, c, mul(b, s));
    numbers[~r & 1][64 + i] = fused(b, c, negated(mul(a, s)));
    places += 128, turns += 128;
  }
  barrier();
  for (int c = i; c < 128; c += 64) g.dst.v[to + first + c] = numbers[g.rounds & 1][int(g.places.v[places + c])];
}
