# Sourced by the tests of hack/e2e.d.
set -euo pipefail
k() { "$KUBECTL" "$@"; }
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
# same EXPECTED ACTUAL WHAT
same() { [ "$1" = "$2" ] || fail "$3: expected «$1», got «$2»"; }
# has TEXT PART WHAT
has() { case $1 in *"$2"*) ;; *) fail "$3: «$2» is not in «$1»" ;; esac; }
# until_true SECONDS WHAT COMMAND...
until_true() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || fail "$what"
    sleep 0.2
  done
}
step() { echo "   $*"; }
