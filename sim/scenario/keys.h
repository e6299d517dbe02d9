/* SPDX-License-Identifier: Apache-2.0
 * The table of keys that a scenario may say. It drives parsing, ranges, defaults, `mbsim keys` and
 * --set; adding a key is one row in scenario_keys.c and one field in sim_scenario_t. */
#ifndef SIM_SCENARIO_KEYS_H
#define SIM_SCENARIO_KEYS_H

#include "sim/base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    SIM_KEY_COUNT,  /* uint64_t */
    SIM_KEY_BYTES,  /* uint64_t, with a unit: "80GiB" */
    SIM_KEY_BOOL,   /* bool */
    SIM_KEY_REAL,   /* double */
    SIM_KEY_CHOICE, /* enum or uint32_t: one of `choices` */
    SIM_KEY_SET,    /* uint32_t: any of `choices`, or-ed; separated by blanks or commas */
    SIM_KEY_TEXT,   /* char *, NULL = not given; owned by the scenario */
} sim_key_type_t;

enum { SIM_CHOICE_NOT_SIMULATED = -1 };

/* A name that a key's value may have. Of several names for one value the first is printed. */
typedef struct {
    const char *name; /* NULL ends the list */
    int value;        /* SIM_CHOICE_NOT_SIMULATED: Megatron-LM knows it, the simulation does not */
} sim_choice_t;

typedef struct {
    const char *section, *name;
    sim_key_type_t type;
    size_t offset;    /* of the field in sim_scenario_t */
    const char *text; /* default value; NULL = not given (TEXT only) */
    uint64_t min, max;
    const char *unit; /* "tokens", ...; NULL = none */
    const char *none; /* COUNT, BYTES: what "none" (stored as 0) means; NULL = not allowed */
    const sim_choice_t *choices; /* CHOICE, SET */
    bool own_section;            /* only found under its own section's name */
    const char *doc;
} sim_key_t;

/* A further spelling of a key. Plain (both texts NULL): the value goes to the key as it is. Else it
 * is a switch: true sets the key to `if_true`, false to `if_false`; NULL leaves the key alone. */
typedef struct {
    const char *name, *key;
    const char *if_true, *if_false;
} sim_key_alias_t;

/* A name that Megatron-LM knows and that moves memory, but that is not simulated. `name` may end in
 * '*'. One of the blank-separated `neutral` values is accepted and does nothing; "*" = any value,
 * for names that do not move memory. The first row that fits counts. `why` stands for "known to
 * Megatron-LM but not simulated", NULL = just that. */
typedef struct {
    const char *name, *neutral, *why;
} sim_key_refused_t;

const sim_key_t *sim_keys(size_t *n_p);
const sim_key_alias_t *sim_key_aliases(size_t *n_p);
const sim_key_refused_t *sim_keys_refused(size_t *n_p);

bool sim_section_is_known(const char *section);

/* Sections in the order in which they are shown, NULL at the end; "sweep" is not among them. */
extern const char *const sim_sections[];

/* Read `value` into the field at `field`, which is untouched on failure. A wrong value appends
 * "ORIGIN: section.key: ..." to `diag`, with what would be right. */
bool sim_key_parse(const sim_key_t *key, const char *value, const char *origin, void *field,
                   base_diag_t *diag);

/* The field's value as a text that sim_key_parse() reads back; NULL when it is not given. The
 * caller frees. */
char *sim_key_format(const sim_key_t *key, const void *field);

/* Bytes of the field. */
size_t sim_key_size(const sim_key_t *key);

/* What the key may be, in words: "1 to 65536", "none, selective or full"; the caller frees. */
char *sim_key_allowed(const sim_key_t *key);

/* true/false, yes/no, on/off, 1/0, in any case. */
bool sim_bool_parse(const char *value, bool *out_p);

#endif
