#!/usr/bin/env bash
# The development build, into .peregrine/development: the bridge as script/server loads it, beside the Perl
# modules of lib/. It is compiled for a fast start, and serves slower than the build of script/build: the
# engine by Zig's own backend, without Zig's build system, and the bridge without optimisation. Parts whose
# sources have not changed stay. With the word `engine` only the engine is built, by Zig alone.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

cd "$ROOT"
PLACE="$STATE/development"
OBJECTS="$PLACE/objects"
ENGINE="$PLACE/engine/libperegrine.a"
LIBRARY="$PLACE/arch/auto/Peregrine/Peregrine.so"
SELF=script/lib/development.sh

main() {
    mkdir -p "$OBJECTS" "$PLACE/engine" "${LIBRARY%/*}"
    case "${1:-}" in
    engine) engine ;;
    '') library ;;
    *) die "there is no part '$1'" ;;
    esac
}

library() {
    local making
    perl -MConfig -e 'print map { "$_=\x27$Config{$_}\x27\n" }
        qw(cc ccflags cccdlflags lddlflags privlibexp archlibexp version)' >"$PLACE/perl.new"
    . "$PLACE/perl.new"
    cmp -s "$PLACE/perl.new" "$PLACE/perl" || rm -f "$LIBRARY" "$OBJECTS"/*
    mv "$PLACE/perl.new" "$PLACE/perl"
    changed "$LIBRARY" engine xs lib/Peregrine.pm "$SELF" || return 0
    engine &
    making=$!
    if changed "$LIBRARY" xs engine/include lib/Peregrine.pm "$SELF"; then
        say 'building the bridge'
        bridge || die 'the bridge does not compile'
    fi
    wait "$making" || exit 1
    # Zig's own backend does not mark its code as needing no executable stack.
    $cc $lddlflags -Wl,-z,noexecstack -o "$LIBRARY.new" "$OBJECTS"/*.o "$ENGINE" \
        $(! wants_tls || echo -lssl -lcrypto)
    mv "$LIBRARY.new" "$LIBRARY"
}

# Whether a product is missing, or older than a source in these folders.
changed() {
    local product="$1" sources='.*\.\([ch]\|xs\|xsi\|zig\|pm\|sh\)'
    shift
    [ ! -e "$product" ] || [ -n "$(find "$@" -type f -newer "$product" -regex "$sources" -print -quit)" ]
}

engine() {
    local log="$PLACE/log"
    changed "$ENGINE" engine/src lib/Peregrine.pm "$SELF" || return 0
    say 'building the engine'
    compile_engine >"$log" 2>&1 </dev/null || { cat "$log" >&2 && die 'the engine does not compile'; }
    mv "$ENGINE.new" "$ENGINE"
}

# Here each layer may import every other one; engine/build.zig restricts imports in other builds.
compile_engine() {
    local layers=(platform peregrine server hub native protocol io tls) uses=() modules=() layer root
    local flags=(-Odebug -fPIC)
    options package "pub const version: [:0]const u8 = \"$(engine_version) (development build)\";"
    options tls "pub const enabled: bool = $(wants_tls && echo true || echo false);"
    for layer in "${layers[@]}" package_options tls_options; do uses+=(--dep "$layer"); done
    for layer in "${layers[@]}"; do
        root="engine/src/$layer/$layer.zig"
        case "$layer" in
        platform) root=engine/src/abi/platform.zig ;;
        peregrine) root=engine/src/peregrine.zig ;;
        esac
        modules+=("${flags[@]}" "${uses[@]}" "-M$layer=$root")
    done
    "$(zig_path)" build-lib "${flags[@]}" "${uses[@]}" -Mroot=engine/src/abi/abi.zig "${modules[@]}" \
        "-Mpackage_options=$PLACE/engine/package.zig" "-Mtls_options=$PLACE/engine/tls.zig" -lc \
        --name peregrine -static -fno-compiler-rt --cache-dir "$PLACE/engine/cache" \
        "-femit-bin=$ENGINE.new"
}

options() { printf '%s\n' "$2" >"$PLACE/engine/$1.zig"; }

engine_version() { sed -n 's/^ *\.version = "\(.*\)",/\1/p' engine/build.zig.zon; }

# On Debian script/bootstrap installs OpenSSL's headers, which perhaps it has not done yet.
wants_tls() {
    [ "${PEREGRINE_TLS:-1}" != 0 ] &&
        { is_debian || printf '#include <openssl/ssl.h>' | cc -E - >/dev/null 2>&1; }
}

# Compiles the bridge, as Makefile.PL does with one object for each folder; here in parallel, not optimised.
bridge() {
    local version flags folder
    version="$(script/version)"
    # shellcheck disable=SC2206 # Perl's flags are words
    flags=($ccflags $cccdlflags "-DVERSION=\"$version\"" "-DXS_VERSION=\"$version\""
        "-I$archlibexp/CORE" -Iengine/include -Ixs -I.)
    rm -f "$OBJECTS"/*
    perl "$privlibexp/ExtUtils/xsubpp" -typemap "$privlibexp/ExtUtils/typemap" xs/Peregrine.xs \
        >"$OBJECTS/Peregrine.c" || return
    for folder in xs/*/; do
        printf '#include "%s"\n' "$folder"*.c >"$OBJECTS/$(basename "$folder").c"
    done
    printf '%s\0' "$OBJECTS"/*.c |
        xargs -0 -P "$(nproc)" -I {} $cc "${flags[@]}" -O0 -c {} -o {}.o
}

main "$@"
