// Codes of pages, for kernels whose layer is g.a.
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
