# Runs programs of another processor than this machine's, in every root. Sourced by scripts that have sourced
# common.sh; needs root.

# Registers QEMU for programs of aarch64; the kernel opens the interpreter when it is registered. It must be
# Debian 13's QEMU, because Debian 12's does not know openat2, by which files are opened.
run_foreign_programs() {
    local register=/proc/sys/fs/binfmt_misc qemu="$STATE/qemu/usr/bin/qemu-aarch64" header mask
    [ -e "$register/register" ] || mount -t binfmt_misc none "$register"
    [ ! -e "$register/peregrine-aarch64" ] || return 0
    [ -e "$qemu" ] || mmdebstrap --quiet --variant=extract --include=qemu-user trixie "$STATE/qemu" \
        http://deb.debian.org/debian
    # An ELF file of 64 bits, little-endian, for machine 183: type executable (2) or shared (3).
    header='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    printf ':peregrine-aarch64:M::%s:%s:%s:OCF' "$header" "$mask" "$qemu" >"$register/register"
}
