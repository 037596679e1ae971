#!/bin/sh
# Runs stages one after another: check.sh NAME STAGE[:PROGRAM,…] …. A stage is a target of the Makefile. One whose
# programs are missing and cannot be installed is left out and listed in the end, which fails
# with STRICT=1. A stage that fails ends the run, except with KEEP=1. Prints the seconds of each.
set -u
cd "$(dirname "$0")/.."
name=$1
shift
began=$(date +%s)
table=
gaps=
failed=

# What has to be installed is fetched while the first stages compute.
programs=$(printf '%s\n' "$@" | sed -n 's/.*://p' | tr ',' '\n' | grep -v -x -e tools -e sdks | sort -u)
mkdir -p bin
# shellcheck disable=SC2086 # several names
sh tools/need.sh $programs >bin/need.log 2>&1 &
installing=$!

finish() { # STATUS WORDS
	printf '\n%-14s %8s\n' stage seconds
	printf '%b' "$table"
	printf '%-14s %8d\n' total $(($(date +%s) - began))
	echo "== $name: $2"
	exit "$1"
}

for stage in "$@"; do
	target=${stage%%:*}
	started=$(date +%s)
	if [ "$target" != "$stage" ]; then
		case ${stage#*:} in
		tools | sdks | tools,sdks) ;;
		*) wait "$installing" ;;
		esac
		# shellcheck disable=SC2046 # several names
		if ! sh tools/need.sh $(echo "${stage#*:}" | tr ',' ' '); then
			table="$table$(printf '%-14s %8s' "$target" 'not run')\n"
			gaps="$gaps $target"
			continue
		fi
	fi
	"${MAKE:-make}" --no-print-directory "$target" || {
		table="$table$(printf '%-14s %8d failed' "$target" $(($(date +%s) - started)))\n"
		failed="$failed $target"
		[ "${KEEP:-}" = 1 ] || finish 1 "failed:$failed"
		continue
	}
	table="$table$(printf '%-14s %8d' "$target" $(($(date +%s) - started)))\n"
done
wait "$installing"
if [ -n "$failed" ]; then
	finish 1 "failed:$failed"
elif [ -z "$gaps" ]; then
	finish 0 "all stages passed"
elif [ "${STRICT:-}" = 1 ]; then
	finish 1 "STRICT=1 and these stages did not run:$gaps"
else
	finish 0 "passed, but these stages did not run:$gaps"
fi
