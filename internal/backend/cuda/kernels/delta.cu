// Gated DeltaNet layers: backend.Ops.DeltaNet. A layer is three kernels: delta_mix computes the parts
// that do not depend on other rows, delta_recur the recurrence, delta_gate the gated norm and the inputs of
// the next call. Few rows of the usual widths have one kernel: deltafew.cu.
#include "async.cuh"
#include "delta.cuh"

// The widths of a layer.
struct Widths {
  int keyHeads, valueHeads, keys, values, kernel;
  __device__ int share() const { return valueHeads / keyHeads; }
  __device__ int channels() const { return 2 * keyHeads * keys + valueHeads * values; }
};

// The recurrence adds over keys in four chains, key mod 4.
__device__ __forceinline__ int chained(int keys) { return (keys + 3) / 4 * 4; }

// Mixed is the output of delta_mix for every row. Queries and keys of a head are permuted by place,
// so that those of a chain of the recurrence are neighbors.
struct Mixed {
  float *query, *key;    // [rows][keyHeads][keys rounded up to fours]
  float *value;          // [rows][valueHeads][values]
  float *kq;             // [rows][keyHeads]: key·query
  float *decay, *beta;   // [rows][valueHeads]

  // They follow one another from p on: delta.go has their size.
  __device__ Mixed(float *p, int rows, int keyHeads, int valueHeads, int keys, int values) {
    const size_t n = rows, heads = n * keyHeads;
    query = p;
    key = query + heads * chained(keys);
    value = key + heads * chained(keys);
    kq = value + (n * valueHeads * values + 3) / 4 * 4;
    decay = kq + heads;
    beta = decay + n * valueHeads;
  }
};

__device__ __forceinline__ int place(int key, int keys) { return (key & 3) * (chained(keys) / 4) + key / 4; }

// input is channel c of token i of a sequence, before the convolution. Those before the first
// token of the call are in the tail.
__device__ __forceinline__ float input(const Seq &s, const Recurrent &mem, const float *qkv, int stride, int kernel, int i, int c) {
  const bool here = i >= 0;
  const float *rows = here ? qkv : mem.tail;
  return rows[(size_t)(here ? s.first + i : s.accepted + kernel - 1 + i) * (here ? stride : mem.tailStride) + c];
}

// Kernel delta_mix: Gated DeltaNet before the recurrence: causal convolution, L2 norm of queries and keys, decay and beta.
// Layout: float32 rows → [rows] of normalized heads.
// Grid: x: key heads, y: rows.
// Sums: convolution ascending, squares in lane order.
//
// Convolution, normalized queries and keys, gates. A block has a key head of a row, and as many value
// heads as belong to one: which does not matter here.
extern "C" __global__ void __launch_bounds__(256) delta_mix(const Call *call, int layer, const float *qkv, int qkvStride,
    const float *a, int aStride, const float *b, int bStride, const float *conv, int convStride, const float *rate, const float *bias,
    int keyHeads, int valueHeads, int keys, int values, int kernel, float *mixed) {
  extern __shared__ float head[];  // query and key
  __shared__ float scales[2];
  const Widths d = {keyHeads, valueHeads, keys, values, kernel};
  const Mixed to(mixed, gridDim.y, keyHeads, valueHeads, keys, values);
  const int m = blockIdx.x, r = blockIdx.y, tid = threadIdx.x, share = d.share(), channels = d.channels();
  release();
  await();
  const int owner = call->rowSeq[r];
  if (owner < 0) return;
  const Seq s = call->seq[owner];
  const Recurrent mem = call->delta[s.deltas + layer];
#pragma unroll 1
  for (int i = tid; i < 2 * keys + share * values; i += blockDim.x) {
    const int c = i < keys ? m * keys + i : i < 2 * keys ? (keyHeads + m) * keys + i - keys : 2 * keyHeads * keys + m * share * values + i - 2 * keys;
    float sum = 0.0f;
#pragma unroll 1
    for (int j = 0; j < kernel; j += 4) {
      float x[4], w[4];
#pragma unroll
      for (int k = 0; k < 4; k++)
        if (j + k < kernel) x[k] = input(s, mem, qkv, qkvStride, kernel, r - s.first - (kernel - 1) + j + k, c), w[k] = conv[(size_t)(j + k) * convStride + c];
#pragma unroll
      for (int k = 0; k < 4; k++)
        if (j + k < kernel) sum = j + k == 0 ? mul(w[k], x[k]) : fused(w[k], x[k], sum);
    }
    sum = silu32(sum);
    if (i < 2 * keys) head[i] = sum;
    else to.value[(size_t)r * valueHeads * values + m * share * values + i - 2 * keys] = sum;
  }
  __syncthreads();
  if (tid < 64) {  // the first warp has the query, the second the key
    const float *x = head + tid / 32 * keys;
    const float length = rsqrt32(add(dot16(x, x, keys), 1e-6f));
    if (tid % 32 == 0) scales[tid / 32] = mul(length, tid == 0 ? rsqrt32((float)keys) : 1.0f);
  }
  __syncthreads();
#pragma unroll 1
  for (int i = tid; i < 2 * keys; i += blockDim.x) head[i] = mul(head[i], scales[i / keys]);
  __syncthreads();
  const size_t first = ((size_t)r * keyHeads + m) * chained(keys);
#pragma unroll 1
  for (int i = tid; i < chained(keys); i += blockDim.x) {
    to.query[first + place(i, keys)] = i < keys ? head[i] : 0.0f;
    to.key[first + place(i, keys)] = i < keys ? head[keys + i] : 0.0f;
  }
  if (tid < 32) {
    const float kq = dot16(head + keys, head, keys);
    if (tid == 0) to.kq[(size_t)r * keyHeads + m] = kq;
  }
#pragma unroll 1
  for (int i = (int)blockDim.x - 1 - tid; i < share; i += blockDim.x) {
    const int h = m * share + i;
    to.decay[(size_t)r * valueHeads + h] = exp32(mul(rate[h], softplus32(add(a[(size_t)r * aStride + h], bias[h]))));
    to.beta[(size_t)r * valueHeads + h] = sigmoid32(b[(size_t)r * bStride + h]);
  }
}

// The recurrence: see deltaRead and deltaUpdate of the CPU. A block has `strip` columns of a value head
// of a sequence, a thread one column and the keys of one chain. A sequence's state is written
// back after the last token that cannot be rejected.
const int strip = 32;

// Kernel delta_recur, delta_recur128: the recurrence of Gated DeltaNet (linear attention with the delta rule), token by
//   token; 128: heads of 128 keys with the state in registers and a ring of tokens in shared memory.
// Layout: state [key, value] float32 per value head.
// Grid: x: value heads times strips of 32 columns, y: sequences by stride.
// Sums: a sum over the keys by key mod 4, then (0+1)+(2+3) (deltaRead of the CPU).
//
// For any number of keys. The state is in shared memory.
extern "C" __global__ void __launch_bounds__(128) delta_recur(const Call *call, int layer, float *dst, int dstStride,
    int keyHeads, int valueHeads, int neighbors, int keys, int values, float *mixed, int rows) {
  const Mixed from(mixed, rows, keyHeads, valueHeads, keys, values);
  extern __shared__ float shared[];  // [keys][strip+1], then key and query of a token
  const int quarter = chained(keys) / 4;
  float *state = shared, *key = shared + keys * (strip + 1), *query = key + 4 * quarter;
  const int strips = (values + strip - 1) / strip, h = blockIdx.x / strips, tid = threadIdx.x;
  const int chain = tid & 3, c = tid / 4, col = blockIdx.x % strips * strip + c, m = keyHead(h, neighbors, keyHeads);
  const bool mine = col < values;
  release();
  await();
  for (int owner = blockIdx.y; owner < call->seqs; owner += gridDim.y) {
    const Seq s = call->seq[owner];
    const Recurrent mem = call->delta[s.deltas + layer];
    float *home = mem.state + (size_t)h * keys * mem.stateStride + col;
    int left = s.n - s.drafts + s.accepted;  // changes that cannot be rejected
#pragma unroll 1
    for (int i = chain; i < keys; i += 4) state[i * (strip + 1) + c] = mine ? home[(size_t)i * mem.stateStride] : 0.0f;
    auto change = [&](float delta, float decay) {
#pragma unroll 1
      for (int i = chain; i < keys; i += 4) {
        float *x = &state[i * (strip + 1) + c];
        *x = fused(key[chain * quarter + i / 4], delta, mul(decay, *x));
      }
      if (--left == 0 && mine)
#pragma unroll 1
        for (int i = chain; i < keys; i += 4) home[(size_t)i * mem.stateStride] = state[i * (strip + 1) + c];
    };
    for (int j = 0; j < s.accepted; j++) {
      __syncthreads();
#pragma unroll 1
      for (int i = tid; i < keys; i += blockDim.x) key[place(i, keys)] = mem.keys[(size_t)j * mem.keysStride + m * keys + i];
      __syncthreads();
      change(mine ? mem.deltas[(size_t)j * mem.deltasStride + h * values + col] : 0.0f, mem.decays[(size_t)j * mem.decaysStride + h]);
    }
    for (int t = 0; t < s.n; t++) {
      const int r = s.first + t;
      __syncthreads();
#pragma unroll 1
      for (int i = tid; i < 4 * quarter; i += blockDim.x) {
        key[i] = from.key[((size_t)r * keyHeads + m) * 4 * quarter + i];
        query[i] = from.query[((size_t)r * keyHeads + m) * 4 * quarter + i];
      }
      __syncthreads();
      float u = 0.0f, w = 0.0f;
#pragma unroll 1
      for (int i = chain; i < keys; i += 4) {
        const float x = state[i * (strip + 1) + c];
        u = fused(key[chain * quarter + i / 4], x, u);
        w = fused(query[chain * quarter + i / 4], x, w);
      }
      u = quarters(u);
      w = quarters(w);
      const size_t at = (size_t)r * valueHeads + h;
      const float decay = from.decay[at], v = mine ? from.value[at * values + col] : 0.0f;
      const float delta = mul(fused(-decay, u, v), from.beta[at]);
      if (mine && chain == 0) {
        dst[(size_t)r * dstStride + h * values + col] = fused(from.kq[(size_t)r * keyHeads + m], delta, mul(decay, w));
        if (t >= s.n - s.drafts) mem.deltas[(size_t)(t - s.n + s.drafts) * mem.deltasStride + h * values + col] = delta;
      }
      if (left > 0 || t + 1 < s.n) change(delta, decay);
    }
    __syncthreads();
  }
}

// For 128 keys and values by 32. The state is in registers, 32 numbers of a thread; a warp has a chain,
// and the four of a column are combined in shared memory. Tokens come through a ring there, a group of them at
// a time and two groups ahead. The update by a token is computed together with the read of the next
// one, whose key and query are in registers by then. Those of the token after it are loaded behind
// each number's last use, not before the sums are added up.
const int group = 8, ring = 3 * group;

struct Token {
  float key[4 * quarterStep], query[4 * quarterStep], value[strip];
  float decay, beta, kq, unused;
};

extern "C" __global__ void __launch_bounds__(128) delta_recur128(const Call *call, int layer, float *dst, int dstStride,
    int keyHeads, int valueHeads, int neighbors, int values, float *mixed, int rows) {
  const Mixed from(mixed, rows, keyHeads, valueHeads, 128, values);
  __shared__ __align__(16) Token tokens[ring];
  __shared__ float2 sums[2][4][strip];
  const int strips = values / strip, h = blockIdx.x / strips, first = blockIdx.x % strips * strip, tid = threadIdx.x;
  const int chain = __shfl_sync(0xffffffffu, tid / 32, 0), c = tid & 31, col = first + c, m = keyHead(h, neighbors, keyHeads), own = chain * quarterStep;
  release();
#pragma unroll 1
  for (int owner = blockIdx.y; owner < call->seqs; owner += gridDim.y) {
    Seq s = call->seq[owner];
    // These are equal in all threads of a warp; otherwise the compiler keeps threads together.
    s.n = __shfl_sync(0xffffffffu, s.n, 0), s.drafts = __shfl_sync(0xffffffffu, s.drafts, 0), s.accepted = __shfl_sync(0xffffffffu, s.accepted, 0);
    const Recurrent mem = call->delta[s.deltas + layer];
    float *home = mem.state + ((size_t)h * 128 + chain) * mem.stateStride + col;
    const size_t step = (size_t)4 * mem.stateStride;
    if (s.n == 0) continue;
    auto bring = [&](int t0) {  // the group of tokens from t0 on, on its way: a warp has every fourth
      const int lane = tid & 31;
#pragma unroll
      for (int i = 0; i < group; i += 4) {
        const int t = t0 + i + tid / 32;
        if (t >= s.n) continue;
        const size_t r = s.first + t, head = r * keyHeads + m, at = r * valueHeads + h;
        Token *x = &tokens[t % ring];
        copy16(x->key + lane / 8 * quarterStep + lane % 8 * 4, from.key + head * 128 + lane * 4);
        copy16(x->query + lane / 8 * quarterStep + lane % 8 * 4, from.query + head * 128 + lane * 4);
        if (lane < strip / 4) copy16(x->value + lane * 4, from.value + at * values + first + lane * 4);
        else if (lane == 8) copy4(&x->decay, from.decay + at);
        else if (lane == 9) copy4(&x->beta, from.beta + at);
        else if (lane == 10) copy4(&x->kq, from.kq + head);
      }
      commit();
    };
    // No kernel of this pass has written the state and the replayed tokens: they need not wait.
    State state;
    const float *p = home;
#pragma unroll
    for (int j = 0; j < 8; j++, p += 4 * step) state.of[j] = make_float4(p[0], p[step], p[2 * step], p[3 * step]);
    auto store = [&] {
      float *p = home;
#pragma unroll
      for (int j = 0; j < 8; j++, p += 4 * step) p[0] = state.of[j].x, p[step] = state.of[j].y, p[2 * step] = state.of[j].z, p[3 * step] = state.of[j].w;
    };
    // Accepted drafts of the call before pass where the third group of tokens will be.
#pragma unroll 1
    for (int j = 0; j < s.accepted; j++) {
      if (j % group == 0) {
        __syncthreads();
#pragma unroll 1
        for (int k = 0; k < min(group, s.accepted - j); k++) {
          Token *x = &tokens[2 * group + k];
          copy4(&x->key[own + c], mem.keys + (size_t)(j + k) * mem.keysStride + m * 128 + 4 * c + chain);
          if (chain == 0) copy4(&x->value[c], mem.deltas + (size_t)(j + k) * mem.deltasStride + h * values + col);
          if (tid == 0) copy4(&x->decay, mem.decays + (size_t)(j + k) * mem.decaysStride + h);
        }
        commit();
        arrive<0>();
        __syncthreads();
      }
      const Token &x = tokens[2 * group + j % group];
      Quarter key;
      key.load(x.key + own);
#pragma unroll
      for (int k = 0; k < 8; k++) state.change(k, key.of[k], x.value[c], x.decay);
    }
    await();
#pragma unroll 1
    for (int t = 0; t < 2 * group; t += group) bring(t);
    arrive<1>();
    __syncthreads();  // the first group is there, and no thread replays any more
    Quarter even, odd, query;  // keys of tokens by turns, and the query of the next
    even.load(tokens[0].key + own);
    query.load(tokens[0].query + own);
    float u = 0.0f, w = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) state.read(j, even.of[j], query.of[j], &u, &w);
    const Token *now = tokens, *after = tokens + min(1, s.n - 1);
    odd.load(after->key + own);
    query.load(after->query + own);
    float *out = dst + (size_t)s.first * dstStride + h * values + col;
    const int sure = s.n - s.drafts;
    int there = group;  // tokens that have arrived
    auto token = [&](int t, Quarter &key, Quarter &next) {
      float2(&sum)[4][strip] = sums[t & 1];
      sum[chain][c] = make_float2(u, w);
      const float2 gates = *(const float2 *)&now->decay;
      const float value = now->value[c], kq = now->kq;
      __syncthreads();
      const float2 s0 = sum[0][c], s1 = sum[1][c], s2 = sum[2][c], s3 = sum[3][c];
      const float decay = gates.x, delta = mul(fused(-decay, add(add(s0.x, s1.x), add(s2.x, s3.x)), value), gates.y);
      if (chain == 0) {
        *out = fused(kq, delta, mul(decay, add(add(s0.y, s1.y), add(s2.y, s3.y))));
        if (t >= sure) mem.deltas[(size_t)(t - sure) * mem.deltasStride + h * values + col] = delta;
      }
      out += dstStride;
      now = after;
      if (t + 2 < s.n) after = after == tokens + ring - 1 ? tokens : after + 1;
      const float4 *k = (const float4 *)(after->key + own), *q = (const float4 *)(after->query + own);
      u = w = 0.0f;
#pragma unroll
      for (int j = 0; j < 8; j++) {
        state.change(j, key.of[j], delta, decay);
        state.read(j, next.of[j], query.of[j], &u, &w);
        key.of[j] = k[j], query.of[j] = q[j];
      }
    };
    int t = 0;
#pragma unroll 1
    for (int end = sure;; end = s.n) {
#pragma unroll 1
      for (; t < end; t += 2) {
        if (t + 3 >= there) {  // the next two tokens are of the next group
          arrive<0>();
          __syncthreads();
          bring(there + group);  // to where the group before this one was
          there += group;
        }
        token(t, even, odd);
        if (t + 1 == end) break;
        token(t + 1, odd, even);
      }
      if (t < end) {  // an odd number of them
        t++;
#pragma unroll
        for (int j = 0; j < 8; j++) {
          const float4 x = even.of[j];
          even.of[j] = odd.of[j], odd.of[j] = x;
        }
      }
      if (end == sure) store();  // later tokens may be rejected
      if (end == s.n) break;
    }
    arrive<0>();
    __syncthreads();
  }
  await();
}

// Kernel delta_gate: gated RMSNorm of DeltaNet heads, fused with quantization where a product asks for it; saves what the
//   next call needs.
// Layout: float32 rows → float32 rows and codes.
// Grid: x: 4 value heads, a warp each; y: rows, then the last inputs.
// Sums: squares in lane order.
//
// The gated norm, in place, a warp for each value head of a row, which it also quantizes if a product needs
// that and the head is at most 128 values in whole groups; and the inputs of the next call: keys and
// decays of drafts, and by the blocks beyond the rows the last inputs.
extern "C" __global__ void __launch_bounds__(128) delta_gate(const Call *call, int layer, float *dst, int dstStride,
    const float *z, int zStride, const float *norm, float eps, int sigmoidGate, const float *qkv, int qkvStride,
    int keyHeads, int valueHeads, int keys, int values, int kernel, float *mixed, int rows, Codes codes) {
  const Widths d = {keyHeads, valueHeads, keys, values, kernel};
  const Mixed from(mixed, rows, keyHeads, valueHeads, keys, values);
  const int r = blockIdx.y, tid = threadIdx.x, lane = tid & 31, heads = (valueHeads + 3) / 4;
  release();
  await();
  if (r >= rows) {
    // Tail row i becomes the input of token sure-(kernel-1)+i. Rows move towards the front only,
    // so ascending order never overwrites a row that is still needed. A thread has a channel.
    const int pieces = (d.channels() + 127) / 128;
#pragma unroll 1
    for (int piece = (r - rows) * gridDim.x + blockIdx.x; piece < pieces * call->seqs; piece += (gridDim.y - rows) * gridDim.x) {
      const Seq s = call->seq[piece / pieces];
      const Recurrent mem = call->delta[s.deltas + layer];
      const int c = piece % pieces * 128 + tid, n = s.n ? kernel - 1 + s.drafts : 0, batch = 4;
      if (c >= d.channels()) continue;
#pragma unroll 1
      for (int i = 0; i < n; i += batch) {
        float x[batch];
#pragma unroll
        for (int j = 0; j < batch; j++)
          if (i + j < n) x[j] = input(s, mem, qkv, qkvStride, kernel, s.n - s.drafts - (kernel - 1) + i + j, c);
#pragma unroll
        for (int j = 0; j < batch; j++)
          if (i + j < n) mem.tail[(size_t)(i + j) * mem.tailStride + c] = x[j];
      }
    }
    return;
  }
  const int owner = call->rowSeq[r], h = blockIdx.x * 4 + tid / 32;
  float *x = dst + (size_t)r * dstStride + h * values;
  if (owner < 0) {
    if (codes.codes && h < valueHeads) {
      float v[4];
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] = lane + 32 * i < values ? x[lane + 32 * i] : 0.0f;
      quantizeGroups(v, values, codes, r, h * values);
    }
    return;
  }
  const Seq s = call->seq[owner];
  const Recurrent mem = call->delta[s.deltas + layer];
  const int sure = s.n - s.drafts;
  const int draft = r - s.first - sure;
  if (draft >= 0) {
#pragma unroll 1
    for (int i = blockIdx.x * 128 + tid; i < keyHeads * keys; i += heads * 128)
      mem.keys[(size_t)draft * mem.keysStride + i] = from.key[((size_t)r * keyHeads + i / keys) * chained(keys) + place(i % keys, keys)];
#pragma unroll 1
    for (int i = blockIdx.x * 128 + tid; i < valueHeads; i += heads * 128)
      mem.decays[(size_t)draft * mem.decaysStride + i] = from.decay[(size_t)r * valueHeads + i];
  }
  if (h >= valueHeads) return;
  const float *gate = z + (size_t)r * zStride + h * values;
  const float scale = rsqrt32(add(quot(dot16(x, x, values), (float)values), eps));
#pragma unroll 1
  for (int first = 0; first < values; first += 128) {
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int i = first + lane + 32 * k;
      v[k] = 0.0f;
      if (i >= values) continue;
      const float g = gate[i], by = sigmoidGate ? sigmoid32(g) : silu32(g);
      v[k] = x[i] = mul(mul(mul(x[i], scale), norm[i]), by);
    }
    if (codes.codes) quantizeGroups(v, values, codes, r, h * values);
  }
}
