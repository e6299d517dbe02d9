/* SPDX-License-Identifier: Apache-2.0
 * From Megatron-LM arguments to scenario keys. A reader (shell text, printed dump, CI YAML, or a
 * caller with names and values) fills in the arguments; sim_import_resolve() turns them into keys.
 */
#ifndef SIM_SCENARIO_IMPORT_H
#define SIM_SCENARIO_IMPORT_H

#include "sim/base/diag.h"
#include "sim/base/err.h"
#include "sim/scenario/megatron_args.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    sim_arg_t arg;
    char *value;  /* "true" for a flag; list items are joined by one blank */
    char *origin; /* "run.sh:12" */
} sim_import_arg_t;

/* One key of the resulting scenario. */
typedef struct {
    char *section, *key, *value;
    char *origin; /* which argument set it: "--num-layers, run.sh:12", or "Megatron-LM's default" */
} sim_import_key_t;

typedef struct {
    char *name, *value;
} sim_import_env_t;

/* A setting of Megatron-Bridge's configuration. */
typedef struct {
    char *path;   /* "model.tensor_model_parallel_size" */
    char *value;  /* "4"; lists in brackets, "[a, b]" */
    char *origin; /* "run.sh:12" */
} sim_import_field_t;

typedef enum {
    SIM_IMPORT_AUTO,
    SIM_IMPORT_ARGUMENTS,   /* shell text with Megatron-LM arguments */
    SIM_IMPORT_DUMP,        /* the arguments as Megatron-LM prints them */
    SIM_IMPORT_CI_YAML,     /* model_config.yaml of Megatron-LM's functional tests */
    SIM_IMPORT_BRIDGE,      /* shell text with Megatron-Bridge overrides */
    SIM_IMPORT_BRIDGE_YAML, /* Megatron-Bridge's configuration as YAML */
    SIM_IMPORT_HF,          /* config.json of a Hugging Face model */
    SIM_IMPORT_TITAN,       /* shell text with torchtitan's options */
} sim_import_format_t;

typedef struct {
    sim_import_arg_t *args; /* each argument once: the last one given counts */
    size_t n_args;
    sim_import_env_t *env;
    size_t n_env;
    sim_import_format_t format; /* what was read */
    sim_import_field_t *fields; /* each path once: the last one given counts */
    size_t n_fields;
    char *recipe;        /* Megatron-Bridge recipe under the fields, NULL = not said */
    uint64_t world_size; /* 0 = the input does not say */
    char *world_size_origin;
    bool after_checks; /* the values are those after Megatron's argument checks: a printed dump */
    sim_import_key_t *overrides, *keys;
    size_t n_overrides, n_keys;
    base_diag_t errors;            /* wrong values, unknown arguments, missing ones */
    base_diag_t unsupported;       /* arguments that move memory and are not simulated */
    base_diag_t unsupported_names; /* "--fp8-format": the same arguments by name alone */
    base_diag_t warnings;
    base_diag_t ignored; /* arguments that do not move memory, for -v */
} sim_import_t;

void sim_import_init(sim_import_t *import);
void sim_import_fini(sim_import_t *import);

/* One argument by its command-line name (without dashes). `value` NULL or "true" for a flag that is
 * given; "false" and "None" mean not given. An unknown name goes to errors, with the nearest one.
 */
void sim_import_add(sim_import_t *import, const char *name, const char *value, const char *origin);

/* One attribute of a printed dump ("bf16", "True"). Unknown ones go to warnings. */
void sim_import_add_attribute(sim_import_t *import, const char *attribute, const char *value,
                              const char *origin);

/* The words after the training script: "--num-layers", "32", "--bf16", "--lr=1e-4". origins[i]
 * belongs to words[i]. */
void sim_import_add_words(sim_import_t *import, char *const *words, char *const *origins, size_t n);

void sim_import_set_env(sim_import_t *import, const char *name, const char *value);
void sim_import_set_world_size(sim_import_t *import, uint64_t world_size, const char *origin);

/* The value of an environment variable, NULL when not set. */
const char *sim_import_env(const sim_import_t *import, const char *name);

/* Readers of one format each; `text` is NUL-terminated, `name` is for messages. They run nothing.
 * BASE_ERR_PARSE, with the reason, when the text is not of the format. */
base_status_t sim_import_shell(sim_import_t *import, const char *name, const char *text,
                               base_err_t *err);
base_status_t sim_import_dump(sim_import_t *import, const char *name, const char *text,
                              base_err_t *err);
base_status_t sim_import_yaml(sim_import_t *import, const char *name, const char *text,
                              size_t length, base_err_t *err);

base_status_t sim_import_bridge_yaml(sim_import_t *import, const char *name, const char *text,
                                     size_t length, base_err_t *err);
base_status_t sim_import_hf(sim_import_t *import, const char *name, const char *text, size_t length,
                            base_err_t *err);

/* "shell", "dump", "ci-yaml", "bridge", "bridge-yaml", "hf", "torchtitan", "auto"; false when it is
 * none. */
bool sim_import_format_parse(const char *name, sim_import_format_t *format_p);

/* Read text of a format; SIM_IMPORT_AUTO recognises it by its content. Text with a NUL byte is
 * refused. */
base_status_t sim_import_text(sim_import_t *import, sim_import_format_t format, const char *name,
                              const char *text, size_t length, base_err_t *err);

/* Megatron-Bridge: one setting by its path, and whether a word is one ("model.num_layers=32"). */
void sim_import_add_field(sim_import_t *import, const char *path, const char *value,
                          const char *origin);
bool sim_import_is_override(const char *word);

/* The same for the word as a whole. */
void sim_import_add_override(sim_import_t *import, const char *word, const char *origin);

/* Fill in `keys` from `fields`; sim_import_resolve() calls it. */
void sim_import_resolve_bridge(sim_import_t *import);

/* A key that the user decides ("--set"): it wins over what the arguments say. */
void sim_import_override(sim_import_t *import, const char *section, const char *key,
                         const char *value, const char *origin);

/* Add or replace one key of the result. */
void sim_import_put_key(sim_import_t *import, const char *section, const char *key,
                        const char *value, const char *origin);

/* Apply Megatron-LM's defaults and the consequences of its argument checks, and fill in `keys`. */
void sim_import_resolve(sim_import_t *import);

/* The value that sim_import_resolve() gave a key, NULL when it gave none. */
const char *sim_import_key_value(const sim_import_t *import, const char *section, const char *key);

/* The scenario file as text, each key with a comment that says where it comes from; to be freed. */
char *sim_import_write(const sim_import_t *import, const char *title);

#endif
