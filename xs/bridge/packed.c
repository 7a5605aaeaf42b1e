/* packed.c - the scope or environment of an application in one block of memory, while only the bridge refers
 * to it.
 *
 * Messages and `on_error` need it for as long as the application runs. For a WebSocket that is hours, and its
 * scope takes 3.5 KB in some sixty scalars, packed less than 0.5 KB. Only plain values are packed: hashes,
 * lists, strings and integers to which no other reference points, weak or not. Other values (objects, tied or
 * read-only values, a string and number at once) stay as they are, and the block refers to them. */
#include "bridge/bridge.h"

/* Levels of hashes and lists that are packed. Deeper ones stay as they are: structures may have any depth. */
#define PX_PACKED_DEPTH 4

/* Items follow each other: a list's elements come after it, a hash's keys and values by turns. */
typedef enum {
    PX_ITEM_UNDEF,
    PX_ITEM_INTEGER,
    PX_ITEM_SHARED, /* a string or key whose bytes other values share */
    PX_ITEM_BYTES,
    PX_ITEM_TEXT, /* a string with perl's UTF-8 flag */
    PX_ITEM_LIST,
    PX_ITEM_HASH,
    PX_ITEM_REFERENCE, /* a reference to a value that is not packed */
    PX_ITEM_SCALAR     /* a scalar that is not packed */
} px_item_kind;

typedef struct px_item {
    U8 kind;
    U32 count; /* of bytes, elements or pairs */
    union {
        IV integer;
        HEK *shared;
        SV *sv;
        const char *bytes;
    };
} px_item;

struct px_packed {
    size_t len;
    char bytes[];
};

/* ---- Writing --------------------------------------------------------------------------------- */

typedef struct px_packer {
    char *bytes; /* NULL: the first pass only counts */
    size_t len;
} px_packer;

static void put(px_packer *to, const void *bytes, size_t len) {
    if (to->bytes) Copy(bytes, to->bytes + to->len, len, char);
    to->len += len;
}

static void put_counted(px_packer *to, U8 kind, U32 count) {
    put(to, &kind, sizeof(kind));
    put(to, &count, sizeof(count));
}

static void put_shared(px_packer *to, HEK *shared) {
    const U8 kind = PX_ITEM_SHARED;
    if (to->bytes) (void)share_hek_hek(shared);
    put(to, &kind, sizeof(kind));
    put(to, &shared, sizeof(shared));
}

static void put_as_it_is(px_packer *to, U8 kind, SV *sv) {
    if (to->bytes) SvREFCNT_inc_simple_void_NN(sv);
    put(to, &kind, sizeof(kind));
    put(to, &sv, sizeof(sv));
}

static void put_integer(px_packer *to, IV integer) {
    const U8 kind = PX_ITEM_INTEGER;
    put(to, &kind, sizeof(kind));
    put(to, &integer, sizeof(integer));
}

/* Whether other scalars or keys share the bytes. Bytes of one scalar take less memory as a copy. */
static bool is_shared(const SV *sv) {
    if (!SvIsCOW_shared_hash(sv)) return false;
    const HEK *shared = SvSHARED_HEK_FROM_PV(SvPVX_const(sv));
    const struct shared_he *entry =
        (const struct shared_he *)(const void *)((const char *)shared -
                                                 STRUCT_OFFSET(struct shared_he, shared_he_hek));
    return entry->shared_he_he.he_valu.hent_refcount > 1 && !(HEK_FLAGS(shared) & ~HVhek_UTF8);
}

static void put_string(px_packer *to, SV *sv) {
    if (is_shared(sv)) {
        put_shared(to, SvSHARED_HEK_FROM_PV(SvPVX_const(sv)));
        return;
    }
    put_counted(to, SvUTF8(sv) ? PX_ITEM_TEXT : PX_ITEM_BYTES, (U32)SvCUR(sv));
    put(to, SvPVX_const(sv), SvCUR(sv));
}

/* Whether a value is a list without holes, to which one reference points. */
static bool is_plain_list(const SV *sv) {
    if (SvFLAGS(sv) != (SVt_PVAV | SVpav_REAL) || SvREFCNT(sv) != 1) return false;
    const AV *list = (const AV *)sv;
    if (AvFILLp(list) >= U16_MAX) return false;
    for (SSize_t i = 0; i <= AvFILLp(list); i++)
        if (!AvARRAY(list)[i]) return false;
    return true;
}

/* Whether a value is a hash whose keys are bytes, to which one reference points. */
static bool is_plain_hash(const SV *sv) {
    if ((SvFLAGS(sv) & ~SVf_OOK) != (SVt_PVHV | SVphv_SHAREKEYS) || SvREFCNT(sv) != 1) return false;
    HV *hash = (HV *)sv;
    return HvTOTALKEYS(hash) < U16_MAX && !(SvOOK(hash) && HvAUX(hash)->xhv_backreferences);
}

static void put_value(px_packer *to, SV *sv, int depth);

static void put_list(px_packer *to, const AV *list, int depth) {
    put_counted(to, PX_ITEM_LIST, (U32)(AvFILLp(list) + 1));
    for (SSize_t i = 0; i <= AvFILLp(list); i++) put_value(to, AvARRAY(list)[i], depth);
}

static void put_hash(px_packer *to, HV *hash, int depth) {
    put_counted(to, PX_ITEM_HASH, (U32)HvTOTALKEYS(hash));
    for (STRLEN i = 0; HvARRAY(hash) && i <= HvMAX(hash); i++) {
        for (const HE *entry = HvARRAY(hash)[i]; entry; entry = HeNEXT(entry)) {
            put_shared(to, HeKEY_hek(entry));
            put_value(to, HeVAL(entry), depth);
        }
    }
}

static void put_value(px_packer *to, SV *sv, int depth) {
    const U32 flags = SvFLAGS(sv);
    if (SvREFCNT(sv) != 1) put_as_it_is(to, PX_ITEM_SCALAR, sv);
    else if (flags == SVt_NULL) put(to, &(U8){PX_ITEM_UNDEF}, 1);
    else if (flags == (SVt_IV | SVf_IOK | SVp_IOK)) put_integer(to, SvIVX(sv));
    else if ((flags & ~(SVf_UTF8 | SVf_IsCOW)) == (SVt_PV | SVf_POK | SVp_POK) && SvCUR(sv) < U32_MAX)
        put_string(to, sv);
    else if (flags != (SVt_IV | SVf_ROK)) put_as_it_is(to, PX_ITEM_SCALAR, sv);
    else if (depth < PX_PACKED_DEPTH && is_plain_list(SvRV(sv))) put_list(to, (AV *)SvRV(sv), depth + 1);
    else if (depth < PX_PACKED_DEPTH && is_plain_hash(SvRV(sv))) put_hash(to, (HV *)SvRV(sv), depth + 1);
    else put_as_it_is(to, PX_ITEM_REFERENCE, SvRV(sv));
}

/* Packs a hash; the caller's reference to it stays the caller's. NULL: the hash is not plain. */
px_packed *px_pack(pTHX_ HV *hash) {
    px_packer packer = {NULL, 0};
    if (!is_plain_hash((SV *)hash)) return NULL;
    put_hash(&packer, hash, 0);
    char *memory;
    Newx(memory, sizeof(px_packed) + packer.len, char);
    px_packed *packed = (px_packed *)(void *)memory;
    packer.bytes = packed->bytes;
    packed->len = packer.len;
    packer.len = 0;
    put_hash(&packer, hash, 0);
    return packed;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static void get(const char **from, void *to, size_t len) {
    Copy(*from, to, len, char);
    *from += len;
}

static px_item next_item(const char **from) {
    px_item item = {.count = 0, .sv = NULL};
    get(from, &item.kind, sizeof(item.kind));
    switch ((px_item_kind)item.kind) {
    case PX_ITEM_UNDEF: break;
    case PX_ITEM_INTEGER: get(from, &item.integer, sizeof(item.integer)); break;
    case PX_ITEM_SHARED: get(from, &item.shared, sizeof(item.shared)); break;
    case PX_ITEM_LIST:
    case PX_ITEM_HASH: get(from, &item.count, sizeof(item.count)); break;
    case PX_ITEM_BYTES:
    case PX_ITEM_TEXT:
        get(from, &item.count, sizeof(item.count));
        item.bytes = *from;
        *from += item.count;
        break;
    case PX_ITEM_REFERENCE:
    case PX_ITEM_SCALAR: get(from, &item.sv, sizeof(item.sv)); break;
    }
    return item;
}

static SV *new_value(pTHX_ const char **from);

static AV *new_list(pTHX_ U32 count, const char **from) {
    AV *list = newAV();
    if (count) av_extend(list, (SSize_t)count - 1);
    for (U32 i = 0; i < count; i++) av_push(list, new_value(aTHX_ from));
    return list;
}

static HV *new_hash(pTHX_ U32 count, const char **from) {
    HV *hash = newHV();
    for (U32 i = 0; i < count; i++) {
        const HEK *key = next_item(from).shared;
        (void)hv_store(hash, HEK_KEY(key), HEK_LEN(key), new_value(aTHX_ from), HEK_HASH(key));
    }
    return hash;
}

static SV *new_value(pTHX_ const char **from) {
    const px_item item = next_item(from);
    switch ((px_item_kind)item.kind) {
    case PX_ITEM_UNDEF: break;
    case PX_ITEM_INTEGER: return newSViv(item.integer);
    case PX_ITEM_SHARED: return newSVhek(item.shared);
    case PX_ITEM_BYTES: return newSVpvn(item.bytes, item.count);
    case PX_ITEM_TEXT: return newSVpvn_utf8(item.bytes, item.count, true);
    case PX_ITEM_LIST: return newRV_noinc((SV *)new_list(aTHX_ item.count, from));
    case PX_ITEM_HASH: return newRV_noinc((SV *)new_hash(aTHX_ item.count, from));
    case PX_ITEM_REFERENCE: return newRV_inc(item.sv);
    case PX_ITEM_SCALAR: return SvREFCNT_inc_simple_NN(item.sv);
    }
    return newSV(0);
}

HV *px_unpack(pTHX_ const px_packed *packed) {
    const char *at = packed->bytes;
    const px_item item = next_item(&at);
    return new_hash(aTHX_ item.count, &at);
}

/* Frees a block and what it refers to; destructors may run Perl code. */
void px_packed_free(pTHX_ px_packed *packed) {
    const char *at = packed->bytes;
    while (at < packed->bytes + packed->len) {
        const px_item item = next_item(&at);
        if (item.kind == PX_ITEM_SHARED)
            unsharepvn(HEK_KEY(item.shared), HEK_UTF8(item.shared) ? -HEK_LEN(item.shared)
                       : HEK_LEN(item.shared), HEK_HASH(item.shared));
        else if (item.kind == PX_ITEM_REFERENCE || item.kind == PX_ITEM_SCALAR) SvREFCNT_dec_NN(item.sv);
    }
    Safefree(packed);
}

/* Skips a value, with all that belongs to it. */
static void skip_value(const char **from) {
    for (size_t left = 1; left > 0; left--) {
        const px_item item = next_item(from);
        if (item.kind == PX_ITEM_LIST) left += item.count;
        if (item.kind == PX_ITEM_HASH) left += 2 * (size_t)item.count;
    }
}

/* The string under a key of the hash that was packed; NULL: there is none. Calls no function of Perl, so that
 * signal handlers may call it. */
const char *px_packed_string(const px_packed *packed, const char *key, size_t *len) {
    const char *at = packed->bytes;
    for (U32 left = next_item(&at).count; left > 0; left--) {
        const HEK *name = next_item(&at).shared;
        if ((size_t)HEK_LEN(name) != strlen(key) || memcmp(HEK_KEY(name), key, strlen(key)) != 0) {
            skip_value(&at);
            continue;
        }
        const px_item value = next_item(&at);
        if (value.kind == PX_ITEM_SHARED) {
            *len = (size_t)HEK_LEN(value.shared);
            return HEK_KEY(value.shared);
        }
        *len = value.count;
        return value.kind == PX_ITEM_BYTES || value.kind == PX_ITEM_TEXT ? value.bytes : NULL;
    }
    return NULL;
}
