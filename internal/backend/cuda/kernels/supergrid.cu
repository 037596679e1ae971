// Products with superblocks of the grid formats that have signs.
#include "supers.cuh"

SUPER(iq3xxs, IQ3XXS, 4, 3, 3)
SUPER(iq3s, IQ3S, 4, 3, 3)
SUPER(iq2xxs, IQ2XXS, 4, 3, 3)
SUPER(iq2xs, IQ2XS, 4, 3, 3)
SUPER(iq2s, IQ2S, 4, 3, 3)
