/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/scenario/hybrid_pattern.h"

#include "sim/base/xmem.h"
#include "sim/scenario/scenario.h"
#include "topology/stages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Adds a layer behind the `n` that there are. */
static base_status_t add_layer(sim_hybrid_t *h, uint32_t n, char letter, base_err_t *err)
{
    static const char known[] = "M*-EG";
    static const uint8_t kinds[] = { SIM_LAYER_MAMBA, SIM_LAYER_ATTENTION, SIM_LAYER_MLP,
                                     SIM_LAYER_MLP, SIM_LAYER_DELTA_NET };
    const char *at = strchr(known, letter);
    if (at == NULL) {
        bool is_megatrons = strchr("D+", letter) != NULL;
        return base_err_set(err, BASE_ERR_INVAL,
                            "'%c' is %s; use M (Mamba-2), G (gated delta net), * (attention), "
                            "- (MLP), E (experts), "
                            "| (next stage) and / (next depth of multi-token prediction)",
                            letter, is_megatrons ? "not simulated" : "no kind of layer here");
    }
    h->kinds[n] = kinds[at - known];
    h->is_moe[n] = letter == 'E';
    return BASE_OK;
}

/* The decoder's part, `n` letters. */
static base_status_t add_decoder(sim_hybrid_t *h, const char *pattern, size_t n, base_err_t *err)
{
    size_t out = 0;
    h->layout[out++] = 'E';
    for (size_t i = 0; i < n; i++) {
        bool is_border = pattern[i] == '|';
        h->n_stages += is_border;
        h->layout[out++] = is_border ? '|' : 't';
        if (is_border)
            continue;
        base_status_t status = add_layer(h, h->n_layers, pattern[i], err);
        if (status != BASE_OK)
            return status;
        h->n_layers++;
    }
    if (h->n_layers == 0)
        return base_err_set(err, BASE_ERR_INVAL, "names no layer of the decoder");
    return BASE_OK;
}

/* What is behind the decoder's part: "/ME/ME" has two depths of two layers each. */
static base_status_t add_depths(sim_hybrid_t *h, const char *depths, base_err_t *err)
{
    if (*depths == '\0')
        return BASE_OK;
    h->n_depth_layers = (uint32_t)strcspn(depths + 1, "/");
    uint32_t n = h->n_layers;
    for (const char *at = depths; *at != '\0'; at += 1 + h->n_depth_layers) {
        h->n_depths++;
        if (h->n_depth_layers == 0 || strcspn(at + 1, "/") != h->n_depth_layers ||
            strncmp(at + 1, depths + 1, h->n_depth_layers) != 0)
            return base_err_set(
                err, BASE_ERR_INVAL, "depth %" PRIu32 " of multi-token prediction %s", h->n_depths,
                h->n_depth_layers == 0 ? "names no layer" : "differs from the first one");
        for (uint32_t i = 0; i < h->n_depth_layers; i++) {
            base_status_t status = add_layer(h, n++, at[1 + i], err);
            if (status != BASE_OK)
                return status;
        }
    }
    return BASE_OK;
}

base_status_t sim_hybrid_parse(sim_hybrid_t *hybrid_p, const char *pattern, base_err_t *err)
{
    size_t n = strlen(pattern), n_main = strcspn(pattern, "/");
    *hybrid_p = (sim_hybrid_t){ .n_stages = 1, .n_depth_layers = 1 };
    if (n == 0 || n > TOPO_MAX_LAYERS)
        return base_err_set(err, BASE_ERR_INVAL, "must have 1 to %d letters", TOPO_MAX_LAYERS);
    sim_hybrid_t h = *hybrid_p;
    h.kinds = base_xcalloc(n, sizeof(*h.kinds));
    h.is_moe = base_xcalloc(n, sizeof(*h.is_moe));
    h.layout = base_xcalloc(n + 3, 1); /* an E before, an L after */
    base_status_t status = add_decoder(&h, pattern, n_main, err);
    if (status == BASE_OK)
        status = add_depths(&h, pattern + n_main, err);
    if (status == BASE_OK) {
        char *end = h.layout + strlen(h.layout);
        memset(end, 'm', h.n_depths);
        end[h.n_depths] = 'L';
        *hybrid_p = h;
    } else {
        sim_hybrid_fini(&h);
    }
    return status;
}

void sim_hybrid_fini(sim_hybrid_t *hybrid)
{
    free(hybrid->kinds);
    free(hybrid->is_moe);
    free(hybrid->layout);
    *hybrid = (sim_hybrid_t){ 0 };
}
