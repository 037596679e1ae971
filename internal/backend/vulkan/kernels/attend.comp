#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "attend.glsl"
// Kernel attend: attention over the pages of a sequence, one after another. A workgroup has a query of a head, a thread a position
// of a page and then columns of the values. Queries have at most 1024 numbers, values 512. Sums: scores and softmax weights in lane
// order (16 lanes, then a tree), values in order of position, pages merged in order; in 8 bits sums of codes are integers.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args { Call call; Layer a; } g;
shared float query[1024];
shared float scores[PAGE], weights[PAGE], lanes[16];
shared int rounds[PAGE];

float numberAt(Bytes rows, int i) {
  return g.a.kind == F32 ? Floats(uint64_t(rows)).v[i] : f16(uint(Halves(uint64_t(rows)).v[i]));
}

// dotOf is the product of numbers of the query from first on with a row of d numbers, in 16 lanes.
float dotOf(int first, Bytes rows, int k, int d) {
  float s[16];
  for (int l = 0; l < 16; l++) s[l] = 0.0;
  for (int c = 0; c < d; c++) s[c & 15] = fused(query[first + c], numberAt(rows, k * d + c), s[c & 15]);
  for (int w = 8; w > 0; w >>= 1)
    for (int l = 0; l < w; l++) s[l] = add(s[l], s[l + w]);
  return mul(s[0], g.a.scale);
}

// keyCode is column c of row k of rows of codes with that many groups, and valueCode column d of the values at position k.
int keyCode(Bytes rows, int groups, int k, int c) {
  if (g.a.kind == I8) return signed8(uint(rows.v[k * groups * CODED + c]) ^ 0x80u);
  int group = c / CODED, h = c % CODED / HALF, range = PAGE * groups * HALF + (group * PAGE + k) * 4 + 2 * h;
  uint level = uint(rows.v[(k * groups + group) * HALF + c % HALF]) >> 4 * h & 15u;
  return signed8((uint(rows.v[range + 1]) + level * uint(rows.v[range])) ^ 0x80u);
}
int valueCode(Bytes rows, int k, int d) {
  if (g.a.kind == I8) return signed8(uint(rows.v[d * PAGE + k]));
  int page = d / CODED * PACKED * PAGE, h = d % CODED / HALF, range = page + (HALF + 2 * h) * PAGE + k;
  uint level = uint(rows.v[page + d % HALF * PAGE + k]) >> 4 * h & 15u;
  return signed8((uint(rows.v[range + PAGE]) + level * uint(rows.v[range])) ^ 0x80u);
}

// codedScore is the score of a key in codes, for the query whose codes begin at a group.
float codedScore(Bytes rows0, Bytes rows1, int k, int at) {
  Layer a = g.a;
  int keys = keyGroups(a), groups = groupsOf(a);
  float s = 0.0;
  for (int n = 0; n < groups; n++) {
    bool second = n >= keys;
    int own = second ? n - keys : n, all = second ? groups - keys : keys, bytes = all * CODED;
    Bytes rows = second ? rows1 : rows0;
    uint64_t key = uint64_t(second ? rows1 : rows0) + uint64_t(k * bytes + own * CODED), code = uint64_t(a.codes) + uint64_t((at + n) * CODED);
    int sum = 0;
    if (a.kind == I8) {
      for (int c = 0; c < CODED / 4; c++) sum += DOT(Uints(code).v[c], Uints(key).v[c] ^ 0x80808080u);
    } else {
      for (int c = 0; c < CODED; c++) sum += signed8(uint(Bytes(code).v[c])) * keyCode(rows, all, k, own * CODED + c);
      bytes = all * PACKED;
    }
    float by = Floats(uint64_t(rows) + uint64_t(PAGE * bytes)).v[(a.latent != 0 ? 0 : own * PAGE) + k];
    s = fused(mul(float(sum), a.scales.v[at + n]), by, s);
  }
  return s;
}

void main() {
  Layer a = g.a;
  int i = int(gl_LocalInvocationID.x), h = int(gl_WorkGroupID.x), r = int(gl_WorkGroupID.y), kv = h / (a.heads / a.kvHeads);
  int owner = g.call.rowSeq.v[r], width = a.key + a.tail;
  if (owner < 0) return;
  Seq s = g.call.seq.v[owner];
  int pos = s.pos + r - s.first, end = min(s.pos + s.n, pos + a.ahead), begin = a.window > 0 ? max(0, pos + 1 - a.window) : 0;
  bool coded = isCoded(a);
  if (!coded)
    for (int c = i; c < width; c += 64) query[c] = a.floats.v[(r * a.heads + h) * width + c];
  barrier();
  float sums[8], top = uintBitsToFloat(0xff800000u), weight = 0.0;
  for (int n = 0; n < 8; n++) sums[n] = 0.0;
  bool first = true;
  for (int p = begin / PAGE; p * PAGE < end; p++) {
    int from = max(0, begin - p * PAGE), to = min(PAGE, end - p * PAGE);
    uint64_t page = g.call.page.v[s.pages + p];
    Bytes rows0 = rowsOf(a, page, 0, kv), rows1 = rowsOf(a, page, 1, kv);
    bool seen = i >= from && i < to;
    if (seen) {
      float x;
      if (coded) {
        x = codedScore(rows0, rows1, i, (r * a.heads + h) * groupsOf(a));
      } else {
        x = dotOf(0, rows0, i, a.key);
        if (a.tail > 0) x = add(x, dotOf(a.key, rows1, i, a.tail));
      }
      scores[i] = x;
    }
    barrier();
    float highest = uintBitsToFloat(0xff800000u);
    for (int k = from; k < to; k++)
      if (scores[k] > highest) highest = scores[k];
    float e = seen ? expDown(sub(scores[i], highest)) : 0.0, most = 0.0;
    weights[i] = e;
    barrier();
    // Lanes count from the first position seen, in codes from the first of the page.
    int zero = coded ? 0 : from;
    if (i < 16) {
      float t = zero + i < PAGE ? weights[zero + i] : 0.0;
      for (int k = 16; k < PAGE; k += 16) t = add(t, zero + i + k < PAGE ? weights[zero + i + k] : 0.0);
      lanes[i] = t;
    }
    for (int w = 8; w > 0; w >>= 1) {
      barrier();
      if (i < w) lanes[i] = add(lanes[i], lanes[i + w]);
    }
    barrier();
    float now = lanes[0], old = 0.0, more = 1.0, all = highest;
    if (!first || coded) {
      all = highest > top ? highest : top;
      old = expDown(sub(top, all)), more = expDown(sub(highest, all));
      weight = fused(now, more, mul(weight, old));
    } else {
      weight = now;
    }
    top = all;
    if (coded) {
      int group = a.kind == I4 ? PACKED : CODED;
      Floats by = a.latent != 0 ? Floats(uint64_t(rows0) + uint64_t(PAGE * keyGroups(a) * group)) : Floats(uint64_t(rows1) + uint64_t(PAGE * (a.kind == I4 ? (a.value + CODED - 1) / CODED * PACKED : (a.value + 15) / 16 * 16)));
      float v = seen ? mul(e, by.v[i]) : 0.0;
      scores[i] = v;
      barrier();
      uint largest = 0u;
      for (int k = 0; k < PAGE; k++) largest = max(largest, floatBitsToUint(scores[k]));
      most = uintBitsToFloat(largest);
      float inverse = most >= 7.888609052210118e-31 ? quot(65535.0, most) : 0.0;
      rounds[i] = floatBitsToInt(add(mul(v, inverse), 12582912.0)) & 0xffff;
      barrier();
      more = mul(more, quot(most, 65535.0));
    }
    for (int n = 0; n < 8; n++) {
      int d = i + 64 * n;
      if (d >= a.value) break;
      if (coded) {
        int sum = 0;
        for (int k = 0; k < PAGE; k++)
          sum += rounds[k] * (a.latent != 0 ? keyCode(rows0, keyGroups(a), k, d) : valueCode(rows1, k, d));
        sums[n] = fused(float(sum), more, mul(sums[n], old));
      } else {
        float sum = 0.0;
        for (int k = from; k < to; k++) sum = fused(weights[k], a.latent != 0 ? numberAt(rows0, k * a.key + d) : numberAt(rows1, k * a.value + d), sum);
        sums[n] = first ? sum : fused(sum, more, mul(sums[n], old));
      }
    }
    first = false;
    barrier();
  }
  for (int n = 0; n < 8; n++) {
    int d = i + 64 * n;
    if (d >= a.value) break;
    float v = quot(sums[n], weight);
    if (a.gate != 0) v = mul(v, sigmoid32(a.q.v[r * a.qStride + h * a.head + width + d]));
    a.dst.v[r * a.dstStride + h * a.value + d] = v;
  }
}
