// A mixture of experts: the selection, the slots of the selected, and the sum. Every selection of a row
// has a slot, a row in the experts' memory; the slots of an expert are contiguous, from a
// multiple of eight on, and its products are jobs over them. If the shared expert is like the others
// it is one of the jobs, as matrix -1, with a slot for every row behind those of the selections.
#include "choose.cuh"
#include "product.cuh"

// Choice is the request: see backend.Experts.
struct Choice {  // shared with Go
  const float* logits;  // [rows, experts]
  const float* bias;    // [experts], or none
  const float* factors; // likewise
  int* chosen;          // [rows, topK]
  float* weights;       // [rows, topK]
  int logitsStride, experts, topK, sigmoid, groups, topGroups, normalize;
  float scale;  // 0: 1
};

// leaveOut makes the keys of all but the best groups minus infinity. sums has space for as many
// numbers as there are groups, best for as many as stay.
__device__ void leaveOut(float* keys, int count, int groups, int stay, float* sums, int* best) {
  const int lane = threadIdx.x & 31, size = count / groups;
#pragma unroll 1
  for (int g = lane; g < groups; g += 32) {
    int two[2];
    insert(two, min(2, size), keys + g * size, size);
    float sum = add(0.0f, keys[g * size + two[0]]);
    if (size > 1) sum = add(sum, keys[g * size + two[1]]);
    sums[g] = sum;
  }
  __syncwarp();
  if (lane == 0) insert(best, stay, sums, groups);
  __syncwarp();
#pragma unroll 1
  for (int i = lane; i < count; i += 32) {
    bool stays = false;
#pragma unroll 1
    for (int j = 0; j < stay; j++) stays |= best[j] == i / size;
    if (!stays) keys[i] = __int_as_float(0xff800000);
  }
  __syncwarp();
}

// spaceOf is the number of words of shared memory for chooseRow: scores, keys, sums and best of groups,
// and the chosen.
__device__ __forceinline__ int spaceOf(const Choice& c) { return 2 * (c.experts + max(c.groups, 1)) + c.topK; }

// chooseRow has a warp rank and weigh the experts of a row, and returns the chosen, in shared memory.
__device__ __forceinline__ const int* chooseRow(const Choice& c, int row, float* scores) {
  const int lane = threadIdx.x & 31, n = c.experts, k = c.topK;
  const float* logits = c.logits + (long long)row * c.logitsStride;
  float* weights = c.weights + (long long)row * k;
  float *keys = scores + n, *sums = keys + n;
  int* chosen = (int*)(sums + 2 * max(c.groups, 1));
#pragma unroll 8
  for (int i = lane; i < n; i += 32) scores[i] = logits[i];
  __syncwarp();
  float total = 0;
  const float* ranked = scores;
  const bool plain = !c.sigmoid && !c.bias && c.groups <= 1;
  if (!plain) {
    if (c.sigmoid) {
#pragma unroll 1
      for (int i = lane; i < n; i += 32) scores[i] = sigmoid32(scores[i]);
    } else {
      total = softmax(scores, n);
#pragma unroll 1
      for (int i = lane; i < n; i += 32) scores[i] = quot(scores[i], total);
    }
#pragma unroll 1
    for (int i = lane; i < n; i += 32) keys[i] = c.bias ? add(scores[i], c.bias[i]) : scores[i];
    __syncwarp();
    if (c.groups > 1) leaveOut(keys, n, c.groups, c.topGroups, sums, (int*)(sums + c.groups));
    ranked = keys;
  }
  rank(chosen, k, ranked, n);
  // The scores of the chosen, in place of the keys.
  const bool all = plain && !c.normalize;
  if (all) total = softmax(scores, n);
#pragma unroll 1
  for (int j = lane; j < k; j += 32) {
    keys[j] = scores[chosen[j]];
    c.chosen[(long long)row * k + j] = chosen[j];
  }
  __syncwarp();
  if (plain) {
    if (!all) total = softmax(keys, k);
  } else {
    total = 0;
#pragma unroll 4
    for (int j = 0; j < k; j++) total = add(total, keys[j]);
    total = c.normalize ? add(total, 1e-20f) : 1.0f;
  }
#pragma unroll 1
  for (int j = lane; j < k; j += 32) {
    const float w = quot(keys[j], total);
    weights[j] = c.scale != 0 ? mul(w, c.scale) : w;
    if (c.factors) weights[j] = mul(weights[j], c.factors[chosen[j]]);
  }
  return chosen;
}

// Kernel choose: router of a mixture of experts: top-k by softmax or sigmoid, with biases, groups and normalization.
// Layout: logits [rows, experts] → choices and weights [rows, k].
// Grid: x: rows, a warp each.
// Sums: softmax and normalization in lane order.
//
// choose has a warp for each row.
extern "C" __global__ void __launch_bounds__(32) choose(const __grid_constant__ Choice c) {
  extern __shared__ float scores[];
  release();
  await();
  chooseRow(c, blockIdx.x, scores);
}

// Places is the destination of choices: slots, and jobs of at most `most` rows each. The shared expert, if it is
// one of the jobs, has `shared` rows.
struct Places {  // shared with Go
  const int* chosen;
  int* slots;
  Job* jobs;
  int* jobCount;
  int choices, most, shared, unused;
};

// Counts is the counts of a block: choices and first slot of each expert, slots and jobs of each warp's
// experts.
struct Counts {
  int count[1024], first[1024], slots[32], jobs[32];
};

// assignAll assigns every choice its slot and lists the jobs with a block, a thread for each expert.
__device__ __forceinline__ void assignAll(const Places& p, Counts& counts) {
  const int* chosen = p.chosen;
  int* slots = p.slots;
  const int choices = p.choices, most = p.most, e = threadIdx.x, lane = e & 31, warp = e / 32;
  counts.count[e] = 0;
  __syncthreads();
#pragma unroll 1
  for (int i = e; i < choices; i += blockDim.x) slots[i] = atomicAdd(&counts.count[chosen[i]], 1);
  __syncthreads();
  // Slots and jobs up to and with this expert, first within its warp.
  const int rows = counts.count[e], parts = (rows + most - 1) / most, space = (rows + 7) & ~7;
  int first = space, job = parts;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int s = __shfl_up_sync(LANES, first, d), j = __shfl_up_sync(LANES, job, d);
    if (lane >= d) first += s, job += j;
  }
  if (lane == 31) counts.slots[warp] = first, counts.jobs[warp] = job;
  __syncthreads();
  const int s = lane < blockDim.x / 32 ? counts.slots[lane] : 0, j = lane < blockDim.x / 32 ? counts.jobs[lane] : 0;
  const int end = __reduce_add_sync(LANES, s), jobs = __reduce_add_sync(LANES, j);
  first += __reduce_add_sync(LANES, lane < warp ? s : 0) - space;
  job += __reduce_add_sync(LANES, lane < warp ? j : 0) - parts;
  counts.first[e] = first;
  __syncthreads();
#pragma unroll 1
  for (int i = 0; i < parts; i++) p.jobs[job + i] = Job{e, first + i * most, min(most, rows - i * most), 0};
#pragma unroll 1
  for (int i = e; i * most < p.shared; i += blockDim.x) p.jobs[jobs + i] = Job{-1, end + i * most, min(most, p.shared - i * most), 0};
#pragma unroll 1
  for (int i = e; i < p.shared; i += blockDim.x) slots[choices + i] = end + i;
  if (e == 0) *p.jobCount = jobs + (p.shared + most - 1) / most;
#pragma unroll 1
  for (int i = e; i < choices; i += blockDim.x) slots[i] += counts.first[chosen[i]];
}

// Kernel assign: sorts choices by expert (counting sort) and lists the jobs of a grouped GEMM.
// Layout: choices → slots, jobs.
// Grid: one block, a thread for each expert.
// Sums: exact integers.
extern "C" __global__ void __launch_bounds__(1024) assign(const __grid_constant__ Places p) {
  __shared__ Counts counts;
  release();
  await();
  assignAll(p, counts);
}

// Kernel choose_assign, choose_one: choose and assign in one kernel, for few rows and for one row.
// Layout: as in choose and assign.
// Grid: one block.
// Sums: as in choose.
//
// choose_assign is both, for few rows: a warp has a row at a time. Shared memory: spaceOf for each
// warp.
extern "C" __global__ void __launch_bounds__(1024) choose_assign(const __grid_constant__ Choice c, const __grid_constant__ Places p, int rows) {
  extern __shared__ float scores[];
  __shared__ Counts counts;
  release();
  await();
  const int warp = threadIdx.x / 32;
#pragma unroll 1
  for (int row = warp; row < rows; row += blockDim.x / 32) {
    chooseRow(c, row, scores + warp * spaceOf(c));
    __syncwarp();
  }
  __syncthreads();
  assignAll(p, counts);
}

// choose_one is both for one row, whose choices are jobs in their order. A warp computes it.
extern "C" __global__ void __launch_bounds__(32) choose_one(const __grid_constant__ Choice c, const __grid_constant__ Places p) {
  extern __shared__ float scores[];
  release();
  await();
  const int* chosen = chooseRow(c, 0, scores);
#pragma unroll 1
  for (int j = threadIdx.x; j < p.choices + p.shared; j += 32) {
    p.jobs[j] = Job{j < p.choices ? chosen[j] : -1, 8 * j, 1, 0};
    p.slots[j] = 8 * j;
  }
  if (threadIdx.x == 0) *p.jobCount = p.choices + p.shared;
}

// Kernel gatherSlots: permutes rows to the slots of their experts.
// Layout: float32 rows.
// Grid: x: columns, y: choices.
// Sums: none.
//
// gatherSlots copies each choice's row of x to its slot.
extern "C" __global__ void __launch_bounds__(256) gatherSlots(float* dst, const float* x, int stride, int cols, const int* slots, int topK) {
  release();
  await();
  const float* from = x + (long long)(blockIdx.y / topK) * stride;
  float* to = dst + (long long)slots[blockIdx.y] * cols;
#pragma unroll 1
  for (int i = blockIdx.x * 256 + threadIdx.x; i < cols; i += gridDim.x * 256) to[i] = from[i];
}

// Kernel combine: weighted sum of the answers of experts, added to the residual.
// Layout: answers by slot, float32.
// Grid: x: columns, y: rows.
// Sums: experts by rank, then the shared one.
//
// combine adds the outputs of a row's experts to dst: by rank, then the shared one, whose weight is
// the sigmoid of router's number or, without router, 1. The shared outputs are separate rows or, with
// sharedSlots, among the slots.
extern "C" __global__ void __launch_bounds__(256) combine(float* dst, int stride, const float* answers, const float* weights, const int* slots, int topK, int cols, const float* shared, int sharedSlots, const float* router, int routerStride) {
  release();
  await();
  const long long row = blockIdx.y;
  if (sharedSlots) shared = answers + (long long)slots[sharedSlots + row] * cols;
  else if (shared) shared += row * cols;
  const float weight = shared && router ? sigmoid32(router[row * routerStride]) : 1.0f;
  weights += row * topK, slots += row * topK;
#pragma unroll 1
  for (int i = blockIdx.x * 256 + threadIdx.x; i < cols; i += gridDim.x * 256) {
    const float old = dst[row * stride + i], last = shared ? shared[i] : 0.0f;
    float sum = 0;
#pragma unroll 1
    for (int j = 0; j < topK; j += 8) {  // all inputs of eight experts are loaded before they are added
      float x[8], w[8];
#pragma unroll
      for (int k = 0; k < 8; k++)
        if (j + k < topK) x[k] = answers[(long long)slots[j + k] * cols + i], w[k] = weights[j + k];
#pragma unroll
      for (int k = 0; k < 8; k++)
        if (j + k < topK) sum = add(sum, mul(w[k], x[k]));
    }
    if (shared) sum = add(sum, mul(weight, last));
    dst[row * stride + i] = add(old, sum);
  }
}
