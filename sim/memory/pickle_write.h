/* SPDX-License-Identifier: Apache-2.0
 * Writes plain data as a protocol-2 pickle, value by value, to a stream. The caller opens and
 * closes containers in the right order; texts are remembered, so that a repeated one costs 2 to 5
 * bytes. */
#ifndef SIM_MEMORY_PICKLE_WRITE_H
#define SIM_MEMORY_PICKLE_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct sim_pickle_writer sim_pickle_writer_t;

/* Texts and containers that are remembered; after that they are written in full each time. */
enum { SIM_PICKLE_MAX_KNOWN = 1 << 17 };

/* Begin a pickle on `out` (borrowed; write errors stay in ferror(out)). */
sim_pickle_writer_t *sim_pickle_writer_create(FILE *out);

/* STOP, and free the writer; the stream stays open. */
void sim_pickle_writer_finish(sim_pickle_writer_t *writer);
void sim_pickle_writer_destroy(sim_pickle_writer_t *writer);

void sim_pickle_put_int(sim_pickle_writer_t *writer, int64_t value);
void sim_pickle_put_float(sim_pickle_writer_t *writer, double value);
void sim_pickle_put_bool(sim_pickle_writer_t *writer, bool value);
void sim_pickle_put_str(sim_pickle_writer_t *writer, const char *text);
void sim_pickle_put_pair(sim_pickle_writer_t *writer, int64_t first, int64_t second); /* tuple */

/* A list: elements follow, then the end. Elements go out in batches of at most 1000, as Python's
 * pickler does: the viewer passes a batch as the arguments of one call. Call _element() before
 * each element. Lists nest up to 8 deep. */
void sim_pickle_begin_list(sim_pickle_writer_t *writer);
void sim_pickle_element(sim_pickle_writer_t *writer);
void sim_pickle_end_list(sim_pickle_writer_t *writer);

/* A dictionary of at most 1000 keys: key, value, key, value, ..., then the end. Never empty. */
void sim_pickle_begin_dict(sim_pickle_writer_t *writer);
void sim_pickle_end_dict(sim_pickle_writer_t *writer);

/* A container can be written once and then only referred to: `key` names it among all such.
 * recall() writes the reference and returns true if it is known; else the caller writes the
 * container and calls remember() right after its end. Keys of containers begin with a NUL byte, so
 * that they never equal a text. */
bool sim_pickle_recall(sim_pickle_writer_t *writer, const void *key, size_t n_key);
void sim_pickle_remember(sim_pickle_writer_t *writer, const void *key, size_t n_key);

uint32_t sim_pickle_n_known(const sim_pickle_writer_t *writer);

/* The reference number of a known key; false when it is not known. Costs no output. */
bool sim_pickle_known(const sim_pickle_writer_t *writer, const void *key, size_t n_key,
                      uint32_t *idx_p);
void sim_pickle_put_known(sim_pickle_writer_t *writer, uint32_t idx);

#endif
