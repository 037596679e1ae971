#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "delta.glsl"
// Kernel delta_keep: the inputs of a DeltaNet layer's next call: the last inputs of the convolution, and keys and decays of drafts.
// A workgroup has 64 channels of a sequence.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Call call; Floats qkv, mixed; int layer, qkvStride, keyHeads, valueHeads, keys, values, taps, rows; } g;
void keep(int c, int owner) {
  Seq s = g.call.seq.v[owner];
  Recurrent mem = memoryOf(g.call, s, g.layer);
  if (s.n == 0) return;
  int sure = s.n - s.drafts, key = g.rows * g.keyHeads * g.keys;
  int decays = 2 * key + g.rows * g.valueHeads * g.values + g.rows * g.keyHeads;
  // Row i of the tail becomes the input of token sure-(taps-1)+i. Rows move towards the front only, so ascending order never
  // overwrites one that is still needed.
  if (c < channels(g.keyHeads, g.valueHeads, g.keys, g.values))
    for (int i = 0; i < g.taps - 1 + s.drafts; i++)
      mem.tail.v[i * mem.tailStride + c] = tokenInput(s, mem, g.qkv, g.qkvStride, g.taps, sure - (g.taps - 1) + i, c);
  for (int d = 0; d < s.drafts; d++) {
    int r = s.first + sure + d;
    if (c < g.keyHeads * g.keys) mem.keys.v[d * mem.keysStride + c] = g.mixed.v[key + r * g.keyHeads * g.keys + c];
    if (c < g.valueHeads) mem.decays.v[d * mem.decaysStride + c] = g.mixed.v[decays + r * g.valueHeads + c];
  }
}

void main() {
  for (int owner = int(gl_WorkGroupID.y); owner < g.call.seqs; owner += int(gl_NumWorkGroups.y)) keep(int(gl_GlobalInvocationID.x), owner);
}
