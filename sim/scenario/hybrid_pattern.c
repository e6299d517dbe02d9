/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/scenario/hybrid_pattern.h"

#include "sim/base/xmem.h"
#include "sim/scenario/scenario.h"
#include "topology/stages.h"

#include <stdlib.h>
#include <string.h>

static base_status_t add_layer(sim_hybrid_t *h, char letter, base_err_t *err)
{
    static const char known[] = "M*-E";
    static const uint8_t kinds[] = { SIM_LAYER_MAMBA, SIM_LAYER_ATTENTION, SIM_LAYER_MLP,
                                     SIM_LAYER_MLP };
    const char *at = strchr(known, letter);
    if (at == NULL) {
        bool is_megatrons = strchr("GD+/", letter) != NULL;
        return base_err_set(err, BASE_ERR_INVAL,
                            "'%c' is %s; use M (Mamba-2), * (attention), - (MLP), E (experts) and "
                            "| (next stage)",
                            letter, is_megatrons ? "not simulated" : "no kind of layer");
    }
    h->kinds[h->n_layers] = kinds[at - known];
    h->is_moe[h->n_layers++] = letter == 'E';
    return BASE_OK;
}

base_status_t sim_hybrid_parse(sim_hybrid_t *hybrid_p, const char *pattern, base_err_t *err)
{
    size_t n = strlen(pattern);
    *hybrid_p = (sim_hybrid_t){ .n_stages = 1 };
    if (n == 0 || n > TOPO_MAX_LAYERS)
        return base_err_set(err, BASE_ERR_INVAL, "must have 1 to %d letters", TOPO_MAX_LAYERS);
    sim_hybrid_t h = { .n_stages = 1 };
    h.kinds = base_xcalloc(n, sizeof(*h.kinds));
    h.is_moe = base_xcalloc(n, sizeof(*h.is_moe));
    h.layout = base_xcalloc(n + 3, 1); /* an E before, an L after */
    size_t out = 0;
    base_status_t status = BASE_OK;
    h.layout[out++] = 'E';
    for (size_t i = 0; i < n && status == BASE_OK; i++) {
        bool is_border = pattern[i] == '|';
        h.n_stages += is_border;
        h.layout[out++] = is_border ? '|' : 't';
        if (!is_border)
            status = add_layer(&h, pattern[i], err);
    }
    h.layout[out] = 'L';
    if (status == BASE_OK && h.n_layers == 0)
        status = base_err_set(err, BASE_ERR_INVAL, "names no layer");
    if (status == BASE_OK)
        *hybrid_p = h;
    else
        sim_hybrid_fini(&h);
    return status;
}

void sim_hybrid_fini(sim_hybrid_t *hybrid)
{
    free(hybrid->kinds);
    free(hybrid->is_moe);
    free(hybrid->layout);
    *hybrid = (sim_hybrid_t){ 0 };
}
