/* SPDX-License-Identifier: Apache-2.0
 * Megatron-LM's command-line arguments: every one that megatron/training/arguments.py knew between
 * 2022 and mcore 0.20 (2026-08), how many words it takes, and whether it moves GPU memory. */
#ifndef SIM_SCENARIO_MEGATRON_ARGS_H
#define SIM_SCENARIO_MEGATRON_ARGS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    SIM_ARITY_FLAG,  /* --bf16 */
    SIM_ARITY_VALUE, /* --num-layers 32 */
    SIM_ARITY_LIST,  /* --recompute-modules core_attn mlp: any number of words up to the next -- */
} sim_arity_t;

typedef enum {
    SIM_ARG_KEY,         /* moves memory; becomes a scenario key, alone or with others */
    SIM_ARG_UNSUPPORTED, /* moves memory; not simulated */
    SIM_ARG_DETAIL,      /* moves memory only together with `parent` */
    SIM_ARG_NO_EFFECT,   /* does not move the memory of a training step */
} sim_arg_class_t;

enum { SIM_ARG_NAME = 80 };

typedef struct {
    char name[SIM_ARG_NAME]; /* without dashes, words joined by '-' */
    sim_arity_t arity;
    sim_arg_class_t class_;
    bool negated;         /* a flag that switches its attribute off (--no-rope-fusion) */
    const char *key;      /* KEY: "section.key" that takes the value as it stands; else NULL */
    const char *harmless; /* UNSUPPORTED: the value that means "off", or NULL */
    const char *parent;   /* DETAIL: the argument without which this one says nothing */
} sim_arg_t;

/* Look up a command-line name without its leading dashes; '_' and '-' are the same. False when the
 * argument is not known. */
bool sim_megatron_arg_find(const char *name, sim_arg_t *arg_p);

/* Look up an attribute of the parsed arguments, as the printed dump names it
 * ("gradient_accumulation_fusion" finds --no-gradient-accumulation-fusion). */
bool sim_megatron_arg_find_attribute(const char *attribute, sim_arg_t *arg_p);

/* True for attributes that only the dump has: results of Megatron's argument checks, and what other
 * attributes already say. */
bool sim_megatron_attribute_is_derived(const char *attribute);

/* Call `visit` for every argument, in table order. */
void sim_megatron_arg_foreach(void (*visit)(const sim_arg_t *arg, void *ctx), void *ctx);

/* The i-th argument that becomes a key; false past the last. */
bool sim_megatron_arg_key_at(size_t i, sim_arg_t *arg_p);

#endif
