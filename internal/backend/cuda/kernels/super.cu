// Products with superblocks. super.go knows the shapes.
#include "super.cuh"
#include "superpanel.cuh"
#include "superrow.cuh"

#define RELAY_SUPER(NAME, FORM, NB, S, BLOCKS)                                                  \
  extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                     \
      NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts, int shift) { \
    relaySuper<FORM, NB, S>(p, parts, shift);                                                   \
  }
#define ONE_SUPER(NAME, FORM, S)                                                                                               \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                                         \
      NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts, int shift, const __grid_constant__ SuperRow row, const __grid_constant__ SuperGates gates) { \
    oneSuper<FORM, S>(p, parts, shift, row, gates);                                                                       \
  }
#define PANEL_SUPER(NAME, FORM)                                                                \
  extern "C" __global__ void __launch_bounds__(640, 1)                                        \
      NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts, int size) { \
    panelSuper<FORM, 4>(p, parts, size);                                                      \
  }
#define MANY_SUPER(NAME, FORM, BLOCKS)                                                                    \
  extern "C" __global__ void __launch_bounds__(128, BLOCKS) NAME(const __grid_constant__ Product p) { \
    manySuper<FORM, 2, 2, 4, 2>(p);                                                                        \
  }

RELAY_SUPER(relay_q4k_1, Q4K, 1, 4, 2)
RELAY_SUPER(relay_q4k_2, Q4K, 2, 3, 2)
ONE_SUPER(one_q4k, Q4K, 4)
PANEL_SUPER(panel_q4k, Q4K)
MANY_SUPER(many_q4k, Q4K, 3)
RELAY_SUPER(relay_q5k_1, Q5K, 1, 4, 2)
RELAY_SUPER(relay_q5k_2, Q5K, 2, 3, 2)
ONE_SUPER(one_q5k, Q5K, 4)
PANEL_SUPER(panel_q5k, Q5K)
MANY_SUPER(many_q5k, Q5K, 3)
RELAY_SUPER(relay_q6k_1, Q6K, 1, 3, 2)
RELAY_SUPER(relay_q6k_2, Q6K, 2, 3, 2)
ONE_SUPER(one_q6k, Q6K, 3)
PANEL_SUPER(panel_q6k, Q6K)
MANY_SUPER(many_q6k, Q6K, 3)
RELAY_SUPER(relay_xs_1, XS, 1, 4, 2)
RELAY_SUPER(relay_xs_2, XS, 2, 3, 2)
ONE_SUPER(one_xs, XS, 4)
PANEL_SUPER(panel_xs, XS)
MANY_SUPER(many_xs, XS, 3)
