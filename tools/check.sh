#!/bin/sh
# Runs stages: check.sh NAME STAGE[:PROGRAM,…] … [-- STAGE[:PROGRAM,…] …]. A stage is a target of the
# Makefile. Those after -- run beside the others, one after another: they wait a good part of their
# time, or compute on one processor. What they print comes when they are done, after a stage of the
# others. A stage whose programs are missing and cannot be installed is left out and listed in the
# end, which fails with STRICT=1. After one that fails none begins, except with KEEP=1. Prints the
# seconds of each, and the seconds that processors computed for it.
set -u
cd "$(dirname "$0")/.."
name=$1
shift
began=$(date +%s)

# All stages compile alike, so that what several of them need is compiled once: without debug information,
# which is a tenth of the work, and without the name of this folder, as make dist does. One package of
# 37 seconds, the NATS server of tests, takes half of that without optimization, and nothing here waits for it. The clients of
# S3, NATS and Prometheus take a quarter less without inlining. Compilers do not collect garbage before they use 1.5 GB, which
# takes 4 to 38 % off their time: the package runtime takes 0.6 GB. Programs and tests collect it as usual. Symbol tables, which
# nothing reads, are an eighth of the time of linking the hundred test programs.
export GOFLAGS="${GOFLAGS:-} -trimpath '-toolexec=env GOGC=off GOMEMLIMIT=1500MiB' '-ldflags=-s -w' -gcflags=all=-dwarf=false"
for others in minio/... klauspost/... tinylib/... nats-io/... prometheus/...; do
	GOFLAGS="$GOFLAGS '-gcflags=github.com/$others=-dwarf=false -l'"
done
GOFLAGS="$GOFLAGS '-gcflags=google.golang.org/...=-dwarf=false -l' '-gcflags=github.com/nats-io/nats-server/v2/server=-dwarf=false -N -l'"
logs=bin/check
rm -rf "$logs"
mkdir -p "$logs"
ahead=
beside=
for stage in "$@"; do
	if [ "$stage" = -- ]; then
		beside=' '
	elif [ -n "$beside" ]; then
		beside="$beside$stage "
	else
		ahead="$ahead$stage "
	fi
done

# What has to be installed is fetched while the first stages compute.
programs=$(printf '%s\n' "$@" | sed -n 's/.*://p' | tr ',' '\n' | grep -v -x -e tools -e sdks | sort -u)
{
	# shellcheck disable=SC2086 # several names
	sh tools/need.sh $programs >bin/need.log 2>&1
	: >"$logs/installed"
} &

# line TARGET SECONDS PROCESSOR-SECONDS [WORDS] is a line of the table.
line() { printf '%-14s %8s %10s%s\n' "$1" "$2" "$3" "${4:-}" >>"$logs/table"; }

# spent FILE… prints the seconds of processors that children used, by the second line that the command times wrote to each file.
spent() { awk 'FNR == 2 { for (i = 1; i <= 2; i++) { split($i, t, "[ms]"); sum += 60 * t[1] + t[2] } } END { printf "%.0f\n", sum }' "$@"; }

# run STAGE writes its line of the table, and its name into the list of those that failed or are missing.
run() {
	target=${1%%:*}
	started=$(date +%s)
	if [ "$target" != "$1" ]; then
		case ${1#*:} in
		tools | sdks | tools,sdks) ;;
		*) until [ -e "$logs/installed" ]; do sleep 1; done ;;
		esac
		# shellcheck disable=SC2046 # several names
		if ! sh tools/need.sh $(echo "${1#*:}" | tr ',' ' '); then
			line "$target" 'not run' ''
			echo "$target" >>"$logs/missing"
			return
		fi
	fi
	failed=
	if ! ( # times counts the children of a shell, so each stage has its own
		"${MAKE:-make}" --no-print-directory "$target"
		code=$?
		times >"$logs/$target.times"
		exit $code
	); then
		failed=' failed'
		echo "$target" >>"$logs/failed"
	fi
	line "$target" $(($(date +%s) - started)) "$(spent "$logs/$target.times")" "$failed"
}

# stop tells whether no stage may begin.
stop() { [ -s "$logs/failed" ] && [ "${KEEP:-}" != 1 ]; }

# list prints the names in a file in one line.
list() { tr '\n' ' ' <"$logs/$1" | sed 's/ $//'; }

# show prints what stages beside the others have printed, each once and whole.
show() {
	for stage in $beside; do
		target=${stage%%:*}
		if [ -e "$logs/$target.done" ] && [ -e "$logs/$target.log" ]; then
			cat "$logs/$target.log"
			rm "$logs/$target.log"
		fi
	done
}

: >"$logs/failed"
: >"$logs/missing"
trap 'trap "" TERM; kill 0; exit 130' INT # what runs beside does not hear of it
for stage in $beside; do
	stop && break
	run "$stage" >"$logs/${stage%%:*}.log" 2>&1
	: >"$logs/${stage%%:*}.done"
done &
for stage in $ahead; do
	stop && break
	run "$stage"
	show
done
! stop || echo "== $name: failed: $(list failed); waiting for what runs beside"
wait
show

printf '\n%-14s %8s %10s\n' stage seconds processor
cat "$logs/table"
printf '%-14s %8d %10d\n' total $(($(date +%s) - began)) "$(spent "$logs"/*.times)"
if [ -s "$logs/failed" ]; then
	echo "== $name: failed: $(list failed)"
	exit 1
elif [ ! -s "$logs/missing" ]; then
	echo "== $name: all stages passed"
elif [ "${STRICT:-}" = 1 ]; then
	echo "== $name: STRICT=1 and these stages did not run: $(list missing)"
	exit 1
else
	echo "== $name: passed, but these stages did not run: $(list missing)"
fi
