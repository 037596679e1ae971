// Products with superblocks of fewer bits, and with those whose codes are written out.
#include "supers.cuh"

SUPER(q2k, Q2K, 4, 3, 2)
SUPER(q3k, Q3K, 4, 3, 3)
SUPER(tq, TQ, 4, 3, 3)
SUPER(s8, S8, 2, 2, 3)
