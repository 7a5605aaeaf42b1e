/* reuse.c - uses the environment of a finished request again for the next one.
 *
 * To make and free an environment costs more than all other work for a small request. Most applications read
 * it, perhaps add to it, and let it go, so that it can be used again with other strings in it. That must not
 * be observable: it is kept only if no reference, weak or not, points to the hash or to a value of the
 * server's, and if each of these values is still there. Values that an application has added are removed; if
 * it has removed or replaced a value, the environment is freed as usual. */
#include "psgi/psgi.h"

#define UNUSUAL (SVf_READONLY | SVf_PROTECT | SVs_OBJECT | SVs_GMG | SVs_SMG | SVs_RMG)
#define REFERENCE_FLAGS (SVt_IV | SVf_ROK)
/* Keys of the application that are removed one by one; an environment with more of them is freed. */
#define ADDED_MAX 32
/* A hash that has grown beyond this number of buckets is not used again. */
#define BUCKETS_MAX 256

#define BIT(name) ((U32)1 << PSGI_KEPT_##name)

/* Whether a value is a scalar that can be written over, or a strong reference. */
static bool is_plain(const SV *sv) {
    if (SvTYPE(sv) >= SVt_PVMG || (SvFLAGS(sv) & UNUSUAL)) return false;
    if (SvROK(sv)) return SvFLAGS(sv) == REFERENCE_FLAGS;
    return SvTYPE(sv) < SVt_PV || SvLEN(sv) <= PSGI_KEEP_BYTES;
}

static UV mark(const HEK *key, const SV *value) { return PTR2UV(key) ^ (PTR2UV(value) << 1); }

static UV mark_of(const SV *key, const SV *value) {
    return mark(SvSHARED_HEK_FROM_PV(SvPVX_const(key)), value);
}

/* A number that is made of the server's keys and the scalars under them. */
static UV expected(psgi_exchange *exchange) {
    UV sum = 0;
    if (exchange->marks) return exchange->marks;
    for (int i = 0; i < PSGI_KEPT_COUNT; i++)
        if (exchange->shown & (U32)1 << i)
            sum += mark_of(psgi_kept_key(exchange, (enum psgi_kept)i), exchange->kept[i]);
    for (int i = 0; i < exchange->field_count; i++)
        sum += mark_of(exchange->app->cx->header_keys[exchange->field_ids[i]], exchange->fields[i]);
    return exchange->marks = sum;
}

/* An application's changes of an environment. */
typedef struct {
    UV sum;         /* of the server's keys and values */
    int references; /* the references among the values */
    int added;
    HEK *keys[ADDED_MAX]; /* keys that the application has added */
} findings;

/* Walks an environment. False: a value in it prevents further use. */
static bool look_over(const HV *env, findings *found) {
    HE *const *buckets = HvARRAY(env);
    found->sum = 0;
    found->references = found->added = 0;
    for (STRLEN i = 0; i <= HvMAX(env); i++) {
        for (const HE *entry = buckets[i]; entry; entry = HeNEXT(entry)) {
            const SV *value = HeVAL(entry);
            /* values of the server have two references: see psgi_exchange.kept and fields */
            if (SvREFCNT(value) == 1) {
                if (found->added == ADDED_MAX) return false;
                found->keys[found->added++] = HeKEY_hek(entry);
                continue;
            }
            if (SvREFCNT(value) != 2 || !is_plain(value)) return false;
            found->references += SvROK(value) != 0;
            found->sum += mark(HeKEY_hek(entry), value);
        }
    }
    return true;
}

/* The target that a kept value must refer to; NULL: the kept value is no reference. */
static const void *target_of(pTHX_ const psgi_exchange *exchange, int which) {
    const psgi_app *app = exchange->app;
    switch (which) {
    case PSGI_KEPT_VERSION: return app->version;
    case PSGI_KEPT_INPUT: return app->no_input ? SvRV(app->no_input) : NULL;
    case PSGI_KEPT_ERRORS: return PL_stderrgv;
    case PSGI_KEPT_CLEANUP_HANDLERS: return exchange->cleanup;
    case PSGI_KEPT_INFORMATIONAL: return exchange->informational;
    case PSGI_KEPT_DISCONNECTED: return exchange->disconnected;
    default: return NULL;
    }
}

/* Whether the environment still has a reference to the target for which it was made. */
static bool refers_as_made(pTHX_ const psgi_exchange *exchange, int which) {
    const SV *sv = exchange->kept[which];
    return sv && SvROK(sv) && (const void *)SvRV(sv) == target_of(aTHX_ exchange, which);
}

/* Whether all references of an environment are as they were made; `references`: their number now. */
static bool refer_as_made(pTHX_ const psgi_exchange *exchange, int references) {
    static const uint8_t list[] = {
        PSGI_KEPT_VERSION,          PSGI_KEPT_INPUT,         PSGI_KEPT_ERRORS,
        PSGI_KEPT_CLEANUP_HANDLERS, PSGI_KEPT_INFORMATIONAL, PSGI_KEPT_DISCONNECTED,
    };
    for (size_t i = 0; i < C_ARRAY_LENGTH(list); i++)
        if (!refers_as_made(aTHX_ exchange, list[i])) return false;
    return references == C_ARRAY_LENGTH(list);
}

static bool is_keepable(pTHX_ psgi_exchange *exchange, HV *env, findings *found) {
    if (exchange->field_count < 0 || exchange->has_io || !(exchange->shown & BIT(INPUT))) return false;
    if (SvREFCNT(env) != 1 || SvTYPE(env) != SVt_PVHV || (SvFLAGS(env) & UNUSUAL) || SvMAGIC(env) ||
        (SvOOK(env) && HvAUX(env)->xhv_backreferences) || !HvARRAY(env) || HvMAX(env) >= BUCKETS_MAX)
        return false;
    return look_over(env, found) && found->sum == expected(exchange) &&
           refer_as_made(aTHX_ exchange, found->references);
}

/* Forgets the values of header fields from the field numbered `from` on. */
void psgi_env_forget_fields(pTHX_ psgi_exchange *exchange, int from) {
    if (exchange->field_count <= from) return;
    for (int i = from; i < exchange->field_count; i++) SvREFCNT_dec_NN(exchange->fields[i]);
    exchange->field_count = from;
    exchange->marks = 0;
}

/* Remembers the value of a header field by the engine's number of its name; 0: the environment has a field
 * that prevents further use. */
void psgi_env_remember_field(pTHX_ psgi_exchange *exchange, uint8_t id, SV *value) {
    const int count = exchange->field_count;
    if (count < 0) return;
    if (id == 0 || count == PSGI_KEEP_FIELDS) {
        psgi_env_forget_fields(aTHX_ exchange, 0);
        exchange->field_count = -1;
        return;
    }
    exchange->field_ids[count] = id;
    exchange->fields[count] = SvREFCNT_inc_simple_NN(value);
    exchange->field_count = count + 1;
    exchange->marks = 0;
}

/* Drops the strings of a request, and values that an application has put into kept scalars. */
static void forget(pTHX_ psgi_exchange *exchange) {
    psgi_env_forget_fields(aTHX_ exchange, 0);
    for (int i = 0; i < PSGI_KEPT_COUNT; i++) {
        const SV *sv = exchange->kept[i];
        const bool is_own = i == PSGI_KEPT_PATH_INFO || i == PSGI_KEPT_REQUEST_URI ||
                            i == PSGI_KEPT_QUERY_STRING;
        if (sv && (is_own || (SvROK(sv) ? !refers_as_made(aTHX_ exchange, i) : !is_plain(sv))))
            px_clear(aTHX_ & exchange->kept[i]);
    }
}

/* Keeps the environment of a request that is over, if applications cannot notice that. */
void psgi_env_settle(pTHX_ psgi_exchange *exchange) {
    HV *env = exchange->base.given;
    findings found;
    exchange->again = env && is_keepable(aTHX_ exchange, env, &found);
    if (!exchange->again) {
        forget(aTHX_ exchange);
        return;
    }
    exchange->base.given = NULL;
    exchange->env = env;
    if (SvOOK(env)) hv_iterinit(env);
    /* Destructors may run here, but they cannot reach the environment. */
    for (int i = 0; i < found.added; i++) {
        const I32 len = HEK_LEN(found.keys[i]);
        (void)hv_delete(env, HEK_KEY(found.keys[i]), HEK_UTF8(found.keys[i]) ? -len : len, G_DISCARD);
    }
}

/* The environment that was kept, for another request; NULL: there is none. */
HV *psgi_env_again(pTHX_ psgi_exchange *exchange, const peregrine_request *request) {
    HV *env = exchange->env;
    const bool had_client = exchange->shown & BIT(REMOTE_ADDR);
    if (env && had_client != (request->peer[0] != '\0')) {
        psgi_env_drop(aTHX_ exchange);
        return NULL;
    }
    exchange->env = NULL;
    return env;
}

void psgi_env_drop(pTHX_ psgi_exchange *exchange) {
    forget(aTHX_ exchange);
    exchange->again = false;
    px_clear(aTHX_ (SV **)&exchange->env);
}
