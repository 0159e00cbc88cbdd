# Sourced by the commands of hack/: what they install, build and run. From here on the working directory is the project's root;
# what the user names is taken from where the user stands.
export PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin:$HOME/.cargo/bin
here=$PWD script=$(realpath "$0")
for variable in PINTLE HACK CARGO_TARGET_DIR; do
  [ -z "${!variable:-}" ] || export "$variable=$(realpath -m "${!variable}")"
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
# Where upstream's programs are built.
upstream=$target/upstream

# The comment at the command's head.
help_text() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$script"; }

# Prints it if an argument asks for help.
help_wanted() {
  local argument
  for argument in "$@"; do
    case $argument in
      -h|--help) help_text; exit 0 ;;
    esac
  done
}

say() { printf '== %s\n' "$*"; }

# Debian packages that the node and the tests use: command or file that shows it is there, package.
packages=(
  containerd:containerd runc:runc /usr/lib/cni/ptp:containernetworking-plugins nft:nftables
  conntrack:conntrack ip:iproute2 iptables:iptables nsenter:util-linux cc:gcc /usr/include/stdlib.h:libc6-dev curl:curl openssl:openssl pgrep:procps
  /bin/busybox:busybox-static
)

need_packages() {
  local missing=() entry
  for entry in "${packages[@]}"; do
    case $entry in
      /usr/lib/cni/ptp:*) [ -e /usr/lib/cni/ptp ] || [ -e /opt/cni/bin/ptp ] || missing+=("${entry#*:}") ;;
      /*) [ -e "${entry%%:*}" ] || missing+=("${entry#*:}") ;;
      *) command -v "${entry%%:*}" >/dev/null || missing+=("${entry#*:}") ;;
    esac
  done
  install_packages ${missing[@]+"${missing[@]}"}
}

# What the client programs of conformance/clients need beyond that.
need_client_packages() {
  local missing=()
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
  command -v npm >/dev/null || missing+=(npm)
  install_packages ${missing[@]+"${missing[@]}"}
}

# What building the images of upstream's tests needs: tools, and the lists of Debian's packages.
need_image_packages() {
  local missing=() tool
  for tool in make bzip2 xz:xz-utils; do
    command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
  done
  install_packages ${missing[@]+"${missing[@]}"}
  apt-cache show iperf >/dev/null 2>&1 || apt-get update -qq
}

install_packages() {
  [ $# -gt 0 ] || return 0
  say "installing $*"
  (
    # The package's own service is not ours to start: a policy that forbids it for the time of the installation.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
      trap 'rm -f $policy' EXIT
      printf '#!/bin/sh\nexit 101\n' > $policy
      chmod +x $policy
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
  )
}

# The release binary, which hack/up and hack/bench use.
build_pintle() {
  say "building pintle (release; the first time takes 15 to 20 minutes on two cores)"
  cargo build --release --locked -p pintle
}

# Sets PINTLE and HACK (the project tools) for tests that run them: those of the unit tests' build, so that everything is compiled once.
# PINTLE=BINARY tests that binary.
need_tested() {
  if [ -z "${PINTLE:-}" ] || [ -z "${HACK:-}" ]; then
    say "building the workspace with its tests"
    cargo build --workspace --all-targets --locked
  fi
  export PINTLE=${PINTLE:-$target/debug/pintle} HACK=${HACK:-$target/debug/pintle-hack}
}

# Sets KUBECTL to a kubectl of v1.36 to v1.38: the one on the PATH, or one built from the Go module in conformance/upstream.
need_kubectl() {
  local minor
  minor=$({ kubectl version --client -o json 2>/dev/null || true; } | sed -n 's/.*"minor": "\([0-9]*\).*/\1/p')
  case $minor in
    36|37|38) KUBECTL=$(command -v kubectl) ;;
    *)
      KUBECTL=$upstream/kubectl
      # Older than its version: built again.
      [ "$KUBECTL" -nt conformance/upstream/go.mod ] || { say "building kubectl from its Go module"; conformance/upstream/build "$upstream" kubectl; }
      ;;
  esac
  export KUBECTL
}

# A scratch directory WORK for test scripts, and the caller's HOME kept as OLDHOME: what a test leaves in its home is removed too.
need_work() {
  WORK=$(mktemp -d /tmp/pintle-e2e.XXXXXX)
  export WORK OLDHOME=$HOME KUBECACHEDIR=$WORK/kube-cache HOME=$WORK UPSTREAM_BIN=$upstream
}

# Removes WORK unless a test failed or KEEP_LOGS is set.
drop_work() {
  if [ "$1" = 0 ] && [ -z "${KEEP_LOGS:-}" ]; then rm -rf "$WORK"; else echo "logs are in $WORK"; fi
}

# The name of a test: its script's without the number.
test_name() { local file=${1##*/}; echo "${file#*-}"; }

# known_tests FOLDER [NAME...]: an error if the folder has no test of a name.
known_tests() {
  local folder=$1 wanted script names=()
  shift
  for script in "$folder"/*; do names+=("$(test_name "$script")"); done
  for wanted in "$@"; do
    printf '%s\n' "${names[@]}" | grep -qxF -- "$wanted" || { echo "no test in $folder is called $wanted; there are: ${names[*]}" >&2; exit 2; }
  done
}

# run_tests FOLDER [NAME...]: runs the folder's scripts, or those with these names, each for at most 15 minutes.
# A script passes if it exits 0; with logs in LOGS, those of a failed one are kept.
run_tests() {
  local folder=$1 script name begin running= passed=0 failed=0
  shift
  # A test has a process group of its own, which the terminal's interrupt does not reach.
  trap '[ -z "$running" ] || { kill "$running" 2>/dev/null || true; wait "$running" || true; }; exit 130' INT TERM
  for script in "$folder"/*; do
    name=$(basename "$script")
    if [ $# -gt 0 ] && ! printf '%s\n' "$@" | grep -qxF -- "$(test_name "$script")"; then continue; fi
    say "test $name"
    begin=$SECONDS
    timeout 900 "$script" &
    running=$!
    if wait "$running"; then
      passed=$((passed + 1))
      echo "   passed after $((SECONDS - begin)) s"
    else
      failed=$((failed + 1))
      echo "   FAILED after $((SECONDS - begin)) s"
      mkdir -p "$WORK/$name"
      cp -r "${LOGS:-/nonexistent}" "$WORK/$name/" 2>/dev/null || true
    fi
  done
  echo "$folder: $passed passed, $failed failed"
  [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}
