#!/usr/bin/env bash
# The development build, into .peregrine/development: the bridge as script/server loads it, beside the Perl
# modules of lib/. Everything is compiled for a fast start, and serves slower than what script/build makes:
# the engine by Zig's own backend, without Zig's build system, and the bridge's files side by side, with the
# headers of Perl parsed once. What has not changed stays.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

cd "$ROOT"
PLACE="$STATE/development"
OBJECTS="$PLACE/objects"
LIBRARY="$PLACE/arch/auto/Peregrine/Peregrine.so"
SELF=script/lib/development.sh

main() {
    local engine="" log="$PLACE/log"
    mkdir -p "$OBJECTS" "$PLACE/engine" "${LIBRARY%/*}"
    perl -MConfig -e 'print map { "$_=\x27$Config{$_}\x27\n" }
        qw(cc ccflags cccdlflags lddlflags privlibexp archlibexp version)' >"$PLACE/perl.new"
    . "$PLACE/perl.new"
    cmp -s "$PLACE/perl.new" "$PLACE/perl" || rm -f "$LIBRARY" "$OBJECTS"/*
    mv "$PLACE/perl.new" "$PLACE/perl"
    changed engine xs lib/Peregrine.pm "$SELF" || return 0
    say 'building the engine and the bridge'
    if changed engine lib/Peregrine.pm "$SELF"; then
        engine >"$log" 2>&1 </dev/null &
        engine=$!
    fi
    if changed xs engine/include lib/Peregrine.pm "$SELF"; then
        bridge || die 'the bridge does not compile'
    fi
    [ -z "$engine" ] || wait "$engine" || { cat "$log" >&2 && die 'the engine does not compile'; }
    # Zig's own backend does not say that its code needs no executable stack.
    # shellcheck disable=SC2086 # Perl's flags are words
    $cc $lddlflags -Wl,-z,noexecstack -o "$LIBRARY.new" "$OBJECTS"/*.o \
        "$PLACE/engine/libperegrine.a" $(tls_libraries)
    mv "$LIBRARY.new" "$LIBRARY"
}

# Whether a source among these is newer than the library, or there is none.
changed() {
    local sources='.*\.\([ch]\|xs\|xsi\|zig\|pm\|sh\)'
    [ ! -e "$LIBRARY" ] || [ -n "$(find "$@" -type f -newer "$LIBRARY" -regex "$sources" -print -quit)" ]
}

# Each layer may import each other one here: which may do so in earnest is engine/build.zig's to say.
engine() {
    local layers=(platform peregrine server hub native protocol io tls) uses=() modules=() layer root
    local flags=(-Odebug -fPIC)
    options package "pub const version: [:0]const u8 = \"$(engine_version) (development build)\";"
    options tls "pub const enabled: bool = $([ -n "$(tls_libraries)" ] && echo true || echo false);"
    for layer in "${layers[@]}" package_options tls_options; do uses+=(--dep "$layer"); done
    for layer in "${layers[@]}"; do
        root="engine/src/$layer/$layer.zig"
        case "$layer" in
        platform) root=engine/src/abi/platform.zig ;;
        peregrine) root=engine/src/peregrine.zig ;;
        esac
        modules+=("${flags[@]}" "${uses[@]}" "-M$layer=$root")
    done
    exec "$(zig_path)" build-lib "${flags[@]}" "${uses[@]}" -Mroot=engine/src/abi/abi.zig "${modules[@]}" \
        "-Mpackage_options=$PLACE/engine/package.zig" "-Mtls_options=$PLACE/engine/tls.zig" -lc \
        --name peregrine -static -fno-compiler-rt --cache-dir "$PLACE/engine/cache" \
        "-femit-bin=$PLACE/engine/libperegrine.a"
}

options() { printf '%s\n' "$2" >"$PLACE/engine/$1.zig"; }

engine_version() { sed -n 's/^ *\.version = "\(.*\)",/\1/p' engine/build.zig.zon; }

tls_libraries() {
    [ "${PEREGRINE_TLS:-1}" = 0 ] ||
        ! printf '#include <openssl/ssl.h>' | $cc -E - >/dev/null 2>&1 || echo '-lssl -lcrypto'
}

# The bridge's files all begin with its header, which is compiled once.
bridge() {
    local version flags
    version="$(script/version)"
    # shellcheck disable=SC2206 # Perl's flags are words
    flags=($ccflags $cccdlflags -O1 "-DVERSION=\"$version\"" "-DXS_VERSION=\"$version\""
        "-I$archlibexp/CORE" -Iengine/include -Ixs)
    rm -f "$OBJECTS"/*
    cp xs/bridge/bridge.h "$OBJECTS/"
    perl "$privlibexp/ExtUtils/xsubpp" -typemap "$privlibexp/ExtUtils/typemap" xs/Peregrine.xs \
        >"$OBJECTS/Peregrine.c" &&
        $cc "${flags[@]}" -x c-header "$OBJECTS/bridge.h" -o "$OBJECTS/bridge.h.gch" || return
    # shellcheck disable=SC2016 # for the inner shell
    printf '%s\0' "$OBJECTS/Peregrine.c" xs/*/*.c | xargs -0 -P "$(nproc)" -I {} sh -c '
        file="$1" objects="$2" && shift 2 &&
        exec "$@" -include "$objects/bridge.h" -c "$file" -o "$objects/$(echo "$file" | tr / _).o"' \
        sh {} "$OBJECTS" $cc "${flags[@]}"
}

main "$@"
