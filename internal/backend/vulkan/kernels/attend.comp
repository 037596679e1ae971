#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "bits.glsl"
#include "memory.glsl"
#include "attend.glsl"
#include "lanes.glsl"
// Kernel attend: attention over the pages of a sequence. A workgroup has a query of a head: 16 threads compute a score, the first 64
// weigh positions, and all have columns of the values. Queries have at most 1024 numbers, values 512. Sums: scores and softmax weights
// in lane order (16 lanes, then a tree), values in order of position, pages merged in order; in 8 bits sums of codes are integers.
// If SPLIT is 1, workgroups share the pages and leave the sums of each for attend_merge.
layout(constant_id = 1) const int SPLIT = 0;
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Call call; Layer a; Floats parts; int most; } g;
#include "attend_codes.glsl"
shared float query[1024];
shared float scores[PAGE], weights[PAGE], partial[PAGE][17];
shared int rounds[PAGE];
shared uint faintQuery, faintWeights; // numbers are too small for chains without tests
shared uint peak;                     // the order of the highest score, or the bits of the largest weighed scale

float numberAt(Bytes rows, int i) {
  return g.a.kind == F32 ? Floats(uint64_t(rows)).v[i] : f16(uint(Halves(uint64_t(rows)).v[i]));
}

// faintBeside reports whether a number is too small for plain chains with halves, which are multiples of 2^-24: see faint.
bool faintBeside(float x) { uint b = floatBitsToUint(x) << 1; return b - 1u < 0x2fffffffu; }

// orderOf is an integer that orders numbers, 0 for NaN. Zeros of both signs are as good as equal here.
uint orderOf(float x) { uint b = floatBitsToUint(x); return b << 1 > 0xff000000u ? 0u : (b >> 31) == 1u ? ~b : b | 0x80000000u; }
float ofOrder(uint n) { return uintBitsToFloat(n >> 31 == 1u ? n & 0x7fffffffu : ~n); }

const int BATCH = LEVEL == 1u || LEVEL == 5u ? 1 : 8; // numbers of a chain that are loaded at once

// dots leaves the products of d numbers of the query, from first on, with rows from to to-1 in scores, or adds them to these.
void dots(int first, Bytes rows, int d, int from, int to, bool adds) {
  int i = int(gl_LocalInvocationID.x), l = i & 15;
  if (LEVEL != 2u && g.a.kind == F16 && (d & 15) == 0 && (LEVEL < 3u || faintQuery == 0u)) { // a thread has four lanes of a position
    int k = i / 4, q = 4 * (i & 3), from4 = (k * d + q) / 4;
    float s[4] = float[](0.0, 0.0, 0.0, 0.0);
    if (k >= from && k < to)
      for (int c = 0; c < d; c += 16 * BATCH) {
        uvec2 v[BATCH];
        [[unroll]] for (int j = 0; j < BATCH; j++) v[j] = Twos(uint64_t(rows)).v[from4 + min(c + 16 * j, d - 16) / 4];
        [[unroll]] for (int j = 0; j < BATCH; j++)
          if (c + 16 * j < d)
            [[unroll]] for (int n = 0; n < 4; n++) s[n] = fusedPlain(query[first + c + 16 * j + q + n], half_(v[j][n / 2] >> 16 * (n & 1) & 0xffffu), s[n]);
      }
    [[unroll]] for (int n = 0; n < 4; n++) partial[k][q + n] = s[n];
  } else {
    for (int k = i / 16; k < to; k += 16) {
      float s = 0.0;
      [[dont_unroll]] for (int c = l; k >= from && c < d; c += 16) s = fused(query[first + c], numberAt(rows, k * d + c), s);
      partial[k][l] = s;
    }
  }
  barrier();
  if (i >= from && i < to) {
    float s[8];
    [[unroll]] for (int j = 0; j < 8; j++) s[j] = add(partial[i][j], partial[i][j + 8]);
    float x = mul(tree8(s), g.a.scale);
    scores[i] = adds ? add(scores[i], x) : x;
  }
  barrier();
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

// valueSum is the sum of the values of column d, weighed by rounds.
int valueSum(Bytes rows0, Bytes rows1, int d) {
  int sum = 0;
  if (g.a.kind == I8 && g.a.latent == 0) {
    for (int k = 0; k < PAGE; k += 4) {
      uint four = Uints(uint64_t(rows1)).v[(d * PAGE + k) / 4];
      for (int j = 0; j < 4; j++) sum += rounds[k + j] * signed8(four >> 8 * j);
    }
    return sum;
  }
  for (int k = 0; k < PAGE; k++) sum += rounds[k] * (g.a.latent != 0 ? keyCode(rows0, keyGroups(g.a), k, d) : valueCode(rows1, k, d));
  return sum;
}

void main() {
  Layer a = g.a;
  int i = int(gl_LocalInvocationID.x), h = int(gl_WorkGroupID.x) % a.heads, r = int(gl_WorkGroupID.y), kv = h / (a.heads / a.kvHeads);
  int owner = g.call.rowSeq.v[r], width = a.key + a.tail;
  if (owner < 0) return;
  Seq s = g.call.seq.v[owner];
  int pos = s.pos + r - s.first, end = min(s.pos + s.n, pos + a.ahead), begin = a.window > 0 ? max(0, pos + 1 - a.window) : 0;
  bool coded = isCoded(a);
  if (i == 0) faintQuery = 0u;
  barrier();
  if (!coded)
    for (int c = i; c < width; c += 256) {
      float x = a.floats.v[(r * a.heads + h) * width + c];
      query[c] = x;
      if (faintBeside(x)) faintQuery = 1u;
    }
  barrier();
  float sums[2] = float[](0.0, 0.0), top = uintBitsToFloat(0xff800000u), weight = 0.0;
  bool first = true;
  int step_ = SPLIT == 1 ? int(gl_NumWorkGroups.x) / a.heads : 1;
  for (int p = begin / PAGE + int(gl_WorkGroupID.x) / a.heads; p * PAGE < end; p += step_) {
    int from = max(0, begin - p * PAGE), to = min(PAGE, end - p * PAGE);
    uint64_t page = g.call.page.v[s.pages + p];
    Bytes rows0 = rowsOf(a, page, 0, kv), rows1 = rowsOf(a, page, 1, kv);
    bool seen = i >= from && i < to;
    if (i == 0) peak = orderOf(uintBitsToFloat(0xff800000u)), faintWeights = 0u;
    if (coded) {
      if (seen) scores[i] = codedScore(rows0, rows1, i, (r * a.heads + h) * groupsOf(a));
      barrier();
    } else {
      dots(0, rows0, a.key, from, to, false);
      if (a.tail > 0) dots(a.key, rows1, a.tail, from, to, true);
    }
    if (seen) atomicMax(peak, orderOf(scores[i]));
    barrier();
    float highest = ofOrder(peak), e = seen ? expDown(sub(scores[i], highest)) : 0.0, most = 0.0;
    if (i < PAGE) {
      weights[i] = e;
      if (faintBeside(e)) faintWeights = 1u;
    }
    barrier();
    // Lanes count from the first position seen, in codes from the first of the page.
    int zero = coded ? 0 : from;
    float t = 0.0;
    if (i < 16) {
      t = zero + i < PAGE ? weights[zero + i] : 0.0;
      for (int k = 16; k < PAGE; k += 16) t = add(t, zero + i + k < PAGE ? weights[zero + i + k] : 0.0);
    }
    float now = sum16(t), old = 0.0, more = 1.0, step16 = 1.0;
    if (SPLIT == 0) {
      float all = highest;
      if (!first || coded) {
        all = highest > top ? highest : top;
        old = expDown(sub(top, all)), more = expDown(sub(highest, all));
        weight = fused(now, more, mul(weight, old));
      } else {
        weight = now;
      }
      top = all;
    }
    if (coded) {
      int group = a.kind == I4 ? PACKED : CODED;
      Floats by = a.latent != 0 ? Floats(uint64_t(rows0) + uint64_t(PAGE * keyGroups(a) * group)) : Floats(uint64_t(rows1) + uint64_t(PAGE * (a.kind == I4 ? (a.value + CODED - 1) / CODED * PACKED : (a.value + 15) / 16 * 16)));
      float v = seen ? mul(e, by.v[i]) : 0.0;
      if (i == 0) peak = 0u;
      barrier();
      if (seen) atomicMax(peak, floatBitsToUint(v));
      barrier();
      most = uintBitsToFloat(peak);
      float inverse = most >= 7.888609052210118e-31 ? quot(65535.0, most) : 0.0;
      if (i < PAGE) rounds[i] = floatBitsToInt(add(mul(v, inverse), 12582912.0)) & 0xffff;
      barrier();
      step16 = quot(most, 65535.0);
      more = mul(more, step16);
    }
    int to0 = SPLIT == 1 ? ((r * a.heads + h) * g.most + p - begin / PAGE) * (a.value + 3) : 0;
    if (SPLIT == 1 && i == 0) g.parts.v[to0] = highest, g.parts.v[to0 + 1] = now, g.parts.v[to0 + 2] = step16;
    [[dont_unroll]] for (int n = 0; n < 2; n++) {
      int d = i + 256 * n;
      if (d >= a.value) break;
      float sum = 0.0;
      if (coded) {
        sum = float(valueSum(rows0, rows1, d));
      } else {
        int wide = a.latent != 0 ? a.key : a.value;
        Bytes rows = a.latent != 0 ? rows0 : rows1;
        if (LEVEL != 2u && a.kind == F16 && (LEVEL < 3u || faintWeights == 0u)) {
          for (int k = from; k < to; k += BATCH) {
            uint v[BATCH];
            [[unroll]] for (int j = 0; j < BATCH; j++) v[j] = uint(Halves(uint64_t(rows)).v[min(k + j, to - 1) * wide + d]);
            [[unroll]] for (int j = 0; j < BATCH; j++) sum = k + j < to ? fusedPlain(weights[min(k + j, PAGE - 1)], half_(v[j]), sum) : sum;
          }
        } else {
          [[dont_unroll]] for (int k = from; k < to; k++) sum = fused(weights[k], numberAt(rows, k * wide + d), sum);
        }
      }
      if (SPLIT == 1) g.parts.v[to0 + 3 + d] = sum;
      else sums[n] = first && !coded ? sum : fused(sum, more, mul(sums[n], old));
    }
    first = false;
    barrier();
  }
  if (SPLIT == 1) return;
  [[dont_unroll]] for (int n = 0; n < 2; n++) {
    int d = i + 256 * n;
    if (d >= a.value) break;
    float v = quot(sums[n], weight);
    if (a.gate != 0) v = mul(v, sigmoid32(a.q.v[r * a.qStride + h * a.head + width + d]));
    a.dst.v[r * a.dstStride + h * a.value + d] = v;
  }
}
