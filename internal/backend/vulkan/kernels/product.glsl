// What products have in common: their operands, and the destination of results.
#ifndef RESULTS
layout(push_constant, scalar) uniform Args {
  Weight w;
  Bytes codes;  // [rows][codeStride]
  Pairs tails;  // [groups][tailRows]
  Floats x, dst;
  Floats bias;  // [rows of w], or none
  Call only;    // lists the tiles; none: all
  Jobs jobs;    // of experts; none: one matrix multiplies all rows
  Ints sources; // rows of the jobs' slots; none: a slot is a row
  int matrix, tailRows, codeStride, xStride, dstStride, rows, adds;
} g;
#define RESULTS g.w.rows
#define MATRIX g.matrix
#endif

// part is the matrix, the first row of the result and the number of rows of a workgroup.
Job part() {
  int i = int(gl_WorkGroupID.y);
  if (none(g.jobs)) return Job(MATRIX, i * JOB, min(JOB, g.rows - i * JOB), 0);
  if (i >= g.jobs.count) return Job(0, 0, 0, 0);
  return Job(g.jobs.v[i].matrix, g.jobs.v[i].first, g.jobs.v[i].rows, 0);
}

// sourceOf is the row of x for a row of the result.
int sourceOf(int row) { return none(g.sources) ? row : g.sources.v[row]; }

// tileOfGroup is the tile of a workgroup, or -1.
int tileOfGroup() {
  int i = int(gl_WorkGroupID.x);
  if (none(g.only)) return i;
  return i < g.only.onlys ? g.only.only.v[i] : -1;
}

// put writes a result, with the bias and the old value.
void put(int row, int result, float v) {
  if (result >= RESULTS) return;
  int to = row * g.dstStride + result;
  if (g.adds != 0) v = add(g.dst.v[to], v);
  if (!none(g.bias)) v = add(v, g.bias.v[result]);
  g.dst.v[to] = v;
}
