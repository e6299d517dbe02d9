/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/memory/pickle_write.h"

#include "sim/base/xmem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 1000, MAX_LISTS = 8, MAX_KNOWN = SIM_PICKLE_MAX_KNOWN };

typedef struct {
    uint64_t hash;
    uint32_t key_at, n_key; /* in keys[] */
    uint32_t idx_plus_1;    /* memo index + 1; 0 = empty slot */
} slot_t;

struct sim_pickle_writer {
    FILE *out;
    slot_t *slots; /* open addressing, a power of two, at most half full */
    size_t n_slots;
    uint32_t n_known;
    char *keys;
    size_t n_keys, cap_keys;
    unsigned in_batch[MAX_LISTS]; /* elements since the last MARK of each open list */
    unsigned n_lists;
};

static void put(sim_pickle_writer_t *w, int byte)
{
    putc_unlocked(byte, w->out);
}

static void put_le(sim_pickle_writer_t *w, uint64_t x, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        put(w, (int)(x >> (8 * i) & 0xff));
}

sim_pickle_writer_t *sim_pickle_writer_create(FILE *out)
{
    sim_pickle_writer_t *w = base_xcalloc(1, sizeof(*w));
    w->out = out;
    w->n_slots = 256;
    w->slots = base_xcalloc(w->n_slots, sizeof(*w->slots));
    put(w, 0x80); /* PROTO */
    put(w, 2);
    return w;
}

void sim_pickle_writer_destroy(sim_pickle_writer_t *w)
{
    if (w == NULL)
        return;
    free(w->slots);
    free(w->keys);
    free(w);
}

void sim_pickle_writer_finish(sim_pickle_writer_t *w)
{
    put(w, '.');
    sim_pickle_writer_destroy(w);
}

void sim_pickle_put_int(sim_pickle_writer_t *w, int64_t value)
{
    if (value >= 0 && value <= UINT8_MAX) {
        put(w, 'K');
        put_le(w, (uint64_t)value, 1);
    } else if (value >= 0 && value <= UINT16_MAX) {
        put(w, 'M');
        put_le(w, (uint64_t)value, 2);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        put(w, 'J');
        put_le(w, (uint64_t)value, 4);
    } else {
        unsigned n = 5; /* LONG1: two's complement in the fewest bytes, as Python writes it */
        uint64_t magnitude = (uint64_t)(value < 0 ? ~value : value);
        while (n < 8 && magnitude >> (8 * n - 1) != 0)
            n++;
        put(w, 0x8a);
        put(w, (int)n);
        put_le(w, (uint64_t)value, n);
    }
}

void sim_pickle_put_float(sim_pickle_writer_t *w, double value)
{
    uint64_t x;
    memcpy(&x, &value, sizeof(x));
    put(w, 'G');
    put_le(w, __builtin_bswap64(x), 8);
}

void sim_pickle_put_bool(sim_pickle_writer_t *w, bool value)
{
    put(w, value ? 0x88 : 0x89);
}

/* FNV-1a. */
static uint64_t hash_of(const void *key, size_t n)
{
    const unsigned char *k = key;
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n; i++)
        h = (h ^ k[i]) * UINT64_C(1099511628211);
    return h;
}

static slot_t *find_slot(const sim_pickle_writer_t *w, const void *key, size_t n, uint64_t hash)
{
    for (size_t i = hash;; i++) {
        slot_t *slot = &w->slots[i & (w->n_slots - 1)];
        if (slot->idx_plus_1 == 0 ||
            (slot->hash == hash && slot->n_key == n && memcmp(w->keys + slot->key_at, key, n) == 0))
            return slot;
    }
}

static void double_slots(sim_pickle_writer_t *w)
{
    slot_t *old = w->slots;
    size_t n_old = w->n_slots;
    w->n_slots *= 2;
    w->slots = base_xcalloc(w->n_slots, sizeof(*w->slots));
    for (size_t i = 0; i < n_old; i++)
        if (old[i].idx_plus_1 != 0)
            *find_slot(w, w->keys + old[i].key_at, old[i].n_key, old[i].hash) = old[i];
    free(old);
}

uint32_t sim_pickle_n_known(const sim_pickle_writer_t *w)
{
    return w->n_known;
}

bool sim_pickle_known(const sim_pickle_writer_t *w, const void *key, size_t n_key, uint32_t *idx_p)
{
    const slot_t *slot = find_slot(w, key, n_key, hash_of(key, n_key));
    if (slot->idx_plus_1 == 0)
        return false;
    *idx_p = slot->idx_plus_1 - 1;
    return true;
}

void sim_pickle_put_known(sim_pickle_writer_t *w, uint32_t idx)
{
    bool is_short = idx <= UINT8_MAX;
    put(w, is_short ? 'h' : 'j');
    put_le(w, idx, is_short ? 1 : 4);
}

bool sim_pickle_recall(sim_pickle_writer_t *w, const void *key, size_t n_key)
{
    uint32_t idx;
    if (!sim_pickle_known(w, key, n_key, &idx))
        return false;
    sim_pickle_put_known(w, idx);
    return true;
}

void sim_pickle_remember(sim_pickle_writer_t *w, const void *key, size_t n_key)
{
    if (w->n_known == MAX_KNOWN || n_key > UINT32_MAX - w->n_keys)
        return;
    if (2 * (size_t)w->n_known >= w->n_slots)
        double_slots(w);
    if (w->n_keys + n_key > w->cap_keys) {
        w->cap_keys = 2 * (w->n_keys + n_key) + 1024;
        w->keys = base_xrealloc(w->keys, w->cap_keys, 1);
    }
    uint64_t hash = hash_of(key, n_key);
    slot_t *slot = find_slot(w, key, n_key, hash);
    memcpy(w->keys + w->n_keys, key, n_key);
    *slot = (slot_t){ .hash = hash,
                      .key_at = (uint32_t)w->n_keys,
                      .n_key = (uint32_t)n_key,
                      .idx_plus_1 = w->n_known + 1 };
    w->n_keys += n_key;
    bool is_short = w->n_known <= UINT8_MAX;
    put(w, is_short ? 'q' : 'r');
    put_le(w, w->n_known, is_short ? 1 : 4);
    w->n_known++;
}

void sim_pickle_put_str(sim_pickle_writer_t *w, const char *text)
{
    size_t n = strlen(text);
    if (sim_pickle_recall(w, text, n))
        return;
    put(w, 'X');
    put_le(w, n, 4);
    fwrite(text, 1, n, w->out);
    sim_pickle_remember(w, text, n);
}

void sim_pickle_put_pair(sim_pickle_writer_t *w, int64_t first, int64_t second)
{
    sim_pickle_put_int(w, first);
    sim_pickle_put_int(w, second);
    put(w, 0x86); /* TUPLE2 */
}

void sim_pickle_begin_list(sim_pickle_writer_t *w)
{
    assert(w->n_lists < MAX_LISTS);
    w->in_batch[w->n_lists++] = 0;
    put(w, ']');
}

void sim_pickle_element(sim_pickle_writer_t *w)
{
    unsigned *n = &w->in_batch[w->n_lists - 1];
    if (*n == BATCH) {
        put(w, 'e');
        *n = 0;
    }
    if ((*n)++ == 0)
        put(w, '(');
}

void sim_pickle_end_list(sim_pickle_writer_t *w)
{
    if (w->in_batch[--w->n_lists] > 0)
        put(w, 'e');
}

void sim_pickle_begin_dict(sim_pickle_writer_t *w)
{
    put(w, '}');
    put(w, '(');
}

void sim_pickle_end_dict(sim_pickle_writer_t *w)
{
    put(w, 'u');
}
