/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/scenario/titan_stages.h"

#include "sim/base/xmem.h"

#include <string.h>

/* torchtitan 3c84ce095 (2025-07-30): embedding and output layer count as a layer each. Before,
 * generate_split_points() gave what was left over to the stages in the middle. */
enum { ENDS_COUNT_FROM = 20250730 };

static uint64_t layers_of(const sim_scenario_t *s, uint64_t stage, uint64_t n_stages)
{
    bool is_end = stage == 0 || stage == n_stages - 1;
    if (s->software_date != 0 && s->software_date < ENDS_COUNT_FROM) {
        uint64_t extra = s->num_layers % n_stages;
        if (n_stages == 2) /* the last stage has the rest */
            return s->num_layers / 2 + (stage == 1 ? extra : 0);
        uint64_t beyond = extra > n_stages - 2 ? extra - (n_stages - 2) : 0;
        if (stage == n_stages - 1)
            return s->num_layers / n_stages + beyond;
        return s->num_layers / n_stages + (stage > 0 && stage <= extra);
    }
    uint64_t n = s->num_layers + 2;
    return n / n_stages + (stage < n % n_stages) - is_end;
}

char *sim_titan_layout(const sim_scenario_t *s)
{
    uint64_t vpp = s->virtual_pipeline_model_parallel_size;
    uint64_t n_stages = s->pipeline_model_parallel_size * (vpp > 0 ? vpp : 1);
    if (n_stages <= 1 || n_stages > s->num_layers || s->pipeline_model_parallel_layout != NULL)
        return NULL;
    char *layout = base_xcalloc(1, s->num_layers + n_stages + 3), *at = layout;
    *at++ = 'E';
    for (uint64_t i = 0; i < n_stages; i++) {
        uint64_t n = layers_of(s, i, n_stages);
        if (i > 0)
            *at++ = '|';
        memset(at, 't', n);
        at += n;
    }
    *at = 'L';
    return layout;
}
