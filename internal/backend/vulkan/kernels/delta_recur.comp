#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "delta.glsl"
// Kernel delta_recur: the recurrence of Gated DeltaNet, token by token: see deltaRead and deltaUpdate of the CPU. A workgroup has 64
// columns of a value head of a sequence, a thread one column, whose state stays in memory. Sums over keys go by key mod 4, then
// (0+1)+(2+3). A sequence's state is the one after the last token that cannot be rejected: tokens behind it work on a copy.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args {
  Call call;
  Floats dst, mixed, copies; // copies: [sequences side by side][valueHeads][keys][values]
  int layer, dstStride, keyHeads, valueHeads, neighbors, keys, values, rows;
} g;

// recur is the recurrence of a column of a value head of a sequence. m is its key head.
void recur(int owner, int h, int m, int col, int keys) {
  int key = g.rows * g.keyHeads * keys, value = 2 * key, kqs = value + g.rows * g.valueHeads * g.values, decays = kqs + g.rows * g.keyHeads, betas = decays + g.rows * g.valueHeads;
  Seq s = g.call.seq.v[owner];
  Recurrent mem = memoryOf(g.call, s, g.layer);
  Floats state = mem.state;
  int at = h * keys * mem.stateStride + col, stride = mem.stateStride;
  for (int j = 0; j < s.accepted; j++) {
    float delta = mem.deltas.v[j * mem.deltasStride + h * g.values + col], decay = mem.decays.v[j * mem.decaysStride + h];
    for (int c = 0; c < keys; c++) state.v[at + c * stride] = fused(mem.keys.v[j * mem.keysStride + m * keys + c], delta, mul(decay, state.v[at + c * stride]));
  }
  for (int t = 0; t < s.n; t++) {
    int r = s.first + t, head = (r * g.keyHeads + m) * keys;
    if (t == s.n - s.drafts) { // what follows may be rejected
      int copy_ = (int(gl_WorkGroupID.y) * g.valueHeads + h) * keys * g.values + col;
      for (int c = 0; c < keys; c++) g.copies.v[copy_ + c * g.values] = state.v[at + c * stride];
      state = g.copies, at = copy_, stride = g.values;
    }
    float u[4] = float[](0.0, 0.0, 0.0, 0.0), w[4] = float[](0.0, 0.0, 0.0, 0.0);
    for (int c = 0; c < keys; c++) {
      float x = state.v[at + c * stride];
      u[c & 3] = fused(g.mixed.v[key + head + c], x, u[c & 3]);
      w[c & 3] = fused(g.mixed.v[head + c], x, w[c & 3]);
    }
    float su = add(add(u[0], u[1]), add(u[2], u[3])), sw = add(add(w[0], w[1]), add(w[2], w[3]));
    int gate = r * g.valueHeads + h;
    float decay = g.mixed.v[decays + gate], delta = mul(fused(negated(decay), su, g.mixed.v[value + gate * g.values + col]), g.mixed.v[betas + gate]);
    g.dst.v[r * g.dstStride + h * g.values + col] = fused(g.mixed.v[kqs + r * g.keyHeads + m], delta, mul(decay, sw));
    if (t >= s.n - s.drafts) mem.deltas.v[(t - s.n + s.drafts) * mem.deltasStride + h * g.values + col] = delta;
    for (int c = 0; c < keys; c++) state.v[at + c * stride] = fused(g.mixed.v[key + head + c], delta, mul(decay, state.v[at + c * stride]));
  }
}

void main() {
  int strips = (g.values + 63) / 64, h = int(gl_WorkGroupID.x) / strips, col = int(gl_WorkGroupID.x) % strips * 64 + int(gl_LocalInvocationID.x);
  int keys = g.keys, m = h / g.neighbors % g.keyHeads;
  if (col < g.values)
    for (int owner = int(gl_WorkGroupID.y); owner < g.call.seqs; owner += int(gl_NumWorkGroups.y)) recur(owner, h, m, col, keys);
}
