/* SPDX-License-Identifier: Apache-2.0
 * Megatron-Bridge's settings: which move GPU memory, and what its named mixed precisions set. */
#ifndef SIM_SCENARIO_BRIDGE_FIELDS_H
#define SIM_SCENARIO_BRIDGE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    SIM_BRIDGE_KEY,        /* a scenario key has this name */
    SIM_BRIDGE_REFUSED,    /* moves memory and is not simulated */
    SIM_BRIDGE_NO_EFFECT,  /* does not move memory */
    SIM_BRIDGE_READ_APART, /* looked up by the importer itself */
    SIM_BRIDGE_UNKNOWN,
} sim_bridge_class_t;

/* The first `length` characters of `word` are a group of the configuration, such as "model". */
bool sim_bridge_has_group(const char *word, size_t length);

/* What to do with the setting at `path` ("ddp.bucket_size"). *section_p: the section in which a key
 * of that name is looked for, NULL = any. */
sim_bridge_class_t sim_bridge_judge(const char *path, const char *value, const char **section_p);

typedef struct {
    const char *name;
    const char *settings[12][2]; /* key and value, section [precision] */
    const char *not_simulated;   /* NULL = all of it is */
} sim_bridge_precision_t;

/* By name ("bf16_mixed"; '-' for '_' is fine), NULL when there is none. */
const sim_bridge_precision_t *sim_bridge_precision(const char *name);

#endif
