/* SPDX-License-Identifier: Apache-2.0
 * Reads Python pickles (protocols 2 to 5) that hold plain data: None, booleans, numbers, strings,
 * lists, tuples and dictionaries. Every opcode that would call code is refused by name and offset,
 * so an untrusted file can be read. Strings are not copied: the bytes must outlive the reader. */
#ifndef SIM_MEMORY_PICKLE_READ_H
#define SIM_MEMORY_PICKLE_READ_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    SIM_PICKLE_NONE,
    SIM_PICKLE_BOOL, /* u.i is 0 or 1 */
    SIM_PICKLE_INT,
    SIM_PICKLE_BIG, /* an integer beyond 64 bits; its value is not kept */
    SIM_PICKLE_FLOAT,
    SIM_PICKLE_STR,
    SIM_PICKLE_LIST,
    SIM_PICKLE_TUPLE,
    SIM_PICKLE_DICT,
    SIM_PICKLE_REDUCED, /* what the reducer put in place of a container */
} sim_pickle_kind_t;

typedef struct {
    uint32_t kind;  /* sim_pickle_kind_t */
    uint32_t bytes; /* STR: its length; REDUCED: the reducer's tag */
    union {
        int64_t i;
        double f;
        uint64_t ref; /* STR: offset in the file; containers: internal; REDUCED: the reducer's */
    } u;
} sim_pickle_value_t;

typedef struct sim_pickle sim_pickle_t;

typedef enum { SIM_PICKLE_KEEP, SIM_PICKLE_REDUCE, SIM_PICKLE_FAIL } sim_pickle_verdict_t;

/* Called once for every container that is complete, children first. `items` are its n elements; a
 * dictionary has key, value, key, value, ... A reducer that can say all it needs in a tag and a
 * number sets out->bytes and out->u.ref and returns SIM_PICKLE_REDUCE: the container takes no more
 * memory. SIM_PICKLE_FAIL: it wrote err->text, to which the offset is added. */
typedef sim_pickle_verdict_t (*sim_pickle_reduce_f)(void *arg, const sim_pickle_t *pickle,
                                                    sim_pickle_kind_t kind,
                                                    const sim_pickle_value_t *items, size_t n,
                                                    sim_pickle_value_t *out, base_err_t *err);

enum { SIM_PICKLE_MAX_DEPTH = 64 }; /* a memory snapshot has 6 */

/* Whether the bytes begin like a pickle of any protocol (no text trace begins so). */
bool sim_pickle_detect(const void *data, size_t n);

/* Read the pickle in data[0..n); `reduce` may be NULL. BASE_ERR_PARSE: not an accepted pickle, err
 * names the opcode and the offset. Memory is at most a fixed multiple of n, and cost linear. */
base_status_t sim_pickle_read(const void *data, size_t n, sim_pickle_reduce_f reduce, void *arg,
                              sim_pickle_t **pickle_p, sim_pickle_value_t *root_p, base_err_t *err);
void sim_pickle_destroy(sim_pickle_t *pickle);

/* The elements of a list, tuple or dictionary; NULL and 0 of anything else. */
const sim_pickle_value_t *sim_pickle_items(const sim_pickle_t *pickle, sim_pickle_value_t value,
                                           size_t *n_p);

/* The value of a string key among n items of a dictionary, NULL when it is not there. */
const sim_pickle_value_t *sim_pickle_find(const sim_pickle_t *pickle,
                                          const sim_pickle_value_t *items, size_t n,
                                          const char *key);

/* The bytes of a string (not terminated); NULL of anything else. */
const char *sim_pickle_str(const sim_pickle_t *pickle, sim_pickle_value_t value, size_t *bytes_p);
bool sim_pickle_str_is(const sim_pickle_t *pickle, sim_pickle_value_t value, const char *text);

#endif
