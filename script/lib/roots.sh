# Clean roots of Debian, in which packages are built and installed: a suite's minimal system is fetched once
# into .peregrine/packages, and copied for each use. Sourced by scripts after common.sh; needs root.
. "$ROOT/script/lib/emulation.sh"

BED="$STATE/packages"
MIRROR=http://deb.debian.org
ROOTS=()

# To be called first: roots are removed when the script ends. Roots are for this machine's processor.
use_roots() {
    is_debian && [ "$(id -u)" = 0 ] || die 'needs root on Debian'
    mapfile -t missing < <(missing_packages $(package_names "$ROOT/script/deb.packages"))
    [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
    mkdir -p "$BED"
    trap remove_roots EXIT
    use_roots_of "$(dpkg --print-architecture)"
}

# From here on roots are for this processor: this machine's, or arm64, which is emulated.
use_roots_of() {
    ARCHITECTURE="$1"
    case "$1" in
    "$(dpkg --print-architecture)") ;;
    arm64) run_foreign_programs ;;
    *) die "programs for $1 do not run here" ;;
    esac
}

remove_roots() {
    local place
    for place in "${ROOTS[@]}"; do rm -rf --one-file-system "$place"; done
}

# Makes a clean root of a suite with these packages; $NEW is its path.
make_root() {
    local suite="$1" base="$BED/$1-$ARCHITECTURE.tar"
    shift
    if [ ! -e "$base" ]; then
        say "fetching Debian's $suite for $ARCHITECTURE"
        step mmdebstrap --architectures="$ARCHITECTURE" --variant=minbase --format=tar "$suite" "$base.new" \
            "$MIRROR/debian"
        mv "$base.new" "$base"
    fi
    NEW="$(mktemp -d "$BED/root.XXXXXXXX")"
    ROOTS+=("$NEW")
    tar -x -C "$NEW" -f "$base"
    # mktemp makes folders that other users cannot read.
    chmod 755 "$NEW"
    cp /etc/resolv.conf "$NEW/etc/resolv.conf"
    rm -rf "$NEW"/etc/apt/sources.list* && mkdir "$NEW/etc/apt/sources.list.d"
    printf 'deb %s\n' "$MIRROR/debian $suite main" "$MIRROR/debian $suite-updates main" \
        "$MIRROR/debian-security $suite-security main" >"$NEW/etc/apt/sources.list"
    step online apt-get update
    printf '#!/bin/sh\nexit 101\n' >"$NEW/usr/sbin/policy-rc.d" && chmod 755 "$NEW/usr/sbin/policy-rc.d"
    step online apt-get install -y --no-install-recommends "$@"
}

# Runs a command in the root: `online` with the network of this machine, `offline` with its own loopback only.
# Processes that the command leaves running end with it.
online() { within --pid "$@"; }
offline() { within --pid --net "$@"; }

# The shell is process 1 there: it waits for processes whose parents have ended.
within() {
    local flags=()
    while [ "${1#--}" != "$1" ]; do flags+=("$1") && shift; done
    unshare --mount --fork --kill-child "${flags[@]}" -- sh -c '
        mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && { ip link set lo up 2>/dev/null; :; }
        root="$0"; env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
            LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"
        exit $?' "$NEW" "$@"
}

# Prints the output of a step only if it fails.
step() {
    "$@" >"$BED/log.$$" 2>&1 </dev/null && return
    tail -n 60 "$BED/log.$$" >&2
    die "failed: $*"
}
