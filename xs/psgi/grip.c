/* grip.c - responses that the engine holds open for topics (GRIP): their content is collected, and the engine
 * gets all of it with the application's instruction. The instruction's fields are read in Perl:
 * Plack::Handler::Peregrine::Grip. */
#include "psgi/psgi.h"

/* The parts of psgi_exchange.held. */
enum { HELD_HEAD, HELD_INSTRUCTION, HELD_CONTENT };

/* The parts of an instruction; after them TOPIC_PARTS for each topic. */
enum { GRIP_KIND, GRIP_TIMEOUT, GRIP_EVERY, GRIP_KEEPALIVE, GRIP_TOPICS };
enum { TOPIC_NAME, TOPIC_SINCE, TOPIC_AS, TOPIC_PARTS };

/* Whether a field of a response is an instruction of GRIP. */
bool psgi_grip_is_ours(const psgi_app *app, const char *name, STRLEN len) {
    return app->grip && len >= 5 && px_is_text(name, 5, "grip-");
}

/* Whether the key of a request's field is reserved for proxies of GRIP, so that fields of clients are
 * hidden. */
bool psgi_grip_hides(const psgi_app *app, SV *key) {
    static const char *const prefixes[] = {"HTTP_GRIP_", "HTTP_META_"};
    if (!app->grip) return false;
    if (strEQ(SvPVX_const(key), "HTTP_CONNECTION_ID")) return true;
    for (size_t i = 0; i < C_ARRAY_LENGTH(prefixes); i++)
        if (strnEQ(SvPVX_const(key), prefixes[i], strlen(prefixes[i]))) return true;
    return false;
}

static SV *part(const psgi_exchange *exchange, SSize_t which) {
    return AvARRAY((AV *)SvRV(exchange->held))[which];
}

/* A copy of a response's status and header fields: the application may change its own meanwhile. */
static SV *own_head(pTHX_ SV *response) {
    SV *const *parts = AvARRAY((AV *)SvRV(response));
    AV *given = (AV *)SvRV(parts[1]);
    AV *headers = newAV();
    for (SSize_t i = 0; i <= AvFILLp(given); i++) av_push(headers, newSVsv(AvARRAY(given)[i]));
    return newRV_noinc((SV *)px_pair(aTHX_ newSVsv(parts[0]), newRV_noinc((SV *)headers)));
}

/* Begins to collect the content of a response that is to be held. False: its instruction is wrong, which was
 * reported. */
bool psgi_grip_begin(pTHX_ psgi_exchange *exchange, SV *response) {
    SV *head = sv_2mortal(own_head(aTHX_ response));
    SV *headers = AvARRAY((AV *)SvRV(head))[1];
    CV *read = get_cv("Plack::Handler::Peregrine::Grip::instruction", GV_ADD);
    SV *function = sv_2mortal(newRV_inc((SV *)read));
    HV *env = exchange->base.given;
    AV *request = px_pair(aTHX_ newSVsv(exchange->app->grip), env ? newRV_inc((SV *)env) : newSV(0));
    SV *error = NULL;
    SV *instruction = px_call(aTHX_ function, NULL, headers, sv_2mortal(newRV_noinc((SV *)request)), &error);
    if (instruction) sv_2mortal(instruction);
    if (!psgi_delivers(exchange)) return false;
    if (error) {
        psgi_exchange_reject(aTHX_ exchange, error);
        return false;
    }
    AV *held = newAV();
    av_push(held, SvREFCNT_inc_simple_NN(head));
    av_push(held, newSVsv(instruction));
    av_push(held, newSVpvs(""));
    exchange->held = newRV_noinc((SV *)held);
    exchange->state = PSGI_STARTED;
    return true;
}

/* Adds a piece of content. Returns NULL, or the mistake. */
const char *psgi_grip_add(pTHX_ psgi_exchange *exchange, const char *bytes, STRLEN len) {
    SV *content = part(exchange, HELD_CONTENT);
    if (len > PEREGRINE_HELD_CONTENT_BYTES - SvCUR(content))
        return "a held response has at most 64 KiB of its own";
    sv_catpvn_nomg(content, bytes, len);
    return NULL;
}

/* Reads an instruction that Perl code has made into `how` and `topics`, which has room for all topics. */
static void read_instruction(pTHX_ AV *instruction, peregrine_held_ask *how, peregrine_held_topic *topics) {
    SV *const *parts = AvARRAY(instruction);
    how->kind = (uint32_t)SvUV(parts[GRIP_KIND]);
    how->timeout_ms = (uint32_t)SvUV(parts[GRIP_TIMEOUT]);
    how->keepalive_ms = (uint32_t)SvUV(parts[GRIP_EVERY]);
    how->keepalive = SvPVbyte(parts[GRIP_KEEPALIVE], how->keepalive_len);
    how->topics = topics;
    for (size_t i = 0; i < how->topic_count; i++) {
        SV *const *topic = parts + GRIP_TOPICS + i * TOPIC_PARTS;
        topics[i] = (peregrine_held_topic){.size = sizeof(*topics), .as = (uint32_t)SvUV(topic[TOPIC_AS])};
        topics[i].name = SvPVbyte(topic[TOPIC_NAME], topics[i].name_len);
        topics[i].since = SvPVbyte(topic[TOPIC_SINCE], topics[i].since_len);
    }
}

/* Gives the engine the response, whose content is complete. */
void psgi_grip_end(pTHX_ psgi_exchange *exchange) {
    AV *instruction = (AV *)SvRV(part(exchange, HELD_INSTRUCTION));
    peregrine_held_topic topics[PEREGRINE_HELD_TOPICS];
    peregrine_held_ask how = {
        .size = sizeof(how),
        .topic_count = (size_t)(AvFILLp(instruction) + 1 - GRIP_TOPICS) / TOPIC_PARTS,
    };
    PX_ASSERT(how.topic_count > 0 && how.topic_count <= C_ARRAY_LENGTH(topics));
    read_instruction(aTHX_ instruction, &how, topics);
    psgi_response_hold(aTHX_ exchange, part(exchange, HELD_HEAD), part(exchange, HELD_CONTENT), &how);
}
