// What products have in common: their operands, and the destination of results.
layout(push_constant, scalar) uniform Args {
  Weight w;
  Bytes codes;  // [rows][codeStride]
  Pairs tails;  // [groups][tailRows]
  Floats x, dst;
  Floats bias;  // [rows of w], or none
  Call only;    // lists the tiles; none: all
  int matrix, tailRows, codeStride, xStride, dstStride, rows, adds;
} g;

// tileOfGroup is the tile of a workgroup, or -1.
int tileOfGroup() {
  int i = int(gl_WorkGroupID.x);
  if (none(g.only)) return i;
  return i < g.only.onlys ? g.only.only.v[i] : -1;
}

// put writes a result, with the bias and the old value.
void put(int row, int result, float v) {
  if (result >= g.w.rows) return;
  int to = row * g.dstStride + result;
  if (g.adds != 0) v = add(g.dst.v[to], v);
  if (!none(g.bias)) v = add(v, g.bias.v[result]);
  g.dst.v[to] = v;
}
