/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/memory/alloc_conf.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PyTorch's tokens: ',', ':', '[', ']' are one each, blanks vanish (also inside a word), and the
 * rest is words. An index beyond the end is an error; a separator that is another token than
 * expected is not (the newest line drops the result of that comparison). */
typedef struct {
    char **token;
    size_t n, at; /* at: the token being looked at */
    base_err_t *err;
    base_status_t status;
} lexer_t;

static bool is_separator(char c)
{
    return c == ',' || c == ':' || c == '[' || c == ']';
}

static void add_token(lexer_t *lex, const char *text, size_t len)
{
    lex->token[lex->n] = base_xcalloc(len + 1, 1);
    memcpy(lex->token[lex->n], text, len);
    lex->n++;
}

static void lexer_init(lexer_t *lex, const char *text, base_err_t *err)
{
    size_t len = strlen(text), word_len = 0;
    char *word = base_xcalloc(len + 1, 1);
    *lex = (lexer_t){ .token = base_xcalloc(len + 1, sizeof(char *)), .err = err };
    for (size_t i = 0; i <= len; i++) {
        if ((text[i] == '\0' || is_separator(text[i])) && word_len > 0) {
            add_token(lex, word, word_len);
            word_len = 0;
        }
        if (is_separator(text[i]))
            add_token(lex, &text[i], 1);
        else if (text[i] != '\0' && !isspace((unsigned char)text[i]))
            word[word_len++] = text[i];
    }
    free(word);
}

static void lexer_fini(lexer_t *lex)
{
    for (size_t i = 0; i < lex->n; i++)
        free(lex->token[i]);
    free(lex->token);
}

/* Every reader below returns a harmless value once `status` is set. */
static void fail(lexer_t *lex, base_status_t status, const char *text)
{
    if (lex->status == BASE_OK)
        lex->status = base_err_set(lex->err, status, "%s", text);
}

static const char *current(lexer_t *lex)
{
    if (lex->at < lex->n)
        return lex->token[lex->at];
    fail(lex, BASE_ERR_INVAL, "Index out of bounds in ConfigTokenizer");
    return "";
}

static const char *next(lexer_t *lex)
{
    lex->at++;
    return current(lex);
}

static bool next_is(lexer_t *lex, const char *text)
{
    return lex->at + 1 < lex->n && strcmp(lex->token[lex->at + 1], text) == 0;
}

/* std::stoull: leading digits count, what follows them is dropped, a sign is allowed. */
static uint64_t to_u64(lexer_t *lex, const char *token)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(token, &end, 10);
    if (lex->status == BASE_OK && (end == token || errno == ERANGE))
        lex->status = base_err_set(lex->err, BASE_ERR_INVAL, "stoull: '%.100s' %s", token,
                                   end == token ? "is not a whole number" : "is out of range");
    return value;
}

/* std::stod, in the C locale. */
static double to_double(lexer_t *lex, const char *token)
{
    char *end;
    errno = 0;
    double value = strtod(token, &end);
    if (lex->status == BASE_OK && (end == token || errno == ERANGE))
        lex->status = base_err_set(lex->err, BASE_ERR_INVAL, "stod: '%.100s' %s", token,
                                   end == token ? "is not a number" : "is out of range");
    return value;
}

static bool next_bool(lexer_t *lex)
{
    next(lex);
    const char *token = next(lex);
    bool value = strcmp(token, "True") == 0;
    if (!value && strcmp(token, "False") != 0 && lex->status == BASE_OK)
        lex->status = base_err_set(lex->err, BASE_ERR_INVAL,
                                   "Expected 'True' or 'False' at index %zu in ConfigTokenizer "
                                   "but got '%.100s'",
                                   lex->at, token);
    return value;
}

static uint64_t next_u64(lexer_t *lex)
{
    next(lex);
    return to_u64(lex, next(lex));
}

static double next_double(lexer_t *lex)
{
    next(lex);
    return to_double(lex, next(lex));
}

static bool is_power2(uint64_t x)
{
    return x != 0 && (x & (x - 1)) == 0;
}

static uint64_t mib_to_bytes(uint64_t mib)
{
    return base_u64_min(mib, UINT64_MAX / BASE_MIB) * BASE_MIB;
}

/* Pass over a key that the other pass reads. */
static void skip_key(lexer_t *lex)
{
    next(lex);
    if (strcmp(next(lex), "[") != 0)
        return;
    do
        lex->at++;
    while (lex->at < lex->n && strcmp(lex->token[lex->at], "]") != 0);
    if (lex->at >= lex->n)
        fail(lex, BASE_ERR_INVAL,
             "Expected closing bracket ']' in ConfigTokenizer but reached end of config");
}

static uint64_t read_large_mib(lexer_t *lex, const sim_alloc_conf_t *conf, const char *key)
{
    uint64_t mib = next_u64(lex), least = conf->large_segment_bytes / BASE_MIB;
    if (lex->status == BASE_OK && mib < least)
        lex->status = base_err_set(lex->err, BASE_ERR_INVAL,
                                   "CachingAllocator option %s too small, must be >= %llu", key,
                                   (unsigned long long)least);
    return mib_to_bytes(mib);
}

static void read_large_segment(lexer_t *lex, sim_alloc_conf_t *conf)
{
    uint64_t mib = next_u64(lex);
    if (mib <= 10)
        fail(lex, BASE_ERR_INVAL, "CachingAllocator option large_segment_size_mb must be > 10 MB");
    if (lex->status == BASE_OK)
        conf->large_segment_bytes = mib_to_bytes(mib);
}

static void read_max_split(lexer_t *lex, sim_alloc_conf_t *conf)
{
    uint64_t bytes = read_large_mib(lex, conf, "max_split_size_mb");
    if (lex->status == BASE_OK)
        conf->max_split_bytes = bytes;
}

static void read_max_non_split_rounding(lexer_t *lex, sim_alloc_conf_t *conf)
{
    uint64_t bytes = read_large_mib(lex, conf, "max_non_split_rounding_mb");
    if (lex->status == BASE_OK)
        conf->max_non_split_rounding_bytes = bytes;
}

static void read_gc_threshold(lexer_t *lex, sim_alloc_conf_t *conf)
{
    double value = next_double(lex);
    if (!(value > 0.0 && value < 1.0))
        fail(lex, BASE_ERR_INVAL, "garbage_collect_threshold is invalid, set it in (0.0, 1.0)");
    if (lex->status == BASE_OK)
        conf->gc_threshold = value;
}

static void fill(sim_alloc_conf_t *conf, size_t from, size_t to, uint64_t value)
{
    for (size_t i = from; i < to; i++)
        conf->divisions[i] = value;
}

static void read_division_entry(lexer_t *lex, sim_alloc_conf_t *conf, size_t *last_p, bool *first_p)
{
    const char *bound = current(lex);
    uint64_t value = next_u64(lex);
    if (value != 0 && !is_power2(value))
        fail(lex, BASE_ERR_INVAL,
             "For roundups, the divisions has to be power of 2 or 0 to disable roundup ");
    if (strcmp(bound, ">") == 0) {
        if (lex->status == BASE_OK)
            fill(conf, *last_p + 1, SIM_ALLOC_CONF_SLOTS, value);
        return;
    }
    uint64_t mib = lex->status == BASE_OK ? to_u64(lex, bound) : 1;
    if (!is_power2(mib))
        fail(lex, BASE_ERR_INVAL, "For roundups, the intervals have to be power of 2 ");
    if (lex->status != BASE_OK)
        return;
    size_t slot = base_u64_min((uint64_t)__builtin_ctzll(mib), SIM_ALLOC_CONF_SLOTS - 1);
    if (*first_p)
        fill(conf, 0, slot, value);
    *first_p = false;
    conf->divisions[slot] = value;
    *last_p = slot;
}

static void read_divisions(lexer_t *lex, sim_alloc_conf_t *conf)
{
    next(lex);
    const char *token = next(lex);
    if (strcmp(token, "[") != 0) {
        uint64_t value = to_u64(lex, token);
        if (!is_power2(value))
            fail(lex, BASE_ERR_INVAL, "For roundups, the divisions has to be power of 2 ");
        if (lex->status == BASE_OK)
            fill(conf, 0, SIM_ALLOC_CONF_SLOTS, value);
        return;
    }
    size_t last = 0;
    bool first = true;
    for (lex->at++; lex->at < lex->n && strcmp(lex->token[lex->at], "]") != 0; lex->at++) {
        read_division_entry(lex, conf, &last, &first);
        if (lex->status != BASE_OK)
            return;
        if (lex->at + 1 < lex->n && !next_is(lex, "]"))
            lex->at++; /* the comma */
    }
    if (lex->at >= lex->n)
        fail(lex, BASE_ERR_INVAL,
             "Expected closing bracket ']' in ConfigTokenizer but reached end of config");
}

static void read_expandable(lexer_t *lex, sim_alloc_conf_t *conf)
{
    bool value = next_bool(lex);
    if (lex->status == BASE_OK)
        conf->expandable_segments = value;
}

/* Values that only steer locks, threads, graph capture or pinned host memory. */
static void read_ignored_bool(lexer_t *lex, sim_alloc_conf_t *conf)
{
    (void)conf;
    next_bool(lex);
}

static void read_backend(lexer_t *lex, sim_alloc_conf_t *conf)
{
    (void)conf;
    next(lex);
    const char *name = next(lex);
    if (strcmp(name, "cudaMallocAsync") == 0)
        fail(lex, BASE_ERR_UNSUPPORTED,
             "backend:cudaMallocAsync is not simulated; the native backend is");
    else if (strcmp(name, "native") != 0)
        fail(lex, BASE_ERR_INVAL,
             "Unknown allocator backend, options are native and cudaMallocAsync");
}

static void read_pinned_threads(lexer_t *lex, sim_alloc_conf_t *conf)
{
    (void)conf;
    uint64_t n = next_u64(lex);
    if (lex->status != BASE_OK)
        return;
    if (!is_power2(n))
        lex->status = base_err_set(lex->err, BASE_ERR_INVAL,
                                   "Number of register threads has to be power of 2, got %llu",
                                   (unsigned long long)n);
    else if (n > 128)
        lex->status = base_err_set(lex->err, BASE_ERR_INVAL,
                                   "Number of register threads should be less than or equal to "
                                   "128, got %llu",
                                   (unsigned long long)n);
}

static void read_pinned_reserve(lexer_t *lex, sim_alloc_conf_t *conf)
{
    (void)conf;
    if (next_u64(lex) == 0)
        fail(lex, BASE_ERR_INVAL, "Pinned reserve segment size has to be greater than 0");
}

static void read_fraction(lexer_t *lex, sim_alloc_conf_t *conf)
{
    double value = next_double(lex);
    if (!(value >= 0.0 && value <= 1.0))
        fail(lex, BASE_ERR_INVAL, "per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
    if (lex->status == BASE_OK)
        conf->per_process_memory_fraction = value;
}

static void read_throw(lexer_t *lex, sim_alloc_conf_t *conf)
{
    bool value = next_bool(lex);
    if (lex->status == BASE_OK)
        conf->throw_on_cudamalloc_oom = value;
}

/* "0.5" or "40G"; anything else is warned about and ignored. */
static bool parse_reserve(sim_alloc_conf_t *conf, const char *token, double *value_p,
                          bool *is_fraction_p)
{
    size_t len = strlen(token);
    bool is_gib = len > 0 && (token[len - 1] == 'G' || token[len - 1] == 'g');
    char *end;
    double value = strtod(token, &end);
    if (end == token || end != token + len - is_gib || !isfinite(value) || value <= 0.0) {
        snprintf(conf->warning, sizeof(conf->warning),
                 "Ignoring invalid expandable-segment reserve value '%.60s' (expected a positive, "
                 "finite fraction like 0.5 or an absolute size like 40G); using default.",
                 token);
        return false;
    }
    *value_p = value;
    *is_fraction_p = !is_gib;
    return true;
}

static void read_reserve(lexer_t *lex, sim_alloc_conf_t *conf)
{
    next(lex);
    const char *token = next(lex);
    if (lex->status == BASE_OK &&
        parse_reserve(conf, token, &conf->reserve, &conf->reserve_is_fraction))
        conf->has_reserve = true;
}

/* Classes are given to streams by calls, never by settings, so no stream here has one. */
static void read_reserve_by_class(lexer_t *lex, sim_alloc_conf_t *conf)
{
    double value;
    bool is_fraction;
    next(lex);
    next(lex);
    while (lex->status == BASE_OK && !next_is(lex, "]")) {
        next(lex);
        next(lex);
        const char *token = next(lex);
        if (lex->status == BASE_OK)
            parse_reserve(conf, token, &value, &is_fraction);
        if (next_is(lex, ","))
            lex->at++;
    }
    lex->at++;
}

/* Read before all other keys; the main pass only steps over it. */
static void skip_large_segment(lexer_t *lex, sim_alloc_conf_t *conf)
{
    (void)conf;
    skip_key(lex);
}

typedef struct {
    const char *name;
    bool is_common; /* read in the first pass, for every accelerator; else in CUDA's own */
    void (*read)(lexer_t *lex, sim_alloc_conf_t *conf); /* leaves `at` on the value's last token */
} conf_key_t;

static const conf_key_t keys[] = {
    { "large_segment_size_mb", true, skip_large_segment },
    { "max_split_size_mb", true, read_max_split },
    { "max_non_split_rounding_mb", true, read_max_non_split_rounding },
    { "garbage_collection_threshold", true, read_gc_threshold },
    { "roundup_power2_divisions", true, read_divisions },
    { "expandable_segments", true, read_expandable },
    { "pinned_use_background_threads", true, read_ignored_bool },
    { "backend", false, read_backend },
    { "release_lock_on_cudamalloc", false, read_ignored_bool },
    { "release_lock_on_hipmalloc", false, read_ignored_bool },
    { "pinned_use_cuda_host_register", false, read_ignored_bool },
    { "pinned_use_hip_host_register", false, read_ignored_bool },
    { "pinned_num_register_threads", false, read_pinned_threads },
    { "pinned_reserve_segment_size_mb", false, read_pinned_reserve },
    { "pinned_free_catch_all", false, read_ignored_bool },
    { "graph_capture_record_stream_reuse", false, read_ignored_bool },
    { "per_process_memory_fraction", false, read_fraction },
    { "throw_on_cudamalloc_oom", false, read_throw },
    { "expandable_segments_reserve", false, read_reserve },
    { "expandable_segments_reserve_by_class", false, read_reserve_by_class },
};

static const conf_key_t *find_key(const char *name)
{
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

static void run_pass(lexer_t *lex, sim_alloc_conf_t *conf, bool common)
{
    for (lex->at = 0; lex->at < lex->n && lex->status == BASE_OK; lex->at++) {
        const char *name = current(lex);
        const conf_key_t *key = find_key(name);
        if (key == NULL && !common)
            lex->status = base_err_set(lex->err, BASE_ERR_INVAL,
                                       "Unrecognized key '%.100s' in CUDA allocator config.", name);
        else if (key != NULL && key->is_common == common)
            key->read(lex, conf);
        else
            skip_key(lex);
        if (lex->at + 1 < lex->n)
            lex->at++; /* the comma */
    }
}

/* PyTorch looks for this key at every token, so that max_split_size_mb can be checked against it
 * wherever it stands. */
static void read_large_segment_first(lexer_t *lex, sim_alloc_conf_t *conf)
{
    for (lex->at = 0; lex->at < lex->n && lex->status == BASE_OK; lex->at++)
        if (strcmp(current(lex), "large_segment_size_mb") == 0)
            read_large_segment(lex, conf);
    if (lex->status == BASE_OK)
        conf->max_non_split_rounding_bytes = conf->large_segment_bytes;
}

void sim_alloc_conf_init(sim_alloc_conf_t *conf)
{
    *conf = (sim_alloc_conf_t){
        .max_split_bytes = UINT64_MAX,
        .max_non_split_rounding_bytes = 20 * BASE_MIB,
        .large_segment_bytes = 20 * BASE_MIB,
        .per_process_memory_fraction = 1.0,
    };
}

base_status_t sim_alloc_conf_parse(sim_alloc_conf_t *conf, const char *text, base_err_t *err)
{
    lexer_t lex;
    lexer_init(&lex, text, err);
    conf->max_split_bytes = UINT64_MAX;
    conf->gc_threshold = 0.0;
    conf->warning[0] = '\0';
    fill(conf, 0, SIM_ALLOC_CONF_SLOTS, 0);
    read_large_segment_first(&lex, conf);
    if (lex.status == BASE_OK)
        run_pass(&lex, conf, true);
    if (lex.status == BASE_OK)
        run_pass(&lex, conf, false);
    conf->has_divisions = false;
    for (size_t i = 0; i < SIM_ALLOC_CONF_SLOTS; i++)
        conf->has_divisions |= conf->divisions[i] > 1;
    base_status_t status = lex.status;
    lexer_fini(&lex);
    return status;
}

uint64_t sim_alloc_conf_round(const sim_alloc_conf_t *conf, uint64_t bytes)
{
    const uint64_t min_block = 512; /* kMinBlockSize */
    if (bytes < min_block)
        return min_block;
    int log2 = 63 - __builtin_clzll(bytes);
    int slot = log2 <= 20 ? 0 : log2 - 20;
    uint64_t d = conf->divisions[slot < SIM_ALLOC_CONF_SLOTS ? slot : SIM_ALLOC_CONF_SLOTS - 1];
    if (d <= 1 || d >= bytes || bytes / d < min_block || bytes == min_block * d)
        return base_u64_round_up(bytes, min_block);
    if ((bytes & (bytes - 1)) == 0)
        return bytes;
    return base_u64_round_up(bytes, (UINT64_C(1) << log2) / d);
}

uint64_t sim_alloc_conf_reserve_bytes(const sim_alloc_conf_t *conf, uint64_t total_bytes)
{
    uint64_t full = total_bytes + total_bytes / 8;
    if (!conf->has_reserve)
        return full;
    double bytes =
        conf->reserve * (conf->reserve_is_fraction ? (double)total_bytes : (double)BASE_GIB);
    return bytes >= (double)full ? full : (uint64_t)bytes;
}

const char *sim_alloc_conf_from_env(const char **name_p)
{
    static const char *const names[] = { "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF",
                                         "PYTORCH_ALLOC_CONF" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = getenv(names[i]);
        if (text == NULL)
            continue;
        if (name_p != NULL)
            *name_p = names[i];
        return text;
    }
    return NULL;
}
