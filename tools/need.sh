#!/bin/sh
# Looks for what tests need: need.sh cc chromium lavapipe node qemu npm-clients npm-pages sdks tools. What is
# missing is fetched from npm or Go's proxy, or installed from Debian's packages, which takes root
# and apt-get; otherwise it says how to get it, and fails.
set -u
cd "$(dirname "$0")/.."

# npm_ci FROM TO installs the packages that FROM locks into TO, once.
npm_ci() {
	cmp -s "$1/package-lock.json" "$2/installed.json" && return
	mkdir -p "$2" && cp "$1/package.json" "$1/package-lock.json" "$2" &&
		(cd "$2" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) >&2 &&
		cp "$1/package-lock.json" "$2/installed.json"
}

# found NAME prints the path of a program, under any of the names it has.
found() {
	case $1 in
	cc) command -v "${CC:-gcc}" || command -v cc || command -v clang ;;
	chromium)
		if [ -n "${CHROMIUM:-}" ]; then
			command -v "$CHROMIUM"
			return
		fi
		command -v chromium || command -v chromium-browser || command -v google-chrome ||
			command -v "/Applications/Chromium.app/Contents/MacOS/Chromium" ||
			command -v "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
		;;
	lavapipe) # with the validator of its programs
		command -v spirv-val >/dev/null || return
		for file in /usr/share/vulkan/icd.d/lvp_icd*.json /usr/local/share/vulkan/icd.d/lvp_icd*.json; do
			[ ! -e "$file" ] || { echo "$file" && return; }
		done
		return 1
		;;
	node) # with its package manager, and not too old for the tests
		command -v node && command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)'
		;;
	qemu)
		case $(uname -m) in
		arm64 | aarch64) echo native ;; # such a machine runs the programs itself
		*) command -v qemu-aarch64-static || command -v qemu-aarch64 ;;
		esac
		;;
	npm-clients) npm_ci internal/server/clienttest bin/clienttest ;;
	npm-pages) npm_ci internal/server/web bin/web ;;
	sdks) go list -C internal/server/clienttest -deps -test ./... >/dev/null ;;
	tools) go list -C tools -deps ./... mvdan.cc/gofumpt >/dev/null ;;
	*)
		echo "need.sh: unknown program $1" >&2
		return 1
		;;
	esac
}

# how NAME says where it comes from: Debian's packages, words for people, commands for Fedora and
# macOS; what comes from the network has only words.
how() {
	case $1 in
	cc) echo "gcc|A C compiler, for the race detector|sudo dnf install gcc|xcode-select --install" ;;
	chromium) echo "chromium|Chromium or Chrome, for tests of pages (CHROMIUM=path names one)|sudo dnf install chromium|brew install --cask chromium" ;;
	lavapipe) echo "mesa-vulkan-drivers libvulkan1 spirv-tools|Mesa's Vulkan driver for processors, and SPIR-V tools, for the Vulkan backend|sudo dnf install mesa-vulkan-drivers vulkan-loader spirv-tools|not there: run this stage on Linux" ;;
	node) echo "nodejs npm|Node 20 or newer with npm, for clients and pages|sudo dnf install nodejs npm|brew install node" ;;
	npm-clients | npm-pages) echo "|Packages of npm: it needs Node and, the first time, the network" ;;
	sdks) echo "|Modules for internal/server/clienttest: go mod download -C internal/server/clienttest needs the network" ;;
	tools) echo "|Modules for tools: go mod download -C tools needs the network" ;;
	qemu) echo "qemu-user-static|An emulator of arm64, for its kernels|sudo dnf install qemu-user-static|not there: run this stage on Linux or on a Mac with Apple silicon" ;;
	esac
}

if [ "${1:-}" = --path ]; then
	found "$2"
	exit
fi
missing=0
for name in "$@"; do
	found "$name" >/dev/null && continue
	IFS='|' read -r packages words fedora mac <<-END
		$(how "$name")
	END
	if [ -z "$packages" ]; then
		missing=1
		printf 'missing: %s.\n' "$words"
		continue
	fi
	if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
		echo "installing $packages"
		# shellcheck disable=SC2086 # several packages
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages; } >/dev/null 2>&1
		found "$name" >/dev/null && continue
	fi
	missing=1
	printf 'missing: %s.\n  Debian, Ubuntu, WSL: sudo apt-get install %s\n  Fedora: %s\n  macOS: %s\n' "$words" "$packages" "$fedora" "$mac"
done
exit $missing
