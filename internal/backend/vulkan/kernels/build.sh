#!/bin/sh
# Compiles the kernels to SPIR-V. GLSLANG names the compiler: glslangValidator 14 or later, for cooperative matrices.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT INT TERM
compile() { # file, name of the module, options
	"${GLSLANG:-glslangValidator}" $3 -V -g0 --target-env vulkan1.3 -I. "$1" -o "$out/$2.spv" >"$out/log" || { cat "$out/log"; exit 1; }
}
for file in *.comp; do
	compile "$file" "${file%.comp}" ""
done
compile product_matrix.comp product_matrix_emulated -DEMULATED # for devices without such matrices, in tests
go run ../_gen "$out"
