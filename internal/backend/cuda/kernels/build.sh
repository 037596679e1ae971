#!/bin/sh
# Compiles every file of kernels to PTX for compute capability 9.0, compresses it with package ptxpack, and
# writes the hashes of sources and PTX to kernels.sum. NVCC names the compiler: what is committed was
# made by that of CUDA 11.8, whose text the oldest drivers know that the program supports: Dockerfile has it.
set -eu
cd "$(dirname "$0")"
text=$(mktemp)
trap 'rm -f "$text"' EXIT
for file in ${1:-*.cu}; do
	"${NVCC:-nvcc}" -O3 -std=c++17 -fmad=false --expt-relaxed-constexpr -arch=compute_90 -ptx "$file" -o "$text"
	go run ../_gen/pack <"$text" >"${file%.cu}.ptx.pack"
done
sha256sum ./*.cu ./*.cuh ./*.ptx.pack | sed 's| \./| |' >kernels.sum
