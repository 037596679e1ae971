#!/bin/sh
# Compiles the kernels to SPIR-V. GLSLANG names the compiler: glslangValidator 14 or later, for cooperative matrices.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT INT TERM
for file in *.comp; do
	name=${file%.comp}
	"${GLSLANG:-glslangValidator}" -V -g0 --target-env vulkan1.3 -I. "$file" -o "$out/$name.spv" >"$out/log" || { cat "$out/log"; exit 1; }
done
go run ../_gen "$out"
