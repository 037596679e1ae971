// Products with superblocks of 4 bits and more.
#include "supers.cuh"

SUPER(q4k, Q4K, 4, 3, 3)
SUPER(q5k, Q5K, 4, 3, 3)
SUPER(q6k, Q6K, 3, 3, 3)
SUPER(xs, XS, 4, 3, 3)
