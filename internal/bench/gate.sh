#!/bin/sh
# Compares the benchmarks of the working tree with those of a commit, and fails if one has
# become slower. The two alternate, so that both see the machine in the same moods.
#
#   internal/bench/gate.sh COMMIT                 measure and judge
#   internal/bench/gate.sh --judge OLD NEW        judge two files of benchmark output
#
# Environment: BENCHSTAT (the program), PACKAGES, BENCH (a regexp of benchmarks), COUNT
# (repetitions), BENCHTIME, LIMIT (per cent that a benchmark may be slower), ALPHA (of chance).
set -eu

BENCHSTAT=${BENCHSTAT:-benchstat}
PACKAGES=${PACKAGES:-./internal/backend/cpu/... ./internal/dtype ./internal/sampling ./internal/spec/...}
BENCH=${BENCH:-.}
COUNT=${COUNT:-8}
BENCHTIME=${BENCHTIME:-0.1s}
LIMIT=${LIMIT:-5}
ALPHA=${ALPHA:-0.01}

# judge prints the comparison, then what is slower beyond chance and the limit. Of
# benchstat's tables only the times count: other units say the same or are not about speed.
judge() {
	"$BENCHSTAT" -alpha "$ALPHA" "$1" "$2"
	"$BENCHSTAT" -alpha "$ALPHA" -format csv "$1" "$2" 2>/dev/null | awk -F, -v limit="$LIMIT" '
		/^pkg: / { pkg = substr($0, 6) }
		$1 == "" && $2 != "" { unit = $2 } # the last of the heads
		unit == "sec/op" && $1 != "" && $1 != "geomean" && NF >= 7 {
			compared++
			if ($6 ~ /^\+/ && substr($6, 2) + 0 > limit) {
				slower++
				print "slower: " pkg " " $1 " " $6 " (" $7 ")"
			}
		}
		END {
			if (!compared) { print "bench-gate: no benchmark is in both outputs: nothing was compared"; exit 1 }
			if (slower) { print "bench-gate: " slower " of " compared " benchmarks are more than " limit " % slower"; exit 1 }
			print "bench-gate: none of " compared " benchmarks is more than " limit " % slower"
		}'
}

if [ "${1:-}" = --judge ]; then
	judge "$2" "$3"
	exit
fi
refuse() {
	echo "bench-gate: $1" >&2
	exit 2
}
[ $# -eq 1 ] || refuse "name a commit to compare with: make bench-gate BASE=COMMIT"
git rev-parse --verify --quiet "$1^{commit}" >/dev/null || refuse "there is no commit $1"
[ "$COUNT" -ge 6 ] || refuse "COUNT=$COUNT: with fewer than 6 repetitions nothing is beyond chance"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
mkdir "$work/base"
git archive "$1" | tar -x -C "$work/base"

# build TREE NAME makes a test program for every package that has benchmarks.
build() {
	(
		cd "$1"
		for package in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' $PACKAGES); do
			grep -qs '^func Benchmark' "$package"/*_test.go || continue
			name=$(printf '%s' "${package#"$(pwd)"/}" | tr / _)
			go test -c -o "$work/$2-$name" "$package"
			printf '%s %s\n' "$work/$2-$name" "$package" >>"$work/$2.list"
		done
	)
}

# once NAME runs all of them.
once() {
	while read -r program dir; do
		(cd "$dir" && "$program" -test.run '^$' -test.bench "$BENCH" -test.benchtime "$BENCHTIME") </dev/null >>"$work/$1.txt"
	done <"$work/$1.list"
}

build "$work/base" old
build "$PWD" new
repeat=0
while [ "$repeat" -lt "$COUNT" ]; do
	repeat=$((repeat + 1))
	echo "bench-gate: repetition $repeat of $COUNT" >&2
	once old
	once new
done
judge "$work/old.txt" "$work/new.txt"
