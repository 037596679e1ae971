#!/bin/sh
# Runs the main paths of a program in about a minute and writes a report to send: smoke.sh [PROGRAM]. PROGRAM is a
# path, by default bin/foretoken, or foretoken on the search path. It needs sh and the usual tools of a system, no Go and
# no network; on Windows the sh of Git. Exit status: 0 if all paths work, 1 if one does not.
set -u
program=${1:-}
if [ -z "$program" ]; then
	program=bin/foretoken
	[ -x "$program" ] || program=$(command -v foretoken) || {
		echo "smoke: there is no program: run make build, or give its path: sh tools/smoke.sh PATH" >&2
		exit 1
	}
fi
case $program in
*/*) program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program") ;;
*) program=$(command -v "$program") || exit 1 ;;
esac
work=$(mktemp -d) || exit 1
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
report=$PWD/foretoken-smoke.txt
failed=
cd "$work" || exit 1
{
	echo "foretoken smoke test, $(date -u +%Y-%m-%dT%H:%MZ)"
	uname -a
	# The name of the processor and its cores: Linux, macOS, Windows.
	lscpu 2>/dev/null | grep -E '^(Model name|Thread|Core|CPU\(s\)|CPU max|L[23])'
	sysctl -n machdep.cpu.brand_string hw.physicalcpu hw.perflevel0.physicalcpu hw.perflevel1.physicalcpu hw.memsize 2>/dev/null
	echo "${PROCESSOR_IDENTIFIER:-}"
} >"$report"

# step NAME COMMAND… runs a command of the program, with its output in the report and in the file out.
step() {
	name=$1
	shift
	began=$(date +%s)
	printf '\n== %s: foretoken %s\n' "$name" "$*" >>"$report"
	if "$program" "$@" >out 2>err; then
		word=ok
	else
		word="FAILED with status $?"
		failed="$failed $name"
	fi
	cat out err >>"$report"
	[ "$word" = ok ] || tail -n 5 err
	printf '%-14s %4s s  %s\n' "$name" $(($(date +%s) - began)) "$word" | tee -a "$report"
}

# same NAME FIRST FILE compares texts.
same() {
	cmp -s "$2" "$3" || {
		failed="$failed $1"
		echo "$1: the text differs from that of $2" | tee -a "$report"
	}
}

prompt='Once upon a time there was a little robot'
# ask NAME [FLAG…] generates the text, to the file NAME.
ask() {
	name=$1
	shift
	step "$name" generate --prompt "$prompt" --max-tokens 16 --temp 0 "$@"
	cp out "text-$name"
	same "$name" text-generate "text-$name"
}
step version version
step devices devices
step json devices --json
# The instruction sets of the CPU that are available.
sets=$(tr '{},' '\n\n\n' <out |
	awk -F '"' '/"name":/ { name = $4 } /"available": *true/ && name !~ /^(cpu|cuda|vulkan)/ { print name }')
ask generate
for set in $sets; do
	ask "$set" --device cpu --isa "$set"
done
ask one-thread --threads 1
ask plain --mtp off --draft ngram
step convert convert --model tiny --out converted
ask files --model converted
step doctor doctor tiny
step decode bench decode --classes story --prompts 1 --temps 0 --depths auto --max-tokens 48 --repeats 1

# The server gets its requests from the load test.
port=$((20000 + $$ % 20000))
"$program" serve --port "$port" --no-self-test >served 2>&1 &
server=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	if grep -q "$port" served || ! kill -0 "$server" 2>/dev/null; then
		break
	fi
	sleep 1
done
step serve bench serve --url "http://127.0.0.1:$port/v1" --model tiny --concurrency 2 --requests 4 --repeats 1 \
	--max-tokens 24 --classes story
kill "$server" 2>/dev/null
wait "$server" 2>/dev/null
server=
cat served >>"$report"

for set in $sets; do # portable code takes minutes
	[ "$set" = generic ] || step "kernels-$set" bench kernels --device cpu --isa "$set" --types q4,q4_k --rows 1,2,4,8 --repeats 3
done
step model bench model --shape 0.8b --rows 1,4 --prompts 64 --repeats 2

if [ -n "$failed" ]; then
	echo "smoke: failed:$failed. Please send $report with an issue." | tee -a "$report"
	exit 1
fi
echo "smoke: all paths work. $report has the machine and its speed."
