# To be sourced by `check` and `chaos`: Node.js, dependencies, and the built packages.

# shellcheck source=scripts/nodejs
. ../../scripts/nodejs
use_nodejs || { echo "Node.js 20.19 or newer is missing and could not be installed (https://nodejs.org)" >&2 && exit 1; }

export NOROSHI_BIN="${NOROSHI_BIN:-$PWD/../../target/debug/noroshi}"
[ -x "$NOROSHI_BIN" ] || { echo "$NOROSHI_BIN is not there: cargo build -p noroshi, or set NOROSHI_BIN" >&2 && exit 1; }

root="$(realpath ../..)"
install() {
    cmp -s package-lock.json node_modules/.installed && return
    echo "sdks: npm ci in $(realpath --relative-to="$root" .)"
    npm ci --ignore-scripts --no-audit --no-fund
    cp package-lock.json node_modules/.installed
}
install
(cd ../scripted-server && install)
(cd ../../examples/web && install)

node scripts/build.mjs
