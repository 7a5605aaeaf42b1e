# For the bash scripts, which source this file: strict mode, paths, messages to standard error.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
STATE="$ROOT/.peregrine" # all files that scripts make and git ignores

say() { printf '%s\n' "$*" >&2; }
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# The path of the Zig compiler: PEREGRINE_ZIG, or the pinned one.
zig_path() { printf '%s\n' "${PEREGRINE_ZIG:-$STATE/zig/zig}"; }

# Zig's caches stay inside the project unless the caller's environment moves them.
export ZIG_GLOBAL_CACHE_DIR="${ZIG_GLOBAL_CACHE_DIR:-$STATE/zig-cache}"

# Zig compiles its build runner once; without optimisation that takes 26 s and not 150.
export ZIG_DEBUG_CMD=1

# The lines of a package list that name a package.
package_names() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$@"; }

is_debian() {
    [ -r /etc/os-release ] && command -v apt-get >/dev/null && command -v dpkg-query >/dev/null &&
        (. /etc/os-release && case " ${ID:-} ${ID_LIKE:-} " in *" debian "*) ;; *) exit 1 ;; esac)
}

# Prints the named Debian packages that are not installed.
missing_packages() {
    local installed
    installed="$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
        sed -n 's/^installed //p')" || true
    comm -23 <(printf '%s\n' "$@" | sort -u) <(printf '%s\n' "$installed" | sort -u)
}

# Installs Debian packages; ends the script if it does not run as root.
install_packages() {
    local log="$STATE/apt.log" policy=/usr/sbin/policy-rc.d failed=""
    [ "$(id -u)" = 0 ] || die "missing packages; as root: apt-get install $*"
    say "installing $# Debian packages and what they need: $*"
    export DEBIAN_FRONTEND=noninteractive
    # Tests start the servers that they need: packages like nginx must not start services on this machine.
    if [ -e "$policy" ]; then
        policy=""
    else
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
    fi
    # The package lists are updated only if they are missing, or name files that the mirror no longer has.
    local install=(apt-get install -q -y --no-install-recommends "$@")
    {
        "${install[@]}" || { apt-get update -q && "${install[@]}"; }
    } >"$log" 2>&1 </dev/null || failed=1
    [ -z "$policy" ] || rm -f "$policy"
    [ -z "$failed" ] && return
    tail -n 20 "$log" >&2
    die "apt-get failed; its output is in $log"
}
