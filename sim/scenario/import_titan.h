/* SPDX-License-Identifier: Apache-2.0
 * torchtitan's command lines: "--SECTION.NAME VALUE". For this folder only. */
#ifndef SIM_SCENARIO_IMPORT_TITAN_H
#define SIM_SCENARIO_IMPORT_TITAN_H

#include "sim/scenario/import.h"

/* The word is an option of torchtitan's, "--training.seq_len" or "--training.seq_len=8192". */
bool sim_import_is_titan_option(const char *word);

/* The words of a command line; origins[i] belongs to words[i]. They become fields. */
void sim_import_add_titan_words(sim_import_t *import, char *const *words, char *const *origins,
                                size_t n);

/* Fill in `keys` from `fields`; sim_import_resolve() calls it. */
void sim_import_resolve_titan(sim_import_t *import);

#endif
