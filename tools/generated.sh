#!/bin/sh
# Generates everything again in a copy of the tree, and compares. A file that says it is
# generated and is not made by any go:generate line is a difference too.
set -eu
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT INT TERM
files=$(git ls-files --cached --others --exclude-standard -- '*.go' '*.s' '*.h' '*.mod' '*.sum' '*.cu' '*.cuh' | while IFS= read -r f; do [ ! -f "$f" ] || printf '%s\n' "$f"; done)
printf '%s\n' "$files" | tar -cf - -T - | tar -xf - -C "$copy"

cd "$copy"
made=$(printf '%s\n' "$files" | xargs grep -l -E '^// Code generated .* DO NOT EDIT\.$')
printf '%s\n' "$made" | xargs rm
find . -name '*.go' -exec grep -l '^//go:generate ' {} + | sed 's|/[^/]*$||' | sort -u | while IFS= read -r dir; do
	echo "go generate $dir"
	go generate "$dir" || exit 1
done

wrong=
for f in $made; do
	cmp -s "$OLDPWD/$f" "$f" || wrong="$wrong $f"
done
for f in $(find . -type f -newer "$copy/go.mod" | sed 's|^\./||'); do
	[ -f "$OLDPWD/$f" ] || wrong="$wrong $f"
done
[ -z "$wrong" ] || { echo "not what go generate writes:$wrong" >&2; exit 1; }
echo "$(printf '%s\n' "$made" | wc -l) files are what go generate writes"
