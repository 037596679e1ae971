// Products of many rows. A workgroup has 128 outputs and 16*DEEP rows of a tile, and walks over the columns 64 at a time: the codes of
// rows and outputs go to shared memory as signed bytes, and the sums of a group, integers, to chains of fused operations. Groups are
// of 16 or 32 columns or of a multiple of 64.
#include "experts.glsl"
#include "product.glsl"
layout(constant_id = 1) const int DEEP = 8; // rows of a thread
layout(local_size_x = 256) in;
const int OUTPUTS = 128, STAGE = 64, STRIDE = STAGE / 16 + 1; // quads from row to row
shared uvec4 rowCodes[16 * DEEP * STRIDE], outputCodes[OUTPUTS * STRIDE];
shared int partial[16 * DEEP][4];     // sums of 16 codes of a row
shared vec2 rowTails[4][16 * DEEP];   // of the groups of a stage
shared vec2 outputScales[4][OUTPUTS];
shared uint faints;                   // a scale is too small for chains without tests
// The next stage as it is in memory: nothing waits for it before it is stored.
uvec4 nextRows[(DEEP + 3) / 4];
uint nextOutputs[8];
vec2 nextTails[2];
uvec2 nextScales[2];
uint64_t outputsAt[4], scalesAt; // tiles of a thread's outputs, or 0

int self() { return int(gl_LocalInvocationID.x); }
int firstRow() { return int(gl_WorkGroupID.y) * 16 * DEEP; }

// tileAt is the tile of 16 outputs at a place of the workgroup, or -1.
int tileAt(int place) {
  int i = int(gl_WorkGroupID.x) * (OUTPUTS / 16) + place;
  if (!none(g.only)) return i < g.only.onlys ? g.only.only.v[i] : -1;
  return i < g.w.tiles ? i : -1;
}

// bytes are four codes as signed bytes: 128 less than the code if it has 8 bits and no sign.
uint signedBytes(Weight w, uint codes) {
  if (w.kind == HALVES || w.kind == LEVELED) {
    uint list = 0u;
    for (int i = 0; i < 4; i++) list |= (uint(integer(w, codes >> 8 * i & 0xffu)) & 0xffu) << 8 * i;
    return list;
  }
  return w.bits == 8 ? codes ^ 0x80808080u : codes;
}

// raw reports whether scales are halves of 16 bits, which are decoded when they are stored.
bool raw(Weight w) { return w.factors == NO_FACTORS && w.number != F32 && w.kind == BIASED; }

// place finds a thread's tiles.
void place(Weight w) {
  int t = self();
  [[unroll]] for (int n = 0; n < 5; n++) {
    int tile = tileAt(n < 4 ? 2 * n + (t >> 7) : t % OUTPUTS / 16);
    uint64_t at_ = tile < 0 ? 0ul : uint64_t(tileOf(w, g.matrix, tile));
    if (n < 4) outputsAt[n] = at_;
    else scalesAt = at_;
  }
}

// fetch loads a stage into registers: codes, and the scales of its groups.
void fetch(Weight w, int first) {
  int group = w.group, all = group * w.groups, t = self();
  [[unroll]] for (int n = 0; n < (DEEP + 3) / 4; n++) {
    int i = t + 256 * n, row = firstRow() + i / 4, column = first + i % 4 * 16;
    nextRows[n] = i < 64 * DEEP && row < g.rows && column < all ? Quads(uint64_t(g.codes) + uint64_t(row) * uint64_t(g.codeStride) + uint64_t(column)).v[0] : uvec4(0u);
  }
  int r = t >> 2 & 15, pair = t & 3 | t >> 4 & 4, column = first + 8 * pair, v = column % group / 4;
  [[unroll]] for (int n = 0; n < 4; n++) {
    nextOutputs[2 * n] = nextOutputs[2 * n + 1] = 0u;
    if (outputsAt[n] == 0ul || column >= all) continue;
    Bytes block = blockOf(w, Bytes(outputsAt[n]), column / group);
    if (w.bits == 4) nextOutputs[2 * n] = wordAt(block, wordOf(w, v / 2, r));
    else nextOutputs[2 * n] = fours(w, block, v, r), nextOutputs[2 * n + 1] = fours(w, block, v + 1, r);
  }
  if (first % group != 0) return;
  [[unroll]] for (int n = 0; n < 2; n++) {
    int slot = t / (16 * DEEP) + 16 / DEEP * n, own = first / group + slot, row = firstRow() + t % (16 * DEEP);
    nextTails[n] = slot < max(1, STAGE / group) && own < w.groups && row < g.rows ? g.tails.v[own * g.tailRows + row] : vec2(0.0);
    slot = t / OUTPUTS + 2 * n, own = first / group + slot;
    nextScales[n] = uvec2(0u);
    if (slot >= max(1, STAGE / group) || own >= w.groups || scalesAt == 0ul) continue;
    if (raw(w)) {
      Bytes p = at(blockOf(w, Bytes(scalesAt), own), int64_t(w.codes));
      nextScales[n] = uvec2(shortAt(p, t & 15), w.zero == 0.0 ? shortAt(p, 16 + (t & 15)) : 0u);
    } else {
      nextScales[n] = floatBitsToUint(scaleOf(w, Bytes(scalesAt), own, t & 15));
    }
  }
}

// store brings a stage to shared memory.
void store(Weight w, int first) {
  int group = w.group, t = self();
  [[unroll]] for (int n = 0; n < (DEEP + 3) / 4; n++) {
    int i = t + 256 * n;
    if (i >= 64 * DEEP) break;
    uvec4 codes = nextRows[n];
    rowCodes[i / 4 * STRIDE + i % 4] = codes;
    partial[i / 4][i % 4] = DOT(codes.x, 0x01010101u) + DOT(codes.y, 0x01010101u) + DOT(codes.z, 0x01010101u) + DOT(codes.w, 0x01010101u);
  }
  int pair = t & 3 | t >> 4 & 4;
  [[unroll]] for (int n = 0; n < 4; n++) {
    int to = ((2 * n + (t >> 7)) * 16 + (t >> 2 & 15)) * STRIDE + pair / 2, odd = 2 * (pair & 1);
    uint codes = nextOutputs[2 * n], more = nextOutputs[2 * n + 1];
    if (w.bits == 4) more = codes >> 4 & 0x0f0f0f0fu, codes &= 0x0f0f0f0fu;
    outputCodes[to][odd] = signedBytes(w, codes), outputCodes[to][odd + 1] = signedBytes(w, more);
  }
  if (first % group != 0) return;
  uint small_ = 0u;
  [[unroll]] for (int n = 0; n < 2; n++) {
    int slot = t / (16 * DEEP) + 16 / DEEP * n;
    vec2 tail = nextTails[n];
    if (slot < 4) rowTails[slot][t % (16 * DEEP)] = tail;
    if (faint(tail.x) || faint(tail.y)) small_ = 1u;
    vec2 scale = uintBitsToFloat(nextScales[n]);
    if (raw(w)) {
      uvec2 halves = nextScales[n];
      scale = w.number == F16 ? vec2(f16(halves.x), f16(halves.y)) : uintBitsToFloat(halves << 16);
      if (w.zero != 0.0) scale.y = mul(w.zero, scale.x);
    }
    outputScales[t / OUTPUTS + 2 * n][t % OUTPUTS] = scale;
    if (faint(scale.x) || faint(scale.y)) small_ = 1u;
  }
  if (small_ != 0u) faints = 1u;
}

// addend is what is added to each code of an output in a group, after signedBytes.
int addend(Weight w, vec2 scale) { return (w.kind == POINTED ? int(scale.y) : int(w.zero)) + (w.bits == 8 && w.kind != HALVES && w.kind != LEVELED ? 128 : 0); }
bool hasAddend(Weight w) { return w.kind == POINTED || addend(w, vec2(0.0)) != 0; }

// slow is an output of a row with every operation tested, from memory.
float slow(Weight w, int row, int tile, int o) {
  Bytes p = tileOf(w, g.matrix, tile);
  float acc = 0.0;
  for (int group = 0; group < w.groups; group++) {
    Bytes block = blockOf(w, p, group), codes = at(g.codes, int64_t(row) * int64_t(g.codeStride) + int64_t(group * w.group));
    int sum = 0, total = 0;
    for (int v = 0; v < w.group / 4; v++) {
      uint a = wordAt(codes, v);
      sum += DOT(a, signedBytes(w, fours(w, block, v, o)));
      total += DOT(a, 0x01010101u);
    }
    vec2 scale = scaleOf(w, p, group, o), tail = g.tails.v[group * g.tailRows + row];
    float x = float(sum + addend(w, scale) * total), s = w.first != 0 ? tail.x : tail.y;
    acc = fused(mul(x, w.first != 0 ? scale.x : tail.x), w.first != 0 ? s : scale.x, acc);
    if (w.kind == BIASED && w.zero == 0.0) acc = fused(scale.y, s, acc);
  }
  return acc;
}

// putTile writes a result of the workgroup, row r and output o of it. If a scale was too small it is computed again.
void putTile(Weight w, int r, int o, float v) {
  int row = firstRow() + r, tile = tileAt(o / 16);
  if (row >= g.rows || tile < 0) return;
  if (LEVEL == 2u || LEVEL >= 3u && faints != 0u) v = slow(w, row, tile, o % 16);
  put(row, tile * 16 + o % 16, v);
}
