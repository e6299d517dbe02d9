/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/report/moment.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct {
    char *buf;
    size_t used;
} text_t;

static void __attribute__((format(printf, 2, 3))) append(text_t *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->buf + t->used, SIM_MOMENT_TEXT - t->used, fmt, ap);
    va_end(ap);
    t->used += (size_t)n;
    if (t->used >= SIM_MOMENT_TEXT)
        t->used = SIM_MOMENT_TEXT - 1;
}

bool sim_moment_is_in_pass(const sim_moment_t *moment)
{
    return sim_phase_is_pass((sim_phase_t)moment->phase);
}

const char *sim_moment_words(const sim_moment_t *m, bool has_chunks,
                             char buf[static SIM_MOMENT_TEXT])
{
    text_t t = { .buf = buf };
    if (m->iteration > 0)
        append(&t, "iteration %" PRIu32 ", ", m->iteration);
    append(&t, "%s", sim_phase_name((sim_phase_t)m->phase));
    if (sim_moment_is_in_pass(m))
        append(&t, " of micro-batch %" PRIu32, m->microbatch);
    if (has_chunks && (m->iteration == 0 || sim_moment_is_in_pass(m)))
        append(&t, ", chunk %u", m->chunk);
    if (m->layer != SIM_NO_LAYER)
        append(&t, ", layer %u", m->layer);
    append(&t, ", %s", sim_module_name((sim_module_t)m->module));
    return buf;
}

const char *sim_moment_short(const sim_moment_t *m, bool has_chunks,
                             char buf[static SIM_MOMENT_TEXT])
{
    static const char *const names[SIM_N_PHASES] = {
        [SIM_PHASE_MODEL_BUILD] = "build",
        [SIM_PHASE_DDP_WRAP] = "ddp wrap",
        [SIM_PHASE_OPTIMIZER_BUILD] = "optim build",
        [SIM_PHASE_FORWARD] = "fwd",
        [SIM_PHASE_BACKWARD] = "bwd",
        [SIM_PHASE_WEIGHT_GRAD] = "wgrad",
        [SIM_PHASE_GRAD_SYNC] = "grad sync",
        [SIM_PHASE_OPTIMIZER_STEP] = "step",
        [SIM_PHASE_GRAPH_CAPTURE] = "capture",
        [SIM_PHASE_CHECKPOINT_LOAD] = "load",
        [SIM_PHASE_EVALUATION] = "eval",
        [SIM_PHASE_CHECKPOINT_SAVE] = "save",
    };
    text_t t = { .buf = buf };
    if (m->iteration > 0)
        append(&t, "i%" PRIu32 " ", m->iteration);
    append(&t, "%s", names[m->phase]);
    if (sim_moment_is_in_pass(m))
        append(&t, " m%" PRIu32, m->microbatch);
    if (has_chunks && sim_moment_is_in_pass(m))
        append(&t, " c%u", m->chunk);
    if (m->layer != SIM_NO_LAYER)
        append(&t, " l%u", m->layer);
    append(&t, " %s", sim_module_name((sim_module_t)m->module));
    return buf;
}
