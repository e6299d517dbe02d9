/* SPDX-License-Identifier: Apache-2.0
 * Speed of the caching allocator, in operations (calls of malloc and free) a second. `bench_alloc
 * NAME` plays one trace once, for instruction counts:
 *   valgrind --tool=callgrind tests/bench_alloc random */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/memory/caching_allocator.h"
#include "sim/memory/trace_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_OPS = 1000 * 1000, N_ROUNDS = 15 };

/* ---- traces as text, so that reading can be measured too ---- */

typedef struct {
    char *text;
    size_t len, cap;
    uint64_t n_ids, n_ops, seed;
} writer_t;

static uint64_t below(writer_t *w, uint64_t n)
{
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 7;
    w->seed ^= w->seed << 17;
    return (w->seed >> 20) % n;
}

static void put(writer_t *w, char kind, uint64_t id, uint64_t bytes)
{
    if (w->cap - w->len < 64) {
        w->cap = w->cap * 2 + 4096;
        w->text = base_xrealloc(w->text, w->cap, 1);
    }
    char *at = w->text + w->len;
    w->len += (size_t)(kind == 'a' ? sprintf(at, "a %" PRIu64 " %" PRIu64 " 0\n", id, bytes)
                                   : sprintf(at, "f %" PRIu64 "\n", id));
    w->n_ops++;
}

static uint64_t put_alloc(writer_t *w, uint64_t bytes)
{
    put(w, 'a', ++w->n_ids, bytes);
    return w->n_ids;
}

/* Sizes spread evenly over powers of two from 512 bytes to 64 MiB, freed in random order, about
 * 2,000 alive. */
static void write_random(writer_t *w)
{
    enum { N_LIVE = 2000 };
    uint64_t live[N_LIVE] = { 0 };
    while (w->n_ops < N_OPS) {
        uint64_t *slot = &live[below(w, N_LIVE)];
        if (*slot != 0) {
            put(w, 'f', *slot, 0);
            *slot = 0;
        } else {
            uint64_t top = UINT64_C(512) << below(w, 17);
            *slot = put_alloc(w, top + below(w, top));
        }
    }
}

/* Iterations of a transformer stage: in the forward pass of each micro-batch every layer keeps some
 * activations and drops some temporaries, the backward pass takes them down in reverse. */
static void write_training(writer_t *w)
{
    enum { LAYERS = 20, KEPT = 12, TEMPORARIES = 5, WARMUP = 4 };
    static uint64_t kept[WARMUP][LAYERS][KEPT];
    memset(kept, 0, sizeof(kept));
    for (int i = 0; i < 300; i++) /* parameters, gradients, optimizer state */
        put_alloc(w, (UINT64_C(1) << (9 + below(w, 17))) + below(w, 4096));
    for (uint64_t step = 0; w->n_ops < N_OPS; step++) {
        uint64_t tokens = 2048 + below(w, 2048); /* variable sequence length */
        uint64_t(*mb)[KEPT] = kept[step % WARMUP];
        for (int layer = LAYERS - 1; layer >= 0 && mb[0][0] != 0; layer--)
            for (int i = KEPT - 1; i >= 0; i--) {
                uint64_t gradient = put_alloc(w, tokens * (512 + 256 * (uint64_t)(i % 5)));
                put(w, 'f', mb[layer][i], 0);
                put(w, 'f', gradient, 0);
            }
        for (int layer = 0; layer < LAYERS; layer++) {
            uint64_t temporary[TEMPORARIES];
            for (int i = 0; i < KEPT; i++)
                mb[layer][i] = put_alloc(w, tokens * (8 << (i % 9)));
            for (int i = 0; i < TEMPORARIES; i++)
                temporary[i] = put_alloc(w, tokens * (128 << i));
            for (int i = 0; i < TEMPORARIES; i++)
                put(w, 'f', temporary[i], 0);
        }
    }
}

/* ---- playing ---- */

/* This process's own time, so that others on the machine count less. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct {
    uint64_t n_ops, peak_reserved, n_ooms;
    uint64_t n_free_blocks; /* at the end */
    double seconds;
} played_t;

static void count_free(void *arg, const sim_block_info_t *b)
{
    *(uint64_t *)arg += !b->is_active;
}

static played_t play(const sim_trace_t *trace, const char *conf)
{
    sim_device_t *device =
        sim_device_create_synthetic(&(sim_device_config_t){ .total_bytes = 80 * BASE_GIB,
                                                            .usable_bytes = 80 * BASE_GIB,
                                                            .addresses = SIM_ADDRESSES_DEFAULT });
    sim_alloc_t *alloc;
    played_t p = { 0 };
    if (sim_alloc_create(device, conf, &alloc, NULL) != BASE_OK)
        abort();
    sim_block_t *blocks = base_xcalloc(trace->n_blocks, sizeof(*blocks));
    double start = now();
    for (size_t i = 0; i < trace->n_calls; i++) {
        const sim_call_t *call = &trace->calls[i];
        if (call->kind == SIM_CALL_ALLOC)
            sim_alloc_malloc(alloc, trace->streams[call->stream], call->bytes,
                             &blocks[call->block]);
        else if (call->kind == SIM_CALL_FREE)
            sim_alloc_free(alloc, blocks[call->block]);
        else
            continue;
        p.n_ops++;
    }
    p.seconds = now() - start;
    const sim_alloc_stats_t *stats = sim_alloc_stats(alloc);
    p.peak_reserved = stats->reserved_bytes[SIM_POOL_ALL].peak;
    p.n_ooms = stats->num_ooms;
    sim_alloc_foreach(alloc, count_free, &p.n_free_blocks);
    free(blocks);
    sim_alloc_destroy(alloc);
    sim_device_destroy(device);
    return p;
}

static void report(const char *name, const sim_trace_t *trace, const char *conf, unsigned times)
{
    double best = 1e300;
    played_t p = { 0 };
    for (int round = 0; round < N_ROUNDS; round++) {
        double seconds = 0;
        for (unsigned i = 0; i < times; i++) {
            p = play(trace, conf);
            seconds += p.seconds;
        }
        best = seconds < best ? seconds : best;
    }
    double n = (double)p.n_ops * times;
    char reserved[BASE_BYTES_TEXT];
    printf("alloc %-22s %-36s %8.0f ops %6.1f ns/op %6.1f M ops/s  reserved %s, %" PRIu64
           " free blocks, %" PRIu64 " ooms\n",
           name, conf[0] != '\0' ? conf : "(default)", n / times, best / n * 1e9, n / best * 1e-6,
           base_bytes_format(p.peak_reserved, reserved), p.n_free_blocks, p.n_ooms);
}

static const char *const confs[] = { "", "expandable_segments:True",
                                     "max_split_size_mb:128,roundup_power2_divisions:4" };
enum { N_CONFS = sizeof(confs) / sizeof(confs[0]) };

static sim_trace_t *generate(const char *name, void (*write)(writer_t *w), bool timed)
{
    writer_t w = { .seed = 88172645463325252 };
    sim_trace_t *trace = NULL;
    base_diag_t diag;
    base_diag_init(&diag);
    write(&w);
    double start = now();
    if (sim_trace_parse(name, w.text, w.len, &trace, &diag) != BASE_OK)
        abort();
    if (timed)
        printf("trace %-22s reading %.1f ns/op\n", name, (now() - start) / (double)w.n_ops * 1e9);
    base_diag_fini(&diag);
    free(w.text);
    return trace;
}

static sim_trace_t *load(const char *name)
{
    base_diag_t diag;
    base_diag_init(&diag);
    char *path = base_xasprintf(BENCH_DATA "/%s.txt", name);
    sim_trace_t *trace = NULL;
    if (sim_trace_read(path, &trace, &diag) != BASE_OK)
        fprintf(stderr, "%s\n", diag.text[0]);
    base_diag_fini(&diag);
    free(path);
    return trace;
}

static const struct {
    const char *name;
    void (*write)(writer_t *w); /* NULL = a file */
    unsigned times;
} traces[] = {
    { "training", write_training, 1 }, { "random", write_random, 1 },
    { "train_05_comm", NULL, 200 },    { "train_02_flat_bucket", NULL, 200 },
    { "stress_00_small", NULL, 1000 }, { "stress_03_mix", NULL, 500 },
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++) {
        const char *name = traces[i].name;
        if (argc > 1 && strcmp(argv[1], name) != 0)
            continue;
        sim_trace_t *trace =
            traces[i].write != NULL ? generate(name, traces[i].write, argc == 1) : load(name);
        if (trace == NULL)
            return 1;
        if (argc > 1)
            play(trace, argc > 2 ? argv[2] : "");
        else
            for (int c = 0; c < N_CONFS; c++)
                report(name, trace, confs[c], traces[i].times);
        sim_trace_destroy(trace);
    }
    return 0;
}
