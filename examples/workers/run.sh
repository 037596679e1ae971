#!/bin/sh
# One queue, one server and one worker as three processes of this machine, and a batch of 200 lines.
# It needs Go and curl, a free port 4222 and 8080, and takes the model inside of the program.
set -eu
cd "$(dirname "$0")/../.."
dir=$(mktemp -d)
go build -o "$dir/foretoken" ./cmd/foretoken
go build -C internal/batch/jetstream/natstest/server -o "$dir/nats-server" github.com/nats-io/nats-server/v2

running=""
end() {
	# shellcheck disable=SC2086 # a list of numbers
	kill $running 2>/dev/null || true
	wait
	rm -rf "$dir"
}
trap end EXIT INT TERM

"$dir/nats-server" --jetstream --addr 127.0.0.1 --store_dir "$dir/nats" --log "$dir/nats.log" & running="$running $!"
until grep -q 'Server is ready' "$dir/nats.log" 2>/dev/null; do sleep 0.1; done
"$dir/foretoken" worker --queue nats://127.0.0.1:4222 --threads 1 --state-dir "$dir/worker" tiny & running="$running $!"
"$dir/foretoken" serve --queue nats://127.0.0.1:4222 --threads 1 --log-level warn --state-dir "$dir/serve" & running="$running $!"
until curl -fs localhost:8080/readyz >/dev/null; do sleep 0.1; done

for i in $(seq 200); do
	printf '{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"Count to %d."}],"max_tokens":16}}\n' "$i" "$i"
done >"$dir/in.jsonl"
# id NAME: the identifier in the JSON that curl prints.
id() { sed -n 's/.*"'"$1"'": *"\([^"]*\)".*/\1/p' | head -n 1; }
file=$(curl -fs localhost:8080/v1/files -F purpose=batch -F file=@"$dir/in.jsonl" | id id)
batch=$(curl -fs localhost:8080/v1/batches -d '{"input_file_id":"'"$file"'","endpoint":"/v1/chat/completions","completion_window":"24h"}' | id id)
until curl -fs "localhost:8080/v1/batches/$batch" >"$dir/batch.json" && grep -q '"status": *"completed"' "$dir/batch.json"; do sleep 0.5; done
output=$(id output_file_id <"$dir/batch.json")
curl -fs "localhost:8080/v1/files/$output/content" | head -n 3
curl -fs localhost:8080/metrics | grep '^foretoken_batch_lines_total'
