// Attention over pages of floats with values of more than 256 numbers, as latent rows have.
#include "pages.cuh"

extern "C" __global__ void __launch_bounds__(256) attend_halves_wide(const Call *call, const __grid_constant__ Layer a) { floats<__half, 2>(call, a); }
extern "C" __global__ void __launch_bounds__(256) attend_floats_wide(const Call *call, const __grid_constant__ Layer a) { floats<float, 2>(call, a); }
