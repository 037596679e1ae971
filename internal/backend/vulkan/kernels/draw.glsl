// Draws from rows of logits with the noise of package sampling, whose comments have the reasons: see backend.Drawer. draw.go writes Draw.
#include "float64.glsl"
#include "top.glsl"
// inverse is 1/temperature, 0 for the most likely id; steps is how many steps of 2^-24 octaves a unit of logit has. The filters keep most
// ids, the share of the weight, and levels levels. Columns from first on count if their block of 16 has a bit in the row's mask.
struct Draw { uint64_t noise, inverse, steps, share; int cols, most, levels, first; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Draws { uint64_t weights[16]; Draw of[]; };
// Bins are the levels of a row, of 43 octaves: ids, and the sum of their shares of the level's weight.
const int LEVELS = 688;
struct Bins { uint counts[LEVELS], low[LEVELS], high[LEVELS]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Histogram { Bins of[]; };
// Sum is a candidate of a part of a row: of equal sums the lower column wins. column is -1 if there is none.
struct Sum { uint64_t sum; int column, unused; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Sums { Sum of[]; };
// Cut is where a row's filters end: the first level with rejected ids, and the weight of all levels that are kept.
struct Cut { uint64_t kept; int partial, unused; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Cuts { Cut of[]; };

const int PART = 1024; // columns that a workgroup reads at once
shared uint64_t keys[256];

// keyOf is a logit and its column in one integer: the higher logit is the greater key, and of equals the lower column. That of NaN and
// minus infinity is 0.
uint64_t keyOf(float z, int column) {
  uint o = ordered(z);
  return o < LOWEST ? uint64_t(0) : uint64_t(min(o, HIGHEST)) << 32 | uint64_t(~uint(column));
}
float logitOf(uint64_t key) { return unordered(uint(key >> 32)); }

// greatest is the greatest key of a workgroup of 256 threads. All of them get it.
uint64_t greatest(uint64_t key) {
  uint i = gl_LocalInvocationIndex;
  barrier();
  keys[i] = key;
  for (uint w = 128u; w > 0u; w >>= 1) {
    barrier();
    if (i < w && keys[i + w] > keys[i]) keys[i] = keys[i + w];
  }
  barrier();
  return keys[0];
}

// counted is a number of a row, minus infinity if its column does not count.
float counted(Floats x, int row, int column, Draw d, Uints masks, int words) {
  float none_ = uintBitsToFloat(0xff800000u);
  if (column >= d.cols) return none_;
  if (column >= d.first && (masks.v[words * int(gl_WorkGroupID.y) + (column >> 9)] >> (column >> 4 & 31) & 1u) == 0u) return none_;
  return x.v[row + column];
}

// down is how many steps a logit is below the highest. z is a number; what is endless counts as the largest.
Wide down(Wide peak, float z, uint64_t steps) {
  return times(plus(peak, minus(wideFloat(unordered(min(ordered(z), HIGHEST))))), wide(steps));
}
// levelOf is the level of steps, LEVELS if they have none.
int levelOf(Wide steps) { return steps.e >= -22 ? LEVELS : min(int(whole(steps) >> 20), LEVELS); }
// shareOf is 2^19 times the weight of an id relative to the weight of its level.
uint shareOf(Wide steps, int level) {
  Wide x = times(plus(steps, minus(wideInt(level << 20))), wide(0xbe662e42fefa39eful)); // -ln 2 / 2^24
  return uint(mul(exp32(narrow(x)), 524288.0));
}
// massOf is the weight of shares of a level.
uint64_t massOf(Draws draws, int level, uint64_t shares) {
  uint64_t hi, lo;
  product(shares << 23, draws.weights[level & 15] >> (level >> 4) << 21, hi, lo);
  return hi;
}
