# Sourced by hack/up and hack/test: what both install and build. The working directory is the project's root.
export PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin:$HOME/.cargo/bin
target=${CARGO_TARGET_DIR:-target}

say() { printf '== %s\n' "$*"; }

# Debian packages that the node and the tests use: command or file that shows it is there, package.
packages=(
  containerd:containerd runc:runc /usr/lib/cni/ptp:containernetworking-plugins nft:nftables
  conntrack:conntrack ip:iproute2 iptables:iptables nsenter:util-linux cc:gcc curl:curl openssl:openssl pgrep:procps
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

install_packages() {
  [ $# -gt 0 ] || return 0
  say "installing $*"
  # The package's own service is not ours to start: a policy that forbids it for the time of the installation.
  local policy=/usr/sbin/policy-rc.d made=
  [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' > $policy; chmod +x $policy; made=1; }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null || { [ -z "$made" ] || rm -f $policy; return 1; }
  [ -z "$made" ] || rm -f $policy
}

build_pintle() {
  say "building pintle (release)"
  cargo build --release --locked -p pintle
}

built_pintle() {
  [ -x "$target/release/pintle" ] || { echo "pintle is not built yet: run hack/up first" >&2; exit 1; }
  echo "$target/release/pintle"
}

# Sets KUBECTL to a kubectl of v1.36 to v1.38: the one on the PATH, or one built from the Go module in conformance/upstream.
need_kubectl() {
  local minor
  minor=$(kubectl version --client -o json 2>/dev/null | sed -n 's/.*"minor": "\([0-9]*\).*/\1/p')
  case $minor in
    36|37|38) KUBECTL=$(command -v kubectl) ;;
    *)
      KUBECTL=$PWD/$target/upstream/kubectl
      [ "${target#/}" = "$target" ] || KUBECTL=$target/upstream/kubectl
      [ -x "$KUBECTL" ] || { say "building kubectl from its Go module"; conformance/upstream/build "$(dirname "$KUBECTL")" kubectl; }
      ;;
  esac
  export KUBECTL
}
