#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "bits.glsl"
#include "memory.glsl"
#include "delta.glsl"
// Kernel delta_recur_many: delta_recur with the state in registers. KEYS is a multiple of 16 and at most 128. A workgroup has 32 columns
// of a value head of a sequence, a thread one column and the keys of one of the four sums. Tokens pass through shared memory, 8 at a time.
// If MIXES is 1, for few rows, every workgroup also does what delta_mix does for its key head and columns; convolutions have 4 taps.
layout(constant_id = 1) const int KEYS = 128;
layout(constant_id = 2) const int MIXES = 0;
layout(local_size_x = 128) in;
layout(push_constant, scalar) uniform Args {
  Call call;
  Floats dst, mixed;
  int layer, dstStride, keyHeads, valueHeads, neighbors, values, rows;
  int qkvStride, aStride, bStride, convStride; // of MIXES, as what follows
  float scale;                                 // of queries
  Floats qkv, a, b, conv, rate, bias;
} g;
const int OWN = KEYS / 4, QUADS = (OWN + 3) / 4, TOKENS = 8, COLUMNS = 32, PIECES = (TOKENS * KEYS + 127) / 128;
const int TAPS = 4, CHANNELS = 2 * KEYS + COLUMNS, POOL = MIXES == 1 ? (TOKENS + 2 * TAPS - 1) * CHANNELS : KEYS * COLUMNS;
shared vec4 keys[TOKENS][4][QUADS], queries[TOKENS][4][QUADS];
shared float values[TOKENS][COLUMNS];
shared vec4 gates[TOKENS];              // decay, beta, key·query
shared uint faints[2][TOKENS];          // of a token: a number is too small for chains without tests
shared vec2 sums[2][4][COLUMNS];
shared float pool[POOL];                // the state of threads that test every operation; taps and inputs of the convolution
shared float lanes[TOKENS][3][16], norms[TOKENS][2];
float nextKeys[PIECES], nextQueries[PIECES], nextValues[2];
vec4 nextGates;
float x[OWN];

int self() { return int(gl_LocalInvocationID.x); }

// fetch loads tokens of a sequence from one on into registers. h and m are the value head and its key head.
void fetch(Seq s, int first, int h, int m, int column) {
  int t = self(), key = g.rows * g.keyHeads * KEYS, value = 2 * key, kqs = value + g.rows * g.valueHeads * g.values, decays = kqs + g.rows * g.keyHeads, betas = decays + g.rows * g.valueHeads;
  [[unroll]] for (int n = 0; n < PIECES; n++) {
    int i = t + 128 * n, token = first + i / KEYS, at = ((s.first + token) * g.keyHeads + m) * KEYS + i % KEYS;
    bool has = i < TOKENS * KEYS && token < s.n;
    nextKeys[n] = has ? g.mixed.v[key + at] : 0.0;
    nextQueries[n] = has ? g.mixed.v[at] : 0.0;
  }
  [[unroll]] for (int n = 0; n < 2; n++) {
    int token = first + t / COLUMNS + 4 * n, c = column + t % COLUMNS;
    nextValues[n] = token < s.n && c < g.values ? g.mixed.v[value + ((s.first + token) * g.valueHeads + h) * g.values + c] : 0.0;
  }
  if (t < TOKENS && first + t < s.n) {
    int r = s.first + first + t;
    nextGates = vec4(g.mixed.v[decays + r * g.valueHeads + h], g.mixed.v[betas + r * g.valueHeads + h], g.mixed.v[kqs + r * g.keyHeads + m], 0.0);
  }
}

// store brings them to shared memory.
void store(int buffer_) {
  int t = self();
  [[unroll]] for (int n = 0; n < PIECES; n++) {
    int i = t + 128 * n, token = i / KEYS, c = i % KEYS;
    if (i >= TOKENS * KEYS) break;
    keys[token][c & 3][c / 16][c / 4 & 3] = nextKeys[n];
    queries[token][c & 3][c / 16][c / 4 & 3] = nextQueries[n];
    if (faint(nextKeys[n]) || faint(nextQueries[n])) faints[buffer_][token] = 1u;
  }
  [[unroll]] for (int n = 0; n < 2; n++) values[t / COLUMNS + 4 * n][t % COLUMNS] = nextValues[n];
  if (t < TOKENS) {
    gates[t] = nextGates;
    // Products of a decay from 2^-60 on and a number that is not faint are multiples of 2^-122, too.
    if (floatBitsToUint(nextGates.x) - 1u < (67u << 23) - 1u) faints[buffer_][t] = 1u;
  }
}

// sumOf adds lanes of a token in the tree of SumLanes32.
float sumOf(int token, int which) {
  float s[8];
  [[unroll]] for (int j = 0; j < 8; j++) s[j] = add(lanes[token][which][j], lanes[token][which][j + 8]);
  return tree8(s);
}

// mixHere brings tokens of a sequence from one on to shared memory, from the inputs of the layer.
void mixHere(Seq s, Recurrent mem, int first, int h, int m, int column, int buffer_) {
  int t = self(), n = min(TOKENS, s.n - first), rows = 2 * TAPS - 1 + n;
  int gated = t - 96, r0 = s.first + first; // the last threads have the gates: the others have more channels for few tokens
  float a = 0.0, b = 0.0, rate = 0.0, bias = 0.0;
  if (gated >= 0 && gated < n) {
    int r = r0 + gated;
    a = g.a.v[r * g.aStride + h], b = g.b.v[r * g.bStride + h], rate = g.rate.v[h], bias = g.bias.v[h];
  }
  // A row of taps or inputs at a time: addresses of all channels in every row would be many more instructions, for which a GPU waits.
  [[dont_unroll]] for (int j = t; j < CHANNELS; j += 128) {
    int value = column + j - 2 * KEYS, c = j < KEYS ? m * KEYS + j : j < 2 * KEYS ? (g.keyHeads + m) * KEYS + j - KEYS : 2 * g.keyHeads * KEYS + h * g.values + value;
    bool has = j < 2 * KEYS || value < g.values;
    for (int row0 = 0; row0 < rows; row0 += 2 * TAPS) {
      float x[2 * TAPS];
      [[unroll]] for (int k = 0; k < 2 * TAPS; k++) {
        int row = row0 + k, token = first + row - (2 * TAPS - 1);
        Floats from = row < TAPS ? g.conv : token >= 0 ? g.qkv : mem.tail;
        int place = row < TAPS ? row * g.convStride : token >= 0 ? (s.first + token) * g.qkvStride : (s.accepted + TAPS - 1 + token) * mem.tailStride;
        x[k] = has && row < rows ? from.v[place + c] : 0.0;
      }
      [[unroll]] for (int k = 0; k < 2 * TAPS; k++)
        if (row0 + k < rows) pool[(row0 + k) * CHANNELS + j] = x[k];
    }
  }
  barrier();
  if (gated >= 0 && gated < n) {
    float decay = exp32(mul(rate, softplus32(add(a, bias))));
    gates[gated] = vec4(decay, sigmoid32(b), 0.0, 0.0);
    if (floatBitsToUint(decay) - 1u < (67u << 23) - 1u) faints[buffer_][gated] = 1u; // see store
    if (s.drafts > 0 && column == 0) g.mixed.v[g.rows * (2 * g.keyHeads * KEYS + g.valueHeads * g.values + g.keyHeads) + (r0 + gated) * g.valueHeads + h] = decay;
  }
  [[dont_unroll]] for (int i = t; i < n * CHANNELS; i += 128) {
    int token = i / CHANNELS, j = i % CHANNELS;
    float x[TAPS], w[TAPS], sum;
    bool slow = LEVEL == 2u;
    [[unroll]] for (int k = 0; k < TAPS; k++) {
      w[k] = pool[k * CHANNELS + j], x[k] = pool[(TAPS + token + k) * CHANNELS + j];
      if (LEVEL >= 3u && (faint(w[k]) || faint(x[k]))) slow = true;
    }
    sum = mul(w[0], x[0]);
    if (slow) {
      [[dont_unroll]] for (int k = 1; k < TAPS; k++) sum = fused(pool[k * CHANNELS + j], pool[(TAPS + token + k) * CHANNELS + j], sum);
    } else if (LEVEL != 2u) {
      [[unroll]] for (int k = 1; k < TAPS; k++) sum = fusedPlain(w[k], x[k], sum);
    }
    sum = silu32(sum);
    int c = j & (KEYS - 1);
    if (j < KEYS) queries[token][c & 3][c / 16][c / 4 & 3] = sum;
    else if (j < 2 * KEYS) keys[token][c & 3][c / 16][c / 4 & 3] = sum;
    else values[token][j - 2 * KEYS] = sum;
    if (j < 2 * KEYS && faint(sum)) faints[buffer_][token] = 1u;
  }
  barrier();
  // A token has 16 threads, a lane each.
  int token = t / 16, l = t % 16;
  bool has = token < n;
  for (int step_ = 0; step_ < 2; step_++) {
    float qq = 0.0, kk = 0.0, kq = 0.0;
    if (has) {
      bool slow = LEVEL == 2u || LEVEL >= 3u && faints[buffer_][token] != 0u;
      [[dont_unroll]] for (int c = l; slow && c < KEYS; c += 16) {
        float q = queries[token][c & 3][c / 16][c / 4 & 3], k = keys[token][c & 3][c / 16][c / 4 & 3];
        if (step_ == 1) { kq = fused(k, q, kq); continue; }
        qq = fused(q, q, qq), kk = fused(k, k, kk);
      }
      if (!slow && LEVEL != 2u)
        [[unroll]] for (int c0 = 0; c0 < KEYS; c0 += 16) {
          int c = c0 + l;
          float q = queries[token][c & 3][c / 16][c / 4 & 3], k = keys[token][c & 3][c / 16][c / 4 & 3];
          qq = fusedPlain(q, q, qq), kk = fusedPlain(k, k, kk), kq = fusedPlain(k, q, kq);
        }
      lanes[token][0][l] = qq, lanes[token][1][l] = kk, lanes[token][2][l] = kq;
    }
    barrier();
    if (step_ == 1) break;
    if (has && l < 2) norms[token][l] = rsqrt32(add(sumOf(token, l), 1e-6));
    barrier();
    if (has) {
      float ofQuery = mul(norms[token][0], g.scale), ofKey = norms[token][1];
      for (int c = l; c < KEYS; c += 16) {
        float q = mul(queries[token][c & 3][c / 16][c / 4 & 3], ofQuery), k = mul(keys[token][c & 3][c / 16][c / 4 & 3], ofKey);
        queries[token][c & 3][c / 16][c / 4 & 3] = q, keys[token][c & 3][c / 16][c / 4 & 3] = k;
        if (faint(q) || faint(k)) faints[buffer_][token] = 1u;
        if (s.drafts > 0 && column == 0) g.mixed.v[g.rows * g.keyHeads * KEYS + ((r0 + token) * g.keyHeads + m) * KEYS + c] = k;
      }
    }
    barrier();
  }
  if (t < n) gates[t].z = sumOf(t, 2);
}

void main() {
  int strips = (g.values + COLUMNS - 1) / COLUMNS, h = int(gl_WorkGroupID.x) / strips, column = int(gl_WorkGroupID.x) % strips * COLUMNS;
  int t = self(), chain = t / COLUMNS, own = t % COLUMNS, col = column + own, m = h / g.neighbors % g.keyHeads;
  bool mine = col < g.values;
  for (int owner = int(gl_WorkGroupID.y); owner < g.call.seqs; owner += int(gl_NumWorkGroups.y)) {
    Seq s = g.call.seq.v[owner];
    Recurrent mem = memoryOf(g.call, s, g.layer);
    int at = (h * KEYS + chain) * mem.stateStride + col, stride = 4 * mem.stateStride;
    bool loads = mine && s.n > 0;
    [[unroll]] for (int i = 0; i < OWN; i++) x[i] = loads ? mem.state.v[at + i * stride] : 0.0;
    for (int j = 0; loads && j < s.accepted; j++) {
      float delta = mem.deltas.v[j * mem.deltasStride + h * g.values + col], decay = mem.decays.v[j * mem.decaysStride + h], k[OWN];
      uint low = floatBitsToUint(decay) - 1u < (67u << 23) - 1u || faint(delta) ? 0u : 0xffffffffu;
      [[unroll]] for (int i = 0; i < OWN; i++) k[i] = mem.keys.v[j * mem.keysStride + m * KEYS + 4 * i + chain];
      [[unroll]] for (int i = 0; i < OWN; i++) low = min(low, min((floatBitsToUint(k[i]) << 1) - 1u, (floatBitsToUint(x[i]) << 1) - 1u));
      if (LEVEL == 2u || LEVEL >= 3u && low < 0x58ffffffu) {
        [[unroll]] for (int i = 0; i < OWN; i++) pool[(4 * i + chain) * COLUMNS + own] = x[i];
        [[dont_unroll]] for (int i = 0; i < OWN; i++)
          pool[(4 * i + chain) * COLUMNS + own] = fused(mem.keys.v[j * mem.keysStride + m * KEYS + 4 * i + chain], delta, mul(decay, pool[(4 * i + chain) * COLUMNS + own]));
        [[unroll]] for (int i = 0; i < OWN; i++) x[i] = pool[(4 * i + chain) * COLUMNS + own];
      } else if (LEVEL != 2u) {
        [[unroll]] for (int i = 0; i < OWN; i++) x[i] = fusedPlain(k[i], delta, mulPlain(decay, x[i]));
      }
    }
    barrier();
    if (t < TOKENS) faints[0][t] = 0u;
    if (MIXES == 0) fetch(s, 0, h, m, column);
    for (int first = 0; first < s.n; first += TOKENS) {
      int buffer_ = first / TOKENS & 1;
      barrier();
      if (MIXES == 1) mixHere(s, mem, first, h, m, column, buffer_);
      else store(buffer_);
      barrier();
      if (t < TOKENS) faints[~buffer_ & 1][t] = 0u;
      if (MIXES == 0 && first + TOKENS < s.n) fetch(s, first + TOKENS, h, m, column);
      [[dont_unroll]] for (int k = 0; k < min(TOKENS, s.n - first); k++) {
        int token = first + k;
        if (token == s.n - s.drafts && mine) // what follows may be rejected
          [[unroll]] for (int i = 0; i < OWN; i++) mem.state.v[at + i * stride] = x[i];
        uint least = 0xffffffffu;
        [[unroll]] for (int i = 0; i < OWN; i++) least = min(least, (floatBitsToUint(x[i]) << 1) - 1u);
        bool slow = LEVEL == 2u || LEVEL >= 3u && (faints[buffer_][k] != 0u || least < 0x58ffffffu);
        float u = 0.0, w = 0.0;
        if (slow) {
          [[unroll]] for (int i = 0; i < OWN; i++) pool[(4 * i + chain) * COLUMNS + own] = x[i];
          [[dont_unroll]] for (int i = 0; i < OWN; i++) {
            float y = pool[(4 * i + chain) * COLUMNS + own];
            u = fused(keys[k][chain][i / 4][i & 3], y, u);
            w = fused(queries[k][chain][i / 4][i & 3], y, w);
          }
        } else if (LEVEL != 2u) {
          [[unroll]] for (int i = 0; i < OWN; i++) {
            u = fusedPlain(keys[k][chain][i / 4][i & 3], x[i], u);
            w = fusedPlain(queries[k][chain][i / 4][i & 3], x[i], w);
          }
        }
        sums[k & 1][chain][own] = vec2(u, w);
        barrier();
        vec2 a = sums[k & 1][0][own], b = sums[k & 1][1][own], c = sums[k & 1][2][own], d = sums[k & 1][3][own];
        float su = add(add(a.x, b.x), add(c.x, d.x)), sw = add(add(a.y, b.y), add(c.y, d.y));
        vec4 gate = gates[k];
        float decay = gate.x, delta = mul(fused(negated(decay), su, values[k][own]), gate.y);
        if (chain == 0 && mine) {
          g.dst.v[(s.first + token) * g.dstStride + h * g.values + col] = fused(gate.z, delta, mul(decay, sw));
          if (token >= s.n - s.drafts) mem.deltas.v[(token - s.n + s.drafts) * mem.deltasStride + h * g.values + col] = delta;
        }
        if (slow || LEVEL >= 3u && faint(delta)) {
          [[unroll]] for (int i = 0; i < OWN; i++) pool[(4 * i + chain) * COLUMNS + own] = x[i];
          [[dont_unroll]] for (int i = 0; i < OWN; i++) pool[(4 * i + chain) * COLUMNS + own] = fused(keys[k][chain][i / 4][i & 3], delta, mul(decay, pool[(4 * i + chain) * COLUMNS + own]));
          [[unroll]] for (int i = 0; i < OWN; i++) x[i] = pool[(4 * i + chain) * COLUMNS + own];
        } else if (LEVEL != 2u) {
          [[unroll]] for (int i = 0; i < OWN; i++) x[i] = fusedPlain(keys[k][chain][i / 4][i & 3], delta, mulPlain(decay, x[i]));
        }
      }
    }
    if (mine && s.n > 0 && s.drafts == 0)
      [[unroll]] for (int i = 0; i < OWN; i++) mem.state.v[at + i * stride] = x[i];
    barrier();
  }
}
